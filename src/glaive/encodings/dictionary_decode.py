"""Dictionary blocks into the values they stand for."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, Variable
from glaive.arrow.gather import take_block
from glaive.kernels.dictionary import expand_dictionary
from glaive.kernels.strings import Strings
from glaive.memory import as_array

__all__ = ["expand"]

_ALL_ITEMS: Final = 4
"""Items for each value up to which all of them are prepared: it costs less for each value."""


def expand(block: Dictionary) -> Block:
    """Replace every index by its item."""
    items, indices = block.items, block.indices
    if isinstance(items, Variable) and items.count:
        if block.count == 1:
            return _pick(items, int.from_bytes(indices.values[: indices.bits // 8], "little"))
        if items.count <= _ALL_ITEMS * block.count:
            strings = Strings(items.offsets, items.offset_bits, items.data)
            found = expand_dictionary(indices.values, indices.bits, block.count, strings)
            return Variable(found.offsets, found.offset_bits, found.data, block.count)
    positions = as_array(indices.values, f"<u{indices.bits // 8}")[: block.count]
    return take_block(items, positions.astype(np.int64))


def _pick(items: Variable, index: int) -> Variable:
    """One item, without the arrays that many would need."""
    width = items.offset_bits // 8
    bounds = items.offsets.slice(index * width, 2 * width).to_pybytes()
    first, last = (int.from_bytes(bounds[at : at + width], "little") for at in (0, width))
    offsets = pa.py_buffer(bytes(width) + (last - first).to_bytes(width, "little"))
    data = pa.py_buffer(items.data.slice(first, last - first).to_pybytes())
    return Variable(offsets, items.offset_bits, data, 1)
