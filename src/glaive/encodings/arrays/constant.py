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
from glaive.types import Int64s

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

    def read(self, source: Source, start: int, stop: int) -> Any:
        """Repeat the value."""
        buffers = [None, pa.py_buffer(self.value)]
        bits = offset_bits(self.kind)
        if bits is not None:
            offsets = as_buffer(np.array([0, len(self.value)], f"<i{bits // 8}"))
            buffers = [None, offsets, pa.py_buffer(self.value)]
        value = pa.Array.from_buffers(self.kind, 1, buffers, 0)
        # Positions take 8 bytes each.
        check_implied((stop - start) * max(64, 8 * len(self.value)), self.kind)
        return take_values(value, np.zeros(stop - start, np.int64))

    def take(self, source: Source, rows: Int64s) -> Any:
        """Repeat the value."""
        return self.read(source, 0, len(rows))
