"""Constant pages: every value is null, or all valid values are equal.

============== ================================== =====================================
layout         buffers                            values
============== ================================== =====================================
all null       none                               none
with levels    rep, def                           none: nulls, or empty lists
inline scalar  rep, def if the page has levels    ``inline_value`` of the message
scalar         scalar; or scalar, rep, def        first buffer
============== ================================== =====================================

Levels are ``u16``, raw or (in the layout with levels, from 2.2 on) through a block encoding
that the message names. A buffer of levels may be empty. A **scalar** of more than 32 bytes,
or of variable width, is stored as its Arrow buffers::

    u32 buffers | u32 size of each | bytes of each

The type of the column is unknown here: a scalar of fixed width has 8 bits per stored byte.
For a boolean that is one byte whose bit 0 counts. So boolean arrays are built from bit 0 of
each 8-bit value.

The column of an empty struct also has this layout, all null, though its rows may be valid.

Specification: "Constant pages" in ``docs/format/pages.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import MAX_IMPLIED_POSITIONS, Block, Constant, FixedWidth, Variable, spread
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.compression import check_decoded
from glaive.encodings.levels import (
    Layer,
    Leaf,
    LevelLimits,
    Levels,
    check_levels,
    level_limits,
    read_layers,
)
from glaive.encodings.predicate import PagePredicate, RowBits, leaf_matches
from glaive.encodings.protocol import (
    NO_RANGES,
    PAGE_BYTES,
    EncodedPage,
    Fetch,
    Kept,
    MemoryRanges,
    PageBytes,
    PageParts,
    PageReader,
    PageSignature,
    ValueEncoding,
    rows_beyond,
)
from glaive.encodings.registry import page_layout, read_encoding
from glaive.encodings.values.sequences import numbers_of
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.full_zip import gather_ranges
from glaive.kernels.levels import validity_from_levels
from glaive.types import Int64s, UInt8s, UInt16s, Where, as_array

MAX_INLINE = 32
"""Maximum bytes of a scalar in the message. A longer one of fixed width is stored in a buffer."""

_MAX_LEVELS = 2**28  # 512 MiB, which a few bytes of runs can describe

_MAX_ROWS = 4096
_MAX_ENTRIES = 16 * _MAX_ROWS
_MAX_SCALAR = 52
"""Maximum rows, levels, and bytes of a value in a buffer, of a page that is read with others.

Nulls may have a text of so few bytes as well.
"""


class _Loaded(NamedTuple):
    """The value and levels of a page, and the first entry of each row (``None``: one each).

    ``value_of`` is the number of the value of each entry, where there are several values.
    """

    scalar: Block | None
    rep: UInt16s | None
    definition: UInt16s | None
    row_starts: Int64s | None
    value_of: Int64s | None = None


@page_layout
@dataclass(slots=True)
class ConstantPage(PageReader):
    """A page of nulls, or of one value. Its buffers are small: read once and kept."""

    wire_name: ClassVar[str] = "constant_layout"

    rows: int
    page: PageBytes
    layers: tuple[Layer, ...]
    limits: LevelLimits
    inline: bytes | None
    rep: tuple[ValueEncoding | None, int]
    definition: tuple[ValueEncoding | None, int]
    loaded: Kept[_Loaded] = field(default_factory=Kept)

    @classmethod
    def from_wire(cls, message: Any, page: PageBytes) -> Self:
        """Parse a ``ConstantLayout``; check the number of buffers."""
        where = page.where
        layers = read_layers(message.layers, where)
        inline = message.inline_value if message.HasField("inline_value") else None
        allowed = (0, 2) if inline is not None else (0, 1, 2, 3)
        if len(page.ranges) not in allowed:
            raise CorruptFileError(
                "constant page",
                expected=f"{' or '.join(map(str, allowed))} buffers",
                found=str(len(page.ranges)),
                where=where,
            )
        rep = definition = None
        if message.HasField("rep_compression"):
            rep = read_encoding(message.rep_compression, where)
        if message.HasField("def_compression"):
            definition = read_encoding(message.def_compression, where)
        self = cls(
            page.rows,
            page,
            layers,
            level_limits(layers),
            inline,
            (rep, message.num_rep_values),
            (definition, message.num_def_values),
        )
        if not page.ranges:
            self.load([])
        return self

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Return the rows ``start`` to ``stop``: a slice of the levels, and one value."""
        return self._rows(start, stop, fill=True)

    def _rows(self, start: int, stop: int, *, fill: bool) -> Fetch[Leaf] | Leaf:
        if not 0 <= start <= stop <= self.rows:
            raise rows_beyond(start, stop, self.rows, self.page.where)

        def cut(loaded: _Loaded) -> Leaf:
            first, last = start, stop
            if loaded.row_starts is not None:
                first, last = int(loaded.row_starts[start]), int(loaded.row_starts[stop])
            return self._leaf(loaded, slice(first, last), last - first, stop - start, fill=fill)

        return self.loaded.of_page(self.page, self.load, cut)

    def take(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """Return the levels of these rows, and one value."""
        if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= self.rows):
            raise rows_beyond(int(rows.min()), int(rows.max()), self.rows, self.page.where)

        def pick(loaded: _Loaded) -> Leaf:
            at, entries = rows, len(rows)
            if loaded.row_starts is not None:
                first = loaded.row_starts[rows]
                sizes = loaded.row_starts[rows + 1] - first
                at = spread(first, sizes, MAX_IMPLIED_POSITIONS)
                entries = len(at)
            return self._leaf(loaded, at, entries, len(rows))

        return self.loaded.of_page(self.page, self.load, pick)

    def find(self, predicate: PagePredicate, start: int, stop: int) -> RowBits | None:
        """Test the one value."""
        leaf = self._rows(start, stop, fill=False)
        return None if isinstance(leaf, Fetch) else leaf_matches(leaf, predicate, self.page.where)

    def opening_ranges(self, rows: Int64s) -> MemoryRanges:
        """Return the ranges of all buffers."""
        buffers = None if self.loaded.get() is not None else self.page.at_hand
        if not buffers:
            return NO_RANGES
        return np.array([(buffer.address, buffer.size) for buffer in buffers], np.int64)

    def take_ranges(self, rows: Int64s) -> MemoryRanges:
        """Return empty ranges: the opening ranges are all."""
        return NO_RANGES

    def page_signature(self) -> PageSignature | None:
        """Return a signature for small pages with a value and levels of the same kind."""
        ranges, counts = self.page.ranges, (self.rep[1], self.definition[1])
        if self.rows > _MAX_ROWS or max(counts) > _MAX_ENTRIES:
            return None
        if len(ranges) % 2 and ranges[0].size > _MAX_SCALAR:
            return None
        levels = [
            (how, bool(count if how else own.size))
            for (how, count), own in zip((self.rep, self.definition), ranges[-2:], strict=False)
            if len(ranges) >= 2
        ]
        width = -1 if self.inline is None else len(self.inline)
        return PageSignature((self.layers, width, len(ranges), *levels), ConstantRun)

    def load(self, buffers: list[pa.Buffer]) -> _Loaded:
        """Parse and check the buffers of the page, and keep the result."""
        where = self.page.where
        scalar: Block | None = None
        if self.inline is not None:
            scalar = FixedWidth(pa.py_buffer(self.inline), 8 * len(self.inline), 1)
        elif len(buffers) % 2:
            scalar = _read_scalar(buffers[0], where)
        rep = definition = None
        if len(buffers) >= 2:
            self._check_levels(buffers)
            rep = _read_levels("repetition", buffers[-2], self.rep, where)
            definition = _read_levels("definition", buffers[-1], self.definition, where)
        check_levels(rep, definition, self.limits, where)
        if rep is not None and definition is not None and len(rep) != len(definition):
            raise CorruptFileError(
                "definition levels",
                expected=f"{len(rep)}, as there are repetition levels",
                found=str(len(definition)),
                where=where,
            )
        starts = self._row_starts(rep, definition)
        arrays = [one for one in (rep, definition, starts) if one is not None]
        size, stored = sum(one.nbytes for one in arrays), sum(part.size for part in buffers)
        return self.loaded.keep(_Loaded(scalar, rep, definition, starts), size, stored)

    def _check_levels(self, buffers: list[pa.Buffer]) -> None:
        """Check what levels and the starts of rows take in memory: runs describe any number."""
        levels = sum(min(count, _MAX_LEVELS) for how, count in (self.rep, self.definition) if how)
        starts = self.rows if self.limits.max_rep else 0
        check_decoded(2 * levels + 8 * starts, sum(part.size for part in buffers), self.page.where)

    def _row_starts(self, rep: UInt16s | None, definition: UInt16s | None) -> Int64s | None:
        """Return the entry at which each row starts, with the number of entries at the end."""
        if rep is None and (self.limits.max_rep == 0 or self.rows == 0):
            if definition is None or len(definition) == self.rows:
                return None
            found = f"{len(definition)} definition levels"
        elif rep is None:
            found = "no repetition levels"
        else:
            starts = (rep == self.limits.max_rep).nonzero()[0]
            if len(starts) == self.rows and (not self.rows or starts[0] == 0):
                return np.append(starts, len(rep))
            found = f"levels of {len(starts)} rows"
        raise CorruptFileError(
            "levels of a constant page",
            expected=f"levels of {self.rows} rows",
            found=found,
            where=self.page.where,
        )

    def _leaf(
        self, loaded: _Loaded, at: slice | Int64s, entries: int, rows: int, *, fill: bool = True
    ) -> Leaf:
        rep = None if loaded.rep is None else loaded.rep[at]
        definition = None if loaded.definition is None else loaded.definition[at]
        visible, shown = entries, None
        if definition is not None and self.limits.max_rep:
            shown = definition <= self.limits.visible_def
            visible = int(np.count_nonzero(shown))
        values: Block | None = None
        if loaded.scalar is not None and visible and loaded.value_of is not None:
            from glaive.arrow.build import take_block

            own = loaded.value_of[at]
            values = take_block(loaded.scalar, own if shown is None else own[shown])
        elif loaded.scalar is not None and visible:
            values = Constant(loaded.scalar, visible)
            if fill and definition is not None and isinstance(loaded.scalar, Variable):
                from glaive.arrow.build import where_valid

                valid = definition == 0
                values = where_valid(values, valid if shown is None else valid[shown])
        leaf = Leaf(values, rows, entries, self.layers, rep, definition)
        if self.layers == (Layer.NULLABLE_ITEM,):
            if definition is not None:
                leaf.validity, leaf.null_count, _ = validity_from_levels(
                    definition, slot_max=1, null_level=1
                )
                leaf.definition = None
            elif loaded.scalar is None:
                leaf.null_count = rows
        return leaf


class ConstantRun(ConstantPage):
    """Small pages of several files as one page, whose rows are theirs in order."""

    def __init__(self, parts: PageParts[ConstantPage]) -> None:
        self._parts, self._counts = parts, parts.each(lambda page: page.rows)
        first, ends = parts.pages[0], self._counts.cumsum()
        self.cuts = ends[:-1][np.diff((ends - 1) // _MAX_ENTRIES) > 0].tolist()
        page = PageBytes((), [parts.data], int(ends[-1]), parts.where)
        levels = (first.rep[0], 0), (first.definition[0], 0)
        super().__init__(page.rows, page, first.layers, first.limits, first.inline, *levels)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by all pages; an estimate."""
        return PAGE_BYTES * len(self._parts.pages)

    def opening_ranges(self, rows: Int64s) -> MemoryRanges:
        """Return the ranges of all buffers of all pages."""
        if self.loaded.get() is not None:
            return NO_RANGES
        starts, sizes = self._parts.starts.ravel(), self._parts.sizes.ravel()
        return np.stack([self._parts.data.address + starts, sizes], axis=1)

    def load(self, _buffers: list[pa.Buffer]) -> _Loaded:
        """Read and check values and levels of all pages, and keep them."""
        parts, where, entries = self._parts, self.page.where, self._counts
        rep = definition = None
        if parts.starts.shape[1] >= 2:
            rep, of_rep = self._levels("repetition", -2, lambda page: page.rep)
            definition, of_definition = self._levels("definition", -1, lambda page: page.definition)
            entries = entries if rep is None else of_rep
        check_levels(rep, definition, self.limits, where)
        starts, first = self._row_starts(rep, definition), entries.cumsum() - entries
        begins = first if starts is None else starts[self._counts.cumsum() - self._counts]
        aligned = definition is None or np.array_equal(of_definition, entries)
        if not aligned or not np.array_equal(begins, first):
            raise CorruptFileError(
                "levels of constant pages",
                expected="levels of the rows of each page",
                found="other levels in some page",
                where=where,
            )
        scalar = self._scalars()
        number = parts.which if self.inline is not None else np.arange(len(entries))
        value_of = None if scalar is None else number.repeat(entries)
        arrays = [one for one in (rep, definition, starts, value_of) if one is not None]
        size, stored = sum(one.nbytes for one in arrays), int(parts.sizes.sum())
        loaded = _Loaded(scalar, rep, definition, starts, value_of)
        return self.loaded.keep(loaded, size, stored)

    def _scalars(self) -> Block | None:
        """Return the value of each page; of each distinct page where messages hold them."""
        parts, where = self._parts, self.page.where
        if self.inline is not None:
            raw = pa.py_buffer(b"".join(page.inline or b"" for page in parts.pages))
            return FixedWidth(raw, 8 * len(self.inline), len(parts.pages))
        if not parts.starts.shape[1] % 2:
            return None
        from glaive.arrow.build import block_from_array, to_array
        from glaive.arrow.chunked import concat_arrays

        places = zip(parts.starts[:, 0].tolist(), parts.sizes[:, 0].tolist(), strict=True)
        values = [_read_scalar(parts.data.slice(*place), where) for place in places]
        first = values[0]
        kind = pa.binary(first.bits // 8 if isinstance(first, FixedWidth) else -1)
        arrays = [to_array(value, kind, None, 0, where) for value in values]
        return block_from_array(concat_arrays(arrays))

    def _levels(
        self, name: str, at: int, of: Callable[[ConstantPage], tuple[ValueEncoding | None, int]]
    ) -> tuple[UInt16s | None, Int64s]:
        """Return the levels in buffers ``at`` of all pages, and their number in each page."""
        parts, where = self._parts, self.page.where
        starts, sizes = parts.starts[:, at], parts.sizes[:, at]
        encoding, counts = of(parts.pages[0])[0], parts.each(lambda page: of(page)[1])
        if encoding is None:
            joined = gather_ranges(parts.data, starts, sizes, where)
            return _read_levels(name, joined, (None, 0), where), sizes // 2
        if not counts.any():
            return None, counts
        check_decoded(10 * int(counts.sum()), int(sizes.sum()), where)
        block = encoding.decode_blocks(parts.data, starts, sizes, counts, where)
        return numbers_of(block, 16, int(counts.sum()), f"{name} levels", where), counts


def _read_levels(
    name: str, data: pa.Buffer, how: tuple[ValueEncoding | None, int], where: Where
) -> UInt16s | None:
    """Read ``u16`` levels."""
    encoding, count = how
    if encoding is None:
        if data.size % 2:
            raise CorruptFileError(
                f"{name} levels",
                expected="an even number of bytes",
                found=f"{data.size}",
                where=where,
            )
        return as_array(data, "<u2") if data.size else None
    if not count:
        return None
    if count > _MAX_LEVELS:
        raise CorruptFileError(
            f"{name} levels", expected=f"at most {_MAX_LEVELS}", found=str(count), where=where
        )
    block = encoding.decode_blocks(
        data, np.zeros(1, np.int64), np.array([data.size]), np.array([count]), where
    )
    return numbers_of(block, 16, count, f"{name} levels", where)


def _read_scalar(data: pa.Buffer, where: Where) -> Block:
    raw = data.to_pybytes()
    count = struct.unpack_from("<I", raw)[0] if len(raw) >= 4 else 0
    at = 4 + 4 * count
    sizes = struct.unpack_from(f"<{count}I", raw, 4) if count in (1, 2) and len(raw) >= at else ()
    if not sizes or at + sum(sizes) != len(raw):
        raise CorruptFileError(
            "scalar of a constant page",
            expected="one or two buffers that fill it",
            found=f"{count} buffers of {sum(sizes)} bytes in {len(raw)} bytes",
            where=where,
        )
    if count == 1:
        return FixedWidth(data.slice(at), 8 * sizes[0], 1)
    offsets, values = data.slice(at, sizes[0]), data.slice(at + sizes[0])
    bounds = as_array(offsets, f"<i{sizes[0] // 2}") if sizes[0] in (8, 16) else None
    if bounds is None or not 0 <= bounds[0] <= bounds[1] <= values.size:
        raise CorruptFileError(
            "offsets of a constant",
            expected=f"two of 4 or 8 bytes within {values.size} bytes",
            found=f"{sizes[0]} bytes" if bounds is None else str(bounds.tolist()),
            where=where,
        )
    return Variable(offsets, sizes[0] * 4, values, 1)


def encode_constant_page(
    levels: Levels,
    rows: int,
    value: Block | None = None,
    *,
    rep_encoding: ValueEncoding | None = None,
    def_encoding: ValueEncoding | None = None,
) -> EncodedPage:
    """Write a page of one value (from 2.2 on), or of nulls.

    Parameters
    ----------
    levels
        Levels and layers of the page, one level per entry. Without levels and ``value``, all rows
        are null.
    rows
        Rows of the page.
    value
        A block with the value of all valid visible entries (booleans: one byte,
        bit 0). ``None`` when the page has only other entries.
    rep_encoding, def_encoding
        Block encodings of the levels, from 2.2 on and only if ``value`` is ``None``; raw when
        ``None``.
    """
    constant = pb.ConstantLayout(
        layers=[pb.RepDefLayer.ValueType(layer) for layer in levels.layers]
    )
    buffers: list[pa.Buffer | UInt8s | bytes] = []
    if value is not None:
        scalar = _write_scalar(value)
        if len(scalar) == 1 and len(scalar[0]) <= MAX_INLINE:
            constant.inline_value = scalar[0]
        else:
            sizes = [len(part) for part in scalar]
            head = struct.pack(f"<{len(sizes) + 1}I", len(sizes), *sizes)
            buffers.append(b"".join((head, *scalar)))
    rep, definition = levels.rep, levels.definition
    if rep is None and definition is None:
        return EncodedPage(pb.PageLayout(constant_layout=constant), buffers, rows)
    for stored, encoding, name in ((rep, rep_encoding, "rep"), (definition, def_encoding, "def")):
        if stored is None:
            buffers.append(b"")
        elif encoding is None or value is not None:
            buffers.append(np.ascontiguousarray(stored, "<u2").view(np.uint8))
        else:
            raw = np.ascontiguousarray(stored, "<u2")
            block = FixedWidth(pa.py_buffer(raw.data), 16, len(raw))
            buffers.append(encoding.encode_blocks(block, np.array([len(raw)])).data)
            getattr(constant, f"{name}_compression").CopyFrom(encoding.to_wire())
            setattr(constant, f"num_{name}_values", len(raw))
    return EncodedPage(pb.PageLayout(constant_layout=constant), buffers, rows)


def _write_scalar(value: Block) -> list[bytes]:
    if isinstance(value, FixedWidth):
        flags = as_array(value.values)[: max(value.bits // 8, 1)]
        return [bytes([flags[0] & 1]) if value.bits == 1 else flags.tobytes()]
    if isinstance(value, Variable):
        dtype = f"<i{value.offset_bits // 8}"
        first, stop = as_array(value.offsets, dtype)[:2].tolist()
        return [np.array([0, stop - first], dtype).tobytes(), bytes(value.data[first:stop])]
    raise SchemaError(
        f"a constant page holds a value of fixed or variable width, found {type(value).__name__}"
    )
