"""Array encodings of format 2.0 for packed and rare values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.build import offset_bits, take_block
from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import (
    ArrayEncoding,
    BufferRange,
    Outlet,
    Source,
    buffer_number,
    check_size,
    wrong_type,
)
from glaive.encodings.arrays.plain import FixedSizeList, Flat, Nullable, fixed_bits
from glaive.encodings.protocol import Fetch, PageBytes, and_then
from glaive.encodings.registry import array_encoding, read_array
from glaive.encodings.values.packed_struct import pack_rows, split_rows
from glaive.errors import CapacityError, CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.kernels._bitpack import BLOCK
from glaive.kernels.bitpack import unpack_out_of_line
from glaive.kernels.fsst import SymbolTable, decode_strings
from glaive.kernels.strings import Strings
from glaive.types import ByteRange, Int64s, UInt8s, UInt64s, Where, as_array, as_buffer


def check_widths(message: Any, kind: pa.DataType, page: PageBytes) -> tuple[int, int]:
    """Packed and plain width of a message that has both; they must suit each other and the type."""
    packed, plain = message.compressed_bits_per_value, message.uncompressed_bits_per_value
    if plain not in (8, 16, 32, 64) or not 0 < packed <= plain or fixed_bits(kind) != plain:
        raise CorruptFileError(
            "array encoding",
            expected=f"values of type {kind} in at most as many bits",
            found=f"{packed} bits for values of {plain} bits",
            where=page.where,
        )
    return packed, plain


@array_encoding
@dataclass(frozen=True, slots=True)
class Bitpacked(ArrayEncoding):
    """``width`` bits per value of ``bits`` bits."""

    wire_name: ClassVar[str] = "bitpacked"

    kind: pa.DataType
    width: int
    bits: int
    buffer: int
    signed: bool

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``Bitpacked``."""
        width, bits = check_widths(message, kind, page)
        number = buffer_number(message.buffer, page)
        check_size(number, 0 if count is None else (count * width + 7) // 8, page)
        return cls(kind, width, bits, number, message.signed)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``Bitpacked``."""
        message = pb.Bitpacked(
            compressed_bits_per_value=self.width,
            uncompressed_bits_per_value=self.bits,
            buffer=pb.Buffer(buffer_index=self.buffer),
            signed=self.signed,
        )
        return pb.ArrayEncoding(bitpacked=message)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read the bytes that hold the values, and unpack."""
        first = start * self.width // 8
        wanted = BufferRange(self.buffer, first, (stop * self.width + 7) // 8 - first)
        skip = start * self.width % 8

        def unpack(buffers: list[pa.Buffer]) -> pa.Array:
            words = self._unpack(as_array(buffers[0]), skip, stop - start)
            return pa.Array.from_buffers(self.kind, stop - start, [None, as_buffer(words)], 0)

        return source.fetch([wanted], unpack)

    def _unpack(self, data: UInt8s, skip: int, count: int) -> Any:
        width = self.width
        at = np.arange(count, dtype=np.int64) * width + skip
        byte, shift = at >> 3, (at & 7).astype(np.uint64)
        padded = np.zeros(len(data) + 16, np.uint8)
        padded[: len(data)] = data
        # Every byte position as the start of a word: a view, not a copy.
        anywhere: UInt64s = np.ndarray((len(data) + 8,), np.uint64, padded.data, strides=(1,))
        words = anywhere[byte] >> shift
        if width > 56:
            high = padded[byte + 8].astype(np.uint64)
            words |= np.where(shift > 0, high << (np.uint64(64) - np.maximum(shift, 1)), 0)
        if width < 64:
            words &= np.uint64((1 << width) - 1)
            if self.signed:
                sign = np.uint64(1 << (width - 1))
                words = (words ^ sign) - sign
        return words.astype(np.dtype(f"<u{self.bits // 8}"))


# --- Bit-packed non-negative integers in FastLanes blocks of 1,024; read, never written -
# The buffer holds ``ceil(n / 1024)`` blocks of ``128·w`` bytes; the last one is padded with 0.
#
# Specification: "Bit-packed" in ``docs/format/arrays.md``; message ``BitpackedForNonNeg``.


@array_encoding
@dataclass(frozen=True, slots=True)
class BitpackedForNonNeg(ArrayEncoding):
    """``width`` bits per value of ``bits`` bits, none of them negative."""

    wire_name: ClassVar[str] = "bitpacked_for_non_neg"

    kind: pa.DataType
    width: int
    bits: int
    buffer: int

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``BitpackedForNonNeg``."""
        width, bits = check_widths(message, kind, page)
        number = buffer_number(message.buffer, page)
        check_size(number, 0 if count is None else -(-count // BLOCK) * BLOCK * width // 8, page)
        return cls(kind, width, bits, number)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``BitpackedForNonNeg``."""
        message = pb.BitpackedForNonNeg(
            compressed_bits_per_value=self.width,
            uncompressed_bits_per_value=self.bits,
            buffer=pb.Buffer(buffer_index=self.buffer),
        )
        return pb.ArrayEncoding(bitpacked_for_non_neg=message)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read and unpack the blocks the values are in."""
        size = self.width * BLOCK // 8
        first, last = start // BLOCK, -(-stop // BLOCK)
        blocks = max(0, last - first)
        wanted = BufferRange(self.buffer, first * size, blocks * size)

        def unpack(buffers: list[pa.Buffer]) -> pa.Array:
            bounds = np.zeros(1, np.int64), np.array([blocks * size], np.int64)
            counts = np.array([blocks * BLOCK], np.int64)
            values = unpack_out_of_line(
                buffers[0], *bounds, counts, self.bits, self.width, source.where
            )
            item = self.bits // 8
            values = values.slice((start - first * BLOCK) * item, (stop - start) * item)
            return pa.Array.from_buffers(self.kind, stop - start, [None, values], 0)

        return source.fetch([wanted], unpack)


# --- FSST: strings whose bytes are codes of a symbol table; read, never written, in 2.0 -
# Specification: "FSST" in ``docs/format/arrays.md``; message ``Fsst``.


@array_encoding
@dataclass(frozen=True, slots=True)
class Fsst(ArrayEncoding):
    """``binary`` holds the codes of each value, ``table`` their symbols."""

    wire_name: ClassVar[str] = "fsst"

    kind: pa.DataType
    binary: ArrayEncoding
    table: SymbolTable

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse an ``Fsst``; refuses a damaged symbol table."""
        if offset_bits(kind) is None:
            raise wrong_type(kind, "FSST text", page.where)
        table = SymbolTable.parse(message.symbol_table, page.where)
        return cls(kind, read_array(message.binary, kind, count, page), table)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write an ``Fsst``."""
        message = pb.Fsst(binary=self.binary.to_wire(), symbol_table=self.table.to_bytes())
        return pb.ArrayEncoding(fsst=message)

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        return self.binary.implied_bytes(count)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read codes and decode them."""
        return and_then(
            self.binary.read(source, start, stop), lambda encoded: self._decoded(source, encoded)
        )

    def take(self, source: Source, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """Take codes and decode them."""
        return and_then(
            self.binary.take(source, rows), lambda encoded: self._decoded(source, encoded)
        )

    def _decoded(self, source: Source, encoded: Any) -> Any:
        bits = offset_bits(self.kind) or 32
        if encoded.offset:
            encoded = pa.concat_arrays([encoded, encoded.slice(0, 0)])
        validity, offsets, data = encoded.buffers()
        count = len(encoded)
        if not count or data is None:
            return encoded
        strings = decode_strings(self.table, Strings(offsets, bits, data), count, source.where)
        if strings.offset_bits != bits:
            what, instead = f"bytes of {self.kind}", f"large_{self.kind}"
            raise CapacityError.of(strings.data.size, what, where=source.where, instead=instead)
        buffers = [validity, strings.offsets, strings.data]
        return pa.Array.from_buffers(self.kind, count, buffers, encoded.null_count)


# --- Packed struct: the members of a row next to each other, without padding ------------
# Members have a fixed width and no nulls. Their encodings have no buffers of their own: they only
# give the width of each member.
#
# Specification: "Packed struct" in ``docs/format/arrays.md``; message ``PackedStruct``.


def packed_width(encoding: ArrayEncoding) -> int | None:
    """Bytes of one value; None for nullable values and those of no fixed number of bytes."""
    if isinstance(encoding, Nullable):
        plain = encoding.validity is None and encoding.values is not None
        return packed_width(encoding.values) if plain and encoding.values is not None else None
    if isinstance(encoding, FixedSizeList):
        inner = packed_width(encoding.items)
        return None if inner is None else inner * encoding.dimension
    if isinstance(encoding, Flat) and encoding.scheme is None and encoding.bits % 8 == 0:
        return encoding.bits // 8
    return None


@array_encoding
@dataclass(frozen=True, slots=True)
class PackedStruct(ArrayEncoding):
    """Rows of ``widths`` bytes per member, in one buffer."""

    wire_name: ClassVar[str] = "packed_struct"

    kind: pa.DataType
    members: tuple[ArrayEncoding, ...]
    widths: tuple[int, ...]
    buffer: int

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``PackedStruct``; it must have the members of the type."""
        if not pa.types.is_struct(kind) or kind.num_fields != len(message.inner):
            raise wrong_type(kind, f"a packed struct of {len(message.inner)} members", page.where)
        number = buffer_number(message.buffer, page)
        members = tuple(
            read_array(inner, member.type, None, page)
            for inner, member in zip(message.inner, kind, strict=True)
        )
        widths = []
        for member in members:
            width = packed_width(member)
            if width is None:
                raise UnsupportedFeatureError(
                    f"packed struct with a member of encoding {member.wire_name!r} (in "
                    f"{page.where}); members are plain values of whole bytes without nulls"
                )
            widths.append(width)
        check_size(number, 0 if count is None else count * sum(widths), page)
        return cls(kind, members, tuple(widths), number)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``PackedStruct``."""
        message = pb.PackedStruct(
            inner=[member.to_wire() for member in self.members],
            buffer=pb.Buffer(buffer_index=self.buffer),
        )
        return pb.ArrayEncoding(packed_struct=message)

    @classmethod
    def write(
        cls,
        kind: pa.DataType,
        members: Sequence[ArrayEncoding],
        values: Sequence[pa.Buffer],
        rows: int,
        out: Outlet,
    ) -> Self:
        """Put rows into the page; member ``i`` has its values back to back in ``values[i]``."""
        widths = tuple(packed_width(member) or 0 for member in members)
        packed = pack_rows(values, widths, rows)
        return cls(kind, tuple(members), widths, out.put(packed))

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read rows and split them into members."""
        stride = sum(self.widths)
        wanted = BufferRange(self.buffer, start * stride, (stop - start) * stride)
        return source.fetch(
            [wanted], lambda buffers: self._parted(buffers[0], stop - start, source.where)
        )

    def take(self, source: Source, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """Take rows and split them into members."""
        if not source.at_hand:
            return ArrayEncoding.take(self, source, rows)
        stride, stop = sum(self.widths), int(rows.max()) + 1

        def gather(buffers: list[pa.Buffer]) -> pa.Array:
            block = take_block(FixedWidth(buffers[0], 8 * stride, stop), rows)
            values = block.values if isinstance(block, FixedWidth) else buffers[0]
            return self._parted(values, len(rows), source.where)

        return source.fetch([BufferRange(self.buffer, 0, stop * stride)], gather)

    def _parted(self, rows: pa.Buffer, count: int, where: Where) -> pa.Array:
        children: list[Any] = []
        parts = split_rows(rows, self.widths, count)
        for encoding, own in zip(self.members, parts, strict=True):
            page = PageBytes((ByteRange(0, own.size),), [own], count, where)
            children.append(_renumbered(encoding).read(Source(page), 0, count))
        return pa.Array.from_buffers(self.kind, count, [None], 0, children=children)


def _renumbered(encoding: ArrayEncoding) -> ArrayEncoding:
    """The same encoding, for a page whose only buffer is this member."""
    if isinstance(encoding, Nullable) and encoding.values is not None:
        return Nullable(encoding.kind, None, _renumbered(encoding.values))
    if isinstance(encoding, FixedSizeList):
        return FixedSizeList(encoding.kind, encoding.dimension, _renumbered(encoding.items))
    if isinstance(encoding, Flat):
        return Flat(encoding.kind, encoding.bits, 0)
    return encoding


# --- Struct: the header column of a struct, rows without buffers ------------------------
# The members are columns of their own. There is no validity: format 2.0 has no null structs.
#
# Specification: "Struct" in ``docs/format/arrays.md``; message ``SimpleStruct``.

_EMPTY = pa.struct([])


@array_encoding
@dataclass(frozen=True, slots=True)
class SimpleStruct(ArrayEncoding):
    """A number of rows; decodes to structs without members."""

    wire_name: ClassVar[str] = "struct"
    structural: ClassVar[bool] = True

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``SimpleStruct``, which has no fields."""
        return cls()

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``SimpleStruct``."""
        return pb.ArrayEncoding(struct=pb.SimpleStruct())

    def read(self, source: Source, start: int, stop: int) -> pa.Array:
        """One struct per requested row."""
        return pa.StructArray.from_buffers(_EMPTY, stop - start, [None], 0)

    def take(self, source: Source, rows: Int64s) -> pa.Array:
        """One struct per requested row."""
        return self.read(source, 0, len(rows))
