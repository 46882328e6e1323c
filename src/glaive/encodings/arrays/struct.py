"""Struct: the header column of a struct, rows without buffers.

The members are columns of their own. There is no validity: format 2.0 has no null structs.

Specification: "Struct" in ``docs/format/arrays.md``; message ``SimpleStruct``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from glaive.encodings.array_protocol import ArrayEncoding, Positions, Source
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding

if TYPE_CHECKING:
    from glaive.format.pb import encodings20_pb2 as pb

__all__ = ["SimpleStruct"]

_EMPTY = pa.struct([])


@array_encoding
@dataclass(frozen=True, slots=True)
class SimpleStruct(ArrayEncoding):
    """A number of rows; decodes to structs without members."""

    wire_name: ClassVar[str] = "struct"
    structural: ClassVar[bool] = True

    @classmethod
    def from_wire(
        cls,
        message: Any,
        kind: pa.DataType,
        count: int | None,
        page: PageBytes,
    ) -> Self:
        """Parse a ``SimpleStruct``, which says nothing."""
        return cls()

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``SimpleStruct``."""
        from glaive.format.pb import encodings20_pb2 as pb

        return pb.ArrayEncoding(struct=pb.SimpleStruct())

    def read(self, source: Source, start: int, stop: int) -> pa.Array:
        """As many structs as rows are asked for."""
        return pa.StructArray.from_buffers(_EMPTY, stop - start, [None], 0)

    def take(self, source: Source, rows: Positions) -> pa.Array:
        """As many structs as rows are asked for."""
        return self.read(source, 0, len(rows))
