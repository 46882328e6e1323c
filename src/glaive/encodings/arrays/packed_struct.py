"""Packed struct: the members of a row next to each other, without padding.

Members have a fixed width and no nulls. Their encodings have no buffers of their own: they
only give the width of each member.

Specification: "Packed struct" in ``docs/format/arrays.md``; message ``PackedStruct``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import pyarrow as pa

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.gather import take_block
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
from glaive.encodings.arrays.fixed_size_list import FixedSizeList
from glaive.encodings.arrays.flat import Flat
from glaive.encodings.arrays.nullable import Nullable
from glaive.encodings.fetch import Fetch
from glaive.encodings.packed_rows import pack_rows, split_rows
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding, read_array
from glaive.errors import UnsupportedFeatureError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.types import ByteRange, Int64s, Where

__all__ = ["PackedStruct", "packed_width"]


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
