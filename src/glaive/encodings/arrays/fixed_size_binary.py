"""Fixed-size binary: strings of one length, without offsets; read, never written.

Lance before 2.1 used it for pages whose strings all have the same length.

Specification: "Fixed-size binary" in ``docs/format/arrays.md``; message ``FixedSizeBinary``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.build import offset_bits
from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import ArrayEncoding, Source, wrong_type
from glaive.encodings.fetch import Fetch, and_then
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding, read_array
from glaive.errors import CapacityError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.memory import as_buffer
from glaive.types import MAX_OFFSET, MAX_WIDTH

__all__ = ["FixedSizeBinary"]


@array_encoding
@dataclass(frozen=True, slots=True)
class FixedSizeBinary(ArrayEncoding):
    """Strings of ``width`` bytes each; the bytes are not copied."""

    wire_name: ClassVar[str] = "fixed_size_binary"

    kind: pa.DataType
    data: ArrayEncoding
    width: int
    per_byte: bool

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``FixedSizeBinary``; its items are single bytes or whole values."""
        width = message.byte_width
        per_byte = message.bytes.flat.bits_per_value == 8
        most = MAX_OFFSET if per_byte else MAX_WIDTH
        if offset_bits(kind) is None or not 0 < width <= most:
            raise wrong_type(kind, f"strings of {width} bytes", page.where)
        value, total = pa.binary(width), count
        if per_byte:
            value, total = pa.uint8(), None if count is None else count * width
        return cls(kind, read_array(message.bytes, value, total, page), width, per_byte)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``FixedSizeBinary``."""
        message = pb.FixedSizeBinary(bytes=self.data.to_wire(), byte_width=self.width)
        return pb.ArrayEncoding(fixed_size_binary=message)

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        return self.data.implied_bytes(count * self.width if self.per_byte else count)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read the bytes and compute the offsets."""
        step = self.width if self.per_byte else 1
        data = self.data.read(source, start * step, stop * step)
        return and_then(data, lambda values: self._array(source, values, stop - start))

    def _array(self, source: Source, data: Any, count: int) -> pa.Array:
        bits = offset_bits(self.kind) or 32
        if bits == 32 and count * self.width > MAX_OFFSET:
            raise CapacityError.of(count * self.width, f"bytes of {self.kind}", where=source.where)
        offsets = np.arange(count + 1, dtype=f"<i{bits // 8}") * self.width
        buffers = [None, as_buffer(offsets.astype(f"<i{bits // 8}")), data.buffers()[1]]
        return pa.Array.from_buffers(self.kind, count, buffers, 0)
