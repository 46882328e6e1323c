"""Opened vector indices: centroids in memory, partitions read when searches need them.

Specification: "Partitions" and "Searching partitions" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import index_pb2, vector_details_pb2
from glaive.format.wire import parse
from glaive.index.protocol import OpenedIndex, RebuiltSegment
from glaive.index.row_sets import AddressMap, RowNumbers
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.index.vector import CODES, INDEX
from glaive.index.vector.codes import (
    Codes,
    PlainCodes,
    PreparedQuery,
    ProductCodes,
    RabitCodes,
    ScalarCodes,
    product_codes,
)
from glaive.index.vector.graph import GRAPHS, Graphs, PartitionGraph, read_graph
from glaive.index.vector.storage import (
    PLAIN,
    PRODUCT,
    SCALAR,
    Partitions,
    Storage,
    normalized,
    read_model,
    read_tensor,
    single_precision,
    tensor_values,
)
from glaive.kernels.distances import (
    MAX_LENGTH,
    METRICS,
    MIN_LENGTH,
    Element,
    Metric,
    Ranking,
    VectorBlock,
    rank_vectors,
)
from glaive.kernels.graph_search import (
    MAX_CAPACITY,
    MAX_WIDTH,
    CodeQuery,
    CodeRows,
    ReachedNodes,
    RowPlaces,
    search_graph,
)
from glaive.types import Float32s, UInt8s, as_array

# --- Search settings kept with an index, for queries that omit them ---------------------
# Specification: "Details" in ``docs/format/vector-indices.md``.

_PARTITIONS: Final = "glaive.nprobes"
_REFINE: Final = "glaive.refine_factor"
_RECALL: Final = "glaive.recall"
_MAX_SETTINGS: Final = {_PARTITIONS: 1 << 20, _REFINE: 1 << 10}
"""Maximum numbers; searches ignore larger ones as mistakes."""


class SearchDefaults(NamedTuple):
    """Settings that the build of the index with ``recall`` chose.

    Parameters
    ----------
    nprobes
        Partitions to search for each query.
    refine_factor
        Exact distances to compute for each row requested, if any.
    recall
        Recall requested.
    """

    nprobes: int
    refine_factor: int | None
    recall: float

    @classmethod
    def of(cls, details: bytes, where: object) -> SearchDefaults | None:
        """Parse the settings in a details message; ``None`` if they are missing or invalid.

        Raises
        ------
        CorruptFileError
            The message is invalid.
        """
        message = parse(
            vector_details_pb2.VectorIndexDetails(), details, "details of an index", where
        )
        nprobes = _number(message.runtime_hints, _PARTITIONS)
        try:
            recall = float(message.runtime_hints.get(_RECALL, ""))
        except ValueError:
            return None
        if nprobes is None or not 0 < recall < 1:
            return None
        return cls(nprobes, _number(message.runtime_hints, _REFINE), recall)


def with_defaults(details: bytes, defaults: SearchDefaults, where: object) -> bytes:
    """Return a details message with other settings.

    Raises
    ------
    CorruptFileError
        The message is invalid.
    """
    message = parse(vector_details_pb2.VectorIndexDetails(), details, "details of an index", where)
    hints: dict[str, float] = {_PARTITIONS: defaults.nprobes, _RECALL: defaults.recall}
    if defaults.refine_factor is not None:
        hints[_REFINE] = defaults.refine_factor
    message.runtime_hints.update({key: str(value) for key, value in hints.items()})
    return message.SerializeToString(deterministic=True)


def _number(hints: Mapping[str, str], key: str) -> int | None:
    text = hints.get(key, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 9):
        return None
    return int(text) if 1 <= int(text) <= _MAX_SETTINGS[key] else None


_MIN_GRAPH_ROWS: Final = 2000
"""Minimum rows of a partition to read its graph: fewer rows are compared one by one."""

_ROWS_PER_NODE: Final = 200
"""Rows that a scan compares in the time that a graph search needs per row it keeps."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedPartition:
    """The rows of a partition.

    Parameters
    ----------
    number
        Number of the partition.
    rows
        Number of each row, as the segment stores it.
    codes
        Codes, in the form of their :class:`Codes`.
    nbytes
        Bytes of memory.
    graph
        Graph over the rows.
    scanned
        Codes for a scan of several partitions, if the kind of codes allows one.
    """

    number: int
    rows: RowNumbers
    codes: Any
    nbytes: int
    graph: PartitionGraph | None = None
    scanned: CodeRows | None = None


class OpenedVectorIndex(OpenedIndex):
    """A segment of a vector index in memory, for searches.

    Parameters
    ----------
    segment
        Caches the partitions read.
    metric
        Kind of distance.
    centroids
        ``float32`` of shape ``(partitions, dimension)``; ``uint8`` for ``hamming``.
    partitions
        Rows of the file of codes that belong to each partition.
    codes
        Reader of the codes.
    graphs
        Graphs over the rows of the partitions.
    """

    def __init__(
        self,
        segment: Segment,
        metric: Metric,
        centroids: NDArray[Any],
        partitions: Partitions,
        codes: Codes,
        *,
        graphs: Graphs | None = None,
    ) -> None:
        self.metric = metric
        self.centroids = centroids
        self.partitions = partitions
        self.codes = codes
        self._graphs = graphs
        self._segment = segment
        element: Element = "uint8" if metric == "hamming" else "float32"
        self._vectors = VectorBlock(centroids.reshape(-1), self.dimension, element)
        filled = np.flatnonzero(np.diff(partitions.bounds))
        self._filled = filled if len(filled) < len(centroids) else None
        single = len(filled) == len(centroids) == 1 and not codes.are_residuals
        self._only = Ranking(filled[None], np.zeros((1, 1), np.float32)) if single else None

    @cached_property
    def defaults(self) -> SearchDefaults | None:
        """Settings for queries that omit them."""
        return SearchDefaults.of(self._segment.entry.index_details.value, self._segment.where)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.centroids.nbytes + self.partitions.bounds.nbytes) + self.codes.nbytes

    @property
    def dimension(self) -> int:
        """Elements of a vector."""
        return int(self.centroids.shape[1])

    @property
    def num_rows(self) -> int:
        """Rows of all partitions, including rows deleted since."""
        return int(self.partitions.bounds[-1])

    def query(self, vector: NDArray[Any]) -> NDArray[Any]:
        """Convert a query vector for comparison; for the cosine distance, to length 1."""
        if vector.dtype == self.centroids.dtype and self.metric != "cosine":
            return np.ascontiguousarray(vector)
        with np.errstate(all="ignore"):
            made = vector
            if self.metric == "cosine":  # before the cast: float64 numbers may exceed float32
                length = np.linalg.norm(vector)
                usual = MIN_LENGTH < length < MAX_LENGTH
                made = vector / length if usual else normalized(vector[None])[0]
            return np.ascontiguousarray(made, self.centroids.dtype)

    def queries(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Convert query vectors as :meth:`query` does."""
        if self.metric == "cosine":
            return np.stack([self.query(vector) for vector in matrix])
        return self.query(matrix)

    def ranked(self, queries: NDArray[Any], count: int) -> Ranking:
        """Return the ``count`` partitions nearest to each query; skip empty partitions.

        Where codes encode residuals, distances are squared lengths of residuals. Equal distances
        are ordered by partition number; NaN comes last. The distance of the only partition of other
        codes may be 0.

        Parameters
        ----------
        queries
            Result of :meth:`queries`.
        """
        if self._only is not None and len(queries) == 1:
            return self._only
        metric: Metric = "l2" if self.metric == "cosine" else self.metric
        return rank_vectors(self._vectors, queries, metric, count, self._filled)

    def load(self, number: int) -> LoadedPartition:
        """Read a partition, or return it from the cache.

        Raises
        ------
        CorruptFileError
            The partition is damaged.
        """

        def read() -> tuple[LoadedPartition, int]:
            rows, codes, nbytes = self.codes.load(number, self.partitions.rows(number))
            nbytes += int(rows.nbytes)
            graph = None
            if self._graphs is not None and len(rows) > _MIN_GRAPH_ROWS:
                graph = read_graph(self._graphs, number, len(rows))
                nbytes += graph.nbytes
            scanned = self.codes.scanned(codes, has_graph=graph is not None)
            if scanned is not None and scanned.blocks is not None:
                nbytes += scanned.blocks.nbytes
            loaded = LoadedPartition(number, rows, codes, nbytes, graph, scanned)
            return loaded, loaded.nbytes

        return cast("LoadedPartition", self._segment.keep(self.key(number), read))

    @staticmethod
    def key(number: int) -> Hashable:
        """Return the cache key of a partition within its segment."""
        return "partition", number

    def distances(self, prepared: PreparedQuery, partition: LoadedPartition) -> Float32s:
        """Return the distance of each row of a partition of plain codes from a query."""
        codes = cast("PlainCodes", self.codes)
        return codes.distances(prepared, partition.codes)

    @property
    def has_graphs(self) -> bool:
        """Whether partitions have graphs."""
        return self._graphs is not None

    def nearest(
        self,
        query: CodeQuery,
        partition: LoadedPartition,
        start: float,
        capacity: int,
        places: RowPlaces | None,
        wanted: int,
    ) -> ReachedNodes | None:
        """Search the graph of a partition; return rows with distances, the nearest first.

        ``None`` if the partition lacks a graph, or comparing all rows takes about the same time.

        Parameters
        ----------
        query, start
            The query, and the offset of distances.
        capacity
            Maximum rows that the search keeps and returns.
        places, wanted
            As for :func:`search_graph`.
        """
        graph, rows = partition.graph, partition.scanned
        if graph is None or rows is None or rows.scales is not None:
            return None
        if capacity > min(MAX_CAPACITY, len(partition.rows) // _ROWS_PER_NODE):
            return None
        return search_graph(graph.levels, graph.entry, rows, query, capacity, start, places, wanted)

    def prewarm(self) -> int:
        """Read all partitions into the cache, and return the bytes of the index in memory."""
        filled = np.flatnonzero(np.diff(self.partitions.bounds))  # empty partitions cost requests
        sizes = [self.load(number).nbytes for number in filled.tolist()]
        return self.nbytes + sum(sizes)


def metric_of(name: str, file: IndexFile) -> Metric:
    """Check the distance that a file names.

    Raises
    ------
    UnsupportedFeatureError
        The distance is unknown.
    """
    if name not in METRICS:
        raise UnsupportedFeatureError(f"{file.path}: the distance {name!r:.40} is not known")
    return name


def read_centroids(
    model: index_pb2.IVF, partitions: int, metric: Metric, file: IndexFile
) -> NDArray[Any]:
    """Read the centroids, of shape ``(partitions, dimension)``.

    Raises
    ------
    CorruptFileError
        Centroids are missing, or contradict the partitions or the metric.
    """
    centroids = read_tensor(model.centroids_tensor, "centroids of an index", file)
    right = centroids.ndim == 2 and len(centroids) == partitions and centroids.shape[1]
    if not right or (metric == "hamming") != (centroids.dtype == np.uint8):
        found = f"{centroids.dtype} of shape {centroids.shape}"
        raise file.corrupt("centroids of an index", f"{partitions} vectors", found)
    if metric == "hamming":
        return np.ascontiguousarray(centroids)
    return single_precision(centroids)


# --- Vector indices of old writers: one file of an older format than Lance 2.x ----------
# Specification: "Old indices" in ``docs/format/vector-indices.md``.

_TAIL = struct.Struct("<qHH4s")
_VERSION = (0, 1)
_LENGTH = struct.Struct("<I")
_NUMBER_BYTES: Final = 8


class LegacyFile:
    """The file of an IVF-PQ index of an old writer: partitions, then their description.

    Raises
    ------
    UnsupportedFeatureError
        The file holds another kind of index.
    CorruptFileError
        The file is damaged.
    """

    def __init__(self, segment: Segment, name: str) -> None:
        data = segment.get(name)
        self.path = segment.store.full(f"{segment.folder}/{name}")
        index, self.end = self._description(data)
        if index is None or index.vector_index.metric_type >= len(METRICS) - 1:
            raise UnsupportedFeatureError(
                f"{segment.where}: an index of this kind is not read: create it again"
            )
        self.index, self.content = index, as_array(data)
        self.ivf, self.pq = index.vector_index.stages[0].ivf, index.vector_index.stages[1].pq
        self.metric: Metric = METRICS[index.vector_index.metric_type]
        self.width = width = self.pq.num_sub_vectors * self.pq.num_bits // 8
        self.lengths = lengths = np.array(self.ivf.lengths, np.int64)
        offsets = np.array(self.ivf.offsets, np.uint64)
        good = width > 0 and len(offsets) == len(lengths) and bool((offsets <= self.end).all())
        self.offsets = offsets.astype(np.int64)
        most = (self.end - self.offsets) // self.row_bytes if good else lengths
        # Check the sum, too: a damaged file may list the same bytes as many partitions.
        if not good or (lengths > most).any() or int(lengths.sum()) > self.end // self.row_bytes:
            raise self.damage(
                "partitions of an index",
                f"{len(lengths)} before byte {self.end}",
                f"{len(offsets)} with codes of {width} bytes, up to {lengths.max(initial=0)} rows",
            )

    @property
    def row_bytes(self) -> int:
        """Bytes of a row: its codes and its number."""
        return self.width + _NUMBER_BYTES

    def damage(self, part: str, expected: str, found: str) -> CorruptFileError:
        """Return an error for damage in this file."""
        return CorruptFileError(part, expected=expected, found=found, where=self.path)

    def partition(self, number: int) -> tuple[RowNumbers, UInt8s]:
        """Return row numbers and codes of a partition."""
        start, rows = int(self.offsets[number]), int(self.lengths[number])
        codes = self.content[start : start + rows * self.width].reshape(rows, self.width)
        stored = self.content[start + rows * self.width :][: rows * _NUMBER_BYTES]
        return np.frombuffer(stored.tobytes(), "<u8").astype(np.uint64), codes

    def _description(self, data: pa.Buffer) -> tuple[index_pb2.Index | None, int]:
        """Parse the description, and return it with its position; ``None`` for other kinds."""
        if data.size < _TAIL.size:
            raise self.damage("size of an index", f"{_TAIL.size} bytes", f"{data.size}")
        position, major, minor, magic = _TAIL.unpack(data[data.size - _TAIL.size :])
        if magic != b"LANC" or (major, minor) != _VERSION:
            return None, 0
        if not 0 <= position <= data.size - _TAIL.size - _LENGTH.size:
            expected = f"a position below {data.size}"
            raise self.damage("description of an index", expected, f"{position}")
        (size,) = _LENGTH.unpack(data[position : position + _LENGTH.size])
        start = position + _LENGTH.size
        if start + size > data.size - _TAIL.size:
            expected = f"at most {data.size - _TAIL.size - start} bytes"
            raise self.damage("description of an index", expected, f"{size}")
        index = parse(index_pb2.Index(), data[start : start + size], "description", self.path)
        stages = [stage.WhichOneof("stage") for stage in index.vector_index.stages]
        return (index if stages == ["ivf", "pq"] else None), position


def remap_legacy(segment: Segment, address_map: AddressMap, out: SegmentWriter) -> RebuiltSegment:
    """Remove deleted rows from the partitions of an IVF-PQ index."""
    file = LegacyFile(segment, INDEX)
    parts: list[UInt8s] = []
    lengths = file.lengths.copy()
    for at in range(len(lengths)):
        stored, codes = file.partition(at)
        new_addresses, kept = address_map.apply(stored)
        parts += [codes[kept].reshape(-1), new_addresses[kept].view(np.uint8)]
        lengths[at] = kept.sum()
    ivf = file.ivf
    del ivf.offsets[:], ivf.lengths[:]
    ends = np.cumsum(lengths * file.row_bytes)
    ivf.offsets.extend((ends - lengths * file.row_bytes).tolist())
    ivf.lengths.extend(lengths.tolist())
    message = file.index.SerializeToString()
    position = int(ends[-1]) if len(ends) else 0
    tail = _TAIL.pack(position, *_VERSION, b"LANC")
    body = np.concatenate(parts).tobytes() if parts else b""
    out.put(INDEX, [body, _LENGTH.pack(len(message)), message, tail])
    return RebuiltSegment()


def legacy_options(segment: Segment) -> dict[str, Any]:
    """Return the options of ``create_index`` that build an index like an old index again."""
    file = LegacyFile(segment, INDEX)
    return {
        "index_type": "IVF_PQ",
        "metric": file.metric,
        "num_sub_vectors": file.pq.num_sub_vectors,
        "num_bits": file.pq.num_bits,
    }


def open_legacy(segment: Segment) -> OpenedVectorIndex:
    """Open an old index; glaive reads its file whole. Raise as :class:`LegacyFile` does."""
    file = LegacyFile(segment, INDEX)
    ivf, pq = file.ivf, file.pq
    dimension = int(pq.dimension)
    known = pq.num_bits in (4, 8) and 0 < dimension <= MAX_WIDTH and pq.num_sub_vectors > 0
    if not known or dimension % pq.num_sub_vectors or pq.num_sub_vectors * pq.num_bits % 8:
        found = f"{pq.num_sub_vectors} codes of {pq.num_bits} bits for {dimension} dimensions"
        raise file.damage("codes of an index", "codes of 4 or 8 bits", found)
    if not len(file.lengths):
        raise file.damage("partitions of an index", "one at least", "none")
    shape = (len(file.lengths), dimension)
    centroids = _numbers(ivf.centroids_tensor, ivf.centroids, shape, file.path)
    book_shape = (pq.num_sub_vectors, 1 << pq.num_bits, dimension // pq.num_sub_vectors)
    book = _numbers(pq.codebook_tensor, pq.codebook, book_shape, file.path)
    partitions = Partitions(ivf, np.concatenate(([0], np.cumsum(file.lengths))))
    codes = ProductCodes(
        lambda number, _at: file.partition(number), file.metric, centroids, book, file.path
    )
    codes.nbytes += len(file.content)
    return OpenedVectorIndex(segment, file.metric, centroids, partitions, codes)


def _numbers(tensor: index_pb2.Tensor, listed: Any, shape: tuple[int, ...], path: str) -> Float32s:
    """Read the numbers of a tensor or, in older files, of a list."""
    numbers: NDArray[Any]
    if tensor.data:
        numbers = tensor_values(tensor, "model of an index", path)
    else:
        numbers = np.array(listed, np.float32)
    if numbers.size != int(np.prod(shape, dtype=object)):
        raise CorruptFileError(
            "model of an index",
            expected=f"numbers of shape {shape}",
            found=f"{numbers.size}",
            where=path,
        )
    return single_precision(numbers.reshape(shape))


# --- Open a segment ---------------------------------------------------------------------
# Specification: "Files" in ``docs/format/vector-indices.md``.


def open_vector_index(segment: Segment) -> OpenedVectorIndex:
    """Read what every search of a segment needs.

    Raises
    ------
    UnsupportedFeatureError
        The codes, the distance or the layout is unknown.
    CorruptFileError, DataFileMissingError, NotLanceError
        A file is damaged or missing.
    """
    if not segment.has(CODES):
        return open_legacy(segment)
    storage = Storage(segment.open(CODES))
    index = segment.open(INDEX)
    codes, metric, centroids = open_codes(storage, index)
    graphs = Graphs(index, len(storage.partitions)) if GRAPHS in index.metadata else None
    return OpenedVectorIndex(segment, metric, centroids, storage.partitions, codes, graphs=graphs)


def open_codes(storage: Storage, index: IndexFile) -> tuple[Codes, Metric, NDArray[Any]]:
    """Return the reader of a segment's codes, the distance, and the centroids.

    Raises
    ------
    UnsupportedFeatureError
        The codes or the distance is unknown.
    CorruptFileError
        The codes contradict the centroids.
    """
    metric = metric_of(storage.metric, storage.file)
    centroids = read_centroids(read_model(index), len(storage.partitions), metric, index)
    dimension = int(centroids.shape[1])
    codes: Codes
    if storage.column == PLAIN:
        codes = PlainCodes(storage, metric, dimension)
    elif metric == "hamming" or dimension > MAX_WIDTH:
        raise UnsupportedFeatureError(
            f"{storage.file.path}: codes of {dimension} dimensions are not compared by {metric}"
        )
    elif storage.column == SCALAR:
        codes = ScalarCodes(storage, metric, dimension)
    elif storage.column == PRODUCT:
        codes = product_codes(storage, metric, centroids)
    else:
        codes = RabitCodes(storage, metric, centroids)
    return codes, metric, centroids
