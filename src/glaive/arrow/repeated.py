"""One value in many rows: as long as there are nulls among these, without bytes for them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Constant, Variable
from glaive.arrow.build import check_implied
from glaive.memory import as_array, as_buffer
from glaive.types import MAX_OFFSET, Flags

__all__ = ["where_valid"]

_SHORT: Final = 32
"""Bytes of a value that nulls may have as well."""


def where_valid(constant: Constant, valid: Flags) -> Block:
    """A long text or binary value in the rows that are valid, of no bytes in others.

    Short values, those of a fixed width, and those without nulls stay as they are.

    Raises
    ------
    CapacityError
        They take more than ``MOST_IMPLIED``.
    """
    value = constant.value
    if not isinstance(value, Variable):
        return constant
    first, stop = as_array(value.offsets, f"<i{value.offset_bits // 8}")[:2].tolist()
    size, count = stop - first, int(np.count_nonzero(valid))
    if size <= _SHORT or count == len(valid):
        return constant
    if count > 1:
        check_implied(count, 8 * size, pa.binary())
    bits = 64 if size * count > MAX_OFFSET else value.offset_bits
    offsets: Any = np.zeros(len(valid) + 1, f"<i{bits // 8}")
    np.cumsum(valid, out=offsets[1:])
    offsets *= size
    data = np.tile(as_array(value.data)[first:stop], count)
    return Variable(as_buffer(offsets), bits, as_buffer(data), len(valid))
