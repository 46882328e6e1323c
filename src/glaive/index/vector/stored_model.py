"""Read the model of a segment, so that more rows can be encoded with it.

Specification: "Merging" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import one_array
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.pb import index_pb2, vector_details_pb2
from glaive.format.wire import parse
from glaive.index.segment import IndexFile, Segment, batches
from glaive.index.vector.coder import Coder
from glaive.index.vector.graph import GRAPHS
from glaive.index.vector.index_writer import CODES, INDEX, KIND
from glaive.index.vector.layouts import row_major, unpacked
from glaive.index.vector.metric import metric_named
from glaive.index.vector.model import VectorModel, clusters_of
from glaive.index.vector.parameters import KINDS, GraphParameters, VectorParameters
from glaive.index.vector.partitions import read_model
from glaive.index.vector.plain_coder import PlainCoder
from glaive.index.vector.product_coder import ProductCoder
from glaive.index.vector.rabit_coder import RabitCoder
from glaive.index.vector.rotation import read_rotation
from glaive.index.vector.scalar_coder import ScalarCoder
from glaive.index.vector.storage import (
    ADDRESSES,
    PLAIN,
    PRODUCT,
    SCALAR,
    SIGNS,
    Storage,
    bytes_of,
    with_bytes,
)
from glaive.index.vector.tensors import read_tensor
from glaive.index.vector.vector_column import VectorColumn
from glaive.index.vector.vectors import read_bounds, read_codebook
from glaive.kernels.distances import Metric
from glaive.types import UInt8s

__all__ = ["StoredIndex"]

_BATCH_ROWS: Final = 1 << 16
_NUMBERS: Final[Mapping[int, Any]] = {
    index_pb2.Tensor.FLOAT16: pa.float16(),
    index_pb2.Tensor.FLOAT32: pa.float32(),
    index_pb2.Tensor.FLOAT64: pa.float64(),
    index_pb2.Tensor.UINT8: pa.uint8(),
}
_MAX_DIMENSION: Final = 1 << 20
_MOST_SAMPLED: Final = 1 << 16
_MOST_ITERATIONS: Final = 1_000
"""Training ends long before, but over vectors whose distances no float32 holds."""


class StoredIndex:
    """A segment whose model and records are read.

    Raises
    ------
    CorruptFileError, DataFileMissingError, NotLanceError
        A file is damaged or absent.
    UnsupportedFeatureError
        It is of a layout that is not written any more.
    """

    def __init__(self, segment: Segment) -> None:
        if not segment.has(CODES):
            raise UnsupportedFeatureError(
                f"{segment.where}: indices of the old format are not merged. Build it again"
            )
        self.segment = segment
        self._index = segment.open(INDEX)
        self.storage = Storage(segment.open(CODES))
        self.kind = self._kind()
        self._centroids = self._read_centroids()
        self.column = VectorColumn(
            "", self._centroids.shape[1], _NUMBERS[self._tensor.data_type],
            self._metric(), several=False,
        )  # fmt: skip
        if self.column.metric == "hamming" and self._centroids.dtype != np.uint8:
            expected = f"one of vectors of {self._centroids.dtype}"
            raise self.storage.file.corrupt("metric of an index", expected, "hamming, of bytes")
        if len(self._centroids) != len(self.storage.partitions):
            found = f"{len(self._centroids)} centroids"
            expected = f"{len(self.storage.partitions)}, one for each partition"
            raise self._index.corrupt("centroids of an index", expected, found)

    def _metric(self) -> Metric:
        try:
            return metric_named(self.storage.metric)
        except OptionError as error:
            raise self.storage.file.corrupt("metric of an index", "a metric", str(error)) from error

    def _kind(self) -> str:
        try:
            said = json.loads(self._index.metadata.get(KIND, ""))
            kind = said["type"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._index.corrupt(f"metadata {KIND!r}", "a kind", repr(error)) from error
        if kind not in KINDS:
            raise UnsupportedFeatureError(f"{self._index.path}: indices of kind {kind!r}")
        return str(kind)

    def _read_centroids(self) -> NDArray[Any]:
        model = read_model(self._index)
        self._tensor = tensor = model.centroids_tensor
        self.loss = model.loss if model.HasField("loss") else None
        centroids = read_tensor(tensor, "centroids of an index", self._index)
        known = tensor.data_type in _NUMBERS
        if not known or centroids.ndim != 2 or not 0 < centroids.shape[1] <= _MAX_DIMENSION:
            found = f"numbers of type {tensor.data_type} in shape {list(tensor.shape)}"[:80]
            raise self._index.corrupt("centroids of an index", "vectors", found)
        return centroids

    @property
    def signature(self) -> tuple[object, ...]:
        """What segments share that can be merged: they have the same model."""
        details = {
            key: value
            for key, value in self.storage.details.items()
            if key not in (*_BUFFERS, "transposed", "packed", "bounds")
        }
        buffers = [
            self.storage.file.buffer(self.storage.details[key]).to_pybytes()
            for key in _BUFFERS
            if isinstance(self.storage.details.get(key), int)
        ]
        said = json.dumps(details, sort_keys=True)
        return (self.kind, self.storage.metric, self._tensor.data, said, *buffers)

    def parameters(self) -> VectorParameters:
        """Those that describe an index like this one."""
        details = parse(
            vector_details_pb2.VectorIndexDetails(),
            self.segment.entry.index_details.value,
            "details of an index",
            self.segment.where,
        )
        hints = details.runtime_hints
        return VectorParameters(
            kind=self.kind,
            column=self.column,
            target_partition_size=details.target_partition_size or None,
            num_sub_vectors=self._number("num_sub_vectors"),
            num_bits=self._bits(),
            sample_rate=_hint(hints.get("lance.ivf.sample_rate"), 256, _MOST_SAMPLED),
            max_iters=_hint(hints.get("lance.ivf.max_iters"), 50, _MOST_ITERATIONS),
            rotation=str(self.storage.details.get("rotation_type") or "fast"),
            transposed=self._is_arranged(),
            graph=self._graph(),
        )

    def options(self) -> dict[str, Any]:
        """Those to build an index like this one again, by the names of ``create_index``."""
        known = self.parameters()
        options: dict[str, Any] = {
            "index_type": known.kind,
            "metric": self.storage.metric,
            "target_partition_size": known.target_partition_size,
            "num_sub_vectors": known.num_sub_vectors or None,
            "num_bits": known.num_bits or None,
            "sample_rate": known.sample_rate,
            "max_iters": known.max_iters,
            "rotation_type": known.rotation,
            "skip_transpose": not known.transposed,
        }
        if known.graph is not None:
            options["max_level"] = known.graph.max_level
            options["m"] = known.graph.neighbors
            options["ef_construction"] = known.graph.candidates
        return options

    def _is_arranged(self) -> bool:
        details = self.storage.details
        return bool(details.get("transposed", details.get("packed", True)))

    def _number(self, key: str) -> int:
        number = self.storage.details.get(key, 0)
        if isinstance(number, int) and 0 <= number <= _MAX_DIMENSION:
            return number
        file = self.storage.file
        raise file.corrupt(f"{key!r} of the codes of an index", "a number", f"{number!r}"[:80])

    def _bits(self) -> int:
        return self._number("nbits") or self._number("num_bits")

    def _graph(self) -> GraphParameters | None:
        if GRAPHS not in self._index.metadata:
            return None
        said = self._params()
        return GraphParameters(
            max_level=said.get("max_level", 7),
            neighbors=said.get("m", 20),
            candidates=said.get("ef_construction", 150),
        )

    def _params(self) -> dict[str, int]:
        """Parameters in the header of the first graph there is."""
        try:
            headers = json.loads(self._index.metadata[GRAPHS])
            said: Any = next((json.loads(header)["params"] for header in headers if header), {})
            known = {key: int(said[key]) for key in _GRAPH_LIMITS if key in said}
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise self._index.corrupt(f"metadata {GRAPHS!r}", "graphs", repr(error)) from error
        for key, value in known.items():
            least, most = _GRAPH_LIMITS[key]
            if not least <= value <= most:
                raise self._index.corrupt(f"{key} of graphs", f"{least} to {most}", f"{value}")
        return known

    def statistics(self) -> dict[str, Any]:
        """Figures, by pylance's names."""
        sizes = np.diff(self.storage.partitions.bounds).tolist()
        metric, made = self.storage.metric, self._first_graph()
        index_type = "HNSW" if made else self.kind.rpartition("_")[2]
        # Product codes encode normalized vectors.
        compared = "l2" if metric == "cosine" and self.kind.endswith("PQ") else metric
        made |= {key: it for key, it in self.storage.details.items() if key not in _OF_CODEBOOKS}
        return {
            "index_type": self.kind,
            "uri": self._index.path,
            "metric_type": metric,
            "num_partitions": len(sizes),
            "sub_index": {**made, "index_type": index_type, "metric_type": compared},
            "partitions": [{"size": size} for size in sizes],
            "centroids": self._centroids.tolist(),
            "loss": self.loss,
            "index_file_version": "V3",
        }

    def _first_graph(self) -> dict[str, Any]:
        """The header of the first graph there is."""
        if GRAPHS not in self._index.metadata or not self._params():
            return {}
        headers = json.loads(self._index.metadata[GRAPHS])
        found: dict[str, Any] = next(json.loads(header) for header in headers if header)
        return found

    def model(self) -> VectorModel:
        """The model."""
        return VectorModel(self.column, self._centroids, self._coder(), self.loss)

    def _coder(self) -> Coder:
        match self.storage.column:
            case name if name == PLAIN:
                return PlainCoder(self.column)
            case name if name == SCALAR:
                start, step = read_bounds(self.storage)
                end = float(self.storage.details["bounds"]["end"]) if step else start
                dot = self.column.metric == "dot"
                return ScalarCoder(self.column.dimension, start, end, dot=dot)
            case name if name == PRODUCT:
                with np.errstate(over="ignore"):  # of damaged ones
                    codebook = read_codebook(self.storage).astype(self.column.dtype)
                return ProductCoder(
                    codebook,
                    self._bits(),
                    residual=self.column.metric != "dot",
                    by_column=bool(self.storage.details.get("transposed")),
                )
            case _:
                return self._rabit_coder()

    def _rabit_coder(self) -> RabitCoder:
        details, file, dimension = self.storage.details, self.storage.file, self.column.dimension
        if details.get("query_estimator") != "raw_query" or not 1 <= self._bits() <= 9:
            raise UnsupportedFeatureError(
                f"{file.path}: RaBitQ codes of this version are not merged. Build the index again"
            )
        if dimension % 8:
            raise file.corrupt("rotation of an index", "a dimension divisible by 8", f"{dimension}")
        rotation = read_rotation(self.storage, dimension)
        clusters = clusters_of(self._centroids, self.column)
        dot = self.column.metric == "dot"
        in_blocks = bool(details.get("packed"))
        return RabitCoder(clusters, rotation, self._bits(), dot=dot, in_blocks=in_blocks)

    def records(self, dtype: np.dtype[Any]) -> Iterator[tuple[NDArray[np.int32], NDArray[Any]]]:
        """All rows with their partitions, codes row by row; complete partitions at a time."""
        names = dtype.names or ()
        schema = self.storage.schema
        if set(names) != set(schema.names):
            raise UnsupportedFeatureError(
                f"{self.storage.file.path}: codes with columns {', '.join(schema.names)} are not"
                " merged. Build the index again"
            )
        partitions = self.storage.partitions
        for first, last in batches(partitions.bounds, _BATCH_ROWS):
            rows = slice(int(partitions.bounds[first]), int(partitions.bounds[last]))
            table = self.storage.read(rows.start, rows.stop)
            records = np.empty(len(table), dtype)
            parts = [partitions.rows(at) for at in range(first, last)]
            for name in names:
                records[name] = self._by_row(table, name, dtype, rows.start, parts)
            sizes = np.diff(partitions.bounds[first : last + 1])
            yield np.repeat(np.arange(first, last, dtype=np.int32), sizes), records

    def partition(self, number: int, *, codes: bool) -> pa.Table:
        """The numbers of the rows of a partition, and their codes, row by row."""
        rows, storage = self.storage.partitions.rows(number), self.storage
        if not codes:
            return storage.file.read([ADDRESSES], rows.start, rows.stop)
        table = storage.read(rows.start, rows.stop)
        change = self._to_rows(storage.column)
        if change is None or not len(table):
            return table
        return with_bytes(table, storage.column, change(bytes_of(table[storage.column])))

    def _to_rows(self, name: str) -> Callable[[UInt8s], UInt8s] | None:
        """What makes rows of the codes of a partition; None: they are."""
        if name == PRODUCT and self.storage.details.get("transposed"):
            return row_major
        if name == SIGNS and self.storage.details.get("packed"):
            return unpacked
        return None

    def _by_row(
        self, table: pa.Table, name: str, dtype: np.dtype[Any], start: int, parts: list[slice]
    ) -> NDArray[Any]:
        shape = dtype[name].shape
        array: Any = one_array(table[name])
        file: IndexFile = self.storage.file
        item = pa.from_numpy_dtype(dtype[name].base)
        if not shape:
            file.check(**{name: item})
            return np.asarray(array.to_numpy(zero_copy_only=False))
        kind: Any = array.type
        if getattr(kind, "list_size", None) != shape[0] or kind.value_type != item:
            raise file.corrupt_column(name, f"lists of {shape[0]} {item}", f"{kind}")
        codes = array.flatten().to_numpy(zero_copy_only=False).reshape(-1, *shape)
        change = self._to_rows(name)
        if change is None or not len(codes):
            return np.asarray(codes)
        cut = [codes[part.start - start : part.stop - start] for part in parts]
        return np.concatenate([change(part) for part in cut if len(part)])


_OF_CODEBOOKS: Final = ("codebook_position", "codebook_tensor")
_BUFFERS: Final = ("codebook_position", "rotate_mat_position")
_GRAPH_LIMITS: Final = {"max_level": (1, 64), "m": (2, 1024), "ef_construction": (1, 65_536)}


def _hint(text: str | None, default: int, most: int) -> int:
    """A number among the hints, which readers may ignore, and do if nobody would choose it."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 9):
        return default
    return int(text) if 1 <= int(text) <= most else default
