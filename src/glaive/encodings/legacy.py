"""Encodings of the 0.1 format: values as they are, one page per batch of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import isnan
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.blocks import FixedWidth, Variable, flags_of, pack_flags, slice_bits, total_of
from glaive.arrow.build import (
    all_null,
    block_from_array,
    leaf_bits,
    list_array,
    offset_bits,
    to_array,
    validity_flags,
)
from glaive.arrow.conditions import Condition, HasText, InRange, IsNull, IsOneOf, filled
from glaive.dataclass import dataclass
from glaive.encodings.protocol import Fetch, and_then, join, join_buffers
from glaive.errors import CapacityError, CorruptFileError, UnsupportedFeatureError
from glaive.format.field import Field
from glaive.kernels.flat import join_bits, take_flat
from glaive.kernels.full_zip import gather_ranges
from glaive.kernels.strings import value_lengths
from glaive.types import MAX_OFFSET, ByteRange, Flags, Int64s, Where, as_array, as_buffer, items_of

# --- Where the values of a 0.1 column are stored: pages, spans of pages, and their bytes
#
# A column has one page per batch of rows. A read is a list of *spans*: a page, a first value and a
# number of values. A scan has one span per batch, a take one per row, and the items of lists one
# per list or batch. All spans are handled in one step.
#
# Specification: "Page table" and "Pages" in ``docs/format/legacy.md``.

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileBytes:
    """The bytes of a file that pages may occupy.

    Parameters
    ----------
    whole
        All of them when the file is memory-mapped, else ``None``.
    size
        Bytes before the metadata at the file's end.
    """

    whole: pa.Buffer | None
    size: int

    def fetch(
        self,
        starts: Int64s,
        sizes: Int64s,
        then: Callable[[pa.Buffer, Int64s], Fetch[T] | T],
        where: Where,
    ) -> Fetch[T] | T:
        """Call ``then`` once ``sizes[i]`` bytes from ``starts[i]`` on are in memory.

        ``then`` gets a buffer and the position of each range in it. Adjacent ranges are
        requested as one.

        Raises
        ------
        CorruptFileError
            A range exceeds the file.
        """
        bad = (starts < 0) | (sizes < 0) | (starts > self.size - sizes)
        if bad.any():
            at = int(bad.argmax())
            raise CorruptFileError(
                "page",
                expected=f"bytes within 0..{self.size}",
                found=f"{sizes[at]} bytes at {starts[at]}",
                where=where,
            )
        if self.whole is not None:
            return then(self.whole, starts)
        if not sizes.any():
            return then(pa.py_buffer(b""), np.zeros_like(starts))
        used = sizes.nonzero()[0]
        order = used[np.argsort(starts[used], kind="stable")]
        begins, ends = starts[order], starts[order] + sizes[order]
        reach = np.maximum.accumulate(ends)
        opens = np.concatenate(([True], begins[1:] > reach[:-1]))
        first = opens.nonzero()[0]
        range_starts = begins[first]
        range_sizes = np.maximum.reduceat(ends, first) - range_starts
        group = opens.cumsum() - 1
        placed = np.zeros_like(starts)
        joined = range_sizes.cumsum() - range_sizes
        placed[order] = begins - range_starts[group] + joined[group]
        pairs = zip(range_starts.tolist(), range_sizes.tolist(), strict=True)
        ranges = [ByteRange(*pair) for pair in pairs]
        return Fetch(ranges, lambda buffers: then(join_buffers(buffers), placed))


@dataclass(frozen=True, slots=True)
class Spans:
    """``count[i]`` values of page ``page[i]`` from value ``first[i]`` on, back to back."""

    page: Int64s
    first: Int64s
    count: Int64s

    @property
    def total(self) -> int:
        """Values of all spans.

        Raises
        ------
        CapacityError
            Lists claim more items than can be counted: this is the only limit for items of 0 bytes.
        """
        return total_of(self.count)


@dataclass(frozen=True, slots=True)
class Ends:
    """First and last offset of each span, and the length of each value, in order."""

    firsts: Int64s
    lasts: Int64s
    lengths: NDArray[np.signedinteger]


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of one column, batch by batch.

    Parameters
    ----------
    positions
        Where each page begins in the file.
    lengths
        Number of its values; for lists, of offsets: one more than lists.
    bits
        Bits of a value: pages have been checked to lie within the file.
    """

    positions: Int64s
    lengths: Int64s
    bits: int
    data: FileBytes
    where: Where

    def __post_init__(self) -> None:
        size, bits = self.data.size, self.bits
        positions, lengths = self.positions, self.lengths
        bad = (positions < 0) | (positions > size) | (lengths < 0)
        if not bad.any():
            bad = lengths // 8 > (size - positions) // bits
            bad |= (lengths * bits + 7) // 8 > size - positions
        if bad.any():
            at = int(bad.argmax())
            raise CorruptFileError(
                "page table",
                expected=f"values of {bits} bits within 0..{size}",
                found=f"{lengths[at]} at {positions[at]}",
                where=self._where(at),
            )
        # Pages are disjoint: this limits what a reader allocates for a damaged table.
        if int(lengths.sum(dtype=np.float64)) // 8 > size // bits + len(lengths):
            raise CorruptFileError(
                "page table",
                expected=f"pages within {size} bytes in all",
                found=f"{lengths.sum()} values of {bits} bits",
                where=self.where,
            )

    @property
    def nbytes(self) -> float:
        """Bytes of all pages in the file, except texts, which lie elsewhere in it."""
        return float(self.lengths.sum(dtype=np.float64)) * self.bits / 8

    def value_spans(self, spans: Spans) -> Int64s:
        """Return one span for each value that spans begin at, in the order of the pages.

        Empty spans are left out: they may begin where another one does.
        """
        filled = spans.count.nonzero()[0]
        before = self.lengths.cumsum() - self.lengths
        begins = (before[spans.page] + spans.first)[filled]
        return filled[np.unique(begins, return_index=True)[1]]

    def check(self, spans: Spans, beyond: int = 0) -> None:
        """Refuse spans that end less than ``beyond`` values before the end of their page."""
        have = self.lengths[spans.page]
        bad = spans.count > have - beyond - spans.first  # sums of what a file says may wrap
        if bad.any():
            at = int(bad.argmax())
            raise CorruptFileError(
                "page",
                expected=f"{int(spans.first[at]) + int(spans.count[at]) + beyond} values or more",
                found=f"{have[at]}",
                where=self._where(int(spans.page[at])),
            )

    def ends(self, spans: Spans) -> Fetch[Ends] | Ends:
        """Read the offsets around the values of spans, from pages of offsets.

        Raises
        ------
        CorruptFileError
            Offsets are negative or descend.
        """
        self.check(spans, beyond=1)
        width = self.bits // 8
        starts = self.positions[spans.page] + spans.first * width
        sizes = (spans.count + 1) * width

        def then(data: pa.Buffer, at: Int64s) -> Ends:
            whole = gather_ranges(data, at, sizes, self.where)
            offsets = as_array(whole, f"<i{width}")
            return self._lengths(offsets, spans)

        return self.data.fetch(starts, sizes, then, self.where)

    def _lengths(self, offsets: NDArray[np.signedinteger], spans: Spans) -> Ends:
        edges = (spans.count + 1).cumsum()
        firsts = offsets[edges - spans.count - 1].astype(np.int64)
        lasts = offsets[edges - 1].astype(np.int64)
        if len(offsets) and int(offsets.min()) < 0:
            raise self._descending()
        lengths = np.diff(offsets)  # exact, as offsets are at least 0
        if len(edges) > 1:
            lengths = np.delete(lengths, edges[:-1] - 1)
        if len(lengths) and int(lengths.min()) < 0:
            raise self._descending()
        return Ends(firsts, lasts, lengths)

    def _descending(self) -> CorruptFileError:
        return CorruptFileError(
            "offsets", expected="0 or more, ascending", found="others", where=self.where
        )

    def _where(self, batch: int) -> Where:
        where = self.where
        return Where(where.path, where.column, where.name, batch)


def adjacent(starts: Int64s, sizes: Int64s) -> bool:
    """Return whether each range begins where the one before ends."""
    return bool((starts[1:] == starts[:-1] + sizes[:-1]).all())


# --- Plain: values of fixed width back to back, booleans as bits ------------------------
#
# A read of adjacent pages is a view of the file when its address is aligned for the type; other
# reads copy each page once.
#
# Specification: "Plain" in ``docs/format/legacy.md``.

_MAX_ALIGNMENT = 8
"""Maximum bytes that Arrow types need."""


def read_plain(pages: Pages, spans: Spans, values: int = 1) -> Fetch[FixedWidth] | FixedWidth:
    """Return the values of spans as one block.

    ``values`` is the size of fixed-size lists of booleans; 1 for all other columns.

    Raises
    ------
    CorruptFileError
        A span leaves its page.
    """
    pages.check(spans)
    bits = pages.bits
    if bits % 8 or values > 1:
        return _read_bits(pages, spans, bits)
    width = bits // 8
    starts = pages.positions[spans.page] + spans.first * width
    sizes = spans.count * width
    then = partial(_join, sizes, bits, spans, pages)
    return pages.data.fetch(starts, sizes, then, pages.where)


def _join(
    sizes: Int64s, bits: int, spans: Spans, pages: Pages, data: pa.Buffer, starts: Int64s
) -> FixedWidth:
    width, total = bits // 8, spans.total
    if not total:
        return FixedWidth(pa.py_buffer(b""), bits, 0)
    if adjacent(starts, sizes):
        view = data.slice(int(starts[0]), total * width)
        if view.address % min(width & -width, _MAX_ALIGNMENT) == 0:
            return FixedWidth(view, bits, total)
    if len(starts) == total and (spans.count == 1).all():
        each = np.arange(total)
        values = take_flat(data, starts, sizes, each, np.zeros_like(each), bits, pages.where)
    else:
        values = gather_ranges(data, starts, sizes, pages.where)
    return FixedWidth(values, bits, total)


def _read_bits(pages: Pages, spans: Spans, bits: int) -> Fetch[FixedWidth] | FixedWidth:
    """Return values of ``bits`` bits that begin anywhere in a byte: booleans and lists of them."""
    first, counts = spans.first * bits, spans.count * bits
    shifts = first % 8
    starts = pages.positions[spans.page] + first // 8
    sizes = (shifts + counts + 7) // 8

    def then(data: pa.Buffer, at: Int64s) -> FixedWidth:
        packed = _join_bits(data, at, sizes, shifts, counts, pages)
        return FixedWidth(packed, bits, spans.total)

    return pages.data.fetch(starts, sizes, then, pages.where)


def _join_bits(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, shifts: Int64s, counts: Int64s, pages: Pages
) -> pa.Buffer:
    total = int(counts.sum())
    if not total:
        return pa.py_buffer(b"")
    if not shifts[1:].any():
        # Only the first span begins within a byte, as in any range of rows.
        shift = int(shifts[0])
        if adjacent(starts, sizes) and not ((shifts + counts)[:-1] % 8).any():
            joined = data.slice(int(starts[0]), int(sizes.sum()))
        else:
            joined = join_bits(data, starts, shifts + counts, pages.where)
        return slice_bits(joined, shift, total)
    span = np.arange(len(counts)).repeat(counts)
    within = np.arange(total) - (counts.cumsum() - counts - shifts).repeat(counts)
    return take_flat(data, starts, sizes, span, within, 1, pages.where)


def encode_plain(block: FixedWidth, bounds: Int64s) -> tuple[pa.Buffer, Int64s]:
    """Cut values into pages at ``bounds``; returns their bytes and the position of each page.

    Pages are a view of the values, back to back. Pages of bits begin at a whole byte: they are
    copied if a bound is within a byte.
    """
    bits = block.bits
    if bits % 8 == 0:
        width = bits // 8
        size = int(bounds[-1] - bounds[0]) * width
        return block.values.slice(int(bounds[0]) * width, size), (bounds[:-1] - bounds[0]) * width
    edges = bounds * bits
    if not (edges[:-1] % 8).any():
        first = int(edges[0]) // 8
        size = (int(edges[-1]) + 7) // 8 - first
        return block.values.slice(first, size), edges[:-1] // 8 - first
    counts = np.diff(edges)
    sizes = (counts + 7) // 8
    starts = sizes.cumsum() - sizes
    flags = flags_of(block.values, int(edges[-1] - edges[0]), int(edges[0]))
    spread = np.zeros(int(sizes.sum()) * 8, np.bool_)
    gaps = starts * 8 - (edges[:-1] - edges[0])
    spread[np.arange(len(flags)) + gaps.repeat(counts)] = flags
    return pack_flags(spread), starts


# --- Variable binary: bytes, and offsets into the file of the start and end of each value
#
# A page consists of its offsets, one more than values, 64 bits each and counted from the start of
# the file. A value of 0 bytes is null in a nullable column, and empty in others.
#
# Specification: "Variable binary" in ``docs/format/legacy.md``.


def read_var_binary(pages: Pages, spans: Spans, offset_bits: int) -> Fetch[Variable] | Variable:
    """Read the values of spans as one block; 32-bit offsets where requested and sufficient.

    The bytes are a view of the file where the bytes of all spans are adjacent.

    Raises
    ------
    CorruptFileError
        A span leaves its page, or offsets descend or leave the file.
    """

    def fetch(ends: Ends) -> Fetch[Variable] | Variable:
        sizes = ends.lasts - ends.firsts

        def then(data: pa.Buffer, starts: Int64s) -> Variable:
            total = int(sizes.sum())
            if len(starts) and adjacent(starts, sizes):
                text = data.slice(int(starts[0]), total)
            else:
                text = gather_ranges(data, starts, sizes, pages.where)
            bits = offset_bits if total <= MAX_OFFSET else 64
            return Variable(offsets_of(ends.lengths, bits), bits, text, len(ends.lengths))

        _check_disjoint(pages, spans, sizes)
        return pages.data.fetch(ends.firsts, sizes, then, pages.where)

    return and_then(pages.ends(spans), fetch)


def _check_disjoint(pages: Pages, spans: Spans, sizes: Int64s) -> None:
    """Limit the bytes to copy: refuse different values that share bytes."""
    size = pages.data.size
    if int(sizes.sum(dtype=np.float64)) <= size:
        return
    if int(sizes[pages.value_spans(spans)].sum(dtype=np.float64)) > size:
        expected = f"values of {size} bytes at most in all"
        raise CorruptFileError("offsets", expected=expected, found="more", where=pages.where)


def offsets_of(lengths: NDArray[np.signedinteger], bits: int) -> pa.Buffer:
    """Return the Arrow offsets from 0 on for values of these lengths."""
    offsets = pa.allocate_buffer((len(lengths) + 1) * bits // 8)
    ends = items_of(offsets, f"<i{bits // 8}", len(lengths) + 1)
    ends[0] = 0
    lengths.cumsum(out=ends[1:])
    return offsets


def encode_var_binary(block: Variable, start: int) -> tuple[pa.Buffer, pa.Buffer]:
    """Return the bytes of all values, to be written at ``start`` in the file, and their offsets.

    Adjacent pages share an offset: the last of one is the first of the next.
    """
    ends = items_of(block.offsets, f"<i{block.offset_bits // 8}", block.count + 1)
    first, last = int(ends[0]), int(ends[-1])
    offsets = ends.astype(np.int64)
    offsets += start - first
    return block.data.slice(first, last - first), as_buffer(offsets)


# --- Dictionary: keys as plain values; the items are stored once per file ---------------
#
# Specification: "Dictionaries" in ``docs/format/legacy.md``.


def keys_into(keys: FixedWidth, kind: pa.DictionaryType, items: pa.Array, where: Where) -> pa.Array:
    """Return a dictionary array of checked keys.

    Raises
    ------
    CorruptFileError
        A key is out of range.
    """
    indices = pa.Array.from_buffers(kind.index_type, keys.count, [None, keys.values], 0)
    numbers = np.asarray(indices)
    if keys.count:
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= len(items):
            raise CorruptFileError(
                "keys of a dictionary",
                expected=f"0 to {len(items) - 1}",
                found=f"{low} to {high}",
                where=where,
            )
    return pa.DictionaryArray.from_arrays(indices, items, ordered=kind.ordered, safe=False)


# --- Lists: offsets into the items of the same batch, one more than lists ---------------
#
# Specification: "Lists" in ``docs/format/legacy.md``.


@dataclass(frozen=True, slots=True)
class ListParts:
    """Arrow offsets of some lists, and which items they need, in order."""

    offsets: pa.Buffer
    items: Spans


def read_lists(pages: Pages, spans: Spans) -> Fetch[ListParts] | ListParts:
    """Return the offsets of the lists of spans, and the spans of their items.

    Raises
    ------
    CorruptFileError
        A span leaves its page, offsets descend, or lists of different rows have the same items.
    CapacityError
        There are more items than offsets reach.
    """

    def then(ends: Ends) -> ListParts:
        _check_apart(pages, spans, ends)
        items = Spans(spans.page, ends.firsts, ends.lasts - ends.firsts)
        total = items.total
        if pages.bits == 32 and total > MAX_OFFSET:
            raise CapacityError.of(total, "items of lists", where=pages.where)
        return ListParts(offsets_of(ends.lengths, pages.bits), items)

    return and_then(pages.ends(spans), then)


def _check_apart(pages: Pages, spans: Spans, ends: Ends) -> None:
    """Refuse lists of different rows that have the same items: each would be copied."""
    if _ascends(spans.page, ends.firsts, ends.lasts):
        return
    value_spans = pages.value_spans(spans)
    if not _ascends(spans.page[value_spans], ends.firsts[value_spans], ends.lasts[value_spans]):
        raise CorruptFileError(
            "offsets", expected="items of one list each", found="others", where=pages.where
        )


def _ascends(page: Int64s, firsts: Int64s, lasts: Int64s) -> bool:
    later = (page[1:] == page[:-1]) & (firsts[1:] >= lasts[:-1])
    return bool((later | (page[1:] > page[:-1])).all())


def encode_lists(ends: NDArray[np.signedinteger], bounds: Int64s) -> tuple[pa.Buffer, Int64s]:
    """Return offsets of pages between ``bounds``, each from 0 on, and each page's position."""
    counts = np.diff(bounds) + 1
    starts = counts.cumsum() - counts
    within = np.arange(int(counts.sum())) - starts.repeat(counts)
    offsets = ends[bounds[:-1].repeat(counts) + within]
    offsets -= ends[bounds[:-1]].repeat(counts)
    return as_buffer(offsets), starts * offsets.itemsize


# --- Fields of a 0.1 file, which assemble their values from pages -----------------------
#
# A field has one page per batch; of structs only the members have pages. The format lacks
# validity: nulls read as the value in their slot. Only empty strings and binary read as null, in
# nullable fields.
#
# Specification: "Pages" and "Nulls" in ``docs/format/legacy.md``.

Opener = Callable[[Field, int, int], Pages | None]
"""Pages of a field. The numbers are the bits of its values, and how many more values a page has
than the page table says. ``None`` when the field is missing in the file.
"""

Step = Fetch[pa.Array] | pa.Array


class Node(ABC):
    """One field, with all fields below."""

    __slots__ = ()

    kind: pa.DataType

    @abstractmethod
    def read(self, spans: Spans) -> Step:
        """Return the values of spans, in order, as one array."""


@dataclass(slots=True)
class _Plain(Node):
    kind: pa.DataType
    pages: Pages
    values: int

    def read(self, spans: Spans) -> Step:
        return and_then(read_plain(self.pages, spans, self.values), self._finish)

    def _finish(self, block: FixedWidth) -> pa.Array:
        return to_array(block, self.kind, None, 0, self.pages.where)


@dataclass(slots=True)
class _Strings(Node):
    kind: pa.DataType
    pages: Pages
    offset_bits: int
    nullable: bool

    def read(self, spans: Spans) -> Step:
        return and_then(read_var_binary(self.pages, spans, self.offset_bits), self._finish)

    def _finish(self, block: Variable) -> pa.Array:
        validity, nulls = None, 0
        bits, count = block.offset_bits, block.count
        if self.nullable and count:
            shortest, _ = value_lengths(block.offsets, bits, block.data, count)
            if shortest == 0:
                ends = items_of(block.offsets, f"<i{bits // 8}", count + 1)
                flags = ends[1:] != ends[:-1]
                validity, nulls = pack_flags(flags), count - int(np.count_nonzero(flags))
        return to_array(block, self.kind, validity, nulls, self.pages.where)


@dataclass(slots=True)
class _Keys(Node):
    kind: Any
    pages: Pages
    items: Callable[[], Step]
    known: pa.Array | None = None

    def read(self, spans: Spans) -> Step:
        keys = read_plain(self.pages, spans)
        items = self.known if self.known is not None else self.items()
        return join([keys, items], self._finish)

    def _finish(self, parts: list[Any]) -> pa.Array:
        keys, self.known = parts
        return keys_into(keys, self.kind, parts[1], self.pages.where)


@dataclass(slots=True)
class _Lists(Node):
    kind: pa.DataType
    pages: Pages
    items: Node

    def read(self, spans: Spans) -> Step:
        return and_then(read_lists(self.pages, spans), self._items)

    def _items(self, parts: ListParts) -> Step:
        return and_then(self.items.read(parts.items), partial(self._finish, parts))

    def _finish(self, parts: ListParts, items: pa.Array) -> pa.Array:
        width = self.pages.bits // 8
        slots = parts.offsets.size // width - 1
        return list_array(self.kind, slots, None, 0, parts.offsets, items, self.pages.where)


@dataclass(slots=True)
class _Struct(Node):
    kind: pa.DataType
    members: tuple[Node, ...]

    def read(self, spans: Spans) -> Step:
        return join(
            [member.read(spans) for member in self.members], partial(self._finish, spans.total)
        )

    def _finish(self, rows: int, members: list[pa.Array]) -> pa.Array:
        return pa.Array.from_buffers(self.kind, rows, [None], 0, children=members)


@dataclass(slots=True)
class _Nulls(Node):
    """A column of nulls, or a column that is missing in the file."""

    kind: pa.DataType

    def read(self, spans: Spans) -> Step:
        return all_null(self.kind, spans.total)


def plain_bits(kind: pa.DataType) -> tuple[int, int]:
    """Return the bits of a value of a fixed-width type, and the booleans in one value, else 1."""
    bits = leaf_bits(kind)
    if bits is None or bits == 0:
        raise UnsupportedFeatureError(f"format 0.1 has no plain values of type {kind}")
    inner: Any = kind
    while pa.types.is_fixed_size_list(inner):
        inner = inner.value_type
    return bits, bits if pa.types.is_boolean(inner) else 1


def open_node(field: Field, pages: Opener, items: Callable[[Field], Step], where: Where) -> Node:
    """Return the node of a field and of the fields below it.

    Parameters
    ----------
    pages
        Finds the pages of a field.
    items
        Reads the items of a dictionary field.

    Raises
    ------
    UnsupportedFeatureError
        0.1 files lack such fields.
    """
    kind: Any = field.arrow_type
    logical = field.logical_type
    if field.is_blob_v2:
        raise UnsupportedFeatureError(
            f"column {field.name!r} has blobs, and files of format 0.1 have no descriptions of "
            f"blobs (in {where})"
        )
    if logical == "struct":
        members = tuple(open_node(child, pages, items, where) for child in field.children)
        if members and all(isinstance(member, _Nulls) for member in members):
            missing = not any(pa.types.is_null(leaf.arrow_type) for leaf in field.leaves())
            if missing:
                return _Nulls(kind)
        return _Struct(kind, members)
    if logical.startswith(("list", "large_list")):
        own_pages = pages(field, 64 if logical.startswith("large") else 32, 0)
        if own_pages is None:
            return _Nulls(kind)
        return _Lists(kind, own_pages, open_node(field.children[0], pages, items, where))
    if field.children:
        raise UnsupportedFeatureError(
            f"field {field.name!r} has logical type {logical!r}, which files of format 0.1 do not "
            f"support (in {where})"
        )
    if pa.types.is_null(kind):
        return _Nulls(kind)
    width = offset_bits(kind)
    if width is not None:
        own_pages = pages(field, 64, 1)
        if own_pages is None:
            return _Nulls(kind)
        return _Strings(kind, own_pages, width, field.nullable)
    if pa.types.is_dictionary(kind):
        own_pages = pages(field, int(kind.index_type.bit_width), 0)
        return _Nulls(kind) if own_pages is None else _Keys(kind, own_pages, partial(items, field))
    bits, values = plain_bits(kind)
    own_pages = pages(field, bits, 0)
    return _Nulls(kind) if own_pages is None else _Plain(kind, own_pages, values)


# --- Statistics of pages: the number of nulls, and bounds of the values -----------------
#
# Bounds may be wider than the values. Where a page has only nulls, integers, booleans and decimals
# get the smallest and the greatest value of their type. Floats get the infinities, and byte strings
# null, which means unknown. Bounds of floats ignore NaN; zero is bounded by -0.0 and +0.0.
#
# Specification: "Statistics" in ``docs/format/legacy.md``.

STATISTICS: Final = ("null_count", "min_value", "max_value")
"""Names of the statistics of a page, in the order they are stored in."""

_MAX_BOUND_BYTES: Final = 64
"""Longer bounds of byte strings are shortened."""


@dataclass(frozen=True, slots=True)
class PageBounds:
    """One entry per page: null counts (``int64``), and arrays of the column's type."""

    null_count: Int64s
    min_value: pa.Array
    max_value: pa.Array


def has_statistics(kind: pa.DataType) -> bool:
    """Return whether columns of this type have statistics."""
    types = pa.types
    return (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_temporal(kind)
        or types.is_decimal128(kind)
        or offset_bits(kind) is not None
    )


def measure_pages(array: pa.Array, bounds: Int64s) -> PageBounds:
    """Return the statistics of the pages that ``bounds`` cut an array into; all have values."""
    kind = array.type
    starts, counts = bounds[:-1], np.diff(bounds)
    flags = validity_flags(array)
    nulls = np.zeros(len(starts), np.int64)
    if flags is not None:
        nulls = np.add.reduceat(~flags, starts, dtype=np.int64)
    if offset_bits(kind) or pa.types.is_decimal(kind):
        lows, highs = _ordered_bounds(array, bounds)
        if offset_bits(kind):
            lows, highs = _cut(lows, upper=False), _cut(highs, upper=True)
        return PageBounds(nulls, lows, highs)
    known = nulls < counts
    block = block_from_array(array)
    if not isinstance(block, FixedWidth):
        raise TypeError(f"no statistics for values of type {kind}")
    if pa.types.is_boolean(kind):
        some = _flag_bounds(flags_of(block.values, block.count), flags, starts)
        return PageBounds(nulls, _as_bits(some[0] & known), _as_bits(some[1] | ~known))
    values = items_of(block.values, _dtype(kind), block.count)
    if pa.types.is_floating(kind):
        low, high = _float_bounds(values, flags, starts)
    else:
        low, high = _integer_bounds(values, flags, starts, known)
    return PageBounds(nulls, _as_type(low, kind), _as_type(high, kind))


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    size = int(kind.bit_width) // 8
    if pa.types.is_floating(kind):
        return np.dtype(f"<f{size}")
    return np.dtype(f"<{'u' if pa.types.is_unsigned_integer(kind) else 'i'}{size}")


def _as_type(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    data: Any = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)], 0)


def _as_bits(flags: Flags) -> pa.Array:
    buffers = [None, pack_flags(flags)]
    return pa.Array.from_buffers(pa.bool_(), len(flags), buffers, 0)


def _integer_bounds(
    values: NDArray[Any], flags: Flags | None, starts: Int64s, known: Flags
) -> tuple[NDArray[Any], NDArray[Any]]:
    if flags is None:
        return np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    lowest, highest = np.iinfo(values.dtype).min, np.iinfo(values.dtype).max
    low = np.minimum.reduceat(np.where(flags, values, highest), starts)
    high = np.maximum.reduceat(np.where(flags, values, lowest), starts)
    return np.where(known, low, lowest), np.where(known, high, highest)


def _float_bounds(
    values: NDArray[Any], flags: Flags | None, starts: Int64s
) -> tuple[NDArray[Any], NDArray[Any]]:
    used = ~np.isnan(values)
    if flags is not None:
        used &= flags
    infinity = values.dtype.type(np.inf)
    low = np.minimum.reduceat(np.where(used, values, infinity), starts)
    high = np.maximum.reduceat(np.where(used, values, -infinity), starts)
    known = np.logical_or.reduceat(used, starts)
    low, high = np.where(known, low, -infinity), np.where(known, high, infinity)
    low[low == 0], high[high == 0] = -0.0, 0.0
    return low, high


def _flag_bounds(values: Flags, flags: Flags | None, starts: Int64s) -> tuple[Flags, Flags]:
    lows = values if flags is None else values | ~flags
    highs = values if flags is None else values & flags
    return np.logical_and.reduceat(lows, starts), np.logical_or.reduceat(highs, starts)


def _ordered_bounds(array: pa.Array, bounds: Int64s) -> tuple[pa.Array, pa.Array]:
    """Return the smallest and greatest value per page, null for pages that are all null.

    Arrow compares the values of a page in one call; grouping all pages in one costs four
    times as much.
    """
    pairs: list[Any] = [
        pc.min_max(array.slice(start, stop - start)).as_py()
        for start, stop in pairwise(bounds.tolist())
    ]
    lows: Any = pa.array([pair["min"] for pair in pairs], array.type)
    highs: Any = pa.array([pair["max"] for pair in pairs], array.type)
    if pa.types.is_decimal(array.type) and lows.null_count:
        unknown = np.asarray(lows.is_null())
        return _filled(lows, unknown, b"\x00", b"\x80"), _filled(highs, unknown, b"\xff", b"\x7f")
    return lows, highs


def _filled(array: Any, unknown: Flags, low: bytes, high: bytes) -> pa.Array:
    """Fill unknown decimals with the byte ``low``, and ``high`` as the last one."""
    width = array.type.byte_width
    raw = items_of(array.buffers()[1], np.uint8, len(array) * width).reshape(-1, width).copy()
    raw[unknown] = np.frombuffer(low * (width - 1) + high, np.uint8)
    return _as_type(raw, array.type)


def _cut(bounds: Any, *, upper: bool) -> pa.Array:
    """Shorten long bounds; an upper bound that cannot be rounded up is null."""
    lengths = np.asarray(filled(pc.binary_length(bounds), 0))
    if not len(lengths) or int(lengths.max()) <= _MAX_BOUND_BYTES:
        return bounds  # type: ignore[no-any-return]  # an array
    text = pa.types.is_string(bounds.type) or pa.types.is_large_string(bounds.type)
    shortened = [
        value
        if value is None or size <= _MAX_BOUND_BYTES
        else _shorten(value, text=text, upper=upper)
        for value, size in zip(bounds.to_pylist(), lengths.tolist(), strict=True)
    ]
    cut: pa.Array = pa.array(shortened, bounds.type)
    return cut


def _shorten(value: Any, *, text: bool, upper: bool) -> Any:
    if not text:
        head = value[:_MAX_BOUND_BYTES]
        if not upper:
            return head
        head = head.rstrip(b"\xff")
        return head[:-1] + bytes([head[-1] + 1]) if head else None
    head = value.encode()[:_MAX_BOUND_BYTES].decode(errors="ignore")
    if not upper:
        return head
    while head:
        last = ord(head[-1])
        following = 0xE000 if last == 0xD7FF else last + 1
        head = head[:-1]
        if following <= 0x10FFFF and len(chr(following).encode()) == len(chr(last).encode()):
            return head + chr(following)
    return None


# --- Which pages may contain rows that pass a condition, judged by their statistics -----
#
# A page is skipped only when all values that can be *read* from it fail. Bounds ignore NaN, and
# nulls, which 0.1 reads as the value in their slot: pages with either are always read.
#
# Specification: "Statistics" in ``docs/format/legacy.md``.

_MAX_TESTED_VALUES = 32
"""A larger set is tested by the range from its smallest to its greatest value."""


def may_pass(bounds: PageBounds, condition: Condition) -> Flags:
    """Return one flag per page: whether rows of it may pass."""
    lows, highs = _widened(bounds.min_value), _widened(bounds.max_value, upper=True)
    every = np.ones(len(lows), np.bool_)
    if isinstance(condition, IsNull | HasText) or _passes_nan(condition, lows.type):
        return every
    if isinstance(condition, InRange):
        passing = _overlap(lows, highs, condition)
    elif condition.negated:
        return every
    else:
        values: Any = condition.values.drop_null()
        if len(values) > _MAX_TESTED_VALUES:
            if pa.types.is_floating(values.type):
                return every
            low, high = _ends(values)
            passing = _overlap(lows, highs, InRange(low=low, high=high))
        else:
            passing = np.zeros(len(lows), np.bool_)
            for value in values:
                passing |= _overlap(lows, highs, InRange(low=value, high=value))
    passing |= bounds.null_count != 0
    return passing


def _ends(values: Any) -> tuple[Any, Any]:
    """Return the smallest and the greatest value of a set."""
    kind = values.type
    if pa.types.is_duration(kind):  # which Arrow fails to compare here
        values = values.cast(pa.int64())
    ends: Any = pc.min_max(values)
    return ends["min"].cast(kind), ends["max"].cast(kind)


def _overlap(lows: Any, highs: Any, condition: InRange) -> Flags:
    """Return which pages have bounds that overlap a range; unknown bounds always do."""
    above = InRange(low=condition.low, low_included=condition.low_included)
    below = InRange(high=condition.high, high_included=condition.high_included)
    overlap = np.asarray(pc.or_(above.mask(highs), pc.is_null(highs, nan_is_null=True)))
    overlap = overlap & np.asarray(pc.or_(below.mask(lows), pc.is_null(lows, nan_is_null=True)))
    flags: Flags = overlap
    return flags


def _widened(bounds: Any, *, upper: bool = False) -> Any:
    """Return bounds that include both 0.0 and -0.0 if they include one."""
    if not pa.types.is_floating(bounds.type):
        return bounds
    zero = pa.scalar(0.0 if upper else -0.0, bounds.type)
    return pc.if_else(pc.equal(bounds, pa.scalar(0.0, bounds.type)), zero, bounds)


def _passes_nan(condition: InRange | IsOneOf, kind: pa.DataType) -> bool:
    """Return whether a NaN may pass, whatever its bits: their order puts some beyond others."""
    if not pa.types.is_floating(kind):
        return False
    if isinstance(condition, IsOneOf):
        values: Any = condition.values.drop_null()
        return bool(np.isnan(values.to_numpy(zero_copy_only=False)).any())
    return any(bound is None or isnan(bound.as_py()) for bound in (condition.low, condition.high))
