"""Row sets as some indices store them: one bitmap of physical rows per fragment.

Specification: "Sets of rows" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, Self, cast

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import spread
from glaive.encodings.compression import check_decoded
from glaive.errors import CapacityError, CorruptFileError, LimitError, UnsupportedFeatureError
from glaive.format.bitmaps import (
    MAX_NUMBERS,
    RANGE_BYTES,
    bitmap_of,
    is_of_runs,
    offsets_of,
    ranges_of,
)
from glaive.format.wire import parse_bitmap
from glaive.index.address_map import Addresses, AddressMap
from glaive.index.row_set import RowNumbers, RowSet
from glaive.memory import as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s, UInt8s, UInt16s

if TYPE_CHECKING:
    from pyroaring import BitMap, BitMap64


# --- Sets of 64-bit numbers as roaring bitmaps: one of the lower halves for each upper half
# Specification: "NGRAM" in ``docs/format/indices.md``.

_COUNT = struct.Struct("<Q")
_UPPER, _SHORT = struct.Struct("<I"), struct.Struct("<H")
_RUN_COOKIE, _FEW_CONTAINERS, _MOST_LISTED, _BIT_SET = 12347, 4, 4096, 8192
"""Of roaring bitmaps: see :mod:`glaive.index.scalar.rowsets`."""


def decode_treemap(data: bytes, where: object) -> BitMap64:
    """A 64-bit roaring bitmap.

    Raises
    ------
    CorruptFileError
        It cannot be parsed.
    """
    from pyroaring import BitMap64

    try:
        return BitMap64.deserialize(data)
    except (ValueError, IndexError) as error:
        raise CorruptFileError(
            "rows of a trigram", expected="a 64-bit roaring bitmap", found=str(error), where=where
        ) from error


def halves_of(rows: BitMap64, where: object) -> Iterator[tuple[int, BitMap]]:
    """The upper halves of the numbers, ascending, and the lower halves below each."""
    data = memoryview(rows.serialize())
    at = _COUNT.size
    while at < len(data):
        (upper,) = _UPPER.unpack_from(data, at)
        at += _UPPER.size
        size = _size_of(data[at:])
        yield upper, parse_bitmap(bytes(data[at : at + size]), "rows of a trigram", where)
        at += size


def _size_of(data: memoryview) -> int:
    """Bytes of the bitmap that some bytes, which this process has just made, begin with."""
    cookie: int = _UPPER.unpack_from(data)[0]
    has_runs = cookie & 0xFFFF == _RUN_COOKIE
    count: int = (cookie >> 16) + 1 if has_runs else _UPPER.unpack_from(data, 4)[0]
    at: int = 4 + (count + 7 >> 3 if has_runs else 4)
    kinds, counts = data[4:], data[at:]
    at += 4 * count
    first = 0
    if not has_runs or count >= _FEW_CONTAINERS:
        # Where each container begins is stored: only the last one has to be looked at.
        first = count - 1
        (at,) = _UPPER.unpack_from(data, at + 4 * first)
    for one in range(first, count):
        if has_runs and kinds[one >> 3] >> (one & 7) & 1:
            at += 2 + 4 * _SHORT.unpack_from(data, at)[0]
        else:
            rows = _SHORT.unpack_from(counts, 4 * one + 2)[0] + 1
            at += 2 * rows if rows <= _MOST_LISTED else _BIT_SET
    return at


def encode_halves(halves: Mapping[int, BitMap]) -> bytes:
    """The treemap of such halves, as stored bytes; upper halves without numbers are left out."""
    stored = [(upper, halves[upper]) for upper in sorted(halves) if halves[upper]]
    parts = [_COUNT.pack(len(stored))]
    for upper, lower in stored:
        parts += [_UPPER.pack(upper), lower.serialize()]
    return b"".join(parts)


def rows_of_treemap(rows: BitMap64, where: object, stored: int) -> RowSet:
    """The numbers as ranges. Memory follows from the number of these, however long they are.

    Parameters
    ----------
    stored
        Bytes of the file: those of the set may be compressed to next to none.

    Raises
    ------
    CorruptFileError
        One is 2^64 - 1, which no row is.
    UnsupportedFeatureError
        The ranges take more than ``max_decoded_bytes_per_page``, and than ``USUAL_RATIO`` times
        the bytes of the file.
    """
    if rows and rows.max() == 2**64 - 1:
        raise CorruptFileError(
            "rows of an index", expected="rows below 2^64 - 1", found=f"{2**64 - 1}", where=where
        )
    return RowSet(*ranges_of(rows, lambda size: check_decoded(size, stored, where)))


# --- Sets of rows, encoded many at a time: no step per set, fragment, or bitmap ---------
# Specification: "Sets of rows" in ``docs/format/indices.md``.

_COOKIE: Final = 12346
_COOKIE_OF_RUNS: Final = 12347
"""First word of a bitmap without containers of runs, and lower half of that of one with some."""

_SMALL_BITMAP: Final = 4
"""Bitmaps with runs and fewer containers do not say where these are."""

_MOST_IN_LIST: Final = 4096
"""Numbers of a container up to which these are listed, in 16 bits each; of more, a bit is set."""

_BIT_SET_CONTAINER: Final = 8192
_MOST_BYTES: Final = 2**31 - 1


class _Containers(NamedTuple):
    """Rows that differ in the lower 16 bits only, in one set.

    Parameters
    ----------
    owner
        Number of the set of each.
    high
        Upper 48 bits of its rows: fragment, and number among those of the fragment.
    starts, counts
        Its first row among all, and how many it has.
    begins
        Which rows begin a run of rows that follow one another.
    runs
        Runs of each.
    is_run
        Whether runs are stored, by their ends: where that is shorter.
    sizes
        Bytes of each.
    """

    owner: Int64s
    high: Int64s
    starts: Int64s
    counts: Int64s
    begins: Flags
    runs: Int64s
    is_run: Flags
    sizes: Int64s

    @classmethod
    def of(cls, rows: RowNumbers, bounds: Int64s) -> Self:
        """Those of the sets between some bounds."""
        begins = np.zeros(len(rows) + 1, np.bool_)
        begins[bounds] = True
        begins = begins[:-1]
        high = (rows >> np.uint64(16)).astype(np.int64)
        begins[1:] |= high[1:] != high[:-1]
        starts = np.flatnonzero(begins)
        begins[1:] |= rows[1:] != rows[:-1] + np.uint64(1)
        counts = np.diff(starts, append=len(rows))
        runs = np.add.reduceat(begins, starts, dtype=np.int64)
        plain = np.where(counts <= _MOST_IN_LIST, 2 * counts, _BIT_SET_CONTAINER)
        is_run = 2 + 4 * runs < plain
        owner = np.searchsorted(bounds, starts, side="right") - 1
        sizes = np.where(is_run, 2 + 4 * runs, plain)
        return cls(owner, high[starts], starts, counts, begins, runs, is_run, sizes)

    def put(self, data: UInt8s, at: Int64s, rows: RowNumbers) -> None:
        """Store the rows of each at its place."""
        low = rows.astype(np.uint16)
        listed = ~self.is_run & (self.counts <= _MOST_IN_LIST)
        if bool(listed.all()):
            _put_pairs(data, at, self.counts, low)
            return
        numbers = low[spread(self.starts[listed], self.counts[listed])]
        _put_pairs(data, at[listed], self.counts[listed], numbers)
        marked = np.flatnonzero(self.is_run)
        first = np.flatnonzero(self.begins)
        last = np.append(first[1:], len(rows)) - 1
        ends = np.stack((low[first], low[last] - low[first]), axis=1)
        _put(data, at[marked], self.runs[marked], 2)
        stored = ends[np.repeat(self.is_run, self.runs)].reshape(-1)
        _put_pairs(data, at[marked] + 2, 2 * self.runs[marked], stored)
        for one in np.flatnonzero(~self.is_run & ~listed).tolist():
            start, count, place = int(self.starts[one]), int(self.counts[one]), int(at[one])
            bits = np.zeros(_BIT_SET_CONTAINER * 8, np.bool_)
            bits[low[start : start + count]] = True
            data[place : place + _BIT_SET_CONTAINER] = np.packbits(bits, bitorder="little")


def encode_ascending(rows: RowNumbers, bounds: Int64s) -> pa.Array:
    """Encode the sets between some bounds, the rows of each ascending and distinct.

    Takes some 30 bytes of memory for each row, and 200 for each set, besides the result.

    Raises
    ------
    CapacityError
        They take more than 2 GiB.
    """
    sets = len(bounds) - 1
    if not len(rows):
        return _binary(np.arange(sets + 1) * 4, np.zeros(sets * 4, np.uint8))
    containers = _Containers.of(rows, bounds)
    owner, high, is_run = containers.owner, containers.high, containers.is_run
    fragment = high >> 16
    changes = np.ones(len(owner), np.bool_)
    changes[1:] = (owner[1:] != owner[:-1]) | (fragment[1:] != fragment[:-1])
    # One bitmap for each fragment of a set: where its containers begin, and which it is of each.
    firsts, of = np.flatnonzero(changes), np.cumsum(changes) - 1
    number = np.arange(len(owner)) - firsts[of]
    count = np.diff(firsts, append=len(owner))
    # Cookie, then the number of containers or which have runs; of each container what rows it
    # has, and where these are, which short bitmaps with runs leave out.
    has_runs = np.logical_or.reduceat(is_run, firsts)
    flags = np.where(has_runs, (count + 7) >> 3, 4)
    has_places = ~has_runs | (count >= _SMALL_BITMAP)
    headers = 4 + flags + np.where(has_places, 8, 4) * count
    sizes = headers + np.add.reduceat(containers.sizes, firsts)
    of_set = owner[firsts]
    set_sizes = 4 + np.bincount(of_set, 8 + sizes, sets).astype(np.int64)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(set_sizes)))
    data = np.zeros(_checked(int(offsets[-1])), np.uint8)
    _put(data, offsets[:-1], np.bincount(of_set, minlength=sets), 4)
    entry = np.cumsum(8 + sizes) - (8 + sizes) + 4 * (of_set + 1)
    _put(data, entry, fragment[firsts], 4)
    _put(data, entry + 4, sizes, 4)
    _put(data, entry + 8, np.where(has_runs, _COOKIE_OF_RUNS | (count - 1) << 16, _COOKIE), 4)
    _put(data, entry[~has_runs] + 12, count[~has_runs], 4)
    marked = np.flatnonzero(is_run)
    bits = (1 << (number[marked] & 7)).astype(np.uint8)
    np.bitwise_or.at(data, entry[of[marked]] + 12 + (number[marked] >> 3), bits)
    described = (entry + 12 + flags)[of] + 4 * number
    _put(data, described, high & 0xFFFF, 2)
    _put(data, described + 2, containers.counts - 1, 2)
    before = np.cumsum(containers.sizes) - containers.sizes
    inside = headers[of] + before - before[firsts][of]
    placed = has_places[of]
    _put(data, (described + 4 * count[of])[placed], inside[placed], 4)
    containers.put(data, entry[of] + 8 + inside, rows)
    return _binary(offsets, data)


def _checked(size: int) -> int:
    if size > _MOST_BYTES:
        raise CapacityError(
            f"sets of rows of {size} bytes do not fit one array: give a smaller memory_limit"
        )
    return size


def _put(data: UInt8s, at: Int64s, numbers: Int64s, width: int) -> None:
    """Store numbers of so many bytes at some places."""
    stored = numbers.astype(f"<u{width}").view(np.uint8).reshape(-1, width)
    data[at[:, None] + np.arange(width)] = stored


def _put_pairs(data: UInt8s, at: Int64s, counts: Int64s, numbers: UInt16s) -> None:
    """Store numbers of two bytes, so many from each place on."""
    places = spread(at, 2 * counts)
    data[places] = numbers.astype("<u2").view(np.uint8)


def _binary(offsets: Int64s, data: UInt8s) -> pa.Array:
    ends = as_buffer(offsets.astype(np.int32))
    sets: pa.Array = pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, ends, as_buffer(data)]
    )
    return sets


_COUNT_BYTES = struct.Struct("<I")
_ENTRY = struct.Struct("<II")
_SHIFT = np.uint64(32)


_FEW_LISTED, _LISTED_PER_ROW, _MOST_IN_ARRAY = 1 << 28, 1 << 12, 1 << 32
"""Rows of runs that are listed: at least, for each row that was rewritten, and at most.

A million takes some 40 ms. Long texts have some hundred trigrams that nearly all of them share.
"""


def _addresses(
    fragment: int, bitmap: bytes, where: object, limit: RowLimit | None = None
) -> Addresses:
    """Addresses of the rows of one fragment; of one that was rewritten, of those that it had."""
    if not bitmap:
        raise UnsupportedFeatureError(
            f"{where}: this version of glaive does not rebuild a set of all rows of fragment "
            f"{fragment}; drop the index, compact, and create it again"
        )
    if limit is not None:
        rows = parse_bitmap(bitmap, "row set", where)
        return limit.addresses(fragment, rows, len(bitmap))
    return offsets_of(bitmap, where) | np.uint64(fragment << 32)


class RowLimit:
    """Lists rows of sets that are remapped, until runs of these have been too many.

    The time that this takes is that of the rows: a few bytes of each of many sets can stand for all
    rows of a fragment.

    Parameters
    ----------
    address_map
        What the rows are looked up in.
    where
        The index, for errors.
    least
        Rows that are listed in any case.
    """

    def __init__(self, address_map: AddressMap, where: object, *, least: int = _FEW_LISTED) -> None:
        self._rows_of, self._where = address_map.rows_of, where
        rows = sum(map(address_map.rows_of, address_map.rewritten))
        self._left = max(least, min(_LISTED_PER_ROW * rows, _MOST_IN_ARRAY))

    def addresses(self, fragment: int, rows: BitMap, size: int) -> Addresses:
        """Addresses of the rows of a set that a fragment had; ``size``: bytes of the bitmap.

        Raises
        ------
        LimitError
            There were too many.
        """
        had = rows & type(rows)(range(self._rows_of(fragment)))
        if is_of_runs(len(had), size):
            self._left -= len(had)
        if self._left < 0 or len(had) > MAX_NUMBERS:
            raise LimitError(
                f"{self._where}: its sets have far more rows than there are; drop the index, "
                "compact, and create it again"
            )
        return np.asarray(had.to_array(), np.uint64) | np.uint64(fragment << 32)


def _entries(data: bytes, where: object) -> Iterator[tuple[int, bytes]]:
    if len(data) < _COUNT_BYTES.size:
        raise _corrupt(data, where)
    (count,) = _COUNT_BYTES.unpack_from(data)
    at, before = _COUNT_BYTES.size, -1
    for _ in range(count):
        if at + _ENTRY.size > len(data):
            raise _corrupt(data, where)
        fragment, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if fragment <= before or at + size > len(data):
            raise _corrupt(data, where)
        yield fragment, data[at : at + size]
        at, before = at + size, fragment
    if at != len(data):
        raise _corrupt(data, where)


def _corrupt(data: bytes, where: object) -> CorruptFileError:
    return CorruptFileError(
        "row set",
        expected="one bitmap per fragment, fragments ascending, and nothing after them",
        found=f"{len(data)} other bytes",
        where=where,
    )


def encode_rowset(addresses: Addresses) -> bytes:
    """Encode ascending addresses as a row set."""
    return _joined(_bitmaps(addresses))


def ascending_sets(rows: RowNumbers, bounds: Int64s) -> tuple[RowNumbers, Int64s]:
    """The sets between some bounds, the rows of each ascending and distinct; and their bounds."""
    same = np.ones(len(rows) + 1, np.bool_)
    same[bounds] = False
    same = same[1:-1]
    if bool((same & (rows[1:] < rows[:-1])).any()):
        owner = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        rows = rows[np.lexsort((rows, owner))]
    repeated = same & (rows[1:] == rows[:-1])
    if bool(repeated.any()):
        bounds = bounds - np.searchsorted(np.flatnonzero(repeated) + 1, bounds)
        rows = rows[np.concatenate(([True], ~repeated))]
    return rows, bounds


def encode_rowsets(rows: RowNumbers, bounds: Int64s) -> pa.Array:
    """Encode the sets between some bounds; rows of a set may be in any order, and be repeated."""
    return encode_ascending(*ascending_sets(rows, bounds))


def row_set_of(sets: pa.Array, where: object, stored: int) -> RowSet:
    """The rows that are in any of some stored sets.

    Memory follows from the bytes of the sets, and from how many ranges of rows there are in any.

    Parameters
    ----------
    stored
        Bytes of the file: those of the sets may be compressed to next to none.

    Raises
    ------
    CorruptFileError
        One is truncated, or a bitmap cannot be parsed.
    UnsupportedFeatureError
        The ranges take more than ``max_decoded_bytes_per_page``, and than ``USUAL_RATIO`` times
        the bytes of the file.
    """
    from pyroaring import BitMap, BitMap64

    joined, whole = BitMap64(), BitMap()
    known: dict[int, BitMap] = {}
    for start in range(0, len(sets), _SETS_AT_ONCE):
        for data in cast("list[bytes]", sets[start : start + _SETS_AT_ONCE].to_pylist()):
            for fragment, raw in _entries(data, where):
                if not raw:
                    whole.add(fragment)
                    continue
                bitmap = parse_bitmap(raw, "row set", where)
                if fragment in known:
                    known[fragment] |= bitmap
                    continue
                if len(known) == _BITMAPS_AT_ONCE:
                    joined |= decode_treemap(encode_halves(known), where)
                    known = {}
                known[fragment] = bitmap
    joined |= decode_treemap(encode_halves(known), where)
    rows = rows_of_treemap(joined, where, stored)
    if not whole:
        return rows
    check_decoded(RANGE_BYTES * len(whole), stored, where)
    first = np.asarray(whole.to_array(), np.uint64) << _SHIFT
    return RowSet.union([rows, RowSet.of_ranges(first, first + np.uint64(2**32 - 1))])


_SETS_AT_ONCE, _BITMAPS_AT_ONCE = 1 << 12, 1 << 12
"""Sets, and bitmaps of different fragments, that are objects of Python at once."""

_COUNTED = 64
"""Bitmaps that are counted to know how many rows a byte stands for."""


def rows_per_byte(sets: pa.Array, where: object) -> float:
    """How many rows a byte of some stored sets stands for, by the first bitmaps of them.

    Raises
    ------
    CorruptFileError
        One is truncated, or a bitmap cannot be parsed.
    """
    entries = (entry for data in sets for entry in _entries(data.as_py(), where))
    rows, size = 0, 1
    for _, bitmap in islice(entries, _COUNTED):
        # Without a bitmap it is a whole fragment: as many rows as any.
        rows += len(parse_bitmap(bitmap, "row set", where)) if bitmap else 1 << 20
        size += _ENTRY.size + len(bitmap)
    return rows / size


def union_of_rowsets(sets: Sequence[bytes]) -> bytes:
    """The union of some sets that were encoded before, encoded."""
    if len(sets) == 1:
        return sets[0]
    bitmaps: dict[int, bytes] = {}
    several: dict[int, BitMap] = {}
    for data in sets:
        for fragment, bitmap in _entries(data, "a set of rows"):
            first = bitmaps.setdefault(fragment, bitmap)
            if bitmap == first:
                continue
            if fragment not in several:
                several[fragment] = parse_bitmap(first, "row set", "a set of rows")
            several[fragment] |= parse_bitmap(bitmap, "row set", "a set of rows")
    for fragment, joined in several.items():
        joined.run_optimize()
        bitmaps[fragment] = joined.serialize()
    return _joined(bitmaps)


def _bitmaps(addresses: Addresses) -> dict[int, bytes]:
    """One bitmap for each fragment of ascending addresses."""
    fragments = addresses >> _SHIFT
    starts = [0] if len(addresses) else []
    if starts and fragments[0] != fragments[-1]:
        starts += (np.flatnonzero(fragments[1:] != fragments[:-1]) + 1).tolist()
    offsets = addresses.astype(np.uint32)
    return {
        int(fragments[start]): bitmap_of(offsets[start:stop])
        for start, stop in pairwise([*starts, len(addresses)])
    }


def _joined(bitmaps: Mapping[int, bytes]) -> bytes:
    parts = [_COUNT_BYTES.pack(len(bitmaps))]
    for fragment in sorted(bitmaps):
        parts += [_ENTRY.pack(fragment, len(bitmaps[fragment])), bitmaps[fragment]]
    return b"".join(parts)


def remap_rowsets(
    sets: Sequence[bytes], address_map: AddressMap, where: object, limit: RowLimit | None = None
) -> list[bytes | None]:
    """The sets with new addresses; ``None`` where no row survives.

    Bitmaps of fragments that were not rewritten are copied. Of the others only bits of rows
    that their fragment had are read, however many a (damaged) bitmap may set.

    Parameters
    ----------
    limit
        That of all sets of the index; by default one of these sets alone.
    """
    rest: list[dict[int, bytes]] = []
    listed = RowLimit(address_map, where) if limit is None else limit

    def rewritten() -> Iterator[Addresses]:
        for row_set in sets:
            entries = dict(_entries(row_set, where))
            rest.append(
                {at: bits for at, bits in entries.items() if at not in address_map.rewritten}
            )
            parts = [
                _addresses(at, bits, where, listed)
                for at, bits in entries.items()
                if at in address_map.rewritten
            ]
            yield np.concatenate(parts) if parts else np.empty(0, np.uint64)

    remapped: list[bytes | None] = []
    for at, addresses in enumerate(remap_sets(rewritten(), address_map)):
        bitmaps = rest[at]
        for fragment, bitmap in _bitmaps(addresses).items():
            known = bitmaps.get(fragment)
            bitmaps[fragment] = bitmap if known is None else _union(known, bitmap, where)
        remapped.append(_joined(bitmaps) if bitmaps else None)
    return remapped


def _union(first: bytes, second: bytes, where: object) -> bytes:
    joined = parse_bitmap(first, "row set", where) | parse_bitmap(second, "row set", where)
    joined.run_optimize()
    serialized: bytes = joined.serialize()
    return serialized


_BATCH_ADDRESSES = 1 << 21
"""Addresses that are remapped at a time, about."""


def remap_sets(sets: Iterable[Addresses], address_map: AddressMap) -> Iterator[Addresses]:
    """Sets of addresses with new addresses, each ascending.

    Reads the sets lazily and in batches, so that not all of them are in memory.
    """
    batch: list[Addresses] = []
    rows = 0
    for row_set in sets:
        batch.append(row_set)
        rows += len(row_set)
        if rows >= _BATCH_ADDRESSES:
            yield from _remap_batch(batch, address_map)
            batch, rows = [], 0
    if batch:
        yield from _remap_batch(batch, address_map)


def _remap_batch(sets: Sequence[Addresses], address_map: AddressMap) -> list[Addresses]:
    lengths = np.array([len(row_set) for row_set in sets])
    new_addresses, kept = address_map.apply(np.concatenate(sets))
    owner = np.repeat(np.arange(len(sets)), lengths)[kept]
    new_addresses = new_addresses[kept]
    # Rows mostly keep their order, but not if groups of fragments were reordered.
    if ((new_addresses[1:] < new_addresses[:-1]) & (owner[1:] == owner[:-1])).any():
        new_addresses = new_addresses[np.lexsort((new_addresses, owner))]
    return np.split(new_addresses, np.cumsum(np.bincount(owner, minlength=len(sets)))[:-1])
