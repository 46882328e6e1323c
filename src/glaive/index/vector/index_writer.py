"""Write the files of a vector index: codes by partition, and the model.

Specification: "Files" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import number_array
from glaive.arrow.chunked import as_numpy, empty_table, one_array
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.pb import index_pb2, vector_details_pb2
from glaive.format.wire import parse
from glaive.index.protocol import BuiltSegment, IndexSource, RebuiltSegment
from glaive.index.row_sets import AddressMap, RowNumbers
from glaive.index.segment import IndexFile, IndexFileWriter, Segment, SegmentWriter, batches
from glaive.index.vector import CODES, INDEX
from glaive.index.vector.coder import (
    Coder,
    PlainCoder,
    ProductCoder,
    RabitCoder,
    ScalarCoder,
    fixed_size_lists,
)
from glaive.index.vector.codes import Codes
from glaive.index.vector.graph import (
    GRAPHS,
    NODE_COLUMNS,
    NODE_SCHEMA,
    Graphs,
    GraphWriter,
    PartitionSort,
    SortedPartitions,
    rows_of,
    without_nodes,
)
from glaive.index.vector.opened import open_codes, remap_legacy
from glaive.index.vector.parameters import (
    KINDS,
    TYPE_URL,
    GraphParameters,
    VectorModel,
    VectorParameters,
    clusters_of,
    details_of,
    train_model,
    version_of,
)
from glaive.index.vector.storage import (
    ADDRESSES,
    DETAILS,
    MODEL,
    PLAIN,
    PRODUCT,
    SCALAR,
    SIGNS,
    ColumnVectors,
    Partitions,
    Storage,
    VectorColumn,
    bytes_of,
    metric_named,
    read_bounds,
    read_codebook,
    read_model,
    read_rotation,
    read_tensor,
    row_major,
    single_precision,
    unpacked,
    with_bytes,
)
from glaive.io.pool import ordered_map
from glaive.kernels.distances import Metric
from glaive.types import Flags, Int64s, UInt8s, UInt64s

FLAT: Final = "lance:flat"
"""Metadata key of the list of partitions that lack graphs."""

KIND: Final = "lance:index"
_METRIC: Final = "distance_type"
_MARKER: Final = "__flat_marker"
_RECORDS_SHARE: Final = 2


def build_index(
    source: IndexSource, parameters: VectorParameters, out: SegmentWriter
) -> BuiltSegment:
    """Train and write an index; write no file if the source has no vector.

    Cost: reads a sample of the column, then the column once.
    """
    model = train_model(source, parameters) if parameters.train and source.num_rows else None
    if model is not None:
        dtype, limit = model.dtype, source.memory_limit // _RECORDS_SHARE
        with PartitionSort(len(model), dtype, limit) as records:
            add_source(records, source, model, parameters.partitions)
            write_index(records, model, parameters, out)
    return BuiltSegment(TYPE_URL, details_of(parameters), version_of(parameters))


def add_source(
    records: PartitionSort, source: IndexSource, model: VectorModel, partitions: pa.Table | None
) -> None:
    """Encode the vectors of a source, and add their records."""
    for ids, encoded in encoded_blocks(source, model, partitions):
        records.add(ids, encoded)


def encoded_blocks(
    source: IndexSource, model: VectorModel, partitions: pa.Table | None
) -> Iterator[tuple[NDArray[np.int32], NDArray[Any]]]:
    """Encode the vectors of a source on all cores; yield partitions and records in order.

    Parameters
    ----------
    partitions
        Table with ``row_id`` and ``partition`` of each row, if known.

    Raises
    ------
    OptionError
        A row is missing in the table, or a partition is too large.
    """
    known = None if partitions is None else _KnownPartitions(partitions, len(model))

    def encode(block: ColumnVectors) -> tuple[NDArray[np.int32], NDArray[Any]]:
        return model.encode(block, None if known is None else known.of(block.rows))

    yield from ordered_map(encode, model.column.blocks(source))


_KNOWN: Final = pa.schema({"row_id": pa.uint64(), "partition": pa.int64()})


class _KnownPartitions:
    """Partitions that were computed elsewhere, by row.

    Raises
    ------
    OptionError
        A partition is out of range, or the cast of a column to integers fails.
    """

    def __init__(self, table: pa.Table, count: int) -> None:
        try:
            known = table.select(_KNOWN.names).drop_null().cast(_KNOWN)
        except pa.ArrowException as error:
            raise OptionError(f"precomputed_partitions: expected integers ({error})") from error
        rows, partitions = (as_numpy(column) for column in known.columns)
        if len(rows) and (partitions.min() < 0 or partitions.max() >= count):
            raise OptionError(f"precomputed_partitions: expected partitions below {count}")
        order = np.argsort(rows)
        self._rows, self._partitions = rows[order], partitions[order].astype(np.int32)

    def of(self, rows: RowNumbers) -> NDArray[np.int32]:
        """Return the partition of each row."""
        at = np.minimum(np.searchsorted(self._rows, rows), max(0, len(self._rows) - 1))
        if len(rows) and (not len(self._rows) or (self._rows[at] != rows).any()):
            raise OptionError("precomputed_partitions: a row of the column is not in the table")
        return self._partitions[at]


def write_index(
    records: PartitionSort, model: VectorModel, parameters: VectorParameters, out: SegmentWriter
) -> None:
    """Write both files from collected records."""
    metric = parameters.column.metric
    schema = pa.schema([pa.field(ADDRESSES, pa.uint64()), *model.coder.fields])
    codes = out.create(CODES, schema)
    ivf = _extents(records.sizes)
    codes.add_metadata({_METRIC: metric, MODEL: str(codes.add_buffer(ivf.SerializeToString()))})
    model.coder.add_to(codes)
    kind = json.dumps({"type": parameters.kind, _METRIC: metric}, separators=(",", ":"))
    graphs = None
    if parameters.graph is not None:
        graphs = GraphWriter(out.create(INDEX, NODE_SCHEMA), parameters.graph)
    for group in records.groups():
        codes.write(_stored(group, model, schema))
        if graphs is not None:
            graphs.add(group, model.coder)
    codes.finish()
    message = model.message()
    if graphs is not None:
        graphs.finish(message, {KIND: kind})
        return
    message.MergeFrom(_extents(np.zeros(len(model), np.int64)))
    marker = pa.schema([pa.field(_MARKER, pa.uint64(), nullable=False)])
    texts = json.dumps([""] * len(model), separators=(",", ":"))
    out.write(
        INDEX,
        empty_table(marker),
        metadata={KIND: kind, FLAT: texts},
        buffers={MODEL: message.SerializeToString()},
    )


def _extents(sizes: Int64s) -> index_pb2.IVF:
    """Return offsets and lengths of partitions."""
    offsets = np.cumsum(sizes) - sizes
    return index_pb2.IVF(offsets=offsets.tolist(), lengths=sizes.tolist())


def _stored(group: SortedPartitions, model: VectorModel, schema: pa.Schema) -> pa.Table:
    """Convert records of complete partitions to the stored columns."""
    columns: list[Any] = [number_array(group.records[ADDRESSES])]
    bounds = group.bounds.tolist()
    for field in model.coder.fields:
        codes = group.records[field.name]
        if model.coder.is_arranged(field.name):
            parts = [
                model.coder.arranged(field.name, codes[start:stop])
                for start, stop in pairwise(bounds)
            ]
            codes = np.concatenate(parts)
        is_list = pa.types.is_fixed_size_list(field.type)
        columns.append(fixed_size_lists(codes, field.type) if is_list else number_array(codes))
    return pa.Table.from_arrays(columns, schema=schema)


# --- Read the model of a segment to encode more rows with it ----------------------------
# Specification: "Merging" in ``docs/format/vector-indices.md``.

_BATCH_ROWS: Final = 1 << 16
_NUMBERS: Final[Mapping[int, Any]] = {
    index_pb2.Tensor.FLOAT16: pa.float16(),
    index_pb2.Tensor.FLOAT32: pa.float32(),
    index_pb2.Tensor.FLOAT64: pa.float64(),
    index_pb2.Tensor.UINT8: pa.uint8(),
}
_MAX_DIMENSION: Final = 1 << 20
_MAX_SAMPLE_RATE: Final = 1 << 16
_MAX_ITERATIONS: Final = 1_000
"""Ample: training converges earlier, except for vectors whose distances exceed ``float32``."""


class StoredIndex:
    """Model and records of a segment.

    Raises
    ------
    CorruptFileError, DataFileMissingError, NotLanceError
        A file is damaged or missing.
    UnsupportedFeatureError
        glaive stopped writing this layout.
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
            kind = json.loads(self._index.metadata.get(KIND, ""))["type"]
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
        """Properties that segments must share to be merged: kind, metric, centroids and codes."""
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
        shared = json.dumps(details, sort_keys=True)
        return (self.kind, self.storage.metric, self._tensor.data, shared, *buffers)

    def parameters(self) -> VectorParameters:
        """Return the parameters of this index."""
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
            sample_rate=_hint(hints.get("lance.ivf.sample_rate"), 256, _MAX_SAMPLE_RATE),
            max_iters=_hint(hints.get("lance.ivf.max_iters"), 50, _MAX_ITERATIONS),
            rotation=str(self.storage.details.get("rotation_type") or "fast"),
            transposed=self._is_arranged(),
            graph=self._graph(),
        )

    def options(self) -> dict[str, Any]:
        """Return the options of ``create_index`` that build such an index again."""
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
        params = self._params()
        return GraphParameters(
            max_level=params.get("max_level", 7),
            neighbors=params.get("m", 20),
            candidates=params.get("ef_construction", 150),
        )

    def _params(self) -> dict[str, int]:
        """Return the parameters in the header of the first graph, if any partition has one."""
        try:
            headers = json.loads(self._index.metadata[GRAPHS])
            params: Any = next((json.loads(header)["params"] for header in headers if header), {})
            known = {key: int(params[key]) for key in _GRAPH_LIMITS if key in params}
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise self._index.corrupt(f"metadata {GRAPHS!r}", "graphs", repr(error)) from error
        for key, value in known.items():
            minimum, maximum = _GRAPH_LIMITS[key]
            if not minimum <= value <= maximum:
                raise self._index.corrupt(f"{key} of graphs", f"{minimum} to {maximum}", f"{value}")
        return known

    def statistics(self) -> dict[str, Any]:
        """Return statistics by pylance's names."""
        sizes = np.diff(self.storage.partitions.bounds).tolist()
        metric, made = self.storage.metric, self._first_graph()
        index_type = "HNSW" if made else self.kind.rpartition("_")[2]
        # Product codes encode normalized vectors.
        compared = "l2" if metric == "cosine" and self.kind.endswith("PQ") else metric
        made |= {key: it for key, it in self.storage.details.items() if key not in _CODEBOOK_KEYS}
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
        """Return the header of the first graph; empty if all partitions lack graphs."""
        if GRAPHS not in self._index.metadata or not self._params():
            return {}
        headers = json.loads(self._index.metadata[GRAPHS])
        return next(json.loads(header) for header in headers if header)

    def model(self) -> VectorModel:
        """Return the model."""
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
                with np.errstate(over="ignore"):  # a damaged codebook may overflow
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
        """Yield all rows with their partitions, codes row by row; each time complete partitions."""
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
        """Read the row numbers of a partition, and with ``codes`` its codes, row by row."""
        rows, storage = self.storage.partitions.rows(number), self.storage
        if not codes:
            return storage.file.read([ADDRESSES], rows.start, rows.stop)
        table = storage.read(rows.start, rows.stop)
        change = self._to_rows(storage.column)
        if change is None or not len(table):
            return table
        return with_bytes(table, storage.column, change(bytes_of(table[storage.column])))

    def _to_rows(self, name: str) -> Callable[[UInt8s], UInt8s] | None:
        """Return the function that converts stored codes to rows; ``None`` if they are rows."""
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
            return as_numpy(array)
        kind: Any = array.type
        if getattr(kind, "list_size", None) != shape[0] or kind.value_type != item:
            raise file.corrupt_column(name, f"lists of {shape[0]} {item}", f"{kind}")
        codes = as_numpy(array.flatten()).reshape(-1, *shape)
        change = self._to_rows(name)
        if change is None or not len(codes):
            return codes
        cut = [codes[part.start - start : part.stop - start] for part in parts]
        return np.concatenate([change(part) for part in cut if len(part)])


_CODEBOOK_KEYS: Final = ("codebook_position", "codebook_tensor")
_BUFFERS: Final = ("codebook_position", "rotate_mat_position")
_GRAPH_LIMITS: Final = {"max_level": (1, 64), "m": (2, 1024), "ef_construction": (1, 65_536)}


def _hint(text: str | None, default: int, maximum: int) -> int:
    """Parse a hint; return the default if it is absent or unreasonable."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 9):
        return default
    return int(text) if 1 <= int(text) <= maximum else default


# --- Merge segments with equal models, and add rows of a source -------------------------
# Specification: "Merging" in ``docs/format/vector-indices.md``.

_MEMORY_LIMIT = 1 << 30
"""Bytes for a merge of segments alone; a source has its own limit."""


def merge_indices(
    segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
) -> BuiltSegment:
    """Write the rows of segments and of a source with the model that the segments share.

    A segment without files is empty; at least one segment has files. Reads codes and the source
    once, and builds graphs again.

    Raises
    ------
    UnsupportedFeatureError
        The models differ, all segments lack a model, or the model cannot encode the source.
    CorruptFileError, DataFileMissingError, NotLanceError
        A file of a segment is damaged or missing.
    """
    stored = [StoredIndex(segment) for segment in segments if segment.sizes()]
    if not stored:
        raise UnsupportedFeatureError("segments without a model cannot be merged: build the index")
    first = stored[0]
    for other in stored[1:]:
        if other.signature != first.signature:
            raise UnsupportedFeatureError(
                f"{other.segment.where}: has another model than {first.segment.where}, so that"
                " their codes cannot be compared. Keep both, or build the index again"
            )
    return _written(first, stored, source, out)


def extend_index(segment: Segment, source: IndexSource, out: SegmentWriter) -> BuiltSegment:
    """Write the rows of a source with the model of a segment; errors as :func:`merge_indices`."""
    if not segment.sizes():
        raise UnsupportedFeatureError("a segment without a model cannot encode: build the index")
    return _written(StoredIndex(segment), (), source, out)


def _written(
    first: StoredIndex,
    stored: Sequence[StoredIndex],
    source: IndexSource | None,
    out: SegmentWriter,
) -> BuiltSegment:
    """Write the rows of stored segments and of a source with the model of the first segment."""
    parameters, model = first.parameters(), first.model()
    scalar: Any = model.coder if isinstance(model.coder, ScalarCoder) else None
    coders: list[Any] = [one.model().coder for one in stored] if scalar is not None else []
    if coders:
        scalar.start = min(coder.start for coder in coders)
        scalar.end = max(coder.end for coder in coders)
    limit = _MEMORY_LIMIT if source is None else source.memory_limit
    with PartitionSort(len(model), model.dtype, limit // 2) as records:
        for at, one in enumerate(stored):
            for partitions, rows in one.records(model.dtype):
                if scalar is not None:
                    rows[SCALAR] = scalar.recoded(rows[SCALAR], coders[at])
                records.add(partitions, rows)
        if source is not None:
            add_source(records, source, _for_source(model, source), None)
        write_index(records, model, parameters, out)
    entry = first.segment.entry
    return BuiltSegment(TYPE_URL, entry.index_details.value, version_of(parameters))


def _for_source(model: VectorModel, source: IndexSource) -> VectorModel:
    """Return the model for the column of a source.

    Raises
    ------
    UnsupportedFeatureError
        The column has another dimension or type.
    """
    try:
        column = VectorColumn.of(source.field, model.column.metric)
    except OptionError as error:
        raise UnsupportedFeatureError(f"the index does not fit its column: {error}") from error
    if (column.dimension, column.kind) != (model.column.dimension, model.column.kind):
        raise UnsupportedFeatureError(
            f"column {column.name!r} has vectors of {column.dimension} {column.kind}, the index of"
            f" {model.column.dimension} {model.column.kind}: build it again"
        )
    return VectorModel(column, model.centroids, model.coder, model.loss)


# --- Remove deleted rows from the partitions and graphs of a segment --------------------
# Specification: "Files" in ``docs/format/vector-indices.md``.

_BATCH_BYTES = 64 << 20


def remap_vector_index(
    segment: Segment, address_map: AddressMap, out: SegmentWriter
) -> RebuiltSegment | None:
    """Remove deleted rows, and keep the model. See :meth:`IndexKind.remap`."""
    if not segment.has(CODES):
        return remap_legacy(segment, address_map, out)
    storage = Storage(segment.open(CODES))
    if storage.details.get("layered"):
        return None
    stored = storage.file.read([ADDRESSES])[ADDRESSES]
    storage.file.check_present(stored)
    new_addresses, kept = address_map.apply(as_numpy(stored).astype(np.uint64, copy=False))
    index = segment.open(INDEX)
    if GRAPHS in index.metadata and storage.column == SIGNS:
        return None
    if GRAPHS not in index.metadata:
        out.copy(segment, INDEX)
        _write_codes(storage, new_addresses, kept, out, None)
        return RebuiltSegment()
    graphs = _GraphWriter(index, storage, out)
    _write_codes(storage, new_addresses, kept, out, graphs)
    graphs.finish()
    return RebuiltSegment()


def _write_codes(
    storage: Storage,
    new_addresses: UInt64s,
    kept: Flags,
    out: SegmentWriter,
    graphs: _GraphWriter | None,
) -> None:
    """Write the file of codes, and pass the flags of kept rows to the graphs."""
    surviving = storage.partitions.without(kept)
    file = out.create(CODES, storage.schema)
    file.add_metadata({MODEL: str(file.add_buffer(surviving.encoded()))})
    _copy_buffers(storage, file)
    empty = True
    row_bytes = sum(storage.bytes_of_row(name) for name in storage.schema.names)
    bounds = storage.partitions.bounds
    for first, last in batches(bounds, max(1, _BATCH_BYTES // max(1, row_bytes))):
        rows = slice(int(bounds[first]), int(bounds[last]))
        mask = kept[rows]
        parts = [
            slice(partition_rows.start - rows.start, partition_rows.stop - rows.start)
            for partition_rows in map(storage.partitions.rows, range(first, last))
        ]
        codes = storage.select(storage.read(rows.start, rows.stop), parts, mask)
        addresses = number_array(new_addresses[rows][mask])
        at = codes.schema.get_field_index(ADDRESSES)
        codes = codes.set_column(at, codes.schema.field(at), addresses)
        if len(codes) or (empty and last == len(storage.partitions)):
            file.write(codes)
            empty = False
        if graphs is not None:
            for partition in range(first, last):
                graphs.add(partition, kept[storage.partitions.rows(partition)])
    file.finish()


def _copy_buffers(storage: Storage, file: IndexFileWriter) -> None:
    """Copy the codebook or the rotation, and store the new buffer number.

    Buffer 0 holds the schema: number 0 means that the codebook is in the metadata.
    """
    details, before = dict(storage.details), dict(storage.details)
    for key in _BUFFERS:
        if details.get(key) and isinstance(details[key], int):
            details[key] = file.add_buffer(storage.file.buffer(details[key]).to_pybytes())
    if details != before:
        text = json.dumps(details, separators=(",", ":"))
        file.add_metadata({DETAILS: json.dumps([text], separators=(",", ":"))})


class _GraphWriter:
    """Rebuilds graphs, partition by partition."""

    def __init__(self, index: IndexFile, storage: Storage, out: SegmentWriter) -> None:
        self._graphs = Graphs(index, len(storage.partitions))
        self._storage, self._out = storage, out
        self._opened: tuple[Codes, Metric, NDArray[Any]] | None = None
        self._headers: list[str] = []
        self._rows: list[pa.Table] = []

    def add(self, partition: int, kept: Flags) -> None:
        """Rebuild the graph of a partition with its surviving rows."""
        header, rows = self._rebuilt(partition, kept)
        self._headers.append(header)
        self._rows.append(rows)

    def _rebuilt(self, partition: int, kept: Flags) -> tuple[str, pa.Table]:
        graphs = self._graphs
        rows = graphs.read(partition)
        if not kept.any():
            return "", rows.slice(0, 0)
        if kept.all():
            return graphs.headers[partition], rows
        header = graphs.header(partition)
        levels = graphs.levels(rows, header, len(kept))
        if not any(kept[level.ids].any() for level in levels):
            raise graphs.file.corrupt(
                f"graph of partition {partition} of an index",
                "a node for each vector",
                f"{len(rows)} nodes, all of deleted vectors",
            )
        storage = self._storage
        self._opened = self._opened or open_codes(storage, graphs.file)
        codes, metric, _ = self._opened
        dot = metric == "dot" or (metric == "cosine" and storage.column == PLAIN)
        loaded = codes.load(partition, storage.partitions.rows(partition))[1]
        with np.errstate(all="ignore"):  # bounds may be near the largest number
            decoded = codes.decoded(partition, loaded, slice(0, len(kept)))
        vectors = decoded.matrix[kept]
        if decoded.element == "uint8":
            vectors = np.unpackbits(vectors, axis=1)
        wide = single_precision(vectors)
        text, levels = without_nodes(header, levels, kept, wide, dot=dot)
        return text, rows_of(levels, rows.schema)

    def finish(self) -> None:
        """Write the file."""
        bounds = np.cumsum([0, *(len(row) for row in self._rows)])
        partitions: Partitions = self._graphs.partitions.with_bounds(bounds)
        self._out.write(
            INDEX,
            pa.concat_tables(self._rows) if self._rows else self._graphs.file.read(NODE_COLUMNS),
            metadata={
                **self._graphs.file.metadata,
                GRAPHS: json.dumps(self._headers, separators=(",", ":")),
            },
            buffers={MODEL: partitions.encoded()},
        )
