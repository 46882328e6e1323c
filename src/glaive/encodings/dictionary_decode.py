"""Dictionary blocks into the values they stand for."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, Variable
from glaive.arrow.gather import INT32_MAX, take_block
from glaive.kernels.dictionary import expand_dictionary
from glaive.kernels.strings import Strings
from glaive.memory import as_array

__all__ = ["expand"]

_FEW_VALUES: Final = 16
"""Values that are looked up one by one: what arrays cost them is more."""

_ALL_ITEMS: Final = 4
"""Items for each value up to which all of them are prepared: it costs less for each value."""


def expand(block: Dictionary) -> Block:
    """Replace every index by its item."""
    items, indices = block.items, block.indices
    if isinstance(items, Variable) and items.count:
        if block.count <= _FEW_VALUES:
            wanted = as_array(indices.values, f"<u{indices.bits // 8}")[: block.count]
            return _pick(items, wanted.tolist())
        if items.count <= _ALL_ITEMS * block.count:
            strings = Strings(items.offsets, items.offset_bits, items.data)
            found = expand_dictionary(indices.values, indices.bits, block.count, strings)
            return Variable(found.offsets, found.offset_bits, found.data, block.count)
    positions = as_array(indices.values, f"<u{indices.bits // 8}")[: block.count]
    return take_block(items, positions.astype(np.int64))


def _pick(items: Variable, wanted: list[int]) -> Variable:
    """A few items, without the arrays that many would need and ``pyarrow.compute``."""
    width = items.offset_bits // 8
    data, end, ends = [], 0, [0]
    for index in wanted:
        bounds = items.offsets.slice(index * width, 2 * width).to_pybytes()
        first, last = (int.from_bytes(bounds[at : at + width], "little") for at in (0, width))
        data.append(items.data.slice(first, last - first).to_pybytes())
        end += last - first
        ends.append(end)
    width = 8 if end > INT32_MAX else width
    offsets = pa.py_buffer(b"".join([end.to_bytes(width, "little") for end in ends]))
    return Variable(offsets, 8 * width, pa.py_buffer(b"".join(data)), len(wanted))
