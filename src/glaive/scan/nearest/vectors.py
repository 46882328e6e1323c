"""Columns of vectors: their type, queries for them, and their values as NumPy arrays.

A row has one vector (a fixed-size list), or several (a list of fixed-size lists). Values are
views of Arrow's memory, which for mapped pages is the file.
"""

from __future__ import annotations

from dataclasses import replace
from sys import maxsize
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import flags_of, number_array
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import OptionError
from glaive.format.logical_types import BFLOAT16, EXTENSION_NAME
from glaive.kernels.distances import (
    ELEMENTS,
    Element,
    FoundRows,
    Metric,
    Queries,
    VectorBlock,
    measure,
)
from glaive.scan.found_columns import AddedColumns
from glaive.scan.projection import ROW_ID
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import Views
from glaive.types import Flags, Float32s, Int64s, items_of

# --- Columns that a vector search adds: the distance and, in a batch, the query ---------

DISTANCE: Final = "_distance"
QUERY: Final = "query_index"

_DISTANCE: Final = pa.field(DISTANCE, pa.float32())
_QUERY: Final = pa.field(QUERY, pa.int32(), nullable=False)

_SINGLE_COLUMNS: Final = AddedColumns(MappingProxyType({DISTANCE: _DISTANCE}), (), DISTANCE)
_BATCH_COLUMNS: Final = AddedColumns(
    MappingProxyType({DISTANCE: _DISTANCE, QUERY: _QUERY}), (QUERY,), DISTANCE
)


def added_columns(views: Views, *, batch: bool) -> AddedColumns:
    """Return the columns that a search of one query or of several queries adds.

    Raises
    ------
    OptionError
        The dataset has a column with a name that the result of a batch needs.
    """
    if not batch:
        return _SINGLE_COLUMNS
    if QUERY in views.snapshot.manifest.schema.names:
        raise OptionError(
            f"nearest: the dataset has a column {QUERY!r}, which is what the result of several "
            "queries calls the number of the query. Search with one query at a time."
        )
    return _BATCH_COLUMNS


# --- The nearest rows found so far, for one query or many -------------------------------

Int32s = NDArray[np.int32]


class Found(FoundRows):
    """The rows that a search finds."""

    __slots__ = ()

    @classmethod
    def none(cls) -> Self:
        """Return an empty result."""
        number = np.empty(0, np.int64)
        return cls(
            number.astype(np.int32), np.empty(0, np.float32), np.empty(0, np.uint64), number, number
        )

    @classmethod
    def joined(cls, parts: list[Found]) -> Found:
        """Join all rows of several results."""
        if len(parts) == 1:
            return parts[0]
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    @property
    def size(self) -> int:
        """Number of rows, counted for each query."""
        return len(self.query)

    def places(self, _snapshot: Snapshot) -> tuple[Int64s, Int64s]:
        """Return the position of the fragment in the list, and the physical row, of each row."""
        return self.fragment, self.row

    def added(self, name: str) -> pa.Array:
        """Return a column that the search adds."""
        return number_array(self.distance if name == DISTANCE else self.query)

    def stored(self, name: str, _snapshot: Snapshot) -> pa.Array | None:
        """Return row ids, which are known."""
        return number_array(self.key) if name == ROW_ID else None

    def without_repeats(self) -> Found:
        """Return each row once, as found by the first query."""
        order = np.lexsort((self.row, self.fragment))
        same = np.diff(self.fragment[order]) == 0
        same &= np.diff(self.row[order]) == 0
        kept = self.take(order[np.concatenate(([True], ~same))] if len(order) else order)
        return kept._replace(query=np.zeros(kept.size, np.int32))

    def take(self, chosen: Int64s | Flags) -> Found:
        """Return chosen rows, in this order."""
        query, distance, key, fragment, row = self
        return Found(query[chosen], distance[chosen], key[chosen], fragment[chosen], row[chosen])


def nearest_of(distances: Float32s, count: int, limit: float) -> Int64s:
    """Return the numbers of the ``count`` smallest distances up to a limit.

    Also return all distances that equal the last one. Skip NaN.
    """
    chosen: Int64s = (distances <= limit).nonzero()[0]
    if len(chosen) <= count:
        return chosen
    near = distances[chosen]
    last = np.partition(near, count - 1)[count - 1]
    kept: Int64s = chosen[near <= last]
    return kept


def _ranks(query: Int32s, distance: Float32s) -> Int64s:
    """Return numbers in the order of queries and, for each, of distances."""
    # The bits of positive floats ascend with the floats, and the bits of negative floats descend.
    # Adding 0 replaces -0 by 0.
    bits = (distance + np.float32(0)).view(np.int32)
    bits = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)
    ranks: Int64s = (query.astype(np.int64) << 32) + bits
    return ranks


class TopRows:
    """Collects rows of each query, and keeps the nearest. Threads may share it.

    Parameters
    ----------
    count
        Rows wanted for each query.
    limits
        ``float32``: for each query the maximum distance of rows to keep. Lowered as rows are found.
    """

    __slots__ = ("_in_order", "_lock", "_parts", "_waiting", "count", "limits")

    def __init__(self, count: int, limits: Float32s) -> None:
        # Positions of rows are compared with it, and all versions have fewer rows.
        self.count, self.limits = min(count, maxsize), limits
        self._parts: list[Found] = []
        self._waiting = 0
        self._in_order = False
        self._lock = Lock()

    def add(self, found: Found, *, in_order: bool = False) -> None:
        """Add rows; each row of a query once.

        Parameters
        ----------
        in_order
            Whether they are sorted by query, distance, then row id, and are at most ``count`` for
            each query.
        """
        size, several = len(found.query), len(self.limits)
        if not size:
            return
        with self._lock:
            if in_order and several == 1 and size == self.count:
                self.limits[0] = min(self.limits.item(0), found.distance.item(-1))
            after = not self._parts or (
                self._in_order and self._parts[-1].query.item(-1) < found.query.item(0)
            )
            self._in_order = in_order and after
            self._parts.append(found)
            self._waiting += size
            if self._waiting > self.count * several:
                self._reduce()

    def result(self) -> Found:
        """Return the nearest rows: query by query, by distance, then row id."""
        with self._lock:
            if not self._parts:
                return Found.none()
            if not self._in_order:
                self._reduce()
            return Found.joined(self._parts)

    def _reduce(self) -> None:
        found = self._parts[0] if len(self._parts) == 1 else Found.joined(self._parts)
        self._in_order = True
        if len(self.limits) == 1:
            self._reduce_one(found)
            return
        order = np.lexsort((found.key, _ranks(found.query, found.distance)))
        query = found.query[order]
        starts = query.searchsorted(np.arange(len(self.limits) + 1))
        rank = np.arange(len(query)) - starts[query]
        kept = found.take(order[rank < self.count])
        self._parts, self._waiting = [kept], 0
        full = (np.diff(starts) >= self.count).nonzero()[0]
        last = found.distance[order[starts[full] + self.count - 1]]
        self.limits[full] = np.minimum(self.limits[full], last)

    def _reduce_one(self, found: Found) -> None:
        """Keep the nearest rows of the only query."""
        kept = found.take(np.lexsort((found.key, found.distance))[: self.count])
        self._parts, self._waiting = [kept], 0
        if kept.size == self.count:
            self.limits[0] = min(self.limits[0], kept.distance[-1])


_INFINITE: Final = np.float32(np.inf)

_ELEMENTS: Final[dict[pa.DataType, Element]] = {
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.uint8(): "uint8",
}


@dataclass(frozen=True, slots=True)
class VectorType:
    """The type of a column of vectors.

    Parameters
    ----------
    element
        Type of the elements.
    dimension
        Elements of a vector.
    several
        Whether a row has a list of vectors.
    """

    element: Element
    dimension: int
    several: bool = False

    @property
    def default_metric(self) -> Metric:
        """The default metric."""
        return "hamming" if self.element == "uint8" else "l2"

    def check_metric(self, metric: Metric, column: str) -> None:
        """Raise an ``OptionError`` if vectors of this type lack such a distance."""
        if self.several and self.element == "uint8":
            raise OptionError(
                f"nearest: metric: column {column!r} has several vectors of uint8 in a row, which "
                "have no distance"
            )
        if (metric == "hamming") != (self.element == "uint8"):
            possible = "hamming" if self.element == "uint8" else "l2, cosine or dot"
            raise OptionError(
                f"nearest: metric: column {column!r} has vectors of {self.element}, whose distance "
                f"is {possible}, not {metric}"
            )

    def queries(self, given: NDArray[Any], column: str) -> Queries:
        """Convert query vectors to this type.

        Raises
        ------
        OptionError
            They have another dimension.
        """
        if given.shape[-1] != self.dimension:
            raise OptionError(
                f"Query vector size {given.shape[-1]} does not match index column size "
                f"{self.dimension}. nearest: column {column!r} has vectors of {self.dimension} "
                f"numbers; pass as many as q, from the same model."
            )
        matrix = given if given.ndim == 2 else given[None]
        if self.element == "uint8" and matrix.dtype != np.uint8:
            matrix = np.clip(np.nan_to_num(matrix), 0, 255)
        elif self.element == "float16":  # rounded like the vectors, as in pylance
            matrix = matrix.astype(np.float16)
        return Queries.of(matrix, self.element)


def vector_type(field: pa.Field[Any], column: str) -> VectorType:
    """Return the type of the vectors of a field, as it is stored.

    Raises
    ------
    OptionError
        It lacks vectors, or its vectors have an unsupported type.
    """
    kind: Any = _storage(field.type)
    several = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    inner = _storage(kind.value_type) if several else kind
    if not pa.types.is_fixed_size_list(inner):
        raise OptionError(
            f"Query column {column} must be a vector. Got {field.type}: nearest: name a column "
            "of fixed-size lists of numbers, or of lists of such lists."
        )
    element = _ELEMENTS.get(inner.value_type) or _brain_float(inner.value_field)
    if element is None:
        names = ", ".join(ELEMENTS)
        raise OptionError(
            f"nearest: column {column!r} has vectors of {inner.value_type}, which have no "
            f"distance; vectors of {names} have"
        )
    if inner.list_size == 0:
        raise OptionError(f"nearest: column {column!r} has vectors without elements")
    return VectorType(element, inner.list_size, several)


def _storage(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _brain_float(field: pa.Field[Any]) -> Element | None:
    named = (field.metadata or {}).get(EXTENSION_NAME.encode()) == BFLOAT16.encode()
    return "bfloat16" if named and field.type == pa.binary(2) else None


class RowVectors(NamedTuple):
    """The vectors of some rows.

    Parameters
    ----------
    block
        All vectors.
    valid
        Which rows have a vector; ``None`` if all have.
    bounds
        Start of the vectors of each row, and the end of the last; ``None`` if each row has one.
    """

    block: VectorBlock
    valid: Flags | None
    bounds: Int64s | None


def row_vectors(array: Any, kind: VectorType) -> RowVectors:
    """Return the vectors of an array, whose type :func:`vector_type` accepted."""
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    rows = len(array)
    valid = flags_of(array.buffers()[0], rows, array.offset) if array.null_count else None
    if not kind.several:
        vectors, inner_valid = _block(array, kind)
        return RowVectors(vectors, _all_true(valid, inner_valid), None)
    width = 8 if pa.types.is_large_list(array.type) else 4
    bounds = items_of(array.buffers()[1], f"<i{width}", rows + 1, array.offset * width)
    bounds = bounds.astype(np.int64)
    inner = array.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    inner = inner.storage if isinstance(inner, pa.ExtensionArray) else inner
    vectors, inner_valid = _block(inner, kind)
    if inner.null_count or inner_valid is not None:
        flags = flags_of(inner.buffers()[0], len(inner), inner.offset) if inner.null_count else None
        return _without(vectors, valid, bounds - bounds[0], _all_true(flags, inner_valid))
    return RowVectors(vectors, valid, bounds - bounds[0])


def _block(lists: Any, kind: VectorType) -> tuple[VectorBlock, Flags | None]:
    """Return the vectors of fixed-size lists, and which have only valid elements."""
    dtype, size = ELEMENTS[kind.element], kind.dimension
    items = lists.values.slice(lists.offset * size, len(lists) * size)
    items = items.storage if isinstance(items, pa.ExtensionArray) else items
    values = items_of(items.buffers()[1], dtype, len(items), items.offset * dtype.itemsize)
    valid: Flags | None = None
    if items.null_count:
        flags = flags_of(items.buffers()[0], len(items), items.offset)
        valid = np.all(flags.reshape(-1, size), axis=1)
    return VectorBlock(values, size, kind.element), valid


def _all_true(first: Flags | None, second: Flags | None) -> Flags | None:
    if first is None or second is None:
        return second if first is None else first
    both: Flags = first & second
    return both


def _without(
    vectors: VectorBlock, valid: Flags | None, bounds: Int64s, kept: Flags | None
) -> RowVectors:
    """Remove null vectors."""
    if kept is None:
        return RowVectors(vectors, valid, bounds)
    values = vectors.matrix[kept].reshape(-1)
    before = np.concatenate(([0], kept.cumsum()))
    return RowVectors(replace(vectors, values=values), valid, before[bounds])


# --- The query of a search for nearest vectors ------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """A query for nearest vectors.

    Parameters
    ----------
    kind
        Type of the column.
    queries
        Query vectors: a batch, or the vectors of one query for a column with several vectors per
        row.
    metric
        Kind of distance.
    count
        Rows wanted for each query.
    low, high
        Lowest distance, and the upper bound (exclusive).
    """

    kind: VectorType
    queries: Queries
    metric: Metric
    count: int
    low: float | None = None
    high: float | None = None

    @property
    def answers(self) -> int:
        """Number of queries that are answered separately."""
        return 1 if self.kind.several else self.queries.count

    def limits(self, queries: int) -> Float32s:
        """Return the greatest distance that rows may have, for each of some queries."""
        limits = np.empty(queries, np.float32)
        limits.fill(
            np.inf if self.high is None else np.nextafter(np.float32(self.high), -_INFINITE)
        )
        return limits

    def top(self) -> TopRows:
        """Return a collector of found rows."""
        return TopRows(self.count, self.limits(self.answers))

    def in_range(self, distances: Float32s) -> Float32s:
        """Replace distances below the range by NaN."""
        if self.low is None:
            return distances
        kept: Float32s = np.where(distances >= np.float32(self.low), distances, np.float32(np.nan))
        return kept

    def distances(self, vectors: RowVectors, query: int) -> Float32s:
        """Return the distance of each row from a query; NaN for null vectors or below the range."""
        if self.kind.several:
            distances = self._of_several(vectors)
        else:
            distances = measure(vectors.block, self.queries, self.metric, query=query)
        if vectors.valid is not None:
            distances[~vectors.valid] = np.nan
        return self.in_range(distances)

    def _of_several(self, vectors: RowVectors) -> Float32s:
        """Sum the least distance of a row's vectors from each vector of the query."""
        bounds = vectors.bounds
        if bounds is None:
            raise ValueError("rows with one vector each")
        total = np.full(len(bounds) - 1, np.nan, np.float32)
        rows = np.diff(bounds).nonzero()[0]
        if len(rows):
            total[rows] = 0
            for query in range(self.queries.count):
                distances = measure(vectors.block, self.queries, self.metric, query=query)
                total[rows] += np.fmin.reduceat(distances, bounds[rows])
        return total
