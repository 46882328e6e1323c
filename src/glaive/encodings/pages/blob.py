"""Pages of blobs: descriptors of values that are elsewhere in the file.

The page is a mini-block page of pairs of ``u64``, position and size. A size of 0 is an empty
value at position 0, else a null. The position of a null is ``level << 16``. The level says what
is null: the value or a struct around it.

A page returns descriptors; :meth:`BlobPage.with_values` returns a page of the values.

Specification: "Pages" in ``docs/format/blobs.md``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth, Struct, Variable, pack_flags
from glaive.encodings.levels import Layer, Leaf, read_layers
from glaive.encodings.protocol import Fetch, PageBytes, PageReader, and_then, join_buffers
from glaive.encodings.registry import open_page, page_layout
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels._addresses import check_apart
from glaive.types import ByteRange, Flags, Int64s, UInt64s, Where, as_buffer, items_of

_PAIR = [64, 64]
_LEVEL_SHIFT = np.uint64(16)


@page_layout
class BlobPage(PageReader):
    """Blob descriptors, or the blobs that they describe."""

    wire_name: ClassVar[str] = "blob_layout"

    def __init__(
        self,
        inner: PageReader,
        layers: tuple[Layer, ...],
        where: Where,
        end: int | None = None,
        *,
        inline: bool = False,
    ) -> None:
        self.rows = inner.rows
        self._inner = inner
        self._layers = layers
        self._where = where
        self._end = end
        self._inline = inline

    @classmethod
    def from_wire(cls, message: Any, page: PageBytes) -> BlobPage:
        """Parse a ``BlobLayout``."""
        inner = pb.PageLayout()
        inner.CopyFrom(message.inner_layout)
        name = inner.WhichOneof("layout")
        packed = inner.mini_block_layout.value_compression
        if name != "mini_block_layout" or packed.WhichOneof("compression") != "packed_struct":
            raise UnsupportedFeatureError(
                f"a blob_layout around {name or 'nothing'} (in {page.where}); this reader knows "
                "mini-blocks of packed structs. The file was probably written by a newer Lance: "
                "upgrade glaive."
            )
        layers = read_layers(message.layers, page.where)
        if any(layer.is_list for layer in layers):
            raise UnsupportedFeatureError(
                f"lists of blobs (in {page.where}) are not read: their pages do not say where "
                "lists begin"
            )
        widths = list(packed.packed_struct.bits_per_value)
        if widths != _PAIR:
            raise CorruptFileError(
                "blob page", expected="pairs of 64 bits", found=f"{widths} bits", where=page.where
            )
        values = pb.CompressiveEncoding()
        values.CopyFrom(packed.packed_struct.values)
        packed.CopyFrom(values)
        return cls(open_page(inner, page), layers, page.where)

    def with_values(self, end: int) -> BlobPage:
        """Return the same page, read as the values it describes; they lie before ``end``."""
        return BlobPage(self._inner, self._layers, self._where, end)

    def with_inline_descriptors(self) -> BlobPage:
        """Return the same page, read as ``lance.blob.v2`` descriptors of values in this file."""
        return BlobPage(self._inner, self._layers, self._where, inline=True)

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Return the rows ``start`` to ``stop``."""
        return and_then(self._inner.read(start, stop), partial(self._finish, None))

    def take(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """Return the rows at these positions."""
        return and_then(self._inner.take(rows), partial(self._finish, rows))

    # ------------------------------------------------------------------ descriptions

    def _finish(self, rows: Int64s | None, inner: Leaf) -> Fetch[Leaf] | Leaf:
        """Extract nulls from descriptors, then fetch the values if requested."""
        values = inner.values
        if inner.rows and not (
            isinstance(values, FixedWidth)
            and values.bits == sum(_PAIR)
            and values.count == inner.rows
            and inner.definition is None
            and inner.null_count == 0
        ):
            raise CorruptFileError(
                "blob page", expected="one descriptor per row", found="something else",
                where=self._where,
            )  # fmt: skip
        pairs = np.zeros((0, 2), np.uint64)
        if isinstance(values, FixedWidth):
            pairs = items_of(values.values, np.uint64, 2 * values.count).reshape(-1, 2)
        positions, sizes = pairs[:, 0], pairs[:, 1]
        null = (sizes == 0) & (positions != 0)
        leaf = Leaf(None, inner.rows, inner.rows, self._layers)
        if null.any():
            self._set_nulls(leaf, positions, null)
            positions = np.where(null, np.uint64(0), positions)
        if self._end is None:
            members = [np.ascontiguousarray(part) for part in (positions, sizes)]
            blocks: list[Block] = [FixedWidth(as_buffer(part), 64, len(part)) for part in members]
            if self._inline:
                # Kind 0: within the data file. Only other kinds have a blob file or a URI.
                count = len(positions)
                kind = FixedWidth(as_buffer(np.zeros(count, np.uint8)), 8, count)
                number = FixedWidth(as_buffer(np.zeros(count, np.uint32)), 32, count)
                uri = Variable.of_sizes(pa.py_buffer(b""), np.zeros(count, np.int64))
                blocks = [kind, *blocks, number, uri]
            leaf.values = Struct(tuple(blocks), inner.rows)
            return leaf
        ranges = value_ranges(positions, sizes, self._end, self._where, rows)
        if not ranges:
            return self._with_buffers(leaf, sizes, [])
        return Fetch(ranges, partial(self._with_buffers, leaf, sizes))

    def _set_nulls(self, leaf: Leaf, positions: UInt64s, null: Flags) -> None:
        levels = np.where(null, positions >> _LEVEL_SHIFT, np.uint64(0))
        repetition = positions[null] & np.uint64(0xFFFF)
        top = sum(layer.def_levels for layer in self._layers)
        if int(levels.max()) > top or repetition.any() or not levels[null].all():
            raise CorruptFileError(
                "nulls of a blob page",
                expected=f"levels from 1 to {top}, and no repetition",
                found=f"levels up to {levels.max()}",
                where=self._where,
            )
        if self._layers == (Layer.NULLABLE_ITEM,):
            leaf.validity = pack_flags(~null)
            leaf.null_count = int(np.count_nonzero(null))
        else:
            leaf.definition = levels.astype(np.uint16)

    # ------------------------------------------------------------------ values

    def _with_buffers(self, leaf: Leaf, sizes: UInt64s, buffers: list[pa.Buffer]) -> Leaf:
        data = join_buffers(buffers) if buffers else pa.py_buffer(b"")
        leaf.values = Variable.of_sizes(data, sizes.astype(np.int64), 64)
        return leaf


def value_ranges(
    positions: UInt64s, sizes: UInt64s, end: int, where: Where, rows: Int64s | None
) -> list[ByteRange]:
    """Return where values are stored; skip empty values.

    Parameters
    ----------
    end
        First byte of the file after all values.
    rows
        The number of each row; ``None`` where all differ. Values of different rows are disjoint,
        which limits reads of a damaged page to the size of the file.

    Raises
    ------
    CorruptFileError
        A value lies outside of the file, or values overlap.
    """
    last = np.uint64(end)
    # Positions are limited first: the sum below might wrap around.
    wrong = (sizes > 0) & (
        (sizes > last) | (positions > last) | (np.minimum(positions, last) + sizes > last)
    )
    if wrong.any():
        at = int(wrong.argmax())
        raise CorruptFileError(
            "blob",
            expected=f"bytes within 0..{end}",
            found=f"{sizes[at]} bytes at {positions[at]}",
            where=where,
        )
    filled = sizes.nonzero()[0]
    ranges = np.stack((positions[filled], sizes[filled]), axis=1)
    numbers = filled if rows is None else rows[filled]
    check_apart("blobs", numbers, ranges[:, 1].astype(np.int64), end, where)
    return [ByteRange(*pair) for pair in ranges.tolist()]
