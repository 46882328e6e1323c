"""Types of decimals that Arrow computes with."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = ["MAX_SCALE", "decimal_type"]

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
