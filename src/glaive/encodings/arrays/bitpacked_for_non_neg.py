"""Bit-packed non-negative integers in FastLanes blocks of 1,024; read, never written.

The buffer holds ``ceil(n / 1024)`` blocks of ``128·w`` bytes; the last one is padded with 0.

Specification: "Bit-packed" in ``docs/format/arrays.md``; message ``BitpackedForNonNeg``.
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
from glaive.encodings.arrays.bitpacked import check_widths
from glaive.encodings.fetch import Fetch
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding
from glaive.format.pb import encodings20_pb2 as pb
from glaive.kernels.bitpack import BLOCK, unpack_out_of_line

__all__ = ["BitpackedForNonNeg"]


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
