"""Sets of 64-bit numbers as roaring bitmaps: one of the lower halves for each upper half.

Specification: "NGRAM" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from glaive.encodings.compression import check_decoded
from glaive.errors import CorruptFileError
from glaive.format.bitmaps import ranges_of
from glaive.format.wire import parse_bitmap
from glaive.index.row_set import RowSet

if TYPE_CHECKING:
    from pyroaring import BitMap, BitMap64

__all__ = ["decode_treemap", "encode_halves", "halves_of", "rows_of_treemap"]

_COUNT = struct.Struct("<Q")
_UPPER, _SHORT = struct.Struct("<I"), struct.Struct("<H")
_RUN_COOKIE, _FEW_CONTAINERS, _MOST_LISTED, _BIT_SET = 12347, 4, 4096, 8192
"""Of roaring bitmaps: see :mod:`glaive.index.scalar.rowset_encoding`."""


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
