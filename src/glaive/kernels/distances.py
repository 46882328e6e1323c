"""Distances between vectors: squared Euclidean, cosine, dot product, Hamming.

``l2`` is the squared distance, ``cosine`` one minus the cosine, ``dot`` one minus the dot product,
``hamming`` the number of bits that differ. Floats of 16 bits are first converted to 32 bits;
doubles are computed as doubles. Distances are ``float32``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple, dataclass
from glaive.kernels._addresses import address, given, is_plain, kept_address
from glaive.kernels.native import distances as distances_loops
from glaive.types import Float32s, Int64s, UInt64s

Element: TypeAlias = Literal["float32", "float16", "bfloat16", "float64", "uint8"]
"""Types of the elements of vectors."""

Metric: TypeAlias = Literal["l2", "cosine", "dot", "hamming"]
"""Names of distances."""

ELEMENTS: Final[Mapping[Element, Any]] = MappingProxyType(
    {
        "float32": np.dtype(np.float32),
        "float16": np.dtype(np.float16),
        "bfloat16": np.dtype(np.uint16),
        "float64": np.dtype(np.float64),
        "uint8": np.dtype(np.uint8),
    }
)
"""NumPy types of the elements: ``bfloat16`` as the integers of its bits."""

METRICS: Final[tuple[Metric, ...]] = ("l2", "cosine", "dot", "hamming")
"""All metrics, in the order of their numbers in files."""

MIN_LENGTH: Final = 1e-15
MAX_LENGTH: Final = 1e15
"""Least and greatest length of a vector whose square is exact enough in 32 bits."""

_ELEMENT_NUMBERS: Final = {element: at for at, element in enumerate(ELEMENTS)}

Int32s: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class VectorBlock:
    """Contiguous vectors in one array.

    Parameters
    ----------
    values
        Elements of all vectors: contiguous, of their type in :data:`ELEMENTS`.
    dimension
        Number of elements in a vector.
    element
        Type of the elements.
    """

    values: NDArray[Any]
    dimension: int
    element: Element

    @property
    def count(self) -> int:
        """Number of vectors."""
        return len(self.values) // self.dimension

    @property
    def matrix(self) -> NDArray[Any]:
        """The elements in shape ``(vectors, dimension)``."""
        return self.values[: self.count * self.dimension].reshape(-1, self.dimension)

    def widened(self) -> VectorBlock:
        """Return the vectors with elements of 16 bits as ``float32``; others as they are."""
        if self.element not in ("float16", "bfloat16"):
            return self
        values = self.values
        if self.element == "bfloat16":
            values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return VectorBlock(values.astype(np.float32, copy=False), self.dimension, "float32")


@dataclass(frozen=True, eq=False)
class Queries:
    """Query vectors.

    Parameters
    ----------
    matrix
        Shape ``(queries, dimension)``, contiguous: ``float64`` and ``uint8`` for vectors of
        these types, ``float32`` for all others.
    """

    matrix: NDArray[Any]

    @classmethod
    def of(cls, matrix: NDArray[Any], element: Element) -> Queries:
        """Convert query vectors for vectors with elements of a type."""
        kind = ELEMENTS[element if element in ("float64", "uint8") else "float32"]
        if matrix.dtype == kind:
            return cls(np.ascontiguousarray(matrix))
        with np.errstate(over="ignore", invalid="ignore"):
            return cls(np.ascontiguousarray(matrix, kind))

    @cached_property
    def norms(self) -> Float32s:
        """Length of each query, ``float32``."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->i", self.matrix, self.matrix, dtype=np.float64)
            norms: Float32s = np.sqrt(squares).astype(np.float32)
            return norms

    @property
    def count(self) -> int:
        """Number of queries."""
        return len(self.matrix)


def measure(vectors: VectorBlock, queries: Queries, metric: Metric, *, query: int = 0) -> Float32s:
    """Return the distance of each vector from one query; NaN if it is undefined."""
    only = queries
    if queries.count > 1:
        only = Queries(queries.matrix[query : query + 1])
    return _measure(vectors, only, metric, None, None, vectors.count)


def measure_pairs(
    vectors: VectorBlock, queries: Queries, metric: Metric, rows: Int64s, query_of: Int32s
) -> Float32s:
    """Return the distance of vector ``rows[i]`` from query ``query_of[i]``, for each i.

    Parameters
    ----------
    rows, query_of
        ``int64`` and ``int32`` of the same length.
    """
    count = len(rows)
    if len(query_of) != count:
        raise ValueError(f"{count} rows with {len(query_of)} queries")
    if count and not _are_below(rows, vectors.count):
        raise ValueError(f"vectors {rows.min()} to {rows.max()} of {vectors.count}")
    if count and not _are_below(query_of, queries.count):
        raise ValueError(f"queries {query_of.min()} to {query_of.max()} of {queries.count}")
    return _measure(vectors, queries, metric, rows, query_of, count)


def _are_below(numbers: NDArray[np.signedinteger], end: int) -> bool:
    """Return whether all signed integers, at least one, are from 0 to below ``end``."""
    # As unsigned integers, negative numbers are greater than any end.
    return int(numbers.view(f"u{numbers.itemsize}").max()) < end


def _measure(
    vectors: VectorBlock,
    queries: Queries,
    metric: Metric,
    rows: Int64s | None,
    query_of: Int32s | None,
    count: int,
) -> Float32s:
    _check(vectors, queries.matrix, metric)
    dimension, element = vectors.dimension, vectors.element
    distances, scratch = np.empty(count, np.float32), np.empty(dimension, np.float32)
    norms = queries.norms if metric == "cosine" else None
    rows = None if rows is None else np.ascontiguousarray(rows, np.int64)
    query_of = None if query_of is None else np.ascontiguousarray(query_of, np.int32)
    distances_loops.measure(
        values=address(vectors.values), rows=given(rows),
        step=dimension * ELEMENTS[element].itemsize, pairs=count, dimension=dimension,
        element=_ELEMENT_NUMBERS[element], metric=METRICS.index(metric),
        queries=address(queries.matrix),
        query_of=given(query_of),
        norms=given(norms), scratch=address(scratch),
        out=address(distances),
    )  # fmt: skip
    return distances


def squared_norms(vectors: VectorBlock) -> Float32s:
    """Return the squared length of each vector of ``float32``."""
    if vectors.element != "float32" or not vectors.values.flags.c_contiguous:
        raise ValueError(f"vectors of {vectors.element}")
    with np.errstate(all="ignore"):
        squares: Float32s = np.einsum("ij,ij->i", vectors.matrix, vectors.matrix)
        return squares


def _check(vectors: VectorBlock, matrix: NDArray[Any], metric: Metric) -> None:
    element, values = vectors.element, vectors.values
    if values.dtype != ELEMENTS[element] or not values.flags.c_contiguous:
        raise ValueError(f"vectors of {values.dtype} called {element}")
    if vectors.dimension < 1 or len(values) % vectors.dimension:
        raise ValueError(f"{len(values)} elements of vectors of {vectors.dimension}")
    kind: Element = element if element in ("float64", "uint8") else "float32"
    right = matrix.ndim == 2 and matrix.shape[1] == vectors.dimension and len(matrix)
    if not right or matrix.dtype != ELEMENTS[kind] or not matrix.flags.c_contiguous:
        raise ValueError(f"queries {matrix.shape} of {matrix.dtype} for {element}")
    if (metric == "hamming") != (element == "uint8"):
        raise ValueError(f"distance {metric} of {element}")


# --- Find the best centroid of each vector, and add vectors up by cluster: the steps of k-means
#
# The score of a centroid ``c`` for a vector ``x`` is ``x · c + bias``. With a bias of ``-|c|²/2``,
# the best centroid is the nearest; without a bias it has the largest dot product.

Int32Array = NDArray[np.int32]

BLOCK: Final = 32
ROWS: Final = 4
_SCRATCH: Final = ROWS * 16 * 8
_SUMMED_ROWS: Final = 4096
"""Rows added up in 32 bits, before their sum is added to a sum of 64 bits."""


class Nearest(NamedTuple):
    """The best centroid of each row, and its score."""

    ids: Int32Array
    scores: Float32s


class Centroids:
    """Centroids in the kernel's order. Immutable.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(centroids, dimension)``.
    bias
        ``float32`` of shape ``(centroids,)``; NaN is invalid.
    """

    def __init__(self, rows: Float32s, bias: Float32s) -> None:
        if rows.ndim != 2 or len(rows) != len(bias) or not len(rows):
            raise ValueError(f"{len(bias)} biases for centroids of shape {rows.shape}")
        self.rows = np.ascontiguousarray(rows, np.float32)
        self.bias = np.ascontiguousarray(bias, np.float32)

    @property
    def dimension(self) -> int:
        """Number of elements in a vector."""
        return int(self.rows.shape[1])

    @cached_property
    def blocks(self) -> Float32s:
        """Blocks of 32 centroids: their biases, then their elements, dimension by dimension."""
        count, dimension = self.rows.shape
        padded = -(-count // BLOCK) * BLOCK
        bias = np.full(padded, -np.inf, np.float32)
        bias[:count] = self.bias
        numbers = np.zeros((padded, dimension), np.float32)
        numbers[:count] = self.rows
        blocks = np.empty((padded // BLOCK, dimension + 1, BLOCK), np.float32)
        blocks[:, 0] = bias.reshape(-1, BLOCK)
        blocks[:, 1:] = numbers.reshape(-1, BLOCK, dimension).transpose(0, 2, 1)
        return blocks


def find_nearest(rows: Float32s, centroids: Centroids) -> Nearest:
    """Find the centroid with the best score for each row; among equal scores the first.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(n, dimension)``, contiguous.
    """
    dimension = centroids.dimension
    _check_centroids(rows, dimension)
    count = len(rows)
    padded = rows if count >= ROWS else _padded(rows)
    ids, scores = np.empty(len(padded), np.int32), np.empty(len(padded), np.float32)
    scratch = np.empty(_SCRATCH, np.uint8)
    blocks = centroids.blocks
    distances_loops.find_nearest(
        rows=address(padded), row_count=len(padded),
        dimension=dimension, table=address(blocks), blocks=len(blocks),
        scratch=address(scratch), ids=address(ids), scores=address(scores),
    )  # fmt: skip
    return Nearest(ids[:count], scores[:count])


def _padded(rows: Float32s) -> Float32s:
    padded = np.zeros((ROWS, rows.shape[1]), np.float32)
    padded[: len(rows)] = rows
    return padded


def sum_by_cluster(rows: Float32s, ids: Int32Array, clusters: int) -> NDArray[np.float64]:
    """Sum the rows of each cluster.

    Parameters
    ----------
    rows
        As for :func:`find_nearest`.
    ids
        ``int32`` of shape ``(n,)``: the cluster of each row.
    clusters
        Number of clusters.

    Returns
    -------
    numpy.ndarray
        ``float64`` of shape ``(clusters, dimension)``.
    """
    dimension = rows.shape[1]
    _check_centroids(rows, dimension)
    if len(ids) != len(rows) or (len(ids) and (ids.min() < 0 or ids.max() >= clusters)):
        raise ValueError(f"{len(ids)} clusters below {clusters} for {len(rows)} rows")
    sums = np.zeros((clusters, dimension), np.float64)
    ids = np.ascontiguousarray(ids, np.int32)
    for start in range(0, len(rows), _SUMMED_ROWS):
        part = rows[start : start + _SUMMED_ROWS]
        partial = np.zeros((clusters, dimension), np.float32)
        distances_loops.add_rows(
            address(part), len(part), dimension,
            address(ids[start : start + _SUMMED_ROWS]), address(partial),
        )  # fmt: skip
        sums += partial
    return sums


def _check_centroids(rows: Float32s, dimension: int) -> None:
    good = rows.ndim == 2 and rows.flags.c_contiguous and rows.shape[1] == dimension
    if rows.dtype != np.float32 or not good:
        raise ValueError(f"{rows.dtype} of shape {rows.shape} for dimension {dimension}")


# --- The vectors of a block that are nearest to queries, in order: centroids of partitions


class Ranking(NamedTuple):
    """Numbers of vectors and their distances, nearest first: a row for each query."""

    numbers: NDArray[np.signedinteger]
    distances: Float32s


def rank_vectors(
    vectors: VectorBlock,
    queries: NDArray[Any],
    metric: Metric,
    count: int,
    among: Int64s | None = None,
) -> Ranking:
    """Return the vectors nearest to each query, at most ``count``.

    Among equal distances the lower number comes first; NaN comes last.

    Parameters
    ----------
    queries
        Queries of shape ``(n, dimension)`` and the type of the vectors.
    metric
        A metric except ``cosine``, which is ``l2`` for vectors of equal length.
    among
        Numbers of the vectors to rank, ascending; ``None``: all.
    """
    vector_count, several = vectors.count, len(queries)
    total = vector_count if among is None else len(among)
    wanted = min(count, total)
    numbers = np.empty((several, wanted), np.int64)
    distances = np.empty((several, wanted), np.float32)
    if not wanted or not several:
        return Ranking(numbers, distances)
    _check(vectors, queries, metric)
    if among is not None and not (
        is_plain(among, np.int64, total) and _are_below(among, vector_count)
    ):
        raise ValueError(f"{total} numbers of {vector_count} vectors")
    dimension, element = vectors.dimension, vectors.element
    far = np.empty(vector_count + dimension + 2, np.float32)
    distances_loops.rank_vectors(
        values=address(vectors.values), count=vector_count, dimension=dimension,
        step=dimension * ELEMENTS[element].itemsize, element=_ELEMENT_NUMBERS[element],
        metric=METRICS.index(metric), queries=address(queries), query_count=several,
        query_bytes=dimension * queries.itemsize, among=given(among), among_count=total,
        wanted=wanted, far=address(far), numbers=address(numbers), distances=address(distances),
    )  # fmt: skip
    return Ranking(numbers, distances)


# --- True distances of rows that an index found, from vectors in mapped files ------------


@dataclass(frozen=True, eq=False)
class PlacedVectors:
    """Places of the vectors of some fragments in memory; checked when created.

    Parameters
    ----------
    memory
        One or several mapped files.
    starts, ends
        ``int64``: the start of each page's values, and the number of the row after its last.
    width
        Number of bytes in a vector.
    first_row, rows
        ``int64``: number of the first row of each fragment, and its number of rows. The first is
        negative for a fragment outside of the pages.

    Raises
    ------
    ValueError
        The arrays have other types or different lengths.
    """

    memory: pa.Buffer
    starts: Int64s
    ends: Int64s
    width: int
    first_row: Int64s
    rows: Int64s

    def __post_init__(self) -> None:
        pairs = (self.starts, self.ends), (self.first_row, self.rows)
        for numbers, others in pairs:
            plain = numbers.shape == others.shape == (len(numbers),)
            plain = plain and numbers.dtype == others.dtype == np.int64
            if not plain or not (numbers.flags.c_contiguous and others.flags.c_contiguous):
                raise ValueError(f"{len(numbers)} and {len(others)} numbers of {numbers.dtype}")
        if not len(self.ends) or not 0 < self.width <= self.memory.size:
            raise ValueError(f"vectors of {self.width} bytes in {len(self.ends)} pages")

    @kept_address
    def located(self) -> tuple[int, ...]:
        """Return the addresses of its arrays and its memory, for the kernel."""
        arrays = self.first_row, self.rows, self.ends, self.starts
        return (*[address(numbers) for numbers in arrays], address(self.memory))


class FoundRows(NamedTuple):
    """Rows with their distances from queries.

    Parameters
    ----------
    query
        ``int32``: number of the query.
    distance
        ``float32``; NaN is excluded.
    key
        ``uint64``: row id, which decides between equal distances.
    fragment, row
        ``int64``: position of the fragment in the list, and physical row.
    """

    query: NDArray[np.int32]
    distance: Float32s
    key: UInt64s
    fragment: Int64s
    row: Int64s


def rescore_rows(
    vectors: PlacedVectors,
    element: Element,
    found: FoundRows,
    queries: Queries,
    metric: Metric,
    limits: Float32s,
    count: int,
    *,
    low: float = -np.inf,
) -> FoundRows | None:
    """Measure rows, and keep the nearest; return ``None`` if the place of a row is missing.

    The nearest row of each query comes first; among equal distances the lowest key.

    Parameters
    ----------
    found
        Rows, query by query; their distances are ignored.
    limits, low
        ``float32``: the greatest distance for each query, and the least for all.
    count
        Largest number of rows for each query.
    """
    total, several = len(found.key), len(limits)
    bounds = np.array([0, total])
    if several > 1:
        bounds = found.query.searchsorted(np.arange(several + 1))
    _check_rows(vectors, element, found, bounds, queries, metric, limits, count)
    capacity = min(count, total)
    if not total:
        empty = np.empty(0, np.int64)
        return FoundRows(
            empty.astype(np.int32), empty.astype(np.float32), empty.astype(np.uint64), empty, empty
        )
    dimension, line = queries.matrix.shape[1], several * capacity
    # Keys, places and sizes, then starts. In ``far``: distances, first of the rows kept, and a
    # vector.
    made = np.empty(3 * line + several + total, np.uint64)
    wide = dimension if element in ("float16", "bfloat16") else 0
    distances = np.empty(line + total + wide + 1, np.float32)
    distances[-1] = low
    into, floats = address(made), address(distances)
    norms = queries.norms if metric == "cosine" else None
    first_rows, row_counts, ends, starts, memory = vectors.located
    if not distances_loops.rescore_rows(
        fragments=address(found.fragment), rows=address(found.row), row_keys=address(found.key),
        bounds=address(bounds), query_count=several, first_rows=first_rows,
        row_counts=row_counts, fragment_count=len(vectors.rows), ends=ends, page_starts=starts,
        pages=len(vectors.ends), memory=memory, size=vectors.memory.size, width=vectors.width,
        dimension=dimension, element=_ELEMENT_NUMBERS[element], metric=METRICS.index(metric),
        queries=address(queries.matrix), query_bytes=dimension * queries.matrix.itemsize,
        norms=given(norms), limits=address(limits),
        low=floats + 4 * (len(distances) - 1), capacity=capacity,
        widened=floats + 4 * (line + total), starts=into + 8 * (3 * line + several),
        measured=floats + 4 * line, heap=floats, keys=into, places=into + 8 * line,
        sizes=into + 24 * line,
    ):  # fmt: skip
        return None
    places = made.view(np.int64)
    if several == 1:
        size = places.item(3 * line)
        query = np.zeros(size, np.int32)
        key, fragment, row = made[:size], places[line : line + size], places[2 * line :][:size]
        return FoundRows(query, distances[:size], key, fragment, row)
    sizes = places[3 * line : 3 * line + several]
    kept = (np.arange(capacity) < sizes[:, None]).reshape(-1)
    query = np.arange(several, dtype=np.int32).repeat(sizes)
    return FoundRows(
        query, distances[:line][kept], made[:line][kept], places[line : 2 * line][kept],
        places[2 * line : 3 * line][kept],
    )  # fmt: skip


def _check_rows(
    vectors: PlacedVectors, element: Element, found: FoundRows, bounds: Int64s, queries: Queries,
    metric: Metric, limits: Float32s, count: int,
) -> None:  # fmt: skip
    matrix, total = queries.matrix, len(found.key)
    kind = ELEMENTS[element if element in ("float64", "uint8") else "float32"]
    good = matrix.ndim == 2 and matrix.dtype == kind and matrix.flags.c_contiguous
    if not good or vectors.width != matrix.shape[1] * ELEMENTS[element].itemsize:
        raise ValueError(f"vectors of {vectors.width} bytes for queries {matrix.shape}")
    if (metric == "hamming") != (element == "uint8"):
        raise ValueError(f"distance {metric} of {element}")
    for numbers, size in ((bounds, len(matrix) + 1), (found.fragment, total)):
        if not is_plain(numbers, np.int64, size):
            raise ValueError(f"{numbers.dtype} of shape {numbers.shape} for {size} rows")
    if not is_plain(found.row, np.int64, total) or not is_plain(found.key, np.uint64, total):
        raise ValueError(f"rows {found.row.shape} of {found.row.dtype} for {total} keys")
    if bounds.item(0) or bounds.item(-1) != total:
        raise ValueError(f"bounds {bounds.item(0)} to {bounds.item(-1)} of {total} rows")
    if not is_plain(limits, np.float32, len(matrix)) or count < 1:
        raise ValueError(f"{count} rows, {len(limits)} limits of {limits.dtype}")
