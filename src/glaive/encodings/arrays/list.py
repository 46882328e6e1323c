"""List: the end offset of each list of a page among the items of the child column.

A list is valid when its stored end is below ``null_offset_adjustment``; a null list stores
the end of the list before it plus that number. ``num_items`` items of the child column
belong to the page, so ends count from 0 in every page.

Specification: "List" in ``docs/format/arrays.md``; message ``List``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import ArrayEncoding, Outlet, Source
from glaive.encodings.arrays.flat import Flat
from glaive.encodings.arrays.nullable import Nullable
from glaive.encodings.fetch import Fetch, and_then, join
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding, read_array
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.kernels._bounds import check_apart
from glaive.kernels.end_offsets import (
    NullableOffsets,
    Spans,
    decode_end_offsets,
    encode_end_offsets,
    pair_end_offsets,
)
from glaive.types import Int64s, Where

__all__ = ["List", "read_ends", "take_ends", "write_ends"]


def read_ends(
    ends: ArrayEncoding, source: Source, start: int, stop: int, adjustment: int, bits: int
) -> Fetch[NullableOffsets] | NullableOffsets:
    """Offsets of ``bits`` bits, validity and bounds of values ``start`` to ``stop``.

    The end offset before the first one is read too: there the first value starts.
    """
    skip = 1 if start else 0
    where = source.where
    return and_then(
        ends.read(source, start - skip, stop),
        lambda stored: decode_end_offsets(_words(stored, where), skip, adjustment, bits, where),
    )


def take_ends(
    ends: ArrayEncoding, source: Source, rows: Int64s, adjustment: int
) -> Fetch[Spans] | Spans:
    """Start, size and validity of the values at ``rows``."""
    before = np.maximum(rows - 1, 0)
    steps = [ends.take(source, rows), ends.take(source, before)]

    def pair(taken: list[Any]) -> Spans:
        stored, previous = (_words(array, source.where) for array in taken)
        return pair_end_offsets(previous, stored, rows > 0, adjustment, source.where)

    return join(steps, pair)


def _words(array: Any, where: Where) -> Any:
    """Stored ends as unsigned numbers, without a copy; none of them is null."""
    if array.null_count:
        raise CorruptFileError(
            "ends of values", expected="none that is null", found=f"{array.null_count}", where=where
        )
    words = np.frombuffer(array.buffers()[1] or b"", np.uint64)
    return words[array.offset : array.offset + len(array)]


def write_ends(ends: NullableOffsets, out: Outlet) -> tuple[ArrayEncoding, int]:
    """Put ends into the page; returns their encoding and the null adjustment."""
    stored, adjustment = encode_end_offsets(ends)
    flat = Flat.write(pa.uint64(), stored, out)
    return Nullable(pa.uint64(), None, flat), adjustment


@array_encoding
@dataclass(frozen=True, slots=True)
class List(ArrayEncoding):
    """List offsets of a page; decodes to ``NullableOffsets`` of ``glaive.kernels.end_offsets``."""

    wire_name: ClassVar[str] = "list"
    structural: ClassVar[bool] = True

    ends: ArrayEncoding
    adjustment: int
    num_items: int
    bits: int

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``List``; ``kind`` decides how wide the offsets become."""
        ends = read_array(message.offsets, pa.uint64(), count, page)
        narrow = pa.types.is_list(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)
        return cls(ends, message.null_offset_adjustment, message.num_items, 32 if narrow else 64)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``List``."""
        message = pb.List(
            offsets=self.ends.to_wire(),
            null_offset_adjustment=self.adjustment,
            num_items=self.num_items,
        )
        return pb.ArrayEncoding(list=message)

    def read(
        self, source: Source, start: int, stop: int
    ) -> Fetch[NullableOffsets] | NullableOffsets:
        """Offsets, validity, and the items they span within the page's."""
        step = read_ends(self.ends, source, start, stop, self.adjustment, self.bits)
        return and_then(step, lambda lists: self._checked(lists, lists.stop, source.where))

    def take(self, source: Source, rows: Int64s) -> Fetch[Spans] | Spans:
        """Start, size and validity of single lists."""

        def checked(lists: Spans) -> Spans:
            ends = lists.starts + lists.sizes
            self._checked(lists, int(ends.max(initial=0)), source.where)
            check_apart("lists", rows, lists.sizes, self.num_items, source.where, "items")
            return lists

        return and_then(take_ends(self.ends, source, rows, self.adjustment), checked)

    def _checked(self, lists: Any, stop: int, where: Where) -> Any:
        if stop > self.num_items:
            raise CorruptFileError(
                "list offsets",
                expected=f"at most {self.num_items} (the items of the page)",
                found=f"{stop}",
                where=where,
            )
        return lists
