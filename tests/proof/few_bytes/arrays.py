"""Pages of 2.0: array encodings within array encodings, led by the type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from tests.proof.few_bytes.draws import Draws, Impossible
from tests.proof.few_bytes.pages import Page
from tests.proof.few_bytes.sequences import MOST_BYTES, MOST_MADE, compressed

from glaive.format.pb import encodings20_pb2 as pb

__all__ = ["array_pages"]


def array_pages(draw: Draws, kind: pa.DataType) -> list[Page]:
    """A page of each column of a type."""
    rows = draw.of([1, 3, 20, draw.many(4, 40), draw.many(16, 29)])
    return _pages(draw, kind, rows, rows)


def _pages(draw: Draws, kind: pa.DataType, count: int, rows: int) -> list[Page]:
    buffers: list[bytes] = []
    message = pb.ArrayEncoding()
    below: list[Page] = []
    if pa.types.is_struct(kind):
        message.struct.SetInParent()
        for at in range(kind.num_fields):
            below += _pages(draw, kind.field(at).type, count, rows)
    elif pa.types.is_list(kind):
        each = draw.of([0, 1, 1, draw.many(4, 16)])
        # All ends are equal: the first list has all items.
        ends = _Array(draw, pa.uint64(), count, buffers, 2, each).encoded()
        message.list.offsets.CopyFrom(ends)
        message.list.num_items = each
        message.list.null_offset_adjustment = each + 1
        below = _pages(draw, kind.value_type, each, rows)
    else:
        message = _Array(draw, kind, count, buffers, 3).encoded()
    return [Page(message, buffers, count, rows), *below]


@dataclass(frozen=True)
class _Array:
    """Values of a type that are to be encoded; ``number`` is what all are, if that matters."""

    draw: Draws
    kind: Any
    count: int
    buffers: list[bytes]
    depth: int
    number: int | None = None

    def encoded(self) -> pb.ArrayEncoding:
        """Any encoding that can hold them."""
        types, kind = pa.types, self.kind
        text = types.is_string(kind) or types.is_large_string(kind)
        ways = [self.constant, self.constant]
        if self.depth:
            ways += [self.nullable] * 2
            if self.number is None:
                ways += [self.nulls]
        if types.is_null(kind):
            ways = [self.nulls]
        elif types.is_fixed_size_list(kind):
            ways = [self.lists, self.lists] + [self.nullable, self.nulls] * bool(self.depth)
        elif types.is_dictionary(kind):
            ways = [self.dictionary]
        elif not text:
            ways += [self.flat, self.compressed, self.packed]
        elif self.depth:
            ways += [self.dictionary, self.dictionary, self.binary, self.equal_sizes]
        return self.draw.of(ways)()

    def within(
        self, kind: Any, count: int, number: int | None = None, spent: int = 1
    ) -> pb.ArrayEncoding:
        """An encoding of other values within this one."""
        depth = self.depth - spent
        return _Array(self.draw, kind, count, self.buffers, depth, number).encoded()

    def constant(self) -> pb.ArrayEncoding:
        if pa.types.is_string(self.kind) or pa.types.is_large_string(self.kind):
            value = b"x" * self.draw.of([0, 3, 1000])
        elif pa.types.is_fixed_size_binary(self.kind):
            value = bytes(min(self.kind.byte_width, MOST_BYTES))
        else:
            value = (self.number or 0).to_bytes((self.kind.bit_width + 7) // 8, "little")
        return pb.ArrayEncoding(constant=pb.Constant(value=value))

    def nullable(self) -> pb.ArrayEncoding:
        message = pb.ArrayEncoding()
        if self.draw.chance(0.6):
            message.nullable.no_nulls.values.CopyFrom(
                self.within(self.kind, self.count, self.number)
            )
            return message
        flags = _Array(self.draw, pa.bool_(), self.count, self.buffers, 0)
        some = message.nullable.some_nulls
        some.validity.CopyFrom(self.draw.of([flags.flat, flags.compressed])())
        some.values.CopyFrom(self.within(self.kind, self.count, self.number))
        return message

    def nulls(self) -> pb.ArrayEncoding:
        message = pb.ArrayEncoding()
        message.nullable.all_nulls.SetInParent()
        return message

    def lists(self) -> pb.ArrayEncoding:
        size = self.kind.list_size
        items = self.within(self.kind.value_type, self.count * size, spent=0)
        return pb.ArrayEncoding(fixed_size_list=pb.FixedSizeList(dimension=size, items=items))

    def dictionary(self) -> pb.ArrayEncoding:
        count = self.draw.of([1, 3, 65_536, self.draw.many(10, 31)])
        if pa.types.is_dictionary(self.kind):
            indices = self.within(self.kind.index_type, self.count, 0)
            items = self.within(self.kind.value_type, count)
        else:  # only these say their width
            index = self.draw.of([pa.uint8(), pa.uint32(), pa.uint64()])
            numbers = _Array(self.draw, index, self.count, self.buffers, 0, 1)
            indices = self.draw.of([numbers.flat, numbers.compressed])()
            items = self.within(self.kind, count)
        message = pb.Dictionary(indices=indices, items=items, num_dictionary_items=count)
        return pb.ArrayEncoding(dictionary=message)

    def binary(self) -> pb.ArrayEncoding:
        size = self.draw.of([0, 0, 10, self.draw.many(10, 20), self.draw.many(10, 31)])
        ends = self.within(pa.uint64(), self.count, size)
        message = pb.Binary(
            indices=ends, bytes=self.within(pa.uint8(), size), null_adjustment=size + 1
        )
        return pb.ArrayEncoding(binary=message)

    def equal_sizes(self) -> pb.ArrayEncoding:
        width = self.draw.of([1, 10, 1 << 18, 1 << 30])
        if self.draw.chance(0.5):
            flat = _Array(self.draw, pa.uint8(), self.count * width, self.buffers, 0)
            data = self.draw.of([flat.flat, flat.compressed])()
        else:
            data = self.within(pa.binary(width), self.count)
        message = pb.FixedSizeBinary(bytes=data, byte_width=width)
        return pb.ArrayEncoding(fixed_size_binary=message)

    def put(self, data: bytes) -> pb.Buffer:
        """A buffer of the page."""
        self.buffers.append(data)
        return pb.Buffer(buffer_index=len(self.buffers) - 1)

    def listed(self, most: int) -> bytes:
        """All of them."""
        bits = self.kind.bit_width
        if bits <= 0 or self.count * bits > 8 * most:
            raise Impossible
        if not self.number or bits == 1:
            return bytes((self.count * bits + 7) // 8)
        return np.full(self.count, self.number, f"<u{bits // 8}").tobytes()

    def flat(self) -> pb.ArrayEncoding:
        return self.flat_of(self.put(self.listed(MOST_BYTES)))

    def compressed(self) -> pb.ArrayEncoding:
        scheme = self.draw.of(["zstd", "lz4"])
        data = compressed(scheme, self.listed(MOST_MADE))
        if len(data) > MOST_BYTES:
            raise Impossible
        message = self.flat_of(self.put(data))
        message.flat.compression.scheme = scheme
        return message

    def flat_of(self, buffer: pb.Buffer) -> pb.ArrayEncoding:
        """The message of plain values."""
        return pb.ArrayEncoding(flat=pb.Flat(bits_per_value=self.kind.bit_width, buffer=buffer))

    def packed(self) -> pb.ArrayEncoding:
        bits = self.kind.bit_width
        if bits not in (8, 16, 32, 64) or self.count > 8 * MOST_BYTES:
            raise Impossible
        buffer = self.put(bytes((self.count + 7) // 8 + 128))
        if self.draw.chance(0.5):
            return pb.ArrayEncoding(
                bitpacked=pb.Bitpacked(
                    compressed_bits_per_value=1, uncompressed_bits_per_value=bits, buffer=buffer
                )
            )
        return pb.ArrayEncoding(
            bitpacked_for_non_neg=pb.BitpackedForNonNeg(
                compressed_bits_per_value=1, uncompressed_bits_per_value=bits, buffer=buffer
            )
        )
