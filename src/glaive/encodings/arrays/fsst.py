"""FSST: strings whose bytes are codes of a symbol table; read, never written, in 2.0.

Specification: "FSST" in ``docs/format/arrays.md``; message ``Fsst``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import pyarrow as pa

from glaive.arrow.build import offset_bits
from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import ArrayEncoding, Source, wrong_type
from glaive.encodings.fetch import Fetch, and_then
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding, read_array
from glaive.errors import CapacityError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.kernels.fsst import decode_strings
from glaive.kernels.strings import Strings
from glaive.kernels.symbols import SymbolTable
from glaive.types import Int64s

__all__ = ["Fsst"]


@array_encoding
@dataclass(frozen=True, slots=True)
class Fsst(ArrayEncoding):
    """``binary`` holds the codes of each value, ``table`` their symbols."""

    wire_name: ClassVar[str] = "fsst"

    kind: pa.DataType
    binary: ArrayEncoding
    table: SymbolTable

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse an ``Fsst``; refuses a damaged symbol table."""
        if offset_bits(kind) is None:
            raise wrong_type(kind, "FSST text", page.where)
        table = SymbolTable.parse(message.symbol_table, page.where)
        return cls(kind, read_array(message.binary, kind, count, page), table)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write an ``Fsst``."""
        message = pb.Fsst(binary=self.binary.to_wire(), symbol_table=self.table.to_bytes())
        return pb.ArrayEncoding(fsst=message)

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        return self.binary.implied_bytes(count)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read codes and decode them."""
        return and_then(
            self.binary.read(source, start, stop), lambda encoded: self._decoded(source, encoded)
        )

    def take(self, source: Source, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """Take codes and decode them."""
        return and_then(
            self.binary.take(source, rows), lambda encoded: self._decoded(source, encoded)
        )

    def _decoded(self, source: Source, encoded: Any) -> Any:
        bits = offset_bits(self.kind) or 32
        if encoded.offset:
            encoded = pa.concat_arrays([encoded, encoded.slice(0, 0)])
        validity, offsets, data = encoded.buffers()
        count = len(encoded)
        if not count or data is None:
            return encoded
        strings = decode_strings(self.table, Strings(offsets, bits, data), count, source.where)
        if strings.offset_bits != bits:
            what, instead = f"bytes of {self.kind}", f"large_{self.kind}"
            raise CapacityError.of(strings.data.size, what, where=source.where, instead=instead)
        buffers = [validity, strings.offsets, strings.data]
        return pa.Array.from_buffers(self.kind, count, buffers, encoded.null_count)
