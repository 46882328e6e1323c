"""Fixed-size list: ``dimension`` items per value, null lists included.

The validity of the lists is that of the ``Nullable`` outside, the validity of the items
that of the ``Nullable`` inside.

Specification: "Fixed-size list" in ``docs/format/arrays.md``; message ``FixedSizeList``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import ArrayEncoding, Source, wrong_type
from glaive.encodings.fetch import Fetch, and_then
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding, read_array
from glaive.errors import UnsupportedFeatureError
from glaive.format.pb import encodings20_pb2 as pb

__all__ = ["FixedSizeList"]


@array_encoding
@dataclass(frozen=True, slots=True)
class FixedSizeList(ArrayEncoding):
    """Lists of ``dimension`` ``items`` each; views of the items."""

    wire_name: ClassVar[str] = "fixed_size_list"
    views: ClassVar[bool] = True

    kind: pa.DataType
    dimension: int
    items: ArrayEncoding

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``FixedSizeList``; its dimension must be that of the type."""
        size = message.dimension
        if not pa.types.is_fixed_size_list(kind) or kind.list_size != size:
            raise wrong_type(kind, f"lists of {size} items", page.where)
        if message.has_validity:
            raise UnsupportedFeatureError(
                f"fixed-size lists with a validity of their own (in {page.where}): the file was "
                "probably written by a development version of Lance"
            )
        items = read_array(
            message.items, kind.value_type, None if count is None else count * size, page
        )
        return cls(kind, size, items)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``FixedSizeList`` around its items."""
        message = pb.FixedSizeList(dimension=self.dimension, items=self.items.to_wire())
        return pb.ArrayEncoding(fixed_size_list=message)

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        return self.items.implied_bytes(count * self.dimension)

    @property
    def all_equal(self) -> bool:
        """See the contract."""
        return self.items.all_equal

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read the items of the lists."""
        size = self.dimension
        items = self.items.read(source, start * size, stop * size)
        return and_then(items, lambda values: self._lists(values, stop - start))

    def _lists(self, items: pa.Array, count: int) -> pa.Array:
        return pa.Array.from_buffers(self.kind, count, [None], 0, children=[items])
