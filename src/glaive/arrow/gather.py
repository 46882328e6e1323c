"""Gather and join blocks of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import (
    Block,
    Constant,
    Dictionary,
    FixedList,
    FixedWidth,
    Struct,
    Variable,
)
from glaive.arrow.buffers import (
    all_set,
    integer_array,
    join_bits,
    spread,
    spread_equal,
    take_bits,
)
from glaive.errors import RowIndexError, SchemaError
from glaive.memory import as_buffer, items_of
from glaive.types import MAX_OFFSET, Int64s

__all__ = ["concat_blocks", "take_block"]

_FEW_VALUES: Final = 64
_FEW_BYTES: Final = 16 * 1024
"""Values, and their bytes, that are gathered by NumPy: ``pyarrow.compute`` takes 40 ms to load."""


def take_block(block: Block, positions: Int64s) -> Block:
    """Values at ``positions``, in that order; repeats are allowed.

    Raises
    ------
    RowIndexError
        A position is negative or not below ``block.count``.
    """
    positions = np.ascontiguousarray(positions, np.int64)
    if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < block.count:
        raise RowIndexError(
            f"position {positions.min()} or {positions.max()} is outside of 0 ≤ position < "
            f"{block.count}, the number of values in the block"
        )
    return _take(block, positions)


def _take(block: Block, positions: Int64s) -> Block:
    count = len(positions)
    if isinstance(block, FixedWidth):
        return FixedWidth(_take_fixed(block, positions), block.bits, count)
    if isinstance(block, Variable):
        return _take_variable(block, positions)
    if isinstance(block, Dictionary):
        indices = FixedWidth(_take_fixed(block.indices, positions), block.indices.bits, count)
        return Dictionary(indices, block.items, count)
    if isinstance(block, FixedList):
        return _take_lists(block, positions)
    if isinstance(block, Struct):
        return Struct(tuple(_take(member, positions) for member in block.members), count)
    return Constant(block.value, count)


def _take_fixed(block: FixedWidth, positions: Int64s) -> pa.Buffer:
    if block.bits == 1:
        return take_bits(block.values, positions)
    if not block.bits:
        return block.values.slice(0, 0)
    rows = _rows(block)
    target = pa.allocate_buffer(len(positions) * block.bits // 8)
    # The positions are checked; "clip" spares numpy a copy of the result.
    rows.take(positions, out=items_of(target, rows.dtype, len(positions)), mode="clip")
    return target


def _rows(block: FixedWidth) -> NDArray[Any]:
    """One array item per value."""
    size = block.bits // 8
    dtype = np.dtype(f"<u{size}" if size in (1, 2, 4, 8) else f"V{size}")
    return items_of(block.values, dtype, block.count)


def _take_variable(block: Variable, positions: Int64s) -> Variable:
    bits = block.offset_bits
    ends = items_of(block.offsets, f"<i{bits // 8}", block.count + 1)
    if len(positions) <= _FEW_VALUES:
        starts = ends[positions].astype(np.int64)
        sizes = ends[positions + 1] - starts
        if int(sizes.sum()) <= _FEW_BYTES:
            offsets = np.zeros(len(positions) + 1, ends.dtype)
            np.cumsum(sizes, out=offsets[1:])
            data = items_of(block.data, np.uint8, block.data.size)[spread(starts, sizes)]
            return Variable(as_buffer(offsets), bits, as_buffer(data), len(positions))
    import pyarrow.compute as pc

    kind = pa.large_binary() if block.offset_bits == 64 else pa.binary()
    buffers = [None, block.offsets, block.data]
    array = pa.Array.from_buffers(kind, block.count, buffers, null_count=0)
    # Repeats may need more bytes than 32-bit offsets can count.
    repeats = bits == 32 and len(positions) > block.count
    if repeats and int(np.diff(ends)[positions].sum(dtype=np.int64)) > MAX_OFFSET:
        array, bits = array.cast(pa.large_binary()), 64
    taken = pc.take(array, integer_array(positions), boundscheck=False)
    _, into, values = taken.buffers()
    if into is None:
        into = pa.py_buffer(bytes(bits // 8))
    return Variable(into, bits, pa.py_buffer(b"") if values is None else values, len(positions))


def _take_lists(block: FixedList, positions: Int64s) -> FixedList:
    count, dimension = len(positions), block.dimension
    items: Block
    if isinstance(block.items, FixedWidth):
        bits = block.items.bits
        items = FixedWidth(
            _take_rows(block.items.values, bits, block, positions), bits, count * dimension
        )
    else:
        items = _take(block.items, spread_equal(positions, dimension))
    validity = None if block.validity is None else _take_rows(block.validity, 1, block, positions)
    return FixedList(items, dimension, validity, count)


def _take_rows(data: pa.Buffer, bits: int, block: FixedList, positions: Int64s) -> pa.Buffer:
    """The items of lists, or their validity: where they fill bytes, those of one are a value."""
    width = bits * block.dimension
    if width % 8:
        return take_bits(data, spread_equal(positions, block.dimension))
    return _take_fixed(FixedWidth(data, width, block.count), positions)


def concat_blocks(blocks: Sequence[Block]) -> Block:
    """Join blocks of one kind; a single block is returned unchanged.

    Raises
    ------
    SchemaError
        The blocks are of different kinds or widths.
    """
    if not blocks:
        raise ValueError("no blocks to join")
    if len(blocks) == 1:
        return blocks[0]
    count = sum(block.count for block in blocks)
    if all(isinstance(block, Constant) for block in blocks):
        return _join_constants(blocks, count)
    plain = [_repeated(block) for block in blocks]
    fixed = [block for block in plain if isinstance(block, FixedWidth)]
    if len(fixed) == len(plain) and len({block.bits for block in fixed}) == 1:
        return _join_fixed(fixed, count)
    variable = [block for block in plain if isinstance(block, Variable)]
    if len(variable) == len(plain):
        return _join_variable(variable, count)
    lists = [block for block in plain if isinstance(block, FixedList)]
    if len(lists) == len(plain) and len({block.dimension for block in lists}) == 1:
        return _join_lists(lists, count)
    dictionaries = [block for block in plain if isinstance(block, Dictionary)]
    shared_items = {(id(block.items), block.indices.bits) for block in dictionaries}
    if len(dictionaries) == len(plain) and len(shared_items) == 1:
        indices = _join_fixed([block.indices for block in dictionaries], count)
        return Dictionary(indices, dictionaries[0].items, count)
    structs = [block for block in plain if isinstance(block, Struct)]
    if len(structs) == len(plain) and len({len(block.members) for block in structs}) == 1:
        members = zip(*[block.members for block in structs], strict=True)
        return Struct(tuple(concat_blocks(parts) for parts in members), count)
    kinds = ", ".join(sorted({type(block).__name__ for block in plain}))
    raise SchemaError(f"blocks of different shape cannot be joined: {kinds}")


def _repeated(block: Block) -> Block:
    """A constant block as a block of repeated values; other blocks unchanged."""
    if isinstance(block, Constant):
        return _take(block.value, np.zeros(block.count, np.int64))
    return block


def _join_constants(blocks: Sequence[Block], count: int) -> Block:
    values = [block.value for block in blocks if isinstance(block, Constant)]
    first = values[0]
    if all(
        isinstance(value, FixedWidth)
        and isinstance(first, FixedWidth)
        and value.bits == first.bits
        and value.bits > 1
        and value.values.slice(0, value.bits // 8).equals(first.values.slice(0, first.bits // 8))
        for value in values
    ):
        return Constant(first, count)
    return concat_blocks([_repeated(block) for block in blocks])


def _join_fixed(blocks: Sequence[FixedWidth], count: int) -> FixedWidth:
    bits = blocks[0].bits
    if bits == 1:
        values = join_bits([block.values for block in blocks], [block.count for block in blocks])
        return FixedWidth(values, 1, count)
    target = pa.allocate_buffer(count * bits // 8)
    parts = [items_of(block.values, np.uint8, block.count * bits // 8) for block in blocks]
    np.concatenate(parts, out=items_of(target, np.uint8, target.size))
    return FixedWidth(target, bits, count)


def _join_variable(blocks: Sequence[Variable], count: int) -> Variable:
    """Join the bytes in use; offsets become 64 bits wide where 32 are not enough."""
    ends = [
        items_of(block.offsets, f"<i{block.offset_bits // 8}", block.count + 1) for block in blocks
    ]
    sizes = [int(end[-1]) - int(end[0]) for end in ends]
    bits = max(block.offset_bits for block in blocks)
    if sum(sizes) > MAX_OFFSET:
        bits = 64
    offsets = pa.allocate_buffer((count + 1) * bits // 8)
    into = items_of(offsets, f"<i{bits // 8}", count + 1)
    into[0] = 0
    data = pa.allocate_buffer(sum(sizes))
    joined = items_of(data, np.uint8, data.size)
    at = done = 0
    for block, end, size in zip(blocks, ends, sizes, strict=True):
        into[done + 1 : done + block.count + 1] = end[1:] + (at - end[0].astype(np.int64))
        source = items_of(block.data, np.uint8, size, int(end[0]))
        joined[at : at + size] = source
        at, done = at + size, done + block.count
    return Variable(offsets, bits, data, count)


def _join_lists(blocks: Sequence[FixedList], count: int) -> FixedList:
    dimension = blocks[0].dimension
    validity = None
    if any(block.validity is not None for block in blocks):
        counts = [block.count * dimension for block in blocks]
        bitmaps = [block.validity or all_set(block.count * dimension) for block in blocks]
        validity = join_bits(bitmaps, counts)
    items = concat_blocks([block.items for block in blocks])
    return FixedList(items, dimension, validity, count)
