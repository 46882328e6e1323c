"""FSST: strings whose bytes are codes of a symbol table; read, never written, in 2.0.

Specification: "FSST" in ``docs/format/arrays.md``; message ``Fsst``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from glaive.encodings.array_protocol import ArrayEncoding, Positions, Source
from glaive.encodings.arrays.binary import offset_bits
from glaive.encodings.fetch import chain
from glaive.encodings.protocol import Fetch, PageBytes
from glaive.encodings.registry import array_encoding, read_array
from glaive.errors import CorruptFileError, SchemaError
from glaive.kernels.fsst import decode_strings
from glaive.kernels.strings import Strings
from glaive.kernels.symbols import SymbolTable

if TYPE_CHECKING:
    from glaive.format.pb import encodings20_pb2 as pb

__all__ = ["Fsst"]


@array_encoding
@dataclass(frozen=True, slots=True)
class Fsst(ArrayEncoding):
    """``binary`` holds the codes of each value, ``table`` what they stand for."""

    wire_name: ClassVar[str] = "fsst"

    kind: pa.DataType
    binary: ArrayEncoding
    table: SymbolTable

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse an ``Fsst``; refuses a damaged symbol table."""
        if offset_bits(kind) is None:
            raise CorruptFileError(
                "array encoding",
                expected=f"values of type {kind}",
                found="FSST text",
                where=page.where,
            )
        table = SymbolTable.parse(message.symbol_table, page.where)
        return cls(kind, read_array(message.binary, kind, count, page), table)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write an ``Fsst``."""
        from glaive.format.pb import encodings20_pb2 as pb

        message = pb.Fsst(binary=self.binary.to_wire(), symbol_table=self.table.to_bytes())
        return pb.ArrayEncoding(fsst=message)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read codes and decode them."""
        return chain(
            self.binary.read(source, start, stop), lambda coded: self._decoded(source, coded)
        )

    def take(self, source: Source, rows: Positions) -> Fetch[pa.Array] | pa.Array:
        """Take codes and decode them."""
        return chain(self.binary.take(source, rows), lambda coded: self._decoded(source, coded))

    def _decoded(self, source: Source, coded: Any) -> Any:
        bits = offset_bits(self.kind) or 32
        if coded.offset:
            coded = pa.concat_arrays([coded, coded.slice(0, 0)])
        validity, offsets, data = coded.buffers()
        count = len(coded)
        if not count or data is None:
            return coded
        strings = decode_strings(self.table, Strings(offsets, bits, data), count, source.where)
        if strings.offset_bits != bits:
            raise SchemaError(
                f"text of {strings.data.size} bytes in one array of {self.kind} (in "
                f"{source.where}): read fewer rows at a time, or declare the column large_string"
            )
        buffers = [validity, strings.offsets, strings.data]
        return pa.Array.from_buffers(self.kind, count, buffers, coded.null_count)
