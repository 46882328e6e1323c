"""Types of decimals that Arrow computes with."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

__all__ = ["MAX_SCALE", "comparable_decimals", "decimal_type", "unscaled"]

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
