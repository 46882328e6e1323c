"""Sets of rows as some indices store them: one bitmap of physical rows per fragment.

Specification: "Sets of rows" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
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
    parts = []
    for fragment, bitmap in _entries(data, where):
        if not bitmap:
            raise UnsupportedFeatureError(
                f"{where}: a set of all rows of fragment {fragment}, whatever they are, is not "
                "made anew here; drop the index, compact, and build it again"
            )
        parts.append(offsets_of(bitmap, where) | np.uint64(fragment << 32))
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


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
    fragments = addresses >> _SHIFT
    starts = [0] if len(addresses) else []
    if starts and fragments[0] != fragments[-1]:
        starts += (np.flatnonzero(fragments[1:] != fragments[:-1]) + 1).tolist()
    offsets = addresses.astype(np.uint32)
    parts = [_COUNT.pack(len(starts))]
    for start, stop in pairwise([*starts, len(addresses)]):
        bitmap = bitmap_of(offsets[start:stop])
        parts += [_ENTRY.pack(int(fragments[start]), len(bitmap)), bitmap]
    return b"".join(parts)


def remap_rowsets(sets: Sequence[bytes], moved: AddressMap, where: object) -> list[bytes | None]:
    """The sets after rows moved; ``None`` where none is left."""
    found = remap_sets((decode_rowset(one, where) for one in sets), moved)
    return [encode_rowset(one) if len(one) else None for one in found]


_AT_ONCE = 1 << 23
"""Addresses held at a time, about."""


def remap_sets(sets: Iterable[Addresses], moved: AddressMap) -> Iterator[Addresses]:
    """Sets of addresses after rows moved, each ascending.

    They are asked for and given as needed, so that not all of them are in memory.
    """
    waiting: list[Addresses] = []
    rows = 0
    for one in sets:
        waiting.append(one)
        rows += len(one)
        if rows >= _AT_ONCE:
            yield from _together(waiting, moved)
            waiting, rows = [], 0
    if waiting:
        yield from _together(waiting, moved)


def _together(sets: Sequence[Addresses], moved: AddressMap) -> list[Addresses]:
    lengths = np.array([len(one) for one in sets])
    found, kept = moved.apply(np.concatenate(sets))
    owner = np.repeat(np.arange(len(sets)), lengths)[kept]
    found = found[kept]
    # Rows mostly keep their order; where groups change places they do not.
    if ((found[1:] < found[:-1]) & (owner[1:] == owner[:-1])).any():
        found = found[np.lexsort((found, owner))]
    return np.split(found, np.cumsum(np.bincount(owner, minlength=len(sets)))[:-1])
