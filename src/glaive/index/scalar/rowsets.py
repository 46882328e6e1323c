"""Sets of rows as some indices store them: one bitmap of physical rows per fragment.

Specification: "Sets of rows" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.index.address_map import Addresses, AddressMap
from glaive.table.bitmaps import bitmap_of, offsets_of

__all__ = ["decode_rowset", "encode_rowset", "remap_rowsets", "remap_sets"]

_COUNT = struct.Struct("<I")
_ENTRY = struct.Struct("<II")
_SHIFT = np.uint64(32)


def decode_rowset(data: bytes, where: object) -> Addresses:
    """Addresses of the rows of a set, ascending.

    Raises
    ------
    CorruptFileError
        It is cut off, or a bitmap cannot be parsed.
    UnsupportedFeatureError
        It says "all rows" of a fragment, and not how many these are.
    """
    parts = [_addresses(one, bitmap, where) for one, bitmap in _entries(data, where)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _addresses(fragment: int, bitmap: bytes, where: object, below: int | None = None) -> Addresses:
    """Addresses of the rows of one fragment, of those ``below`` a row only."""
    if not bitmap:
        raise UnsupportedFeatureError(
            f"{where}: a set of all rows of fragment {fragment}, whatever they are, is not "
            "rebuilt here; drop the index, compact, and build it again"
        )
    return offsets_of(bitmap, where, below) | np.uint64(fragment << 32)


def _entries(data: bytes, where: object) -> Iterator[tuple[int, bytes]]:
    if len(data) < _COUNT.size:
        raise _cut_off(data, where)
    (count,) = _COUNT.unpack_from(data)
    at, before = _COUNT.size, -1
    for _ in range(count):
        if at + _ENTRY.size > len(data):
            raise _cut_off(data, where)
        fragment, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if fragment <= before or at + size > len(data):
            raise _cut_off(data, where)
        yield fragment, data[at : at + size]
        at, before = at + size, fragment
    if at != len(data):
        raise _cut_off(data, where)


def _cut_off(data: bytes, where: object) -> CorruptFileError:
    return CorruptFileError(
        "set of rows",
        expected="one bitmap per fragment, fragments ascending, and nothing behind them",
        found=f"{len(data)} bytes that are something else",
        where=where,
    )


def encode_rowset(addresses: Addresses) -> bytes:
    """The set of these rows, which are ascending."""
    return _joined(_bitmaps(addresses))


def _bitmaps(addresses: Addresses) -> dict[int, bytes]:
    """The bitmap of each fragment that has rows, which are ascending."""
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


def remap_rowsets(sets: Sequence[bytes], moved: AddressMap, where: object) -> list[bytes | None]:
    """The sets after rows moved; ``None`` where none is left.

    Bitmaps of fragments that were not rewritten stay as they are, and of the others the rows that
    these fragments had are looked at only, however many a bitmap may name.
    """
    rest: list[dict[int, bytes]] = []

    def rewritten() -> Iterator[Addresses]:
        for row_set in sets:
            entries = dict(_entries(row_set, where))
            rest.append({at: bits for at, bits in entries.items() if at not in moved.touched})
            parts = [
                _addresses(at, bits, where, moved.rows_of(at))
                for at, bits in entries.items()
                if at in moved.touched
            ]
            yield np.concatenate(parts) if parts else np.empty(0, np.uint64)

    found: list[bytes | None] = []
    for at, addresses in enumerate(remap_sets(rewritten(), moved)):
        there = rest[at]
        for fragment, bitmap in _bitmaps(addresses).items():
            known = there.get(fragment)  # rows that are there already are in both
            there[fragment] = bitmap if known is None else _union(known, bitmap, where)
        found.append(_joined(there) if there else None)
    return found


def _union(one: bytes, other: bytes, where: object) -> bytes:
    return bitmap_of(np.union1d(offsets_of(one, where), offsets_of(other, where)))


_AT_ONCE = 1 << 23
"""Addresses held at a time, about."""


def remap_sets(sets: Iterable[Addresses], moved: AddressMap) -> Iterator[Addresses]:
    """Sets of addresses after rows moved, each ascending.

    They are asked for and given as needed, so that not all of them are in memory.
    """
    waiting: list[Addresses] = []
    rows = 0
    for row_set in sets:
        waiting.append(row_set)
        rows += len(row_set)
        if rows >= _AT_ONCE:
            yield from _together(waiting, moved)
            waiting, rows = [], 0
    if waiting:
        yield from _together(waiting, moved)


def _together(sets: Sequence[Addresses], moved: AddressMap) -> list[Addresses]:
    lengths = np.array([len(row_set) for row_set in sets])
    found, kept = moved.apply(np.concatenate(sets))
    owner = np.repeat(np.arange(len(sets)), lengths)[kept]
    found = found[kept]
    # Rows mostly keep their order; where groups change places they do not.
    if ((found[1:] < found[:-1]) & (owner[1:] == owner[:-1])).any():
        found = found[np.lexsort((found, owner))]
    return np.split(found, np.cumsum(np.bincount(owner, minlength=len(sets)))[:-1])
