"""Slices of blocks and bitmaps: views, except for bits that do not begin at a byte."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import (
    Block,
    Constant,
    Dictionary,
    FixedList,
    FixedWidth,
    Struct,
    Variable,
)
from glaive.arrow.buffers import align_bits

__all__ = ["count_bits", "slice_bits", "slice_block"]


def slice_block(block: Block, start: int, count: int) -> Block:
    """Values ``start`` to ``start + count`` of a block."""
    if isinstance(block, FixedWidth):
        return _slice_fixed(block, start, count)
    if isinstance(block, Variable):
        width = block.offset_bits // 8
        offsets = block.offsets.slice(start * width, (count + 1) * width)
        return Variable(offsets, block.offset_bits, block.data, count)
    if isinstance(block, FixedList):
        at, length = start * block.dimension, count * block.dimension
        validity = None if block.validity is None else slice_bits(block.validity, at, length)
        items = slice_block(block.items, at, length)
        return FixedList(items, block.dimension, validity, count)
    if isinstance(block, Dictionary):
        return Dictionary(_slice_fixed(block.indices, start, count), block.items, count)
    if isinstance(block, Struct):
        members = [slice_block(member, start, count) for member in block.members]
        return Struct(tuple(members), count)
    return Constant(block.value, count)


def _slice_fixed(block: FixedWidth, start: int, count: int) -> FixedWidth:
    if block.bits == 1:
        return FixedWidth(slice_bits(block.values, start, count), 1, count)
    width = block.bits // 8
    return FixedWidth(block.values.slice(start * width, count * width), block.bits, count)


def slice_bits(bitmap: pa.Buffer, start: int, count: int) -> pa.Buffer:
    """Bits ``start`` to ``start + count`` as a bitmap that begins at bit 0.

    A view when ``start`` is a multiple of 8, else a copy. Bits after the last are undefined.
    """
    first, shift = divmod(start, 8)
    if not shift or not count:
        return bitmap.slice(first, (count + 7) // 8)
    return align_bits(bitmap, start, count)


def count_bits(bitmap: pa.Buffer, count: int) -> int:
    """Number of set bits among the first ``count``."""
    full_bytes, rest = divmod(count, 8)
    total = 0
    if full_bytes:
        bytes_of = np.frombuffer(memoryview(bitmap), np.uint8, full_bytes)
        total = int(np.bitwise_count(bytes_of).sum(dtype=np.int64))
    if rest:
        last = np.frombuffer(memoryview(bitmap), np.uint8, 1, full_bytes).item()
        total += (last & ((1 << rest) - 1)).bit_count()
    return total
