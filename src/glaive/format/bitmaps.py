"""Sets of 32-bit numbers as roaring bitmaps in the portable layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.wire import parse_bitmap
from glaive.types import UInt64s

if TYPE_CHECKING:
    from pyroaring import BitMap, BitMap64

__all__ = ["MAX_NUMBERS", "RANGE_BYTES", "bitmap_of", "is_of_runs", "offsets_of", "ranges_of"]

MAX_NUMBERS = 1 << 27
"""Limit of numbers decoded from a bitmap: a few bytes can stand for billions."""


def offsets_of(data: bytes, where: object, below: int | None = None) -> NDArray[np.uint32]:
    """Numbers of a bitmap, ascending; optionally only those ``below`` a limit.

    Raises
    ------
    CorruptFileError
        It cannot be parsed, or has more than 2^27 such numbers.
    """
    from pyroaring import BitMap

    bitmap = parse_bitmap(data, "set of numbers", where)
    if below is not None:
        bitmap &= BitMap(range(below))
    if len(bitmap) > MAX_NUMBERS:
        raise CorruptFileError(
            "set of numbers",
            expected=f"at most {MAX_NUMBERS}",
            found=f"{len(bitmap)}",
            where=where,
        )
    return np.asarray(bitmap.to_array(), dtype=np.uint32)


_LISTED_PER_BYTE = 8
"""Numbers of a bitmap for each of its bytes, at most, where none are stored as runs."""


def is_of_runs(count: int, size: int) -> bool:
    """Whether so many numbers are so few bytes that they are ranges, which should stay ranges."""
    return count > _LISTED_PER_BYTE * size


RANGE_BYTES: Final = 16
"""Bytes that a run of numbers takes as a range."""


def ranges_of(bitmap: BitMap | BitMap64, check: Callable[[int], None]) -> tuple[UInt64s, UInt64s]:
    """First numbers of the runs of a bitmap of 32 or 64 bits, and those behind their ends.

    Parameters
    ----------
    check
        Called with the bytes of the ranges before memory is taken for them: few bytes may stand
        for many runs, where they are compressed.
    """
    numbers: Any = bitmap
    behind = numbers.shift(1)  # without 2^32, which is no number of a bitmap
    firsts = numbers - behind
    check(RANGE_BYTES * len(firsts))
    starts = np.asarray(firsts.to_array(), np.uint64)
    stops = np.asarray((behind - numbers).to_array(), np.uint64)
    if len(stops) < len(starts):
        stops = np.append(stops, np.uint64(1 << 32))
    return starts, stops


def bitmap_of(numbers: Iterable[int] | NDArray[np.uint32]) -> bytes:
    """The bitmap of these numbers."""
    from pyroaring import BitMap

    serialized: bytes = BitMap(numbers).serialize()
    return serialized
