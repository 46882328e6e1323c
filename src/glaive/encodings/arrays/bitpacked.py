"""Bit-packed: the low bits of integers, back to back; read, never written.

Value i has the bits ``i·w`` to ``(i + 1)·w`` of the buffer, the least significant first. With
``signed`` the highest of them is the sign.

Specification: "Bit-packed" in ``docs/format/arrays.md``; message ``Bitpacked``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import (
    ArrayEncoding,
    BufferRange,
    Source,
    buffer_number,
    check_size,
)
from glaive.encodings.arrays.flat import fixed_bits
from glaive.encodings.fetch import Fetch
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.memory import as_array, as_buffer
from glaive.types import UInt8s, UInt64s

__all__ = ["Bitpacked", "check_widths"]


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
