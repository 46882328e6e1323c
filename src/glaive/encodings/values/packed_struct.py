"""Packed struct: the members of a row next to each other, for rows of a fixed width.

One buffer per chunk, like ``Flat`` of the width of a row. Members are whole bytes wide, valid,
and stored plain.

Specification: "Packed structs" in ``docs/format/encodings.md``; message ``PackedStruct``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, FixedWidth, Struct, Variable
from glaive.dataclass import dataclass
from glaive.encodings.compression import check_decoded
from glaive.encodings.protocol import (
    EncodedChunks,
    MiniChunks,
    ValueEncoding,
    join_buffers,
    newer_lance,
)
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.values.flat import Flat
from glaive.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.full_zip import gather_ranges
from glaive.types import MAX_OFFSET, Int64s, Where, allocate, as_array

# --- Rows of packed structs: the members of a row next to each other, unpadded ----------


def pack_rows(members: Sequence[pa.Buffer], widths: Sequence[int], rows: int) -> pa.Buffer:
    """Join members of fixed width; member ``i`` has ``widths[i]`` bytes per row."""
    stride = sum(widths)
    packed = allocate(rows * stride)
    at = 0
    for values, width in zip(members, widths, strict=True):
        _strided(packed, rows, stride, at, width)[:] = _strided(values, rows, width, 0, width)
        at += width
    return packed


def split_rows(packed: pa.Buffer, widths: Sequence[int], rows: int) -> list[pa.Buffer]:
    """Return the values of each member; the reverse of :func:`pack_rows`."""
    stride = sum(widths)
    members = []
    at = 0
    for width in widths:
        own = allocate(rows * width)
        _strided(own, rows, width, 0, width)[:] = _strided(packed, rows, stride, at, width)
        members.append(own)
        at += width
    return members


def _strided(buffer: pa.Buffer, rows: int, stride: int, at: int, width: int) -> NDArray[Any]:
    """View ``width`` bytes from byte ``at`` of every row."""
    if not rows or not width:
        return np.empty((rows, 0), np.uint8)
    item = np.dtype(f"u{width}" if width in (1, 2, 4, 8) else f"V{width}")
    return np.ndarray((rows,), item, as_array(buffer).data, at, (stride,))


@value_encoding
@dataclass(frozen=True, slots=True)
class PackedStruct(ValueEncoding):
    """Members of ``bits`` each; quick to read whole rows, slow to read one member."""

    wire_name: ClassVar[str] = "packed_struct"

    bits: tuple[int, ...]

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``PackedStruct`` of flat rows."""
        bits = tuple(message.bits_per_value)
        if any(width % 8 for width in bits):
            raise UnsupportedFeatureError(
                f"packed struct with members of {', '.join(map(str, bits))} bits (in {where}): "
                "members are whole bytes; pylance loses booleans when it writes them"
            )
        if message.values.WhichOneof("compression") != "flat":
            raise newer_lance("rows of a 'packed_struct' encoding that are not flat", where)
        total = message.values.flat.bits_per_value
        if not bits or 0 in bits or sum(bits) != total:
            raise CorruptFileError(
                "widths of packed members",
                expected=f"a sum of {total} bits",
                found=", ".join(map(str, bits)) or "none",
                where=where,
            )
        return cls(bits)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``PackedStruct``."""
        packed = pb.PackedStruct(bits_per_value=self.bits, values=self._rows.to_wire())
        return pb.CompressiveEncoding(packed_struct=packed)

    @property
    def number_bits(self) -> None:
        """``None``: a row consists of several numbers."""
        return

    @property
    def _rows(self) -> Flat:
        return Flat(sum(self.bits))

    def decode_mini(self, chunks: MiniChunks) -> Struct:
        """Join the chunks and split the rows into members."""
        return self._parted(self._rows.decode_mini(chunks))

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> Struct:
        """Copy the wanted rows only."""
        return self._parted(self._rows.take_mini(chunks, chunk, index))

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Pack the rows and divide them into chunks of about 8 KiB."""
        return self._rows.encode_mini(self.encode_values(block))

    def decode_values(self, block: Block, where: Where) -> Struct:
        """Split rows into members."""
        total = sum(self.bits)
        if not isinstance(block, FixedWidth) or block.bits != total:
            width = f"{block.bits} bits" if isinstance(block, FixedWidth) else type(block).__name__
            raise CorruptFileError(
                "packed rows", expected=f"{total} bits", found=width, where=where
            )
        return self._parted(block)

    def encode_values(self, block: Block) -> FixedWidth:
        """Pack the rows."""
        members = block.members if isinstance(block, Struct) else ()
        fixed = [member for member in members if isinstance(member, FixedWidth)]
        bits = tuple([member.bits for member in fixed])
        if len(fixed) != len(members) or bits != self.bits:
            raise SchemaError(
                f"encoding 'packed_struct' was given {type(block).__name__} with members of "
                f"{bits} bits; it holds {self.bits}"
            )
        widths = [width // 8 for width in self.bits]
        rows = pack_rows([member.values for member in fixed], widths, block.count)
        return FixedWidth(rows, sum(self.bits), block.count)

    def _parted(self, rows: FixedWidth) -> Struct:
        parts = split_rows(rows.values, [width // 8 for width in self.bits], rows.count)
        members = [
            FixedWidth(part, width, rows.count)
            for part, width in zip(parts, self.bits, strict=True)
        ]
        return Struct(tuple(members), rows.count)


# --- Packed struct of variable width: the members of a row back to back -----------------
#
# In a row, a member of fixed width has its value. A member of variable width has its length (32
# or 64 bits), then its bytes.
#
# Each member has its own encoding, which encodes single values. A null row has 0 bytes. In full-zip
# pages only.
#
# Specification: "Packed structs" in ``docs/format/encodings.md``; message
# ``VariablePackedStruct``.


@dataclass(frozen=True, slots=True)
class Member:
    """Encoding of a member: ``bits`` of its value, or of its length if that varies."""

    values: ValueEncoding
    bits: int
    is_variable: bool


@value_encoding
@dataclass(frozen=True, slots=True)
class VariablePackedStruct(ValueEncoding):
    """Rows of variable width; one read returns a row with all of its members."""

    wire_name: ClassVar[str] = "variable_packed_struct"

    members: tuple[Member, ...]

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``VariablePackedStruct``; check the widths of its members."""
        members = []
        for field in message.fields:
            layout = field.WhichOneof("layout")
            is_variable = layout == "bits_per_length"
            bits = getattr(field, layout) if layout else 0
            if bits == 0 or bits % 8 or (is_variable and bits not in (32, 64)):
                raise CorruptFileError(
                    "width of a packed member",
                    expected="whole bytes, or lengths of 32 or 64 bits",
                    found=f"{bits} bits",
                    where=where,
                )
            members.append(Member(read_encoding(field.value, where), bits, is_variable))
        if not members:
            raise CorruptFileError("packed struct", expected="members", found="none", where=where)
        return cls(tuple(members))

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``VariablePackedStruct``."""
        fields = []
        for member in self.members:
            field = pb.VariablePackedStruct.FieldEncoding(value=member.values.to_wire())
            if member.is_variable:
                field.bits_per_length = member.bits
            else:
                field.bits_per_value = member.bits
            fields.append(field)
        packed = pb.VariablePackedStruct(fields=fields)
        return pb.CompressiveEncoding(variable_packed_struct=packed)

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """See the contract."""
        return tuple(member.values for member in self.members)

    def decode_values(self, block: Block, where: Where) -> Struct:
        """Split rows into members, then decode each member."""
        if not isinstance(block, Variable):
            raise CorruptFileError(
                "packed rows", expected="a length in front of each", found="none", where=where
            )
        offsets = as_array(block.offsets, f"<i{block.offset_bits // 8}")[: block.count + 1]
        offsets = offsets.astype(np.int64)
        filled = (offsets[1:] > offsets[:-1]).nonzero()[0]
        all_filled = len(filled) == block.count
        starts, stops = offsets[:-1], offsets[1:]
        if not all_filled:
            starts, stops = starts[filled], stops[filled]
        filled_rows = None if all_filled else filled
        reader = _RowReader(block.data, starts.copy(), stops, where)
        members = [
            self._decoded(member, reader, block.count, filled_rows) for member in self.members
        ]
        reader.finish()
        return Struct(tuple(members), block.count)

    def _decoded(
        self, member: Member, reader: _RowReader, count: int, filled_rows: Int64s | None
    ) -> Block:
        """Return one member of all rows; rows outside ``filled_rows`` are zero or empty."""
        size = member.bits // 8
        if not member.is_variable:
            values = reader.fixed(size)
            if filled_rows is not None:
                # Rows of 0 bytes take memory by a width that may be damaged.
                check_decoded(count * size, reader.data.size, reader.where)
                spread = np.zeros((count, size), np.uint8)
                spread[filled_rows] = as_array(values).reshape(len(filled_rows), size)
                values = pa.py_buffer(spread.data)
            block: Block = FixedWidth(values, member.bits, count)
        else:
            data, lengths = reader.variable(size)
            if filled_rows is not None:
                spread_lengths = np.zeros(count, np.int64)
                spread_lengths[filled_rows] = lengths
                lengths = spread_lengths
            block = Variable.of_sizes(data, lengths, 64 if size == 8 else 32)
        return member.values.decode_values(block, reader.where)

    def encode_values(self, block: Block) -> Variable:
        """Encode each member, then join the members of each row."""
        if not isinstance(block, Struct) or len(block.members) != len(self.members):
            raise SchemaError(
                f"encoding {self.wire_name!r} takes structs of {len(self.members)} members, found "
                f"{type(block).__name__}"
            )
        sources: list[pa.Buffer] = []
        parts: list[tuple[Int64s, Int64s]] = []
        at = 0
        for member, values in zip(self.members, block.members, strict=True):
            encoded = member.values.encode_values(values)
            for source, starts, sizes in _pieces(encoded, member):
                sources.append(source)
                parts.append((starts + at, sizes))
                at += source.size
        starts = np.stack([start for start, _ in parts], axis=1)
        sizes = np.stack([size for _, size in parts], axis=1)
        data = gather_ranges(
            join_buffers(sources), starts.reshape(-1), sizes.reshape(-1), "packed rows"
        )
        return Variable.of_sizes(data, sizes.sum(axis=1))


def _pieces(block: Block, member: Member) -> Iterator[tuple[pa.Buffer, Int64s, Int64s]]:
    """Yield buffers with the bytes of a member; position and number of the bytes of each row."""
    rows = np.arange(block.count, dtype=np.int64)
    if isinstance(block, FixedWidth) and not member.is_variable and block.bits == member.bits:
        width = block.bits // 8
        yield block.values.slice(0, block.count * width), rows * width, np.full_like(rows, width)
        return
    if not isinstance(block, Variable) or not member.is_variable:
        raise SchemaError(
            f"member of a packed struct: expected {'variable' if member.is_variable else 'fixed'} "
            f"width, found {type(block).__name__}"
        )
    offsets = as_array(block.offsets, f"<i{block.offset_bits // 8}")[: block.count + 1]
    starts = offsets[:-1].astype(np.int64)
    sizes = offsets[1:] - starts
    width = member.bits // 8
    if width == 4 and block.count and int(sizes.max()) > MAX_OFFSET:
        raise SchemaError(
            f"a value of {int(sizes.max())} bytes in a packed struct: lengths have 32 bits. "
            "Use large_utf8 or large_binary"
        )
    lengths = sizes.astype(f"<u{width}")
    yield pa.py_buffer(lengths.data), rows * width, np.full_like(rows, width)
    yield block.data, starts, sizes


@dataclass(slots=True)
class _RowReader:
    """A position in each row, advanced by each member that is read."""

    data: pa.Buffer
    at: Int64s
    stops: Int64s
    where: Where

    def fixed(self, width: int) -> pa.Buffer:
        """Return the next ``width`` bytes of each row."""
        return self._next(np.full(len(self.at), width, np.int64))

    def variable(self, width: int) -> tuple[pa.Buffer, Int64s]:
        """Return a length of ``width`` bytes and as many bytes, of each row."""
        words = as_array(self.fixed(width), f"<u{width}")
        if width == 8 and len(words) and int(words.max()) > self.data.size:
            raise self._size_error(int(np.argmax(words)), int(words.max()))
        lengths = words.astype(np.int64)
        return self._next(lengths), lengths

    def finish(self) -> None:
        """Refuse rows with bytes after the last member."""
        if bool((self.at != self.stops).any()):
            row = int(np.argmax(self.at != self.stops))
            raise CorruptFileError(
                f"packed row {row}",
                expected="to end with its last member",
                found=f"{int(self.stops[row] - self.at[row])} more bytes",
                where=self.where,
            )

    def _next(self, sizes: Int64s) -> pa.Buffer:
        beyond = sizes > self.stops - self.at
        if beyond.any():
            row = int(np.argmax(beyond))
            raise self._size_error(row, int(sizes[row]))
        gathered = gather_ranges(self.data, self.at, sizes, self.where)
        self.at += sizes
        return gathered

    def _size_error(self, row: int, size: int) -> CorruptFileError:
        return CorruptFileError(
            f"packed row {row}",
            expected=f"{size} more bytes",
            found=f"{int(self.stops[row] - self.at[row])}",
            where=self.where,
        )
