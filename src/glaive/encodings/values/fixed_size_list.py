"""Fixed-size list: embeddings and other short vectors of equal length.

======= ========================================================================
context layout
======= ========================================================================
mini    for each level with nulls, outer to inner, one buffer with the validity
        bits of the chunk's items; then the buffers of the items
block   as values, back to back
values  for each level with nulls, outer to inner, the validity bits of the
        value's items (whole bytes); then the items
======= ========================================================================

A value is in one chunk. Items are ``Flat``, or lists again.

Specification: "Fixed-size list" in ``docs/format/encodings.md``; message ``FixedSizeList``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, FixedList, FixedWidth
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.protocol import (
    EncodedBlocks,
    EncodedChunks,
    MiniChunks,
    ValueEncoding,
    newer_lance,
)
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.sequences import Constant
from glaive.encodings.writing.fixed_stats import chunk_counts
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.chunks import CHUNK_BYTES, CHUNK_VALUES
from glaive.types import Int64s, UInt8s, Where, allocate, as_array, as_buffer

MAX_ITEMS = 2**31 - 1


class _Level(NamedTuple):
    """One level of lists: items of a value at this level, and whether they can be null."""

    dimension: int
    items: int
    has_validity: bool


@value_encoding
@dataclass(frozen=True, slots=True)
class FixedSizeList(ValueEncoding):
    """``items_per_value`` items of ``values`` in each value."""

    wire_name: ClassVar[str] = "fixed_size_list"

    items_per_value: int
    values: ValueEncoding
    has_validity: bool = False

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``FixedSizeList``; refuse empty or very long lists."""
        values = read_encoding(message.values, where)
        nulls = isinstance(values, Constant) and not values.value
        if not nulls and not isinstance(values, Flat | FixedSizeList):
            # A chunk of few bytes could have any number of other items.
            raise newer_lance(f"a fixed-size list of items of encoding {values.wire_name!r}", where)
        inner = values.item_count if isinstance(values, FixedSizeList) else 1
        if not 1 <= message.items_per_value * inner <= MAX_ITEMS:
            raise CorruptFileError(
                "items of a fixed-size list",
                expected=f"1 to {MAX_ITEMS}",
                found=str(message.items_per_value * inner),
                where=where,
            )
        return cls(message.items_per_value, values, message.has_validity)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``FixedSizeList`` around the encoding of the items."""
        message = pb.FixedSizeList(
            items_per_value=self.items_per_value,
            values=self.values.to_wire(),
            has_validity=self.has_validity,
        )
        return pb.CompressiveEncoding(fixed_size_list=message)

    @classmethod
    def for_block(cls, block: FixedList) -> Self:
        """Return the encoding that fits a block: its dimensions, its levels with nulls."""
        items = block.items
        values: ValueEncoding
        if isinstance(items, FixedList):
            values = cls.for_block(items)
        elif isinstance(items, FixedWidth):
            values = Flat(items.bits) if items.bits else Constant(b"")
        else:
            raise _unfit(items)
        return cls(block.dimension, values, block.validity is not None)

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """See the contract."""
        return (self.values,)

    @property
    def num_buffers(self) -> int:
        """Buffers per chunk: one for each level with nulls, and the buffers of the items."""
        return self.has_validity + self.values.num_buffers

    @property
    def item_count(self) -> int:
        """Items of the inner-most list in one value."""
        return self._levels()[-1].items

    @property
    def bits_per_value(self) -> int:
        """Bits of one value in a full-zip page, validity included; a multiple of 8."""
        validity = sum(_bytes(level.items) for level in self._levels() if level.has_validity)
        return 8 * (validity + _bytes(self.item_count * self._leaf().bits))

    @property
    def is_plain(self) -> bool:
        """Whether values are plain items of whole bytes, without validity."""
        levels, leaf = self._levels(), self.values
        while isinstance(leaf, FixedSizeList):
            leaf = leaf.values
        plain = isinstance(leaf, Flat) and not leaf.bits * levels[-1].items % 8
        return plain and not any(level.has_validity for level in levels)

    def _levels(self) -> list[_Level]:
        levels = []
        items, inner = 1, self
        while True:
            items *= inner.items_per_value
            levels.append(_Level(inner.items_per_value, items, inner.has_validity))
            if not isinstance(inner.values, FixedSizeList):
                return levels
            inner = inner.values

    def _leaf(self) -> Flat:
        inner = self.values
        while isinstance(inner, FixedSizeList):
            inner = inner.values
        if isinstance(inner, Constant) and not inner.value:
            return Flat(0)  # nulls, which have validity only
        if not isinstance(inner, Flat):
            raise self._refuse(f"a value with items of encoding {inner.wire_name!r}", None)
        return inner

    def decode_mini(self, chunks: MiniChunks) -> FixedList:
        """Decode validity and items of all chunks."""
        dimension = self.items_per_value
        counts = chunks.counts * dimension
        skip = int(self.has_validity)
        validity = None
        if self.has_validity:
            bits = MiniChunks(
                chunks.data, chunks.starts[:1], chunks.sizes[:1], counts, chunks.where
            )
            validity = Flat(1).decode_mini(bits).values
        inner = MiniChunks(
            chunks.data, chunks.starts[skip:], chunks.sizes[skip:], counts, chunks.where
        )
        items = self.values.decode_mini(inner)
        return FixedList(items, dimension, validity, int(chunks.counts.sum()))

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> Block:
        """Read the wanted values; read only these if items are valid and fill whole bytes."""
        if self.is_plain:
            rows = Flat(self.bits_per_value).take_mini(chunks, chunk, index)
            return self.decode_values(rows, chunks.where)
        return ValueEncoding.take_mini(self, chunks, chunk, index)

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Divide into chunks of about 8 KiB; their number of values is a power of two."""
        leaf, validities = self._flattened(block)
        levels, bits, count = self._levels(), self._leaf().bits, block.count
        widths = [level.items for level in levels if level.has_validity]
        widths.append(levels[-1].items * bits)
        rows = 2
        # Every chunk starts at a whole byte of each buffer, which avoids shifting bits.
        while any(rows * width % 8 for width in widths):
            rows *= 2
        size = self.bits_per_value // 8
        while 2 * rows * size < CHUNK_BYTES and 2 * rows <= CHUNK_VALUES:
            rows *= 2
        counts = chunk_counts(count, rows)
        sources = [*validities, leaf.values]
        buffers = tuple(
            as_array(source)[: _bytes(count * width)]
            for source, width in zip(sources, widths, strict=True)
        )
        sizes = tuple((counts * width + 7) // 8 for width in widths)
        return EncodedChunks(buffers, sizes, counts)

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> FixedList:
        """Decode values that are back to back."""
        rows = Flat(self.bits_per_value).decode_blocks(data, starts, sizes, counts, where)
        return self.decode_values(rows, where)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Write values back to back."""
        return Flat(self.bits_per_value).encode_blocks(self.encode_values(block), counts)

    def decode_values(self, block: Block, where: Where) -> FixedList:
        """Separate validity from items; valid items are a view."""
        bits = self.bits_per_value
        if not isinstance(block, FixedWidth) or block.bits != bits:
            width = f"{block.bits} bits" if isinstance(block, FixedWidth) else "variable width"
            raise CorruptFileError(
                "values of a fixed-size list", expected=f"{bits} bits", found=width, where=where
            )
        levels, leaf, count = self._levels(), self._leaf().bits, block.count
        validities: list[pa.Buffer | None] = []
        rows = as_array(block.values)[: count * bits // 8].reshape(count, bits // 8)
        at = 0
        for level in levels:
            part = rows[:, at : at + _bytes(level.items)]
            validities.append(_joined_bits(part, level.items) if level.has_validity else None)
            at += _bytes(level.items) * level.has_validity
        value_bits = levels[-1].items * leaf
        copied = at or value_bits % 8
        items = _joined_bits(rows[:, at:], value_bits) if copied else block.values
        result: Block = FixedWidth(items, leaf, count * levels[-1].items)
        for level, validity in zip(reversed(levels), reversed(validities), strict=True):
            lists = count * level.items // level.dimension
            result = FixedList(result, level.dimension, validity, lists)
        return result  # type: ignore[return-value]  # there is at least one level

    def encode_values(self, block: Block) -> FixedWidth:
        """Put validity in front of the items; valid items are a view."""
        leaf, validities = self._flattened(block)
        count, bits = block.count, self.bits_per_value
        value_bits = self.item_count * leaf.bits
        if not validities and not value_bits % 8:
            return FixedWidth(leaf.values, bits, count)
        out = allocate(count * bits // 8)
        rows = as_array(out).reshape(count, bits // 8)
        at = 0
        widths = [level.items for level in self._levels() if level.has_validity]
        for source, width in zip([*validities, leaf.values], [*widths, value_bits], strict=True):
            rows[:, at : at + _bytes(width)] = _split_bits(source, width, count)
            at += _bytes(width)
        return FixedWidth(out, bits, count)

    def _flattened(self, block: Block) -> tuple[FixedWidth, list[pa.Buffer]]:
        """Return the inner-most items, and the validity of each level that has one."""
        validities = []
        inner: Block = block
        for level in self._levels():
            if not isinstance(inner, FixedList) or inner.dimension != level.dimension:
                raise _unfit(inner)
            if inner.validity is not None and not level.has_validity:
                raise SchemaError(
                    f"lists of {level.dimension} items contain nulls, "
                    "but the encoding was chosen for lists without nulls"
                )
            if level.has_validity:
                bits = _bytes(inner.count * inner.dimension)
                validities.append(inner.validity or pa.py_buffer(b"\xff" * bits))
            inner = inner.items
        if not isinstance(inner, FixedWidth) or inner.bits != self._leaf().bits:
            raise _unfit(inner)
        return inner, validities


def _bytes(bits: int) -> int:
    return (bits + 7) // 8


def _joined_bits(rows: UInt8s, width: int) -> pa.Buffer:
    """Concatenate the first ``width`` bits of every row."""
    if width % 8:
        bits = np.unpackbits(rows, axis=1, count=width, bitorder="little")
        return as_buffer(np.packbits(bits.reshape(-1), bitorder="little"))
    out = allocate(len(rows) * width // 8)
    as_array(out).reshape(len(rows), width // 8)[:] = rows
    return out


def _split_bits(source: pa.Buffer, width: int, count: int) -> UInt8s:
    """Begin every ``width`` bits at a whole byte: one row of bytes each."""
    memory = as_array(source)[: _bytes(count * width)]
    if not width % 8:
        return memory.reshape(count, width // 8)
    bits = np.unpackbits(memory, count=count * width, bitorder="little")
    return np.packbits(bits.reshape(count, width), axis=1, bitorder="little")


def _unfit(block: Block) -> SchemaError:
    return SchemaError(
        "a fixed-size list takes items of fixed width or lists of them, of one dimension "
        f"per level; found {type(block).__name__}"
    )
