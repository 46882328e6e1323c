"""Types of decimals that Arrow computes with."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.memory import items_of
from glaive.types import Flags, UInt64s

__all__ = ["MAX_SCALE", "comparable_decimals", "decimal_type", "doubles_of", "unscaled"]

MAX_SCALE: Final = {128: 38, 256: 76}
"""Largest scale of decimals, and without its sign the smallest, by bits.

Arrow has powers of 10 up to there: it writes no value of another scale, and casts read beyond them.
"""


def decimal_type(bits: int, precision: int, scale: int) -> pa.DataType:
    """The type of decimals of 128 or 256 bits.

    Raises
    ------
    ValueError
        There are none of so many digits, or digits after the point.
    """
    most = MAX_SCALE[bits]
    if not 1 <= precision <= most or abs(scale) > most:
        raise ValueError(f"decimals of {bits} bits have up to {most} digits, before or after 0")
    return pa.decimal128(precision, scale) if bits == 128 else pa.decimal256(precision, scale)


def unscaled(array: Any) -> Any:
    """Decimals of one type as integers, in the same bytes, which have the same order.

    Arrow compares none of scales below 0, or rescales them where not all values fit.
    """
    bits = array.type.bit_width
    buffers = array.buffers()
    kind = decimal_type(bits, MAX_SCALE[bits], 0)
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset)


def comparable_decimals(values: Any) -> Any:
    """An array or a scalar as Arrow compares it with one of the same type: see :func:`unscaled`."""
    kind = values.type
    if not pa.types.is_decimal(kind) or kind.scale >= 0:
        return values
    if isinstance(values, pa.Scalar):
        one: Any = values
        return unscaled(pa.repeat(one, 1))[0]
    return unscaled(values)


def doubles_of(array: Any) -> Any:
    """Decimals as floats of 64 bits: the unscaled number, rounded, divided by the power of ten.

    Arrow multiplies by a power that no float has: 2.01 becomes 2.0100000000000002.
    """
    if array.type.bit_width < 64:
        array = array.cast(pa.decimal64(array.type.precision, array.type.scale))
    width, scale = array.type.bit_width // 64, array.type.scale
    words = items_of(array.buffers()[1], "<u8", len(array) * width, array.offset * 8 * width)
    words = words.reshape(-1, width)
    low = words[:, 0].view(np.int64)
    numbers = low.astype(np.float64)
    large = (words[:, 1:] != (low >> 63).view(np.uint64)[:, None]).any(axis=1)
    if large.any():
        numbers[large] = _rounded(words[large])
    numbers = numbers / 10.0**scale if scale >= 0 else numbers * 10.0**-scale
    mask: Flags | None = None
    if array.null_count:
        mask = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers, mask=mask)


def _rounded(words: UInt64s) -> NDArray[np.float64]:
    """The closest floats to integers of several words, the lowest first."""
    count = words.shape[1]
    negative = words[:, -1] >> np.uint64(63) != 0
    sizes = np.where(negative[:, None], ~words, words)
    carry = negative
    for at in range(count):
        sizes[:, at] += carry
        carry = carry & (sizes[:, at] == 0)
    top = count - 1 - np.argmax(sizes[:, ::-1] != 0, axis=1)
    rows = np.arange(len(sizes))
    high, low = sizes[rows, top], np.where(top > 0, sizes[rows, top - 1], np.uint64(0))
    # The leading 64 bits; the last of them says whether others are set, too, so that it is
    # rounded once.
    bits = np.frexp(high.astype(np.float64))[1].clip(1, 64).astype(np.uint64)
    shift = np.uint64(64) - bits
    leading = (high << shift) | np.where(shift > 0, low >> (bits & np.uint64(63)), np.uint64(0))
    below = ((sizes != 0) & (np.arange(count) < (top - 1)[:, None])).any(axis=1)
    leading |= (low << shift != 0) | below
    floats: NDArray[np.float64] = np.ldexp(
        leading.astype(np.float64), 64 * top - shift.astype(np.int64)
    )
    floats[negative] *= -1
    return floats
