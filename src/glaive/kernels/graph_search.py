"""Search neighbour graphs: go from an entry to the neighbours that are nearer to a query.

A search keeps the nearest nodes found until now, up to a capacity. It continues with the nearest
of them whose neighbours it has not read. Above the lowest level a capacity of 1 leads to a good
entry below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from struct import pack
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple, dataclass
from glaive.kernels._addresses import KEEPS_ADDRESSES, address, given, is_plain, kept_address
from glaive.kernels.native import codes as codes_loops
from glaive.kernels.native import graph as graph_loops
from glaive.types import Flags, Float32s, Int64s, UInt8s, UInt32s, UInt64s

# --- Places of the rows of a partition, for kernels that search it ----------------------


@dataclass(frozen=True, eq=False)
class RowPlaces:
    """Places of the rows of a partition, in its order; checked when created.

    Parameters
    ----------
    fragment
        ``int64``: position of the fragment in the list.
    row
        ``int64``: physical row.
    key
        ``uint64``: row id.
    live
        Flags of the rows to search: live, and in a fragment that the segment covers.
        ``None``: all rows.

    Raises
    ------
    ValueError
        The arrays have different lengths or types.
    """

    fragment: Int64s
    row: Int64s
    key: UInt64s
    live: Flags | None = None
    count: int = field(init=False)
    """Number of rows."""

    def __post_init__(self) -> None:
        count = len(self.key)
        good = is_plain(self.fragment, np.int64, count) and is_plain(self.row, np.int64, count)
        good = good and is_plain(self.key, np.uint64, count)
        if not good or not (self.live is None or is_plain(self.live, np.bool_, count)):
            raise ValueError(f"{len(self.fragment)} fragments and {len(self.row)} rows of {count}")
        object.__setattr__(self, "count", count)

    @kept_address
    def located(self) -> bytes:
        """Pack the number of rows, and the addresses of its arrays, for the kernel."""
        arrays = self.live, self.fragment, self.row, self.key
        return pack("5q", len(self.key), *map(given, arrays))

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        flags = 0 if self.live is None else self.live.nbytes
        return int(self.fragment.nbytes + self.row.nbytes + self.key.nbytes + flags)


# --- Levels of neighbour graphs, checked for kernels that search them -------------------

_MAX_LEVELS: Final = 255


@dataclass(frozen=True, eq=False)
class GraphLevel:
    """Neighbours of the nodes of a level; checked when created.

    Parameters
    ----------
    offsets
        ``int64``: the first neighbour of each row, and the end of the last row.
    neighbors
        ``uint32``: nodes; searches skip numbers without a node.
    row_of
        ``int32`` of shape ``(nodes,)``: the row of each node, or -1. ``None``: the row is the
        number of the node.

    Raises
    ------
    ValueError
        Offsets descend, or leave the neighbours.
    """

    offsets: Int64s
    neighbors: UInt32s
    row_of: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        offsets, end = self.offsets, len(self.neighbors)
        right = len(offsets) > 0 and offsets.dtype == np.int64 and offsets.flags.c_contiguous
        right = right and int(offsets[0]) >= 0 and int(offsets[-1]) <= end
        if not right or (offsets[1:] < offsets[:-1]).any():
            raise ValueError(f"{len(offsets)} offsets of {end} neighbours")
        if self.neighbors.dtype != np.uint32 or not self.neighbors.flags.c_contiguous:
            raise ValueError(f"neighbours of {self.neighbors.dtype}")
        rows = self.row_of
        if rows is not None and not (rows.dtype == np.int32 and rows.flags.c_contiguous):
            raise ValueError(f"rows of nodes of {rows.dtype}")

    @kept_address
    def located(self) -> bytes:
        """Pack the addresses of its arrays for the kernel."""
        row_of = given(self.row_of)
        rows = len(self.offsets) - 1
        return pack("4q", address(self.offsets), address(self.neighbors), rows, row_of)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        rows = 0 if self.row_of is None else self.row_of.nbytes
        return int(self.offsets.nbytes + self.neighbors.nbytes + rows)


@dataclass(frozen=True, eq=False)
class GraphLevels:
    """Levels of a graph; checked when created. Threads may share an instance.

    Parameters
    ----------
    levels
        All levels, the lowest first.

    Raises
    ------
    ValueError
        ``levels`` is empty or too long, or the levels have different nodes.
    """

    levels: Sequence[GraphLevel]
    count: int | None = field(init=False)
    """Number of nodes, if a level says it."""
    _visited: list[tuple[UInt8s, int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        counts = {len(one.row_of) for one in self.levels if one.row_of is not None}
        if not 1 <= len(self.levels) <= _MAX_LEVELS or len(counts) > 1:
            raise ValueError(f"{len(self.levels)} levels of {counts} nodes")
        object.__setattr__(self, "count", counts.pop() if counts else None)
        object.__setattr__(self, "_visited", [])

    @kept_address
    def located(self) -> bytes:
        """Join the addresses of all levels for the kernel: the highest level first."""
        return b"".join([level.located for level in reversed(self.levels)])

    @property
    def nbytes(self) -> int:
        """Bytes of memory, with the bytes that each search leaves for the next."""
        lowest = len(self.levels[0].offsets)
        return sum(level.nbytes for level in self.levels) + lowest

    def visited(self, nodes: int) -> tuple[UInt8s, int]:
        """Return a byte for each node, and a number greater than all of these bytes.

        Both are for one search. It may store this number and, for each further level, the next
        number.

        Raises
        ------
        ValueError
            The levels are for another number of nodes.
        """
        if self.count not in (None, nodes):
            raise ValueError(f"levels of {self.count} nodes instead of {nodes}")
        # Take the bytes that an earlier search left, unless another thread has them: clearing
        # them may take longer than a search.
        flags, stamp = self._visited.pop() if self._visited else (np.zeros(nodes, np.uint8), 1)
        if len(flags) != nodes or stamp + len(self.levels) > _MAX_LEVELS + 1:
            return np.zeros(nodes, np.uint8), 1
        return flags, stamp

    def keep_visited(self, flags: UInt8s, stamp: int) -> None:
        """Keep the result of :meth:`visited` for the next search."""
        if not self._visited:
            self._visited.append((flags, stamp + len(self.levels)))


Comparison: TypeAlias = Literal["squared", "product", "gap", "bytes", "tables"]

COMPARISONS: Final[tuple[Comparison, ...]] = ("squared", "product", "gap", "bytes", "tables")
_NUMBERS: Final = {comparison: at for at, comparison in enumerate(COMPARISONS)}
_FLOAT, _BYTE = np.dtype(np.float32), np.dtype(np.uint8)
_TYPES: Final = {
    "squared": (_FLOAT, _FLOAT),
    "product": (_FLOAT, _FLOAT),
    "gap": (_BYTE, _BYTE),
    "bytes": (_BYTE, _FLOAT),
    "tables": (_BYTE, _FLOAT),
}
"""Types of the codes and of the query."""

_ENTRIES: Final = 256

MAX_CAPACITY: Final = 1 << 16
"""Largest number of nodes that a search keeps."""

_MAX_NODES: Final = 1 << 30
_FRESH: Final = 64
_PLACES: Final = 16
"""First byte of the addresses of fragments, rows and keys in :attr:`RowPlaces.located`."""


class ReachedNodes(NamedTuple):
    """The nearest nodes that a search reached, nearest first.

    Parameters
    ----------
    numbers
        Numbers of the nodes.
    distances
        ``float32``: the result of each comparison, with its term if codes have terms, scaled.
    placed
        Bits of fragments, rows and keys of the nearest nodes; ``None`` if distances are equal.
    """

    numbers: NDArray[np.signedinteger]
    distances: Float32s
    placed: UInt64s | None = None


def search_graph(
    levels: GraphLevels,
    entry: int,
    rows: CodeRows,
    query: CodeQuery,
    capacity: int,
    offset: float = 0,
    places: RowPlaces | None = None,
    wanted: int = 0,
) -> ReachedNodes:
    """Return the nearest nodes found; skip nodes whose distance is NaN.

    Parameters
    ----------
    entry
        Node where the search starts, on the highest level.
    rows, query
        Codes of the nodes, and the query; of several queries the first. Codes have terms only for
        tables, and no scales. The query has no shift.
    capacity
        Nodes kept on the lowest level, at most :data:`MAX_CAPACITY`.
    offset
        Distances are the offset plus the factor of the query times the results of comparisons.
    places, wanted
        Places of all nodes, and the number of nodes whose places are wanted.
    """
    width, kind = _check_query(query, capacity, len(query.query))
    count = rows.shape[2]
    good = rows.shape == (kind, width, count) and rows.scales is None and query.shift == 0
    if not good or (query.comparison == "tables") != (rows.terms is not None):
        raise ValueError(f"rows {count} of {rows.shape[:2]} for {query.comparison} of {width}")
    if not 0 <= entry < count < _MAX_NODES or capacity > MAX_CAPACITY:
        raise ValueError(f"entry {entry} of {count} nodes, capacity {capacity}")
    if places is not None and places.count != count:
        raise ValueError(f"places of {places.count} nodes instead of {count}")
    visited, stamp = levels.visited(count)
    # Distances, nodes, and the neighbours of one node.
    room = np.empty(2 * capacity + _FRESH, np.int32)
    table, codes, first = levels.located, rows.located, address(room)
    wanted = min(wanted, capacity)
    placed = None if places is None else np.empty((3, wanted), np.uint64)
    located = None if places is None else places.located[_PLACES:]
    size, ordered = graph_loops.search_graph(
        levels=address(table), level_count=len(levels.levels), nodes=count, entry=entry,
        visited=address(visited), stamp=stamp, kind=_NUMBERS[query.comparison],
        codes=address(codes), width=width, query=address(query.query), capacity=capacity,
        distances=first, found=first + 4 * capacity, fresh=first + 8 * capacity,
        offset=offset, factor=query.factor, places=0 if located is None else address(located),
        wanted=wanted, placed=given(placed),
    )  # fmt: skip
    levels.keep_visited(visited, stamp)
    if placed is not None:
        placed = placed[:, :ordered] if ordered == min(wanted, size) else None
    return ReachedNodes(room[capacity : capacity + size], room.view(np.float32)[:size], placed)


# --- Compare a query with the codes of vectors ------------------------------------------
#
# Codes are rows of bytes. With tables, each byte of a row selects an entry of its own table, and
# the distance is the sum of the entries. Otherwise bytes are numbers.

MAX_WIDTH: Final = 1 << 15
"""Largest number of bytes in a row: squared distances fit 31 bits."""


def sum_tables(codes: UInt8s, tables: Float32s, start: Float32s) -> Float32s:
    """Return for each row the sum of the entries that its bytes select.

    Parameters
    ----------
    codes
        ``uint8`` of shape ``(rows, width)``, contiguous.
    tables
        ``float32`` of shape ``(width, 256)``, contiguous.
    start
        ``float32`` of shape ``(rows,)``, added to the sums.
    """
    rows, width = codes.shape if codes.ndim == 2 else (0, -1)
    right = codes.dtype == np.uint8 and codes.flags.c_contiguous and start.shape == (rows,)
    if not right or tables.shape != (width, _ENTRIES) or not _is_plain(tables):
        raise ValueError(f"tables {tables.shape} and {start.shape} for codes {codes.shape}")
    out = np.array(start, np.float32)
    codes_loops.sum_tables(address(codes), rows, width, address(tables), address(out))
    return out


def part_products(
    entries: Float32s, vector: Float32s, factor: float = 1, center: Float32s | None = None
) -> Float32s:
    """Multiply the parts of vectors with the entries of a codebook, and with a factor.

    Parameters
    ----------
    entries
        ``float32`` of shape ``(parts, width, entries)``, contiguous: for each part, dimension
        by dimension.
    vector
        ``float32`` of shape ``(parts * width,)`` or, for several vectors, ``(n, parts * width)``.
    center
        A vector of shape ``(parts * width,)``, subtracted first.

    Returns
    -------
    numpy.ndarray
        ``float32`` of shape ``(parts, entries)`` or ``(n, parts, entries)``.
    """
    right = entries.ndim == 3 and _is_plain(entries) and _is_plain(vector)
    parts, width, count = entries.shape if right else (0, 0, 0)
    *several, size = vector.shape
    if not right or size != parts * width:
        raise ValueError(f"a vector {vector.shape} for entries {entries.shape}")
    if center is not None and not is_plain(center, np.float32, size):
        raise ValueError(f"a center {center.shape} of a vector {vector.shape}")
    out = np.empty((*several, parts, count), np.float32)
    codes_loops.part_products(
        address(entries), parts, width, count, address(vector), vector.size // max(1, size),
        given(center), np.float32(factor), address(out),
    )  # fmt: skip
    return out


def join_tables(tables: Float32s) -> Float32s:
    """Return tables of the 256 sums of two tables of 16 entries, for both codes of a byte.

    Parameters
    ----------
    tables
        ``float32`` of shape ``(…, 2 * width, 16)``, contiguous; the first of two for low halves.
    """
    *several, halves, entries = tables.shape
    if not _is_plain(tables) or halves % 2 or entries != 16:
        raise ValueError(f"tables {tables.shape} of {tables.dtype}")
    out = np.empty((*several, halves // 2, _ENTRIES), np.float32)
    codes_loops.join_tables(address(tables), tables.size // (2 * entries), address(out))
    return out


def encode_numbers(
    numbers: Float32s, start: float, step: float
) -> tuple[UInt8s, NDArray[np.float64]]:
    """Return the number of steps from a start to each number, as bytes, and sums of the last axis.

    Lower numbers and NaN become 0, numbers too great for a byte 255. The step is positive.
    """
    if not numbers.ndim or not _is_plain(numbers) or not step:
        raise ValueError(f"numbers {numbers.shape} of {numbers.dtype}, step {step}")
    *several, width = numbers.shape
    out, totals = np.empty(numbers.shape, np.uint8), np.empty(several)
    codes_loops.encode_numbers(
        address(numbers), totals.size, width, start, step, address(out), address(totals)
    )
    return out, totals


def _is_plain(numbers: Float32s) -> bool:
    return numbers.dtype == np.float32 and bool(numbers.flags.c_contiguous)


# --- Compare a query with the codes of several partitions at once, and keep the nearest rows
#
# The distance of a row is ``offset + weight * term + (compared - shift) * scale``. Offset and
# weight belong to the partition, term and scale to the row. The default of terms is 0, and the
# default of scales the scale of the query. :class:`CodeQuery` describes ``compared``. Kernels skip
# deleted and excluded rows. Among equal distances the lower key comes first.

_FIELDS: Final = 9
_COUNT: Final = 4
"""Numbers of a partition's record for the kernel; which of them is the number of rows."""

_SCANNED: Final = (np.dtype(np.int64), _FLOAT, _FLOAT)

_BLOCK: Final = 64
_MAX_PARTS: Final = 256
"""Codes of a block, and the largest number of parts whose sums of bytes have 16 bits."""


class CodeQuery(NamedTuple):
    """A query, or several queries, and the way to compare codes with it.

    Parameters
    ----------
    comparison
        As for graphs: ``squared`` or ``product`` for vectors, ``gap`` (squared) or ``bytes``
        (product) for rows of bytes, ``tables`` for bytes that select entries.
    query
        ``float32`` of shape ``(width,)``; bytes for ``gap``; tables ``(width, 256)``. With several
        queries, the first dimension is their number.
    factor
        Scale of rows without their own.
    shift
        Subtracted from the result of a comparison: a number, or one for each query.
    bits
        Bits of a code. With ``bytes``, codes are less than a power of two. With ``tables``, each
        byte has one or two codes; tables for two codes have the sums of their entries.
    """

    comparison: Comparison
    query: NDArray[Any]
    factor: float = 1
    shift: float | list[float] = 0
    bits: int = 8

    def first(self) -> CodeQuery:
        """Return the first of several queries."""
        shift = self.shift[:1] if isinstance(self.shift, list) else self.shift
        return self._replace(query=self.query[0], shift=shift)


@dataclass(frozen=True, eq=False)
class CodeRows:
    """Codes of a partition; checked when created.

    Parameters
    ----------
    codes
        ``float32`` or ``uint8`` of shape ``(rows, width)``.
    terms, scales
        ``float32`` of shape ``(rows,)``, or ``None``.
    blocks
        The same codes as :func:`code_blocks` arranges them, or ``None``. They serve comparisons by
        tables, of rows with terms but without scales.

    Raises
    ------
    ValueError
        The arrays contradict each other.
    """

    codes: NDArray[Any]
    terms: Float32s | None = None
    scales: Float32s | None = None
    blocks: UInt8s | None = None
    shape: tuple[Any, int, int] = field(init=False)
    """Type, width and number of the codes."""

    def __post_init__(self) -> None:
        codes = self.codes
        good = codes.ndim == 2 and codes.dtype in (np.float32, np.uint8)
        if not good or not codes.flags.c_contiguous:
            raise ValueError(f"codes {codes.shape} of {codes.dtype}")
        for numbers in (self.terms, self.scales):
            if numbers is not None and not is_plain(numbers, np.float32, len(codes)):
                raise ValueError(f"{numbers.dtype} of shape {numbers.shape} for {len(codes)} rows")
        if self.blocks is not None:
            size = len(codes) // _BLOCK * _BLOCK * codes.shape[1]
            fits = codes.dtype == np.uint8 and is_plain(self.blocks, np.uint8, size)
            if not fits or self.terms is None or self.scales is not None:
                raise ValueError(f"blocks of {len(self.blocks)} bytes for codes {codes.shape}")
        object.__setattr__(self, "shape", (codes.dtype, codes.shape[1], len(codes)))

    @kept_address
    def located(self) -> bytes:
        """Pack the addresses of its arrays for the kernel."""
        return pack("4q", *map(given, (self.codes, self.terms, self.scales, self.blocks)))


class ScannedPartition(NamedTuple):
    """A partition to compare with a query.

    Parameters
    ----------
    rows, places
        Its codes, and the places of its rows.
    offset, weight
        As in the comment at the head of this section.
    """

    rows: CodeRows
    places: RowPlaces
    offset: float
    weight: float = 1


@dataclass(frozen=True, slots=True, eq=False)
class AllowedBits:
    """A bit for each row of some fragments; checked when created.

    Parameters
    ----------
    starts, sizes
        ``int64``: number of the first bit of each fragment, and the number of its bits. Later
        rows and later fragments are excluded.
    bits
        ``uint8``, the lowest bit of a byte first.

    Raises
    ------
    ValueError
        ``bits`` is too short.
    """

    starts: Int64s
    sizes: Int64s
    bits: UInt8s

    def __post_init__(self) -> None:
        starts, sizes, end = self.starts, self.sizes, 8 * len(self.bits)
        good = is_plain(starts, np.int64, len(sizes)) and is_plain(sizes, np.int64, len(starts))
        good = good and is_plain(self.bits, np.uint8, len(self.bits)) and len(self.bits) > 0
        if not good or (starts < 0).any() or (sizes < 0).any() or (starts > end).any():
            raise ValueError(f"{end} bits of {len(starts)} fragments")
        if (sizes > end - starts).any():
            raise ValueError(f"{end} bits of {len(starts)} fragments")

    def contains(self, fragment: Int64s, row: Int64s) -> Flags:
        """Return which rows are allowed, one flag each."""
        known = (fragment >= 0) & (fragment < len(self.starts))
        known[known] = (row[known] >= 0) & (row[known] < self.sizes[fragment[known]])
        at = self.starts[fragment[known]] + row[known]
        known[known] = (self.bits[at >> 3] >> (at & 7).astype(np.uint8)) & np.uint8(1) != 0
        return known


def code_blocks(codes: UInt8s, bits: int = 8) -> UInt8s | None:
    """Arrange codes that select entries of tables, 64 rows at a time and byte by byte.

    The rows 0, 32, 1, 33 and so on are adjacent; the last rows, fewer than 64, are left out.
    Return ``None`` if the processor cannot compare blocks, or if codes are too wide.
    """
    count, width = codes.shape
    few = width * 8 > _MAX_PARTS * bits or count < _BLOCK
    if few or bits > codes_loops.table_bits():
        return None
    blocks = codes[: count // _BLOCK * _BLOCK].reshape(-1, 2, _BLOCK // 2, width)
    return np.ascontiguousarray(blocks.transpose(0, 3, 2, 1)).reshape(-1)


class Nearest(NamedTuple):
    """The nearest rows, nearest first, and for each query how many they are, and were compared."""

    distance: Float32s
    key: UInt64s
    fragment: Int64s
    row: Int64s
    sizes: list[int]
    compared: list[int]


@dataclass(frozen=True, eq=False)
class PartitionTable:
    """Partitions that several scans compare, by number; checked when created.

    Parameters
    ----------
    records
        ``int64``: for each partition the numbers that the kernel reads.
    parts
        The partitions in memory.
    nbytes
        Bytes of memory.
    """

    records: Int64s
    parts: Mapping[int, tuple[CodeRows, RowPlaces]]
    nbytes: int
    total: int = field(init=False)
    """Number of rows."""
    kind: tuple[Any, int] | None = field(init=False)
    """Type and width of the codes."""
    has_blocks: bool = field(init=False)

    def __post_init__(self) -> None:
        shapes = [rows.shape for rows, _ in self.parts.values()]
        kinds = {shape[:2] for shape in shapes}
        counts = [len(places) for _, places in self.parts.values()]
        if len(kinds) > 1 or [shape[2] for shape in shapes] != counts:
            raise ValueError(f"codes are {kinds} for {sum(counts)} rows")
        object.__setattr__(self, "kind", kinds.pop() if kinds else None)
        object.__setattr__(self, "total", sum(counts))
        blocks = any(rows.blocks is not None for rows, _ in self.parts.values())
        object.__setattr__(self, "has_blocks", blocks)

    @classmethod
    def of(cls, count: int) -> PartitionTable:
        """Return a table of ``count`` partitions, none of them in memory."""
        records = np.zeros((count, _FIELDS), np.int64)
        records[:, _COUNT] = -1
        return cls(records, {}, records.nbytes)

    def joined(self, parts: Mapping[int, tuple[CodeRows, RowPlaces]], nbytes: int) -> Self:
        """Return the table with more partitions."""
        records = self.records.copy()
        for number, (rows, places) in parts.items():
            records[number] = np.frombuffer(rows.located + places.located, np.int64)
        return type(self)(records, {**self.parts, **parts}, self.nbytes + nbytes)


def scan_codes(
    partitions: Sequence[ScannedPartition],
    query: CodeQuery,
    count: int,
    *,
    low: float | None = None,
    high: float = np.inf,
    allowed: AllowedBits | None = None,
) -> Nearest:
    """Return the nearest rows of some partitions.

    Parameters
    ----------
    count
        Largest number of rows to return, at least 1.
    low, high
        Least and greatest distance of rows to return; without ``low`` any.
    allowed
        The only rows to compare; ``None``: all.
    """
    parts = {number: (part.rows, part.places) for number, part in enumerate(partitions)}
    table = PartitionTable.of(len(parts)).joined(parts, 0)
    with np.errstate(over="ignore"):
        numbers = np.array([part[2:] for part in partitions], np.float32).reshape(1, -1, 2)
    offsets, weights = numbers.transpose(2, 0, 1).copy()
    every = np.arange(len(parts))[None], offsets, weights, [len(parts)]
    query = query._replace(query=query.query[None])
    found = scan_table(table, *every, query, count, low=low, high=[high], allowed=allowed)
    if found is None:
        raise ValueError("a partition is missing")
    return found


def scan_table(
    table: PartitionTable,
    numbers: Int64s,
    offsets: Float32s,
    weights: Float32s,
    counts: list[int],
    query: CodeQuery,
    count: int,
    *,
    low: float | None = None,
    high: list[float],
    allowed: AllowedBits | None = None,
) -> Nearest | None:
    """Return the nearest rows of partitions of a table, query by query.

    ``None`` if a partition is missing. For the other parameters see :func:`scan_codes`.

    Parameters
    ----------
    numbers, offsets, weights
        Numbers of the partitions, their offsets and weights, of shape ``(queries, partitions)``.
    counts
        The number of partitions of each query, the first of its line.
    query
        One or several queries, with the dimension of several.
    high
        Greatest distance of rows to return for each query.
    """
    several, most = shape = numbers.shape
    width, kind = _check_query(query, count, several)
    good = numbers.flags.c_contiguous and offsets.flags.c_contiguous and weights.flags.c_contiguous
    good = good and offsets.shape == weights.shape == shape and 0 < several == len(counts)
    if not good or (numbers.dtype, offsets.dtype, weights.dtype) != _SCANNED:
        raise ValueError(f"{shape} partitions, {offsets.shape} offsets, {weights.shape} weights")
    if table.kind is not None and table.kind != (kind, width):
        raise ValueError(f"codes are {table.kind} for a query of {width} numbers")
    if not KEEPS_ADDRESSES:
        table = PartitionTable.of(len(table.records)).joined(table.parts, 0)
    capacity = max(1, min(count, table.total))
    # Keys, places, and distances in half of the last line; then numbers of rows.
    end = several * capacity
    found, scratch = np.empty((4, end + several), np.uint64), None
    shifts = query.shift if isinstance(query.shift, list) else [query.shift] * several
    least = -np.inf if low is None else low
    limits = pack(f"{2 + 3 * several}d", least, query.factor, *counts, *high, *shifts)
    if query.comparison == "bytes" or (
        table.has_blocks and allowed is None and (query.factor, query.shift) == (1, 0)
    ):
        scratch = np.empty(8 + width * (_ENTRIES + 4), np.uint8)
    size = codes_loops.scan_codes(
        parts=address(table.records), part_total=len(table.records), chosen_parts=address(numbers),
        offsets=address(offsets), weights=address(weights), most_parts=most,
        kind=COMPARISONS.index(query.comparison), width=width, code_bits=query.bits,
        code_bytes=width * kind.itemsize, query=address(query.query),
        query_bytes=query.query.nbytes // several, query_count=several, numbers=address(limits),
        starts=0 if allowed is None else address(allowed.starts),
        sizes=0 if allowed is None else address(allowed.sizes),
        fragments=0 if allowed is None else len(allowed.starts),
        bits=0 if allowed is None else address(allowed.bits), capacity=capacity,
        found=address(found), scratch=given(scratch),
    )  # fmt: skip
    if size < 0:
        return None
    keys, fragments, rows_of, heap = found
    return Nearest(
        heap.view(np.float32)[:size], keys[:size], fragments.view(np.int64)[:size],
        rows_of.view(np.int64)[:size], keys[end:].tolist(), fragments[end:].tolist(),
    )  # fmt: skip


def _check_query(query: CodeQuery, count: int, several: int) -> tuple[int, Any]:
    """Check queries; return the width and the type of the codes that they are compared with."""
    comparison, numbers = query.comparison, query.query
    tables = comparison == "tables"
    width = numbers.shape[1] if numbers.ndim == 2 + tables else -1
    codes, kind = _TYPES[comparison]
    good = count >= 1 and width >= 1 and numbers.dtype == kind and numbers.flags.c_contiguous
    if not good or numbers.shape != (several, width, _ENTRIES)[: numbers.ndim]:
        raise ValueError(f"a query {numbers.shape} of {numbers.dtype}, {count} rows")
    return width, codes
