"""Nullable: a validity bitmap before the values.

========== ============================================
layout     buffers
========== ============================================
no_nulls   those of the values
some_nulls one bit per value (1 = valid), then the values
all_nulls  none
========== ============================================

Specification: "Nullable" in ``docs/format/arrays.md``; message ``Nullable``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.build import all_null, null_bytes
from glaive.arrow.slices import slice_bits
from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import ArrayEncoding, Source
from glaive.encodings.fetch import Fetch, join
from glaive.encodings.predicate import PagePredicate, RowBits, all_or_none
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding, read_array
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.types import Int64s

__all__ = ["Nullable"]


@array_encoding
@dataclass(frozen=True, slots=True)
class Nullable(ArrayEncoding):
    """``values``, null where ``validity`` has a 0; without ``values`` everything is null."""

    wire_name: ClassVar[str] = "nullable"

    kind: pa.DataType
    validity: ArrayEncoding | None
    values: ArrayEncoding | None

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``Nullable`` and its values."""
        layout = message.WhichOneof("nullability")
        if layout == "all_nulls":
            return cls(kind, None, None)
        if layout is None:
            raise CorruptFileError(
                "nulls",
                expected="no_nulls, some_nulls or all_nulls",
                found="none",
                where=page.where,
            )
        inner = getattr(message, layout)
        validity = None
        if layout == "some_nulls":
            if inner.validity.WhichOneof("array_encoding") != "flat":
                raise CorruptFileError(
                    "validity",
                    expected="a flat encoding of one bit per value",
                    found=f"{inner.validity.WhichOneof('array_encoding') or 'none'}",
                    where=page.where,
                )
            validity = read_array(inner.validity, pa.bool_(), count, page)
        return cls(kind, validity, read_array(inner.values, kind, count, page))

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``Nullable`` around its values."""
        if self.values is None:
            nullable = pb.Nullable(all_nulls=pb.Nullable.AllNull())
        elif self.validity is None:
            nullable = pb.Nullable(no_nulls=pb.Nullable.NoNull(values=self.values.to_wire()))
        else:
            some = pb.Nullable.SomeNull(
                validity=self.validity.to_wire(), values=self.values.to_wire()
            )
            nullable = pb.Nullable(some_nulls=some)
        return pb.ArrayEncoding(nullable=nullable)

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        if self.values is None:
            return null_bytes(self.kind, count)
        return self.values.implied_bytes(count)

    @property
    def all_equal(self) -> bool:
        """See the contract."""
        return self.values is None or (self.validity is None and self.values.all_equal)

    def read(self, source: Source, start: int, stop: int) -> Fetch[Any] | Any:
        """Read values and validity at once; views of both."""
        if self.values is None:
            return all_null(self.kind, stop - start)
        values = self.values.read(source, start, stop)
        if self.validity is None:
            return values
        return join([values, self.validity.read(source, start, stop)], _with_validity)

    def find(
        self, source: Source, predicate: PagePredicate, start: int, stop: int
    ) -> RowBits | None:
        """Leave it to the values when none is null."""
        if self.values is not None and self.validity is None:
            return self.values.find(source, predicate, start, stop)
        if self.values is None:
            return RowBits(all_or_none(stop - start, passing=predicate.null_passes()))
        return ArrayEncoding.find(self, source, predicate, start, stop)

    def take(self, source: Source, rows: Int64s) -> Fetch[Any] | Any:
        """Take values and validity at once."""
        if self.values is None:
            return all_null(self.kind, len(rows))
        if source.at_hand and self.values.views and not self.values.all_equal:
            return ArrayEncoding.take(self, source, rows)
        values = self.values.take(source, rows)
        if self.validity is None:
            return values
        return join([values, self.validity.take(source, rows)], _with_validity)


def _with_validity(parts: list[Any]) -> Any:
    """Values with the bits of a boolean array as their validity."""
    values, flags = parts
    kind, count = values.type, len(values)
    if pa.types.is_dictionary(kind):
        indices = _with_validity([values.indices, flags])
        return pa.DictionaryArray.from_arrays(indices, values.dictionary, ordered=kind.ordered)
    if values.null_count:
        return pc.if_else(flags, values, pa.scalar(None, kind))
    bitmap = flags.buffers()[1]
    if flags.offset != values.offset:
        # Only booleans are read with an offset, which is that of their flags.
        bitmap = slice_bits(bitmap, flags.offset, count)
    if pa.types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, count, [bitmap], children=[values.values])
    if pa.types.is_struct(kind):
        return pa.Array.from_buffers(kind, count, [bitmap], children=values.flatten())
    buffers = [bitmap, *values.buffers()[1:]]
    return pa.Array.from_buffers(kind, count, buffers, offset=values.offset)
