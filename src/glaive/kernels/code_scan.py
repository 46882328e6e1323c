"""Compare a query with the codes of several partitions at once, and keep the nearest rows.

The distance of a row is ``offset + weight * term + (compared - shift) * scale``: offset and weight
belong to the partition, term and scale to the row (else there is no term, and the scale is that of
the query), and ``compared`` is what :class:`CodeQuery` says. Rows that are not live or not allowed
are passed over; of equal distances the lower key comes first.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import field
from struct import pack
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.kernels._addresses import KEEPS_ADDRESSES, address, is_plain
from glaive.kernels._tier import use_compiled
from glaive.kernels.graph_search import COMPARISONS, Comparison, compare
from glaive.kernels.native import code_bounds
from glaive.kernels.native import code_scan as compiled
from glaive.kernels.partition_rows import RowPlaces
from glaive.kernels.vector_records import ScanCodes
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Float32s, Int64s, UInt8s, UInt64s

__all__ = [
    "AllowedBits",
    "CodeQuery",
    "CodeRows",
    "Nearest",
    "ScannedPartition",
    "code_blocks",
    "exercise",
    "scan_codes",
]

_ENTRIES: Final = 256

_RECORD: Final = 72
"""Bytes of a partition for the kernel."""

_BLOCK: Final = 64
_MOST_PARTS: Final = 256
"""Codes of a block; and parts of a code up to which sums of bytes have 16 bits."""


class CodeQuery(NamedTuple):
    """What codes are compared with.

    Parameters
    ----------
    comparison
        As for graphs: ``squared`` or ``product`` of vectors, ``gap`` (squared) or ``bytes``
        (product) of rows of bytes, ``tables`` for bytes that select entries.
    query
        ``float32`` of shape ``(width,)``; bytes for ``gap``; tables ``(width, 256)``.
    factor
        Scale of rows that have none.
    shift
        Taken off what is compared.
    """

    comparison: Comparison
    query: NDArray[Any]
    factor: float = 1
    shift: float = 0


@dataclass(frozen=True, slots=True, eq=False)
class CodeRows:
    """Codes of a partition. What they are is checked once, here.

    Parameters
    ----------
    codes
        ``float32`` or ``uint8`` of shape ``(rows, width)``.
    terms, scales
        ``float32`` of shape ``(rows,)``, or None.
    blocks
        The same codes as :func:`code_blocks` makes them, for comparisons by tables of rows with
        terms and without scales; or None.

    Raises
    ------
    ValueError
        They do not fit each other.
    """

    codes: NDArray[Any]
    terms: Float32s | None = None
    scales: Float32s | None = None
    blocks: UInt8s | None = None
    shape: tuple[Any, int, int] = field(init=False)
    """Type and width of the codes, and how many there are."""
    _places: bytes = field(init=False, repr=False)

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
        object.__setattr__(self, "_places", self._located() if KEEPS_ADDRESSES else b"")

    @property
    def located(self) -> bytes:
        """Where its arrays are, for the kernel."""
        return self._places or self._located()

    def _located(self) -> bytes:
        return pack("4q", *map(_place, (self.codes, self.terms, self.scales, self.blocks)))


class ScannedPartition(NamedTuple):
    """A partition that is compared.

    Parameters
    ----------
    rows, places
        Its codes, and where they are.
    offset, weight
        As in the description of this module.
    """

    rows: CodeRows
    places: RowPlaces
    offset: float
    weight: float = 1


@dataclass(frozen=True, slots=True, eq=False)
class AllowedBits:
    """A bit for each row of some fragments. Checked once, here.

    Parameters
    ----------
    starts, sizes
        ``int64``: number of the first bit of each fragment, and how many it has. Rows
        behind, and fragments behind, are not allowed.
    bits
        ``uint8``, the lowest bit of a byte first.

    Raises
    ------
    ValueError
        There are fewer bits.
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
        """Which rows are allowed, one flag each."""
        known = (fragment >= 0) & (fragment < len(self.starts))
        known[known] = (row[known] >= 0) & (row[known] < self.sizes[fragment[known]])
        at = self.starts[fragment[known]] + row[known]
        known[known] = (self.bits[at >> 3] >> (at & 7).astype(np.uint8)) & np.uint8(1) != 0
        return known


def code_blocks(codes: UInt8s) -> UInt8s | None:
    """Codes that select entries of tables, 64 rows at a time and part by part.

    The rows 0, 32, 1, 33 and so on lie side by side; the last rows, fewer than 64, are left out.
    None where the processor cannot compare blocks, or codes are too wide.
    """
    count, width = codes.shape
    few = width > _MOST_PARTS or count < _BLOCK or not use_compiled(codes.size)
    if few or not code_bounds.permutes_bytes():
        return None
    blocks = codes[: count // _BLOCK * _BLOCK].reshape(-1, 2, _BLOCK // 2, width)
    return np.ascontiguousarray(blocks.transpose(0, 3, 2, 1)).reshape(-1)


class Nearest(NamedTuple):
    """The nearest rows, nearest first, and how many were compared."""

    distance: Float32s
    key: UInt64s
    fragment: Int64s
    row: Int64s
    compared: int


def scan_codes(
    partitions: Sequence[ScannedPartition],
    query: CodeQuery,
    count: int,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    allowed: AllowedBits | None = None,
) -> Nearest:
    """The nearest rows of some partitions.

    Parameters
    ----------
    count
        Rows wanted, at least 1.
    low, high
        Least and greatest distance of rows that are wanted.
    allowed
        The only rows that are compared; None: all.
    """
    width = _check(partitions, query, count)
    total = sum([part[1].count for part in partitions])
    room = min(count, total)
    if not room:
        return _sorted(np.empty(0, np.float32), np.empty(0, np.uint64), np.empty((0, 2)), 0)
    if not use_compiled(total * width):
        return _scan_numpy(partitions, query, count, low, high, allowed)
    # Where codes and rows are, then offsets, weights and limits, in one piece of memory.
    parts = [record for part in partitions for record in (part[0].located, part[1].located)]
    offsets, weights = [part[2] for part in partitions], [part[3] for part in partitions]
    numbers = _singles(*offsets, *weights, low, high, *query[2:])
    table = np.frombuffer(b"".join((*parts, numbers)), np.uint8)
    found = np.empty((4, room), np.uint64)  # keys, places, and distances in half of the last
    start, into, line = address(table), address(found), 8 * room
    first = start + _RECORD * len(partitions)
    scratch = None
    plain = query[2:] == (1, 0) and query.comparison == "tables" and allowed is None
    if plain and partitions[0][0].blocks is not None:
        scratch = np.empty(8 + width * (_ENTRIES + 4), np.uint8)
    call = ScanCodes(
        parts=start, offsets=first, weights=first + 4 * len(partitions),
        part_count=len(partitions), kind=COMPARISONS.index(query.comparison), width=width,
        code_bytes=width * partitions[0].rows.codes.itemsize, query=address(query.query),
        numbers=first + 8 * len(partitions),
        starts=0 if allowed is None else address(allowed.starts),
        sizes=0 if allowed is None else address(allowed.sizes),
        fragments=0 if allowed is None else len(allowed.starts),
        bits=0 if allowed is None else address(allowed.bits), capacity=room, heap=into + 3 * line,
        keys=into, places=into + line, scratch=_place(scratch),
    )  # fmt: skip
    size, compared = compiled.scan_codes(*call)
    keys, fragments, rows, heap = found
    return Nearest(
        heap.view(np.float32)[:size], keys[:size], fragments.view(np.int64)[:size],
        rows.view(np.int64)[:size], compared,
    )  # fmt: skip


def _place(array: NDArray[Any] | None) -> int:
    return 0 if array is None else address(array)


def _singles(*numbers: float) -> bytes:
    """``float32`` of these; those beyond the largest are infinite."""
    try:
        return struct.pack(f"{len(numbers)}f", *numbers)
    except OverflowError:
        with np.errstate(over="ignore"):
            return np.array(numbers, np.float32).tobytes()


def _sorted(distance: Float32s, key: UInt64s, places: NDArray[Any], compared: int) -> Nearest:
    order = np.lexsort((key, distance))
    fragment, row = places[order].astype(np.int64, copy=False).T
    lines = np.ascontiguousarray(fragment), np.ascontiguousarray(row)
    return Nearest(distance[order], key[order], *lines, compared)


def _scan_numpy(
    partitions: Sequence[ScannedPartition],
    query: CodeQuery,
    count: int,
    low: float,
    high: float,
    allowed: AllowedBits | None,
) -> Nearest:
    far, keys, found = [], [], []
    searched = 0
    for rows, places, offset, weight in partitions:
        kept = np.ones(len(places), np.bool_) if places.live is None else places.live.copy()
        if allowed is not None:
            kept &= allowed.contains(places.fragment, places.row)
        searched += int(np.count_nonzero(kept))
        with np.errstate(all="ignore"):
            start = np.full(len(places), np.float32(offset))
            if rows.terms is not None:
                start += np.float32(weight) * rows.terms
            scale = np.float32(query.factor) if rows.scales is None else rows.scales
            compared = compare(query.comparison, rows.codes, query.query)
            distances = start + (compared - np.float32(query.shift)) * scale
        kept &= (distances <= np.float32(high)) & (distances >= np.float32(low))
        far.append(distances[kept])
        keys.append(places.key[kept])
        found.append(np.stack([places.fragment[kept], places.row[kept]], axis=1))
    near = _sorted(np.concatenate(far), np.concatenate(keys), np.concatenate(found), searched)
    first = slice(count)
    return Nearest(
        near.distance[first], near.key[first], near.fragment[first], near.row[first], searched
    )


def _check(partitions: Sequence[ScannedPartition], query: CodeQuery, count: int) -> int:
    """The width of the codes."""
    vectors = query.comparison in ("squared", "product")
    tables = query.comparison == "tables"
    width = int(query.query.shape[0]) if query.query.ndim == 1 + tables else -1
    shape = (width, _ENTRIES) if tables else (width,)
    kind = np.dtype(np.uint8 if query.comparison == "gap" else np.float32)
    plain = query.query.dtype == kind and query.query.flags.c_contiguous
    if count < 1 or not plain or query.query.shape != shape or width < 1:
        raise ValueError(f"a query {query.query.shape} of {query.query.dtype}, {count} rows")
    codes = np.dtype(np.float32 if vectors else np.uint8)
    for rows, places, _, _ in partitions:
        if rows.shape != (codes, width, places.count):
            found = f"{rows.codes.dtype} of shape {rows.codes.shape}"
            raise ValueError(f"codes are {found} for {len(places)} rows of {width}")
    return width


def exercise() -> None:
    """Call every wrapper once with little data."""
    number = np.zeros(2, np.int64)
    rows = CodeRows(np.zeros((2, 4), np.uint8))
    places = RowPlaces(number, number, number.astype(np.uint64))
    query = CodeQuery("gap", np.zeros(4, np.uint8))
    scan_codes([ScannedPartition(rows, places, 0)], query, 1)
    code_blocks(np.zeros((_BLOCK, 1), np.uint8))
