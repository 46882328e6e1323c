"""Dictionary blocks into the values they stand for."""

from __future__ import annotations

import numpy as np

from glaive.arrow.blocks import Block, Dictionary, Variable
from glaive.arrow.gather import take_block
from glaive.kernels._tier import as_array
from glaive.kernels.dictionary import expand_dictionary
from glaive.kernels.strings import Strings

__all__ = ["expand"]


def expand(block: Dictionary) -> Block:
    """Replace every index by its item."""
    items, indices = block.items, block.indices
    if isinstance(items, Variable) and items.count:
        strings = Strings(items.offsets, items.offset_bits, items.data)
        found = expand_dictionary(indices.values, indices.bits, block.count, strings)
        return Variable(found.offsets, found.offset_bits, found.data, block.count)
    positions = as_array(indices.values, f"<u{indices.bits // 8}")[: block.count]
    return take_block(items, positions.astype(np.int64))
