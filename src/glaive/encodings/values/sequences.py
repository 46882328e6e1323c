"""Encodings of unsigned numbers in blocks, and of blocks that the message describes.

Format 2.3 stores positions, counts, indices, offsets and runs with the smallest of them.

Specification: "Constant" to "Dictionary" in ``docs/format/encodings.md``, and "Number sequences"
in ``docs/format/planes.md``.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow import blocks
from glaive.arrow.blocks import Block, FixedWidth
from glaive.arrow.build import expand
from glaive.dataclass import dataclass
from glaive.encodings.compression import check_decoded
from glaive.encodings.protocol import EncodedBlocks, ValueEncoding
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.writing.fixed_stats import fixed_width
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Int64s, UInt8s, Where, as_array, as_buffer

Numbers = NDArray[np.unsignedinteger[Any]]

_ZERO = np.zeros(1, np.int64)
_ZERO.setflags(write=False)


def numbers_of(block: Block, bits: int, count: int, what: str, where: Where) -> Numbers:
    """Return the ``count`` numbers of ``bits`` bits that a block holds.

    Raises
    ------
    CorruptFileError
        The block holds something else; ``what`` names it in the message.
    """
    if isinstance(block, blocks.Dictionary):
        if isinstance(block.items, blocks.Constant):
            block = blocks.Constant(block.items.value, block.count)
        else:
            block = expand(block)
    dtype = np.dtype(f"<u{bits // 8}")
    if isinstance(block, blocks.Constant):
        value = block.value
        if isinstance(value, FixedWidth) and value.bits == bits and block.count == count:
            return np.full(count, as_array(value.values, dtype)[0])
    elif isinstance(block, FixedWidth) and block.bits == bits and block.count == count:
        return as_array(block.values, dtype)[:count]
    width = f"{block.bits} bits" if isinstance(block, FixedWidth) else type(block).__name__
    raise CorruptFileError(
        what,
        expected=f"{count} numbers of {bits} bits",
        found=f"{block.count} values of {width}",
        where=where,
    )


def read_numbers(
    encoding: ValueEncoding, data: pa.Buffer, count: int, bits: int, what: str, where: Where
) -> Numbers:
    """Read a sequence of ``count`` numbers of ``bits`` bits out of its one block.

    ``data`` is empty for an encoding that is only its message. The caller has bounded ``count``:
    such encodings hold as many numbers as requested. ``what`` names the sequence in errors.

    Raises
    ------
    CorruptFileError
        The block is damaged, or has another number or width of values.
    """
    if count == 0:
        return np.empty(0, f"<u{bits // 8}")
    sizes, counts = np.array([data.size], np.int64), np.array([count], np.int64)
    block = encoding.decode_blocks(data, _ZERO, sizes, counts, where)
    return numbers_of(block, bits, count, what, where)


# --- Constant: all values of a block are equal; the value is stored in the message ------
#
# The blocks themselves are empty.
#
# Specification: "Constant" in ``docs/format/encodings.md``; message ``Constant``.


@value_encoding
@dataclass(frozen=True, slots=True)
class Constant(ValueEncoding):
    """``value`` holds the bytes of the value; empty for an empty block."""

    wire_name: ClassVar[str] = "constant"

    value: bytes

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``Constant``; the value is missing only in an empty block."""
        if message.HasField("value") and not message.value:
            raise CorruptFileError(
                "constant", expected="the bytes of its value", found="none", where=where
            )
        return cls(message.value)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Constant``."""
        return pb.CompressiveEncoding(constant=pb.Constant(value=self.value or None))

    @property
    def has_payload(self) -> bool:
        """Nothing is stored."""
        return False

    @property
    def number_bits(self) -> int:
        """Width of the value."""
        return len(self.value) * 8

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> blocks.Constant:
        """Return the value and its count."""
        count = int(counts.sum())
        if count and not self.value:
            raise CorruptFileError(
                "constant",
                expected=f"the bytes of the value, for {count} values",
                found="none",
                where=where,
            )
        value = FixedWidth(pa.py_buffer(self.value), len(self.value) * 8, 1)
        return blocks.Constant(value, count)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Return an empty payload: the caller has found that all values are the constant."""
        return EncodedBlocks(np.empty(0, np.uint8), np.zeros(len(counts), np.int64))


# --- Delta: a first number, and the distance from each number to the next ---------------
#
# A block of ``n`` numbers has ``n - 1`` deltas, in an encoding of their own. The first number
# is in the message and is the same for all blocks. Sums wrap around.
#
# Specification: "Delta" in ``docs/format/encodings.md``; message ``Delta``.

# --- Range: numbers at equal distances --------------------------------------------------
#
# Value ``i`` of every block is ``start + step * i``. The blocks themselves are empty.
#
# Specification: "Range" in ``docs/format/encodings.md``; message ``Range``.

_BITS = (32, 64)


@value_encoding
@dataclass(frozen=True, slots=True)
class Range(ValueEncoding):
    """Numbers of ``bits`` bits (32 or 64) from ``start`` on; sums wrap around."""

    wire_name: ClassVar[str] = "range"

    bits: int
    start: int
    step: int

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``Range`` of numbers of 32 or 64 bits."""
        bits = check_number_bits(message.uncompressed_bits_per_value, cls.wire_name, where)
        if not message.step or max(message.start, message.step) >> bits:
            raise CorruptFileError(
                "range",
                expected=f"a start and a step above 0 of {bits} bits",
                found=f"start {message.start}, step {message.step}",
                where=where,
            )
        return cls(bits, message.start, message.step)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Range``."""
        numbers = pb.Range(uncompressed_bits_per_value=self.bits, start=self.start, step=self.step)
        return pb.CompressiveEncoding(range=numbers)

    @property
    def has_payload(self) -> bool:
        """Nothing is stored."""
        return False

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> FixedWidth:
        """Count up; every block begins at ``start`` again."""
        total = int(counts.sum())
        dtype = np.dtype(f"<u{self.bits // 8}")
        numbers = np.arange(total, dtype=np.uint64)
        if len(counts) > 1:
            numbers -= (counts.cumsum() - counts).repeat(counts).astype(np.uint64)
        numbers *= np.uint64(self.step)
        numbers += np.uint64(self.start)
        return FixedWidth(as_buffer(numbers.astype(dtype, copy=False)), self.bits, total)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Return an empty payload: the caller has found that all values are the range."""
        return EncodedBlocks(np.empty(0, np.uint8), np.zeros(len(counts), np.int64))


def check_number_bits(bits: int, name: str, where: Where) -> int:
    """Return ``bits`` if numbers of an encoding may have this width."""
    if bits not in _BITS:
        raise CorruptFileError(
            f"width of numbers in a {name!r} encoding",
            expected="32 or 64 bits",
            found=f"{bits} bits",
            where=where,
        )
    return bits


@value_encoding
@dataclass(frozen=True, slots=True)
class Delta(ValueEncoding):
    """Numbers of ``bits`` bits (32 or 64) from ``base`` on, ``deltas`` apart."""

    wire_name: ClassVar[str] = "delta"

    bits: int
    base: int
    deltas: ValueEncoding

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``Delta`` of numbers of 32 or 64 bits."""
        bits = check_number_bits(message.uncompressed_bits_per_value, cls.wire_name, where)
        if message.base >> bits:
            raise CorruptFileError(
                "base of deltas",
                expected=f"a number of {bits} bits",
                found=str(message.base),
                where=where,
            )
        return cls(bits, message.base, read_encoding(message.deltas, where))

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Delta`` around the encoding of the deltas."""
        delta = pb.Delta(
            uncompressed_bits_per_value=self.bits, base=self.base, deltas=self.deltas.to_wire()
        )
        return pb.CompressiveEncoding(delta=delta)

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """See the contract."""
        return (self.deltas,)

    @property
    def has_payload(self) -> bool:
        """Whether the deltas have one."""
        return self.deltas.has_payload

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> FixedWidth:
        """Add up the deltas of every block."""
        inner = np.maximum(counts - 1, 0)
        total, steps = int(counts.sum()), int(inner.sum())
        sums = np.zeros(total, f"<u{self.bits // 8}")
        if steps:
            block = self.deltas.decode_blocks(data, starts, sizes, inner, where)
            deltas = numbers_of(block, self.bits, steps, "deltas", where)
            if len(counts) == 1:
                deltas.cumsum(out=sums[1:])
            else:
                filled = counts > 0
                first = (counts.cumsum() - counts)[filled]
                later = np.ones(total, np.bool_)
                later[first] = False
                sums[later] = deltas
                sums.cumsum(out=sums)
                # Blocks restart at 0: subtract the sum of the blocks before.
                sums -= sums[first].repeat(counts[filled])
        sums += np.array(self.base, sums.dtype)
        return FixedWidth(as_buffer(sums), self.bits, total)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Encode the deltas of every block.

        Raises
        ------
        SchemaError
            A block begins with another value than ``base``.
        """
        fixed = fixed_width(block, self.bits, self.wire_name)
        total = int(counts.sum())
        values = as_array(fixed.values, f"<u{self.bits // 8}")[:total]
        first = (counts.cumsum() - counts)[counts > 0]
        if (values[first] != self.base).any():
            raise SchemaError(f"blocks that do not begin with the base {self.base}")
        later = np.ones(total, np.bool_)
        later[first] = False
        deltas = np.diff(values, prepend=values[:1])[later]
        inner = FixedWidth(as_buffer(np.ascontiguousarray(deltas)), self.bits, len(deltas))
        return self.deltas.encode_blocks(inner, np.maximum(counts - 1, 0))


# --- Dictionary in block context: every value is an index into a few items --------------
#
# A block is ``u64`` bytes of the indices, ``u64`` bytes of the items, the indices (32 bits
# before their own encoding), the items. A part that lacks a payload is empty. When both lack a
# payload, the block is empty. Mini-block pages omit this message: their layout contains
# the dictionary itself.
#
# Specification: "Dictionary" in ``docs/format/encodings.md``; message ``Dictionary``.

DICTIONARY_HEADER_BYTES = 16
INDEX_BITS = 32
_MAX_IMPLIED = 65_536  # items that only the message describes, so bytes leave them unlimited


@value_encoding
@dataclass(frozen=True, slots=True)
class Dictionary(ValueEncoding):
    """``indices`` into ``num_items`` items of ``items``."""

    wire_name: ClassVar[str] = "dictionary"

    indices: ValueEncoding
    items: ValueEncoding
    num_items: int

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``Dictionary``; it must have items."""
        count = message.num_dictionary_items
        items = read_encoding(message.items, where) if count else None
        if items is None or (count > _MAX_IMPLIED and not items.has_payload):
            raise CorruptFileError(
                "dictionary items",
                expected=f"1 or more, up to {_MAX_IMPLIED} that take no bytes",
                found=str(count),
                where=where,
            )
        return cls(read_encoding(message.indices, where), items, count)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Dictionary`` with both inner encodings."""
        dictionary = pb.Dictionary(
            indices=self.indices.to_wire(),
            items=self.items.to_wire(),
            num_dictionary_items=self.num_items,
        )
        return pb.CompressiveEncoding(dictionary=dictionary)

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """See the contract."""
        return (self.indices, self.items)

    @property
    def has_payload(self) -> bool:
        """Whether the indices or the items have one."""
        return self.indices.has_payload or self.items.has_payload

    @property
    def number_bits(self) -> int | None:
        """Width of the items."""
        return self.items.number_bits

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> blocks.Dictionary:
        """Decode indices and items; the items of several blocks are concatenated."""
        at = starts + (DICTIONARY_HEADER_BYTES if self.has_payload else 0)
        parts = self._parts(data, starts, sizes, where)
        total = int(counts.sum())
        encoded = self.indices.decode_blocks(data, at, parts[:, 0], counts, where)
        indices = numbers_of(encoded, INDEX_BITS, total, "dictionary indices", where)
        if len(indices) and int(indices.max()) >= self.num_items:
            raise CorruptFileError(
                "dictionary indices",
                expected=f"numbers below {self.num_items}",
                found=str(int(indices.max())),
                where=where,
            )
        item_bits = self.items.number_bits or INDEX_BITS  # of an offset, at least
        check_decoded(len(starts) * self.num_items * item_bits // 8, int(sizes.sum()), where)
        each = np.full(len(starts), self.num_items, np.int64)
        items = self.items.decode_blocks(data, at + parts[:, 0], parts[:, 1], each, where)
        if len(starts) > 1:
            shifts = np.arange(len(starts), dtype=np.uint32) * np.uint32(self.num_items)
            indices = indices + shifts.repeat(counts)
        return blocks.Dictionary(FixedWidth(as_buffer(indices), INDEX_BITS, total), items, total)

    def _parts(self, data: pa.Buffer, starts: Int64s, sizes: Int64s, where: Where) -> Int64s:
        """Return the bytes of indices and of items in every block."""
        parts = np.zeros((len(starts), 2), np.int64)
        if not self.has_payload:
            return parts
        for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
            if size >= DICTIONARY_HEADER_BYTES:
                first, second = struct.unpack_from("<QQ", data, start)
            if size < DICTIONARY_HEADER_BYTES or DICTIONARY_HEADER_BYTES + first + second != size:
                raise CorruptFileError(
                    f"dictionary block {i}",
                    expected="two sizes of 8 bytes, and as many bytes",
                    found=f"{size} bytes",
                    where=where,
                )
            parts[i] = first, second
        return parts

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Write the indices of each block, each with all items."""
        if not isinstance(block, blocks.Dictionary) or block.indices.bits != INDEX_BITS:
            raise SchemaError(
                f"encoding {self.wire_name!r} takes 32-bit indices, found {_kind(block)}"
            )
        indices = self.indices.encode_blocks(block.indices, counts)
        items = self.items.encode_blocks(block.items, np.array([block.items.count], np.int64))
        if not self.has_payload:
            return EncodedBlocks(indices.data, indices.sizes)
        stops = indices.sizes.cumsum()
        parts: list[UInt8s] = []
        bounds = zip((stops - indices.sizes).tolist(), stops.tolist(), strict=True)
        for start, stop in bounds:
            header = struct.pack("<QQ", stop - start, len(items.data))
            parts += [np.frombuffer(header, np.uint8), indices.data[start:stop], items.data]
        data = np.concatenate(parts) if parts else np.empty(0, np.uint8)
        return EncodedBlocks(data, indices.sizes + (DICTIONARY_HEADER_BYTES + len(items.data)))


def _kind(block: Block) -> str:
    if isinstance(block, blocks.Dictionary):
        return f"indices of {block.indices.bits} bits"
    return f"{block.bits} bits" if isinstance(block, FixedWidth) else type(block).__name__
