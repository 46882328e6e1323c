"""Struct: the header column of a struct, rows without buffers.

The members are columns of their own. There is no validity: format 2.0 has no null structs.

Specification: "Struct" in ``docs/format/arrays.md``; message ``SimpleStruct``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import ArrayEncoding, Source
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding
from glaive.format.pb import encodings20_pb2 as pb
from glaive.types import Int64s

__all__ = ["SimpleStruct"]

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
