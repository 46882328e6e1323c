"""Sets of 32-bit numbers as roaring bitmaps in the portable layout."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.wire import parse_bitmap

__all__ = ["MAX_NUMBERS", "bitmap_of", "offsets_of"]

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


def bitmap_of(numbers: Iterable[int] | NDArray[np.uint32]) -> bytes:
    """The bitmap of these numbers."""
    from pyroaring import BitMap

    serialized: bytes = BitMap(numbers).serialize()
    return serialized
