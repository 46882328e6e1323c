"""Decoding dictionary blocks: indices become the items they refer to."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, Variable
from glaive.arrow.gather import take_block
from glaive.config import MOST_IMPLIED
from glaive.kernels.dictionary import check_total, expand_dictionary, take_items
from glaive.kernels.strings import Strings
from glaive.memory import as_array
from glaive.types import MAX_OFFSET

__all__ = ["expand"]

_MAX_TAKEN: Final = 1024
"""Values of which a kernel looks up the items alone."""

_MAX_SINGLE_LOOKUPS: Final = 16
"""Values that are looked up one by one without kernels, as arrays would cost more."""

_ITEMS_PER_VALUE: Final = 4
"""Items per value up to which all items are prepared first, which makes each value cheaper."""


def expand(block: Dictionary) -> Block:
    """Replace every index by its item.

    Raises
    ------
    CapacityError
        Several values take more than ``MOST_IMPLIED``: few bytes of a file stand for any number.
    """
    items, indices = block.items, block.indices
    if isinstance(items, Variable) and items.count:
        strings = Strings(items.offsets, items.offset_bits, items.data)
        if block.count <= _MAX_TAKEN:
            taken = take_items(indices.values, indices.bits, block.count, strings)
            if taken is not None:
                return Variable(taken.offsets, taken.offset_bits, taken.data, block.count)
        if block.count <= _MAX_SINGLE_LOOKUPS:
            wanted = as_array(indices.values, f"<u{indices.bits // 8}")[: block.count]
            return _few_items(items, wanted.tolist())
        if items.count <= _ITEMS_PER_VALUE * block.count:
            strings = expand_dictionary(indices.values, indices.bits, block.count, strings)
            return Variable(strings.offsets, strings.offset_bits, strings.data, block.count)
    positions = as_array(indices.values, f"<u{indices.bits // 8}")[: block.count].astype(np.int64)
    if isinstance(items, Variable) and items.data.size * block.count > MOST_IMPLIED:
        ends = as_array(items.offsets, f"<i{items.offset_bits // 8}")
        check_total(int(np.diff(ends)[positions].sum(dtype=np.int64)), block.count)
    return take_block(items, positions)


def _few_items(items: Variable, wanted: list[int]) -> Variable:
    """A few items, without the arrays that many would need and without ``pyarrow.compute``."""
    width = items.offset_bits // 8
    data, end, ends = [], 0, [0]
    for index in wanted:
        bounds = items.offsets.slice(index * width, 2 * width).to_pybytes()
        first, last = (int.from_bytes(bounds[at : at + width], "little") for at in (0, width))
        data.append(items.data.slice(first, last - first).to_pybytes())
        end += last - first
        ends.append(end)
    width = 8 if end > MAX_OFFSET else width
    offsets = pa.py_buffer(b"".join([end.to_bytes(width, "little") for end in ends]))
    return Variable(offsets, 8 * width, pa.py_buffer(b"".join(data)), len(wanted))
