"""Decoding dictionary blocks: indices become the items they refer to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, Variable
from glaive.arrow.gather import take_block
from glaive.kernels.dictionary import expand_dictionary
from glaive.kernels.strings import Strings
from glaive.memory import as_array

__all__ = ["expand"]


def expand(block: Dictionary) -> Block:
    """Replace every index by its item."""
    items, indices = block.items, block.indices
    if isinstance(items, Variable) and items.count:
        if block.count == 1:
            return _one_item(items, int.from_bytes(indices.values[: indices.bits // 8], "little"))
        strings = Strings(items.offsets, items.offset_bits, items.data)
        strings = expand_dictionary(indices.values, indices.bits, block.count, strings)
        return Variable(strings.offsets, strings.offset_bits, strings.data, block.count)
    positions = as_array(indices.values, f"<u{indices.bits // 8}")[: block.count]
    return take_block(items, positions.astype(np.int64))


def _one_item(items: Variable, index: int) -> Variable:
    """One item, without the arrays that several would need."""
    width = items.offset_bits // 8
    bounds = items.offsets.slice(index * width, 2 * width).to_pybytes()
    first, last = (int.from_bytes(bounds[at : at + width], "little") for at in (0, width))
    offsets = pa.py_buffer(bytes(width) + (last - first).to_bytes(width, "little"))
    data = pa.py_buffer(items.data.slice(first, last - first).to_pybytes())
    return Variable(offsets, items.offset_bits, data, 1)
