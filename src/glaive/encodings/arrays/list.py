"""List: where each list of a page ends among the items of the column below.

A list is valid when its stored end is below ``null_offset_adjustment``; a null list stores
the end of the list before it plus that number. ``num_items`` items of the child column
belong to the page, so ends count from 0 in every page.

Specification: "List" in ``docs/format/arrays.md``; message ``List``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.encodings.array_protocol import ArrayEncoding, Outlet, Positions, Source
from glaive.encodings.arrays.flat import Flat
from glaive.encodings.arrays.nullable import Nullable
from glaive.encodings.fetch import chain, join
from glaive.encodings.protocol import Fetch, PageBytes
from glaive.encodings.registry import array_encoding, read_array
from glaive.errors import CorruptFileError
from glaive.kernels.ends import Ends, Spans, join_ends, pair_ends, resolve_ends
from glaive.types import Where

if TYPE_CHECKING:
    from glaive.format.pb import encodings20_pb2 as pb

__all__ = ["List", "read_ends", "take_ends", "write_ends"]


def read_ends(
    ends: ArrayEncoding, source: Source, start: int, stop: int, adjustment: int, bits: int
) -> Fetch[Ends] | Ends:
    """Offsets of ``bits`` bits, validity and bounds of values ``start`` to ``stop``.

    The end before the first one is read too: that is where the first value starts.
    """
    skip = 1 if start else 0
    where = source.where
    return chain(
        ends.read(source, start - skip, stop),
        lambda stored: resolve_ends(_words(stored), skip, adjustment, bits, where),
    )


def take_ends(
    ends: ArrayEncoding, source: Source, rows: Positions, adjustment: int
) -> Fetch[Spans] | Spans:
    """Start, size and validity of the values at ``rows``."""
    before = np.maximum(rows - 1, 0)
    steps = [ends.take(source, rows), ends.take(source, before)]

    def pair(found: list[Any]) -> Spans:
        stored, previous = map(_words, found)
        return pair_ends(previous, stored, rows > 0, adjustment, source.where)

    return join(steps, pair)


def _words(array: Any) -> Any:
    """Stored ends as unsigned numbers, without a copy."""
    words = np.frombuffer(array.buffers()[1] or b"", np.uint64)
    return words[array.offset : array.offset + len(array)]


def write_ends(ends: Ends, out: Outlet) -> tuple[ArrayEncoding, int]:
    """Put ends into the page; returns their encoding and the null adjustment."""
    stored, adjustment = join_ends(ends)
    flat = Flat.write(pa.uint64(), stored, out)
    return Nullable(pa.uint64(), None, flat), adjustment


@array_encoding
@dataclass(frozen=True, slots=True)
class List(ArrayEncoding):
    """Ends of the lists of a page; decodes to :class:`glaive.kernels.ends.Ends`."""

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
        from glaive.format.pb import encodings20_pb2 as pb

        message = pb.List(
            offsets=self.ends.to_wire(),
            null_offset_adjustment=self.adjustment,
            num_items=self.num_items,
        )
        return pb.ArrayEncoding(list=message)

    def read(self, source: Source, start: int, stop: int) -> Fetch[Ends] | Ends:
        """Offsets, validity, and the items they span within the page's."""
        step = read_ends(self.ends, source, start, stop, self.adjustment, self.bits)
        return chain(step, lambda found: self._checked(found, found.stop, source.where))

    def take(self, source: Source, rows: Positions) -> Fetch[Spans] | Spans:
        """Start, size and validity of single lists."""
        step = take_ends(self.ends, source, rows, self.adjustment)
        return chain(
            step,
            lambda found: self._checked(
                found, int((found.starts + found.sizes).max(initial=0)), source.where
            ),
        )

    def _checked(self, found: Any, stop: int, where: Where) -> Any:
        if stop > self.num_items:
            raise CorruptFileError(
                "list offsets",
                expected=f"at most {self.num_items} (the items of the page)",
                found=f"{stop}",
                where=where,
            )
        return found
