"""Blocks: what encodings exchange instead of Arrow arrays.

A block holds the visible values of a leaf column, without nulls and nesting (levels carry
those). Nulls that have a slot hold a placeholder value. Bytes are always in a
``pyarrow.Buffer``, which has an address for kernels, is sliced without a copy, and keeps the
memory map that it views alive.

============ ==========================================================================
block        Arrow types
============ ==========================================================================
FixedWidth   numbers, booleans (1 bit, packed LSB first), times, decimals, fixed binary
Variable     utf8, binary and their large forms
FixedList    fixed_size_list of a primitive, with nulls inside the lists
Dictionary   unsigned indices into items
Constant     one value, repeated
Struct       packed structs: their members side by side
============ ==========================================================================
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import flags_of
from glaive.dataclass import dataclass
from glaive.memory import as_buffer
from glaive.types import MAX_OFFSET, Int64s

__all__ = [
    "Block",
    "Constant",
    "Dictionary",
    "FixedList",
    "FixedWidth",
    "Struct",
    "Variable",
    "block_bytes",
]


@dataclass(slots=True)
class FixedWidth:
    """``count`` values of ``bits`` bits each, back to back.

    ``bits`` is 1 (packed, least significant bit first) or a multiple of 8. The buffer may
    be longer than needed, never shorter.
    """

    values: pa.Buffer
    bits: int
    count: int


@dataclass(slots=True)
class Variable:
    """``count`` byte strings: ``count + 1`` ascending offsets into ``data``.

    ``offset_bits`` is 32 (signed, Arrow ``int32``) or 64. The first offset need not be 0.
    """

    offsets: pa.Buffer
    offset_bits: int
    data: pa.Buffer
    count: int

    @classmethod
    def of_sizes(cls, data: pa.Buffer, sizes: Int64s, least_bits: int = 32) -> Variable:
        """Strings of these sizes, back to back; offsets have 64 bits where 32 are too few."""
        bits = 64 if data.size > MAX_OFFSET else least_bits
        offsets = np.zeros(len(sizes) + 1, f"<i{bits // 8}")
        np.cumsum(sizes, out=offsets[1:])
        return cls(as_buffer(offsets), bits, data, len(sizes))


@dataclass(slots=True)
class FixedList:
    """``count`` lists of ``dimension`` items each.

    ``validity`` is the Arrow bitmap of the items (``count * dimension`` bits), None when
    no item is null.
    """

    items: Block
    dimension: int
    validity: pa.Buffer | None
    count: int

    @property
    def lacks_values(self) -> bool:
        """Whether all items are null, and there is no memory of values: pylance writes none."""
        if self.validity is None:
            return False
        inner = self.items
        while isinstance(inner, FixedList):
            inner = inner.items
        if not isinstance(inner, FixedWidth) or inner.bits:
            return False
        return not flags_of(self.validity, self.count * self.dimension).any()


@dataclass(slots=True)
class Dictionary:
    """``indices`` (unsigned, 8 to 64 bits) into ``items``; every index is in range."""

    indices: FixedWidth
    items: Block
    count: int


@dataclass(slots=True)
class Constant:
    """The single value of ``value`` (a block with count 1), ``count`` times."""

    value: Block
    count: int


@dataclass(slots=True)
class Struct:
    """``count`` structs without nulls inside: one block of as many values per member."""

    members: tuple[Block, ...]
    count: int


Block = FixedWidth | Variable | FixedList | Dictionary | Constant | Struct


def block_bytes(block: Block) -> int:
    """Bytes of memory that the values of a block take."""
    match block:
        case FixedWidth():
            return int(block.values.size)
        case Variable():
            return int(block.offsets.size + block.data.size)
        case FixedList():
            return block_bytes(block.items) + (block.validity.size if block.validity else 0)
        case Dictionary():
            return block_bytes(block.indices) + block_bytes(block.items)
        case Constant():
            return block_bytes(block.value)
        case Struct():
            return sum(map(block_bytes, block.members))
