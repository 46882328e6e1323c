"""Constant: one value for all rows; read, never written.

Specification: "Constant" in ``docs/format/arrays.md``; message ``Constant``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.build import check_implied, offset_bits
from glaive.arrow.chunked import take_values
from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import ArrayEncoding, Source, wrong_type
from glaive.encodings.arrays.flat import fixed_bits
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding
from glaive.format.pb import encodings20_pb2 as pb
from glaive.memory import as_buffer

__all__ = ["Constant"]


@array_encoding
@dataclass(frozen=True, slots=True)
class Constant(ArrayEncoding):
    """The bytes of one value, as a fixed-width number or as a string."""

    wire_name: ClassVar[str] = "constant"

    kind: pa.DataType
    value: bytes

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``Constant``; a fixed-width value must have the width of the type."""
        value, bits = message.value, fixed_bits(kind)
        fits = offset_bits(kind) is not None if bits is None else len(value) == (bits + 7) // 8
        if not fits:
            raise wrong_type(kind, f"{len(value)} bytes", page.where)
        return cls(kind, value)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``Constant``."""
        return pb.ArrayEncoding(constant=pb.Constant(value=self.value))

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        bits = fixed_bits(self.kind)
        return count * (8 + len(self.value)) if bits is None else (count * bits + 7) // 8

    @property
    def all_equal(self) -> bool:
        """See the contract."""
        return True

    def read(self, source: Source, start: int, stop: int) -> Any:
        """Repeat the value."""
        count, bits = stop - start, offset_bits(self.kind)
        if bits is None:
            return self._fixed(count)
        # Arrow would not notice offsets that wrap around.
        check_implied(count, 8 * len(self.value), self.kind)
        offsets = as_buffer(np.array([0, len(self.value)], f"<i{bits // 8}"))
        buffers = [None, offsets, pa.py_buffer(self.value)]
        value = pa.Array.from_buffers(self.kind, 1, buffers, 0)
        return take_values(value, np.zeros(count, np.int64))

    def _fixed(self, count: int) -> Any:
        """A value of fixed width, repeated without positions, which may take far more."""
        width = fixed_bits(self.kind) or 0
        check_implied(count, width, self.kind)
        if width == 1:
            values = np.full((count + 7) // 8, 255 * (self.value[0] & 1), np.uint8)
        else:
            values = np.empty((count, width // 8), np.uint8)
            values[:] = np.frombuffer(self.value, np.uint8)
        return pa.Array.from_buffers(self.kind, count, [None, as_buffer(values)], 0)
