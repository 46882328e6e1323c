"""Full-zip pages: each row is one range of bytes, for values too wide for mini-blocks.

====== ================================================ ==================================
buffer content                                          present
====== ================================================ ==================================
0      entries: ``control word | length | value``       always
1      row index: position of each row, and the size    unless all entries have one size
====== ================================================ ==================================

The **control word** (0, 1, 2 or 4 bytes) holds the levels, ``rep << bits_def | def``. Values
of fixed width omit the length. Null and empty lists are a control word only; so are nulls of
variable width. Numbers in the row index have 1, 2, 4 or 8 bytes.

Pages that have only values of fixed width are plain arrays: reads and writes use views. A take
of these costs one request. For other pages it costs one more, for entries of the row index.

Specification: "Full-zip pages" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth, Variable
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.levels import Layer, Leaf, Levels, level_limits, read_layers
from glaive.encodings.protocol import (
    NO_RANGES,
    EncodedPage,
    Fetch,
    MemoryRanges,
    PageBytes,
    PageParts,
    PageReader,
    PageSignature,
    RowRuns,
    ValueEncoding,
    join_buffers,
    rows_beyond,
)
from glaive.encodings.registry import page_layout, read_encoding
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.encodings.values.flat import Flat
from glaive.errors import CorruptFileError, RowIndexError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.full_zip import (
    EntryLayout,
    Unzipped,
    check_ranges,
    gather_ranges,
    gather_rows,
    unzip,
    zip_entries,
)
from glaive.kernels.levels import validity_from_levels
from glaive.types import ByteRange, Int64s, as_array

# --- Joined full-zip pages of plain values: only values, of one width -------------------


class PlainPlaces(NamedTuple):
    """Where plain values lie in memory.

    Parameters
    ----------
    memory
        Memory of all pages.
    starts, ends
        Where the values of each page begin, and the number of the row after its last.
    width
        Bytes of a value.
    """

    memory: pa.Buffer
    starts: Int64s
    ends: Int64s
    width: int


class PlainRun(PageReader):
    """Pages whose one buffer is an array of ``values``, of ``width`` bytes each."""

    def __init__(
        self,
        width: int,
        values: ValueEncoding,
        layers: tuple[Layer, ...],
        parts: PageParts[PageReader],
    ) -> None:
        self._width, self._values, self._layers, self._parts = width, values, layers, parts
        self._ends = parts.each(lambda page: page.rows).cumsum()
        self.rows = int(self._ends[-1])

    def read(self, start: int, stop: int) -> Leaf:
        """Return the rows ``start`` to ``stop``; all of them with one copy of each page."""
        if (start, stop) != (0, self.rows):
            return self.take(np.arange(start, stop))
        parts = self._parts
        return self._leaf(parts.starts[:, 0], parts.sizes[:, 0], self.rows)

    def take(self, rows: Int64s) -> Leaf:
        """Return the rows at these positions of all pages."""
        self._check(rows)
        return self._leaf(self._starts(rows), np.full(len(rows), self._width), len(rows))

    @property
    def places(self) -> PlainPlaces:
        """Where the values of all pages lie."""
        parts = self._parts
        starts = np.ascontiguousarray(parts.starts[:, 0])
        return PlainPlaces(parts.data, starts, self._ends, self._width)

    def _check(self, rows: Int64s) -> None:
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.rows:
            raise RowIndexError(
                f"rows {rows.min()} to {rows.max()} of pages of {self.rows} rows "
                f"(in {self._parts.where})"
            )

    def take_ranges(self, rows: Int64s) -> MemoryRanges:
        """Return the ranges of the values of the rows."""
        starts = self._starts(rows) + self._parts.data.address
        return np.stack([starts, np.full(len(rows), self._width)], axis=1)

    def _starts(self, rows: Int64s) -> Int64s:
        """Return where rows begin in the memory of all pages."""
        page = self._ends.searchsorted(rows, "right")
        before = np.append(0, self._ends)[page]
        starts: Int64s = self._parts.starts[page, 0] + self._width * (rows - before)
        return starts

    def _leaf(self, starts: Int64s, sizes: Int64s, rows: int) -> Leaf:
        where = self._parts.where
        data = gather_ranges(self._parts.data, starts, sizes, where)
        block = self._values.decode_values(FixedWidth(data, 8 * self._width, rows), where)
        return Leaf(block, rows, rows, self._layers)


_NULLABLE = (Layer.NULLABLE_ITEM,)
_INDEX_WIDTHS = (1, 2, 4, 8)


@page_layout
@dataclass(slots=True)
class FullZipPage(PageReader):
    """A page of full-zip entries, which reads them anew at each call."""

    wire_name: ClassVar[str] = "full_zip_layout"

    rows: int
    page: PageBytes
    entry: EntryLayout
    values: ValueEncoding
    layers: tuple[Layer, ...]
    num_items: int
    num_visible_items: int
    index_width: int
    """Bytes of a number in the row index; 0 if the page lacks it."""

    @classmethod
    def from_wire(cls, message: Any, page: PageBytes) -> Self:
        """Parse a ``FullZipLayout``; check level widths, counts and buffer sizes."""
        where = page.where
        layers = read_layers(message.layers, where)
        limits = level_limits(layers)
        bits = (message.bits_rep, message.bits_def)
        if max(bits) > 16 or (bits[0] > 0) != (limits.max_rep > 0 and page.rows > 0):
            raise CorruptFileError(
                "widths of levels",
                expected=f"at most 16 bits, repetition for {limits.max_rep} list layers",
                found=f"{bits[0]} bits of repetition, {bits[1]} of definition",
                where=where,
            )
        details = message.WhichOneof("details")
        width = message.bits_per_value if details == "bits_per_value" else 0
        prefix = message.bits_per_offset // 8 if details == "bits_per_offset" else 0
        if details is None or width % 8 or (details == "bits_per_offset" and prefix not in (4, 8)):
            raise CorruptFileError(
                "width of full-zip values",
                expected="a multiple of 8 bits, or lengths of 32 or 64 bits",
                found=f"{details} of {getattr(message, details) if details else 'nothing'}",
                where=where,
            )
        entry = EntryLayout(*bits, *limits, width // 8, prefix)
        return cls(
            page.rows,
            page,
            entry,
            read_encoding(message.value_compression, where),
            layers,
            message.num_items,
            message.num_visible_items,
            _check_sizes(message, entry, page),
        )

    @property
    def entries(self) -> int:
        """All entries."""
        return self.num_items

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Return the rows ``start`` to ``stop``: a view of plain values, else unzipped."""
        if not 0 <= start <= stop <= self.rows:
            raise rows_beyond(start, stop, self.rows, self.page.where)
        if start == stop:
            return self._empty()
        whole = stop - start == self.rows
        if (whole or not self.page.unread) and self.page.at_hand is not None:
            return self._read(self.page.at_hand, start, stop)
        if whole:
            return Fetch(self.page.ranges, lambda got: self._read(got, start, stop))
        if self.index_width:
            return self._fetch(np.arange(start, stop))
        count, stride = stop - start, self.entry.stride
        wanted = ByteRange(self.page.ranges[0].offset + start * stride, count * stride)
        return Fetch([wanted], lambda got: self._equal_rows(got[0], (0, count)))

    def take(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """Return the rows by position: a view of one row or of consecutive rows, else a gather."""
        count = len(rows)
        if not count:
            return self._empty()
        low = high = rows.item(0)
        if count > 1:
            low, high = int(rows.min()), int(rows.max())
        if low < 0 or high >= self.rows:
            raise rows_beyond(low, high, self.rows, self.page.where)
        at_hand = self.page.at_hand
        if high - low == count - 1 and (count == 1 or bool((np.diff(rows) == 1).all())):
            return self.read(low, high + 1)
        if at_hand is None:
            return self._fetch(rows)
        if not self.index_width:
            return self._equal_rows(at_hand[0], rows)
        starts, stops = self._bounds(at_hand[1], rows)
        zipped = unzip(at_hand[0], starts, stops, self.entry, self.page.where, rows)
        return self._leaf(zipped, count)

    def opening_ranges(self, rows: Int64s) -> MemoryRanges:
        """Return where the row index has the numbers of rows, if sizes of rows differ."""
        at_hand, width = self.page.at_hand, self.index_width
        if at_hand is None or not width:
            return NO_RANGES
        at = at_hand[1].address + width * rows
        return np.stack([at, np.full(len(at), 2 * width)], axis=1)

    def take_ranges(self, rows: Int64s) -> MemoryRanges | None:
        """Return the ranges of the entries of the rows."""
        at_hand = self.page.at_hand
        if at_hand is None:
            return None
        address, stride = at_hand[0].address, self.entry.stride
        if not self.index_width:
            return np.stack([address + stride * rows, np.full(len(rows), stride)], axis=1)
        starts, stops = self._bounds(at_hand[1], rows)
        check_ranges(starts, stops, at_hand[0].size, self.page.where, rows)
        return np.stack([address + starts, stops - starts], axis=1)

    def _bounds(self, index: pa.Buffer, rows: Int64s) -> tuple[Int64s, Int64s]:
        positions = as_array(index, f"<u{self.index_width}")
        return positions[rows].astype(np.int64), positions[rows + 1].astype(np.int64)

    def page_signature(self) -> PageSignature | None:
        """Return a signature for pages that have only values of one width."""
        width, values, layers = self.entry.width, self.values, self.layers
        if self.index_width or self.entry.control or not isinstance(values, Flat | FixedSizeList):
            return None
        return PageSignature((width, values, layers), partial(PlainRun, width, values, layers))

    def _fetch(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """Request only the bytes of some rows, after their entries in the row index."""
        runs = RowRuns.of(rows)
        where, data = self.page.where, self.page.ranges[0]
        if not self.index_width:
            wanted = runs.equal_rows(data.offset, self.entry.stride)
            return Fetch(wanted, lambda got: self._equal_rows(join_buffers(got), runs.order))

        def with_index(got: list[pa.Buffer]) -> Fetch[Leaf]:
            index = as_array(join_buffers(got), f"<u{self.index_width}").astype(np.int64)
            starts, stops = runs.bounds(index)
            check_ranges(starts, stops, data.size, where, runs.wanted)
            wanted, moves = runs.rows_between(data.offset, starts, stops)
            at, ends = (starts + moves)[runs.order], (stops + moves)[runs.order]
            return Fetch(
                wanted,
                lambda zipped: self._leaf(
                    unzip(join_buffers(zipped), at, ends, self.entry, where), len(at)
                ),
            )

        return Fetch(runs.index_entries(self.page.ranges[1].offset, self.index_width), with_index)

    # ------------------------------------------------------------------ bytes in memory

    def _read(self, buffers: list[pa.Buffer], start: int, stop: int) -> Leaf:
        """Return consecutive rows, out of the whole buffers."""
        if not self.index_width:
            return self._equal_rows(buffers[0], (start, stop))
        width, size = self.index_width, buffers[0].size
        part = buffers[1].slice(start * width, (stop - start + 1) * width)
        bounds = as_array(part, f"<u{width}").astype(np.int64)
        if (start == 0 and bounds[0] != 0) or (stop == self.rows and bounds[-1] != size):
            raise CorruptFileError(
                "row index",
                expected=f"positions from 0 to {size} bytes",
                found=f"{int(bounds[0])} to {int(bounds[-1])}",
                where=self.page.where,
            )
        zipped = unzip(buffers[0], bounds[:-1], bounds[1:], self.entry, self.page.where)
        counts = (zipped.entries, zipped.visible)
        if stop - start == self.rows and counts != (self.num_items, self.num_visible_items):
            raise CorruptFileError(
                "full-zip entries",
                expected=f"{self.num_items} items, {self.num_visible_items} visible",
                found=f"{counts[0]} items, {counts[1]} visible",
                where=self.page.where,
            )
        return self._leaf(zipped, stop - start)

    def _equal_rows(self, data: pa.Buffer, rows: Int64s | tuple[int, int]) -> Leaf:
        """Return the rows of equal size, by position or as a range."""
        entry, where = self.entry, self.page.where
        count = rows[1] - rows[0] if isinstance(rows, tuple) else len(rows)
        if entry.control:
            numbers = np.arange(*rows) if isinstance(rows, tuple) else rows
            starts = numbers * entry.stride
            return self._leaf(unzip(data, starts, starts + entry.stride, entry, where), count)
        if isinstance(rows, tuple):
            values = data.slice(rows[0] * entry.width, count * entry.width)
        else:
            values = gather_rows(data, entry.width, rows, where=where)
        block = self.values.decode_values(FixedWidth(values, entry.width * 8, count), where)
        return Leaf(block, count, count, self.layers)

    def _leaf(self, zipped: Unzipped, rows: int) -> Leaf:
        """Decode the values; the levels of a nullable leaf become its bitmap."""
        block: Block | None = None
        if zipped.visible:
            if zipped.offsets is None:
                block = FixedWidth(zipped.values, self.entry.width * 8, zipped.visible)
            else:
                block = Variable(zipped.offsets, zipped.offset_bits, zipped.values, zipped.visible)
            block = self.values.decode_values(block, self.page.where)
        leaf = Leaf(block, rows, zipped.entries, self.layers, zipped.rep, zipped.definition)
        if self.layers == _NULLABLE and zipped.definition is not None:
            leaf.validity, leaf.null_count, _ = validity_from_levels(
                zipped.definition, slot_max=1, null_level=1
            )
            leaf.definition = None
        return leaf

    def _empty(self) -> Leaf:
        levels, entry = np.empty(0, np.uint16), self.entry
        plain = self.layers == _NULLABLE or not entry.bits_def
        rep = levels if entry.bits_rep else None
        return Leaf(None, 0, 0, self.layers, rep, None if plain else levels)


def _check_sizes(message: Any, entry: EntryLayout, page: PageBytes) -> int:
    """Check buffer sizes and counts; return the width of a number in the row index, or 0."""
    sizes = [part.size for part in page.ranges]
    rows, where = page.rows, page.where
    indexed = bool(entry.prefix or entry.max_rep)
    if len(sizes) != 1 + indexed:
        raise CorruptFileError(
            "full-zip page", expected=f"{1 + indexed} buffers", found=str(len(sizes)), where=where
        )
    counts = (message.num_items, message.num_visible_items)
    if counts[1] > counts[0] or (not entry.max_rep and counts != (rows, rows)):
        raise CorruptFileError(
            "full-zip entries",
            expected=f"for {rows} rows as many items, and no more visible ones",
            found=f"{counts[0]} items, {counts[1]} visible",
            where=where,
        )
    if not indexed:
        if sizes[0] != rows * entry.stride:
            raise CorruptFileError(
                "full-zip entries",
                expected=f"{rows * entry.stride} bytes ({rows} rows of {entry.stride})",
                found=f"{sizes[0]} bytes",
                where=where,
            )
        return 0
    width, rest = divmod(sizes[1], rows + 1)
    if rest or width not in _INDEX_WIDTHS:
        raise CorruptFileError(
            "row index",
            expected=f"{rows + 1} numbers of 1, 2, 4 or 8 bytes",
            found=f"{sizes[1]} bytes",
            where=where,
        )
    return width


def encode_full_zip_page(
    values: Block, encoding: ValueEncoding, levels: Levels, rows: int
) -> EncodedPage:
    """Zip the values of a page with their levels.

    Parameters
    ----------
    values
        One value per visible entry, nulls included. Single bits become a byte each, so for
        booleans ``encoding`` is ``Flat`` of 8 bits.
    encoding
        Encodes each value on its own.
    levels
        Levels and layers of the page, one level per entry.
    rows
        Rows of the page.

    Returns
    -------
    EncodedPage
        If levels are ``None``, the one buffer of values of fixed width *is* the buffer of
        ``values``.
    """
    if isinstance(values, FixedWidth) and values.bits == 1:
        flags = np.unpackbits(as_array(values.values), count=values.count, bitorder="little")
        values = FixedWidth(pa.py_buffer(flags.data), 8, values.count)
    block = encoding.encode_values(values)
    if not isinstance(block, FixedWidth | Variable):
        raise SchemaError(
            f"a full-zip page holds values of fixed or variable width, found {type(block).__name__}"
        )
    rep, definition = levels.rep, levels.definition
    highest = [0 if one is None else int(one.max(initial=0)) for one in (rep, definition)]
    bits = (highest[0].bit_length(), highest[1].bit_length())
    rep, definition = rep if bits[0] else None, definition if bits[1] else None
    stored = rep if rep is not None else definition
    entries = rows if stored is None else len(stored)
    limits = level_limits(levels.layers)
    visible = entries if definition is None else int((definition <= limits.visible_def).sum())
    if block.count != visible:
        raise ValueError(f"{block.count} values for {visible} visible entries")
    full_zip = pb.FullZipLayout(
        bits_rep=bits[0],
        bits_def=bits[1],
        num_items=entries,
        num_visible_items=visible,
        value_compression=encoding.to_wire(),
        layers=[pb.RepDefLayer.ValueType(layer) for layer in levels.layers],
    )
    offsets = None
    if isinstance(block, FixedWidth):
        full_zip.bits_per_value = block.bits
        entry = EntryLayout(*bits, *limits, width=block.bits // 8)
        data, size = block.values, visible * entry.width
        data = data.slice(0, size)
    else:
        full_zip.bits_per_offset = block.offset_bits
        entry = EntryLayout(*bits, *limits, prefix=block.offset_bits // 8)
        offsets = as_array(block.offsets, f"<i{entry.prefix}")[: visible + 1]
        data, size = block.data, int(offsets[-1]) - int(offsets[0]) + visible * entry.prefix
    buffers: list[pa.Buffer | tuple[pa.Buffer, ...]] = [data]
    if entry.control or entry.prefix:
        buffers[0], starts = zip_entries(rep, definition, entry, data, offsets, rows)
        if entry.prefix or entry.max_rep:
            # The width fits the largest possible size of all entries, as upstream.
            largest = size + entries * entry.control
            width = next(w for w in _INDEX_WIDTHS if largest < 1 << (8 * w))
            buffers.append(pa.py_buffer(starts.astype(f"<u{width}").data))
    return EncodedPage(pb.PageLayout(full_zip_layout=full_zip), buffers, rows)
