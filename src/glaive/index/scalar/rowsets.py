"""Row sets as some indices store them: one bitmap of physical rows per fragment.

Specification: "Sets of rows" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from glaive.encodings.compression import check_decoded
from glaive.errors import CorruptFileError, LimitError, UnsupportedFeatureError
from glaive.format.bitmaps import (
    MAX_NUMBERS,
    RANGE_BYTES,
    bitmap_of,
    is_of_runs,
    offsets_of,
)
from glaive.format.wire import parse_bitmap
from glaive.index.address_map import Addresses, AddressMap
from glaive.index.row_set import RowNumbers, RowSet
from glaive.index.scalar.rowset_encoding import encode_ascending
from glaive.index.scalar.treemaps import decode_treemap, encode_halves, rows_of_treemap
from glaive.types import Int64s

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = [
    "RowLimit",
    "ascending_sets",
    "encode_rowset",
    "encode_rowsets",
    "remap_rowsets",
    "remap_sets",
    "row_set_of",
    "rows_per_byte",
    "union_of_rowsets",
]

_COUNT = struct.Struct("<I")
_ENTRY = struct.Struct("<II")
_SHIFT = np.uint64(32)


_FEW_LISTED, _LISTED_PER_ROW, _MOST_LISTED = 1 << 28, 1 << 12, 1 << 32
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
        self._left = max(least, min(_LISTED_PER_ROW * rows, _MOST_LISTED))

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
    if len(data) < _COUNT.size:
        raise _corrupt(data, where)
    (count,) = _COUNT.unpack_from(data)
    at, before = _COUNT.size, -1
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
    parts = [_COUNT.pack(len(bitmaps))]
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
