"""Fields of a 2.0 file: read and take arrays from pages that may begin at different rows.

A list column reads its offsets, then that range of the child column, whose pages are
independent. Everything is a step: a ``Fetch``, or the array when the bytes are in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Protocol, cast
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import (
    MAX_IMPLIED_POSITIONS,
    FixedWidth,
    flag_array,
    flags_of,
    inverse_permutation,
    pack_flags,
    slice_bits,
    spread,
    total_of,
)
from glaive.arrow.build import all_null, block_from_array, list_array, offset_bits, validity_flags
from glaive.arrow.chunked import as_numpy, concat_arrays, take_values
from glaive.arrow.conditions import filled
from glaive.dataclass import dataclass
from glaive.encodings.array_encodings import (
    ArrayEncoding,
    Binary,
    FixedSizeList,
    Flat,
    List,
    Nullable,
    Outlet,
    Source,
    fixed_bits,
    read_array,
    write_ends,
    wrong_type,
)
from glaive.encodings.compressed_arrays import Dictionary, PackedStruct, SimpleStruct, packed_width
from glaive.encodings.compression import Scheme
from glaive.encodings.pages.blob import value_ranges
from glaive.encodings.predicate import PagePredicate, mask_matches
from glaive.encodings.protocol import (
    PAGE_BYTES,
    EncodedPage,
    Fetch,
    Latest,
    and_then,
    join,
    join_buffers,
)
from glaive.errors import (
    CapacityError,
    CorruptFileError,
    GlaiveError,
    RowIndexError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.file.blobs import BlobValues, PendingBlobs
from glaive.file.protocol import TAKEN_SHARE_OF_NUMBERS, BoundField, FormatProfile, Proportion
from glaive.file.v2.columns import Node, array_tree, number_array_columns
from glaive.file.v2.container import MAX_ROWS, Container
from glaive.file.v2.reader import FileV2
from glaive.file.v2.writer import COLUMN_URL, FileV2Writer, Symbols
from glaive.file.versions import V2_0
from glaive.format.blobs import DESCRIPTION, NULL_POSITION, is_blob
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.pb import encodings20_pb2
from glaive.format.wire import DecodeError, parse, seal, unseal
from glaive.io.store import RangeReader
from glaive.kernels.match import list_rows
from glaive.kernels.offsets import NullableOffsets, Spans
from glaive.types import MAX_OFFSET, Flags, Int64s, Where, as_buffer, items_of

# --- Choose the array encodings of a page of format 2.0 ---------------------------------
#
# ===================== ====================================================================
# type                  encoding
# ===================== ====================================================================
# string                dictionary from 100 rows on when fewer than 100 differ, else binary
# other text, binary    binary
# Arrow dictionary      dictionary; nulls point to an item that is null
# packed struct         packed struct
# other types           flat under nullable
# ===================== ====================================================================
#
# Specification: "What writers choose in format 2.0" in ``docs/format/arrays.md``.

_MIN_DICTIONARY_ROWS: Final = 100
"""Minimum strings of a page with a dictionary."""


def encode_values(
    array: Any, out: Outlet, scheme: Scheme | None = None, level: int | None = None
) -> ArrayEncoding:
    """Put the values of a leaf into a page.

    Parameters
    ----------
    scheme, level
        Compression of the bytes of strings; format 2.0 compresses only these.

    Raises
    ------
    SchemaError
        Format 2.0 lacks the type.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return encode_values(array.storage, out, scheme, level)
    if offset_bits(kind) is not None:
        # Readers support dictionaries of plain strings only.
        if pa.types.is_string(kind) and len(array) >= _MIN_DICTIONARY_ROWS:
            dictionary = Dictionary.write_text(array, out)
            if dictionary is not None:
                return dictionary
        return Binary.write(array, out, scheme, level)
    if pa.types.is_dictionary(kind):
        return _dictionary(array, out)
    if pa.types.is_struct(kind):
        return _packed(array, out)
    return _nullable(array, out)


def _nullable(array: Any, out: Outlet) -> Nullable:
    """Return fixed-width values and lists of them, with a bitmap when some are null."""
    kind, count = array.type, len(array)
    if pa.types.is_null(kind) or (count == array.null_count and not pa.types.is_nested(kind)):
        return Nullable(kind, None, None)
    validity = None
    if array.null_count:
        bitmap = slice_bits(array.buffers()[0], array.offset, count)
        validity = Flat.write(pa.bool_(), bitmap, out)
    return Nullable(kind, validity, _plain(array, out))


def _plain(array: Any, out: Outlet) -> ArrayEncoding:
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        if isinstance(items.type, pa.BaseExtensionType):
            items = items.storage
        return FixedSizeList(kind, size, _nullable(items, out))
    block = block_from_array(array) if fixed_bits(kind) is not None else None
    if not isinstance(block, FixedWidth):
        raise SchemaError(
            f"values of type {kind} cannot be written in format 2.0; cast the column, for instance "
            "to a list"
        )
    return Flat.write(kind, block.values, out)


def _dictionary(array: Any, out: Outlet) -> Dictionary:
    """Return an Arrow dictionary, unchanged except for an added item for nulls."""
    kind = array.type
    indices, items = array.indices, array.dictionary
    if indices.null_count:
        if not items.null_count:
            items = pa.concat_arrays([items, pa.nulls(1, items.type)])
        at = int(np.argmax(as_numpy(items.is_null())))
        limit = 2 ** (kind.index_type.bit_width - pa.types.is_signed_integer(kind.index_type)) - 1
        if at > limit:
            raise SchemaError(
                f"a dictionary of {len(items)} items and nulls needs wider indices than "
                f"{kind.index_type} in format 2.0; cast the column to {kind.value_type}"
            )
        indices = filled(indices, at)
    encoded = _nullable(indices, out)
    return Dictionary(kind, encoded, _items(items, out), len(items))


def _items(items: Any, out: Outlet) -> ArrayEncoding:
    """Write the items of a dictionary."""
    if offset_bits(items.type) is not None:
        return Binary.write(items, out)
    return _nullable(items, out)


def _remedy(member: Any) -> str:
    if member.null_count or offset_bits(member.type) is None:
        return ""
    return ", or use data_storage_version 2.2"


def _packed(array: Any, out: Outlet) -> PackedStruct:
    """Return the members of whole bytes without nulls, row by row."""
    members, values = [], []
    for number, member in enumerate(array.type):
        child = array.field(number)
        own = Outlet()
        encoding = None
        if not child.null_count and offset_bits(member.type) is None:
            encoding = _nullable(child, own)
        if encoding is None or packed_width(encoding) is None:
            raise SchemaError(
                f"member {member.name!r} ({member.type}) of a packed struct: format 2.0 packs "
                "fixed-width values of whole bytes without nulls. Remove 'packed' from the "
                f"field's metadata{_remedy(child)}"
            )
        members.append(encoding)
        values.append(pa.py_buffer(own.buffers[0]))
    return PackedStruct.write(array.type, members, values, len(array), out)


Step = Fetch[Any] | Any


class ArrayPage:
    """One page: its encoding and its bytes."""

    __slots__ = ("encoding", "rows", "source")

    def __init__(self, encoding: ArrayEncoding, source: Source) -> None:
        self.encoding = encoding
        self.source = source
        self.rows = source.page.rows


class ArrayColumn:
    """One physical column: its pages, and the first value of each."""

    __slots__ = ("__weakref__", "_file_size", "pages", "starts", "where")

    def __init__(self, pages: Sequence[ArrayPage], where: Where, file_size: int) -> None:
        self._file_size = file_size
        self.pages = [page for page in pages if page.rows]
        self.where = where
        self.starts = [0]
        for page in self.pages:
            self.starts.append(self.starts[-1] + page.rows)
        if self.rows > MAX_ROWS:
            expected, found = f"at most {MAX_ROWS} in all", f"{self.rows}"
            raise CorruptFileError("page rows", expected=expected, found=found, where=where)

    @property
    def rows(self) -> int:
        """Values of the column."""
        return self.starts[-1]

    def read(self, start: int, stop: int) -> list[tuple[int, Step]]:
        """Return the steps that read the parts of a range, each with the number of its page."""
        steps, checked = [], self._checked(stop - start)
        at = bisect_right(self.starts, start) - 1
        while start < stop:
            page, base = self.pages[at], self.starts[at]
            end = min(stop, base + page.rows)
            step = page.encoding.read(page.source, start - base, end - base)
            steps.append((at, and_then(step, checked)))
            start, at = end, at + 1
        return steps

    def take(self, rows: Int64s) -> tuple[list[tuple[int, Step]], Int64s | None]:
        """Return steps that take rows by page, and each row's position (``None``: in order)."""
        if len(self.pages) == 1:
            page = self.pages[0]
            return [(0, page.encoding.take(page.source, rows))], None
        numbers = np.array(self.starts).searchsorted(rows, side="right") - 1
        order = np.argsort(numbers, kind="stable")
        used, bounds = np.unique(numbers[order], return_index=True)
        steps, checked = [], self._checked(len(rows))
        for at, part in zip(used.tolist(), np.split(rows[order], bounds[1:]), strict=True):
            page = self.pages[at]
            step = page.encoding.take(page.source, part - self.starts[at])
            steps.append((at, and_then(step, checked)))
        if bool((order[1:] > order[:-1]).all()):
            return steps, None
        return steps, inverse_permutation(order)

    def _checked(self, rows: int) -> Callable[[Any], Any]:
        """Return a check of the values that each page has of so many rows; the file has offsets."""
        check = Proportion(rows, self._file_size, self.where).array
        return lambda part: check(part) if isinstance(part, pa.Array) else part


class NodeReader(Protocol):
    """A field, or one level of a nested one."""

    rows: int

    def cuts(self) -> set[int]:
        """Return the rows at which pages begin, both ends included."""

    def read(self, start: int, stop: int) -> Step:
        """Return the rows ``start`` to ``stop`` as one array."""

    def take(self, rows: Int64s) -> Step:
        """Return the rows at these positions."""


class LeafReader:
    """Values of a leaf."""

    def __init__(self, column: ArrayColumn, kind: pa.DataType) -> None:
        self._column = column
        self._kind = kind
        self.rows = column.rows

    def cuts(self) -> set[int]:
        """Return the rows at which pages begin."""
        return set(self._column.starts)

    def read(self, start: int, stop: int) -> Step:
        """Join the values of the pages in the range."""
        if start == stop:
            return all_null(self._kind, 0)
        return join([step for _, step in self._column.read(start, stop)], concat_arrays)

    def take(self, rows: Int64s) -> Step:
        """Take page by page, then put in order."""
        if not len(rows):
            return all_null(self._kind, 0)
        steps, back = self._column.take(rows)
        return join([step for _, step in steps], partial(self._restored, back))

    def find(self, predicate: PagePredicate, start: int, stop: int) -> Int64s | None:
        """Return the rows that pass, page by page; ``None`` if the first page is untestable."""
        column = self._column
        parts: list[Int64s] = []
        at = bisect_right(column.starts, start) - 1
        while start < stop:
            page, base = column.pages[at], column.starts[at]
            end = min(stop, base + page.rows)
            matches = page.encoding.find(page.source, predicate, start - base, end - base)
            if matches is None:
                if not parts or not page.source.at_hand:
                    return None
                array: Any = page.encoding.read(page.source, start - base, end - base)
                matches = mask_matches(array, predicate)
            parts.append(list_rows(matches.bits, matches.begin, end - start, start))
            start, at = end, at + 1
        return np.concatenate([np.empty(0, np.int64), *parts]) if len(parts) != 1 else parts[0]

    def _restored(self, back: Int64s | None, arrays: list[Any]) -> Any:
        array = concat_arrays(arrays)
        return array if back is None else take_values(array, back)


class MissingReader:
    """A field that the file lacks."""

    def __init__(self, kind: pa.DataType, rows: int) -> None:
        self._kind = kind
        self.rows = rows

    def cuts(self) -> set[int]:
        """Return both ends."""
        return {0, self.rows}

    def read(self, start: int, stop: int) -> Any:
        """Return nulls."""
        return all_null(self._kind, stop - start)

    def take(self, rows: Int64s) -> Any:
        """Return nulls."""
        return all_null(self._kind, len(rows))


class StructReader:
    """A struct: its members. Its own column has only a number of rows."""

    def __init__(self, children: Sequence[NodeReader], kind: pa.DataType, rows: int) -> None:
        self._children = children
        self._kind = kind
        self.rows = rows

    def cuts(self) -> set[int]:
        """Return the rows at which pages of any member begin."""
        return {0, self.rows}.union(*(child.cuts() for child in self._children))

    def read(self, start: int, stop: int) -> Step:
        """Read all members at once."""
        steps = [child.read(start, stop) for child in self._children]
        return join(steps, partial(self._struct, stop - start))

    def take(self, rows: Int64s) -> Step:
        """Take from all members at once."""
        steps = [child.take(rows) for child in self._children]
        return join(steps, partial(self._struct, len(rows)))

    def _struct(self, rows: int, members: list[Any]) -> Any:
        return pa.Array.from_buffers(self._kind, rows, [None], 0, children=members)


class ListReader:
    """A list: its offsets, then the items they span."""

    def __init__(self, column: ArrayColumn, items: NodeReader, kind: pa.DataType) -> None:
        self._column = column
        self._items = items
        self._kind = kind
        self.rows = column.rows
        counts = [0]
        for page in column.pages:
            if not isinstance(page.encoding, List):
                raise CorruptFileError(
                    "array encoding",
                    expected="a list, since the column holds lists",
                    found=page.encoding.wire_name,
                    where=page.source.where,
                )
            counts.append(counts[-1] + page.encoding.num_items)
        if counts[-1] != items.rows:
            raise CorruptFileError(
                "items of lists",
                expected=f"{counts[-1]} in the column below",
                found=f"{items.rows}",
                where=column.where,
            )
        self._bases = counts

    def cuts(self) -> set[int]:
        """Return the rows at which pages of offsets begin."""
        return set(self._column.starts)

    def read(self, start: int, stop: int) -> Step:
        """Read the offsets of all pages in the range, then one range of items."""
        if start == stop:
            return all_null(self._kind, 0)
        steps = self._column.read(start, stop)
        pages = [at for at, _ in steps]

        def with_ends(parts: list[NullableOffsets]) -> Step:
            ends = parts[0] if len(parts) == 1 else _join_ends(parts, self._column.where)
            first = self._bases[pages[0]] + parts[0].start
            last = self._bases[pages[-1]] + parts[-1].stop
            # Items after the last list of a page would be taken for items of the next page.
            if (spanned := ends.stop - ends.start) != last - first:
                raise CorruptFileError(
                    "items of the lists of several pages",
                    expected=f"{last - first}, as their pages say",
                    found=f"{spanned}",
                    where=self._column.where,
                )
            items = self._items.read(first, last)
            return and_then(items, partial(self._build, ends, stop - start))

        return join([step for _, step in steps], with_ends)

    def take(self, rows: Int64s) -> Step:
        """Take the spans of the lists, then their items."""
        if not len(rows):
            return all_null(self._kind, 0)
        steps, back = self._column.take(rows)
        bases = [self._bases[at] for at, _ in steps]

        def with_spans(parts: list[Spans]) -> Step:
            starts = np.concatenate(
                [spans.starts + base for spans, base in zip(parts, bases, strict=True)]
            )
            sizes = np.concatenate([spans.sizes for spans in parts])
            valid = None
            if any(spans.valid is not None for spans in parts):
                valid = np.concatenate(
                    [np.ones(len(s.sizes), np.bool_) if s.valid is None else s.valid for s in parts]
                )
            if back is not None:
                starts, sizes = starts[back], sizes[back]
                valid = None if valid is None else valid[back]
            ends = self._ends(sizes, valid)
            items = self._take_items(starts, sizes)
            return and_then(items, partial(self._build, ends, len(rows)))

        return join([step for _, step in steps], with_spans)

    def _take_items(self, starts: Int64s, sizes: Int64s) -> Step:
        if len(starts) == 1 or bool((starts[1:] == starts[:-1] + sizes[:-1]).all()):
            return self._items.read(int(starts[0]), int(starts[-1] + sizes[-1]))
        return self._items.take(spread(starts, sizes, MAX_IMPLIED_POSITIONS))

    def _ends(self, sizes: Int64s, valid: Flags | None) -> NullableOffsets:
        encoding: Any = self._column.pages[0].encoding
        bits, total = int(encoding.bits), total_of(sizes)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        sizes.cumsum(out=offsets[1:])
        if bits == 32 and total > MAX_OFFSET:
            raise CapacityError.of(total, f"items of {self._kind}", where=self._column.where)
        validity = None if valid is None else pack_flags(valid)
        stored = as_buffer(offsets.astype(f"<i{bits // 8}"))
        return NullableOffsets(stored, bits, validity, 0 if validity is None else -1, 0, total)

    def _build(self, ends: NullableOffsets, rows: int, items: Any) -> Any:
        where = self._column.where
        return list_array(
            self._kind, rows, ends.validity, ends.null_count, ends.offsets, items, where
        )


class TextReader(ListReader):
    """Strings that Lance before 0.14 wrote as lists of bytes, in two columns."""

    def _build(self, ends: NullableOffsets, rows: int, items: Any) -> Any:
        data = items.buffers()[1]
        data = pa.py_buffer(b"") if data is None else data.slice(items.offset, len(items))
        buffers = [ends.validity, ends.offsets, data]
        return pa.Array.from_buffers(self._kind, rows, buffers, ends.null_count)


def _join_ends(parts: list[NullableOffsets], where: Where) -> NullableOffsets:
    """Return ends of consecutive pages as ends of one page."""
    bits = parts[0].bits
    dtype = f"<i{bits // 8}"
    sizes = [part.stop - part.start for part in parts]
    if bits == 32 and sum(sizes) > MAX_OFFSET:
        raise CapacityError.of(sum(sizes), "items of lists", where=where, instead="a large_list")
    offsets, flags = [np.zeros(1, dtype)], []
    before = 0
    for part, size in zip(parts, sizes, strict=True):
        own = items_of(part.offsets, dtype, part.offsets.size * 8 // bits)
        offsets.append(own[1:] + np.array(before, dtype))
        count = len(own) - 1
        flags.append(
            np.ones(count, np.bool_) if part.validity is None else flags_of(part.validity, count)
        )
        before += size
    nulls = sum(part.null_count for part in parts)
    validity = pack_flags(np.concatenate(flags)) if nulls else None
    return NullableOffsets(as_buffer(np.concatenate(offsets)), bits, validity, nulls, 0, before)


# --- Blobs of format 2.0: values outside of pages ---------------------------------------
#
# The pages of a blob column are packed structs of two ``u64``: position in the file and size. A
# null has position 1, an empty value position 0, both size 0.
#
# Specification: "Blobs" in ``docs/format/arrays.md``.

BLOB_COLUMN: Final = bytes.fromhex("1a040a020a00")
"""``ColumnEncoding{blob: {inner: {values}}}``"""

_VALUES: Final = pa.large_binary()


class BlobReader:
    """A blob column: descriptors, then the bytes they point to."""

    def __init__(self, inner: NodeReader, end: int, where: Where) -> None:
        self._inner = inner
        self._end = end
        self._where = where
        self.rows = inner.rows

    def cuts(self) -> set[int]:
        """Return the rows at which pages of descriptors begin."""
        return self._inner.cuts()

    def read(self, start: int, stop: int) -> Step:
        """Read descriptors, then all blobs at once."""
        if start == stop:
            return all_null(_VALUES, 0)
        return and_then(self._inner.read(start, stop), partial(self._fetch, None))

    def take(self, rows: Int64s) -> Step:
        """Take descriptors, then their blobs."""
        if not len(rows):
            return all_null(_VALUES, 0)
        return and_then(self._inner.take(rows), partial(self._fetch, np.asarray(rows)))

    def _fetch(self, rows: Int64s | None, descriptors: Any) -> Step:
        # Writers make descriptors valid, but a page may have null ones: these are nulls, too.
        given = as_numpy(descriptors.is_valid())
        positions, sizes = (
            np.where(given, as_numpy(filled(descriptors.field(at), 0)), np.uint64(0))
            for at in range(2)
        )
        ranges = value_ranges(positions, sizes, self._end, self._where, rows)
        valid = given & ((sizes > 0) | (positions != NULL_POSITION))
        build = partial(self._array, sizes.astype(np.int64), valid)
        return Fetch(ranges, build) if ranges else build([])

    def _array(self, sizes: Int64s, valid: Flags, buffers: list[pa.Buffer]) -> Any:
        offsets = np.concatenate((np.zeros(1, np.int64), sizes.cumsum()))
        data = join_buffers(buffers) if buffers else pa.py_buffer(b"")
        nulls = len(valid) - int(np.count_nonzero(valid))
        validity = pack_flags(valid) if nulls else None
        parts = [validity, as_buffer(offsets), data]
        return pa.Array.from_buffers(_VALUES, len(sizes), parts, nulls)


def pending_array_page(array: Any) -> PendingBlobs:
    """Return a page of blobs of format 2.0."""
    valid = validity_flags(array)
    layout: Any = None
    describe = partial(_describe, valid)
    return PendingBlobs(layout, [], len(array), BlobValues.of(array, valid), describe)


def _describe(valid: Flags | None, positions: Int64s, sizes: Int64s) -> EncodedPage:
    table = np.stack((np.where(sizes > 0, positions, 0), sizes), axis=1).astype(np.uint64)
    if valid is not None:
        table[~valid, 0] = NULL_POSITION
    word = pa.uint64()
    members = [Nullable(word, None, Flat(word, 64, 0)) for _ in range(2)]
    columns = [as_buffer(np.ascontiguousarray(table[:, at])) for at in range(2)]
    out = Outlet()
    packed = PackedStruct.write(DESCRIPTION, members, columns, len(table), out)
    layout: Any = packed.to_wire()
    return EncodedPage(layout, out.buffers, len(table))


# --- Read a 2.0 file: the container of all 2.x versions, pages of array encodings -------
#
# Specification: ``docs/format/arrays.md``.

_ARRAY_ENCODING = "lance.encodings.ArrayEncoding"


class ArrayField(BoundField):
    """A top-level field with all physical columns below it (a ``BoundColumn``)."""

    __slots__ = ("_node",)

    def __init__(self, field: pa.Field, node: NodeReader, rows: int, reader: RangeReader) -> None:
        super().__init__(field, rows, reader, Where(reader.path, None, field.name))
        self._node = node

    @property
    def nbytes(self) -> int:
        """Bytes of memory held; an estimate from the pages."""
        return PAGE_BYTES * len(self._node.cuts())

    @property
    def taken_share(self) -> float:
        """Share of rows up to which a take is quicker than a read: takes are slow for lists."""
        kind = self.field.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        return TAKEN_SHARE_OF_NUMBERS if is_list else super().taken_share

    def cuts(self) -> Int64s:
        """Return row numbers at which pages begin, ascending, both ends included."""
        return np.array(sorted(self._node.cuts()), np.int64)

    def _search(self, predicate: PagePredicate, start: int, stop: int) -> Int64s | None:
        self._check_range(start, stop)
        node = self._node
        return node.find(predicate, start, stop) if isinstance(node, LeafReader) else None

    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Return ``read`` as a value."""
        self._check_range(start, stop)
        return self._node.read(start, stop)

    def plan_take(self, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """Return ``take`` as a value."""
        low, high = (int(rows.min()), int(rows.max())) if len(rows) else (0, 0)
        if len(rows) and not 0 <= low <= high < self.num_rows:
            raise RowIndexError(
                f"row {low} or {high} of a file with {self.num_rows} rows (in {self._where})"
            )
        if high - low == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
            return self.plan_read(low, high + 1)
        return self._node.take(rows)


@dataclass(frozen=True, slots=True)
class ArrayNodes:
    """Makes the readers of fields from physical columns.

    Parameters
    ----------
    path
        The file, for messages.
    column
        Return a physical column by its number, the type of its values and its name.
    blobs_end
        Return where values outside of pages end; ``None`` if a node has none.
    """

    path: str
    column: Callable[[int, pa.DataType, str], ArrayColumn]
    blobs_end: Callable[[Node], int | None]

    def read(self, node: Node, rows: int | None) -> NodeReader:
        """Return the reader of a node; ``rows`` is ``None`` below lists: columns determine it."""
        reader = self._any_node(node, rows)
        if rows is not None and reader.rows != rows:
            raise CorruptFileError(
                "page rows",
                expected=f"{rows} in all (the rows of the file)",
                found=f"{reader.rows}",
                where=Where(self.path, node.column, node.name),
            )
        return reader

    def _any_node(self, node: Node, rows: int | None) -> NodeReader:
        if node.kind == "struct":
            return self._struct(node, rows)
        if node.column is None:
            if rows is None:
                raise self._lacks_column(node)
            return MissingReader(node.type, rows)
        blobs_end = self.blobs_end(node)
        if blobs_end is not None:
            descriptors = self.column(node.column, DESCRIPTION, node.name)
            if node.type != pa.large_binary():
                raise wrong_type(node.type, "blobs, which are large_binary", descriptors.where)
            inner = _leaf(descriptors, DESCRIPTION)
            return BlobReader(inner, blobs_end, descriptors.where)
        column = self.column(node.column, node.type, node.name)
        if node.kind == "list":
            return ListReader(column, self.read(node.children[0], None), node.type)
        if column.pages and column.pages[0].encoding.structural:
            if offset_bits(node.type) is None:
                raise wrong_type(node.type, column.pages[0].encoding.wire_name, column.where)
            items = self.column(node.column + 1, pa.uint8(), node.name)
            return TextReader(column, _leaf(items, pa.uint8()), node.type)
        return _leaf(column, node.type)

    def _lacks_column(self, node: Node) -> CorruptFileError:
        where, expected = Where(self.path, None, node.name), "one for every part of a list"
        return CorruptFileError("columns", expected=expected, found="none", where=where)

    def _struct(self, node: Node, rows: int | None) -> NodeReader:
        if rows is None:
            # The header column of a struct within lists has the number of items.
            if node.column is None:
                raise self._lacks_column(node)
            rows = self.column(node.column, node.type, node.name).rows
        children = [self.read(child, rows) for child in node.children]
        return StructReader(children, node.type, rows)


class ArraysFile(FileV2):
    """An opened data file of version 2.0 (a ``FileReader``)."""

    def __init__(self, container: Container, profile: FormatProfile) -> None:
        super().__init__(container, profile)
        # The text of a type is ambiguous: names of members may contain the separator of members.
        self._arrays: WeakValueDictionary[tuple[int, pa.DataType], ArrayColumn]
        self._arrays = WeakValueDictionary()

    def column_numbers(self) -> dict[int, int]:
        """Return the column index by field id, in the numbering of the file's own schema."""
        return number_array_columns(self.schema.fields, self._columns_of_leaf)

    def _bound(
        self, fields: Sequence[Field], column_of: Mapping[int, int], rows: int
    ) -> list[BoundField]:
        self._prepare(column for column in _columns_of(fields, column_of))
        nodes = ArrayNodes(self.path, self._column, self._blobs_end)
        return [
            ArrayField(
                field.to_arrow(), nodes.read(array_tree(field, column_of), rows), rows, self.reader
            )
            for field in fields
        ]

    def _columns_of_leaf(self, field: Field, column: int) -> int:
        """Return the number of columns of a leaf: strings as lists own two."""
        if field.children or field.logical_type == "struct":
            return 1
        if offset_bits(field.arrow_type) is None:
            return 1
        pages = self.container.column(column).pages
        if not pages:
            return 1
        where = Where(self.path, column, field.name, 0)
        message = self._encoding(pages[0], where)
        return 2 if message.WhichOneof("array_encoding") == "list" else 1

    def _blobs_end(self, node: Node) -> int | None:
        """Return where blobs end, if the column has some by its metadata."""
        if node.kind != "leaf" or node.column is None or offset_bits(node.type) is None:
            return None
        encoding = self.container.column(node.column).encoding
        where = Where(self.path, node.column, node.name)
        raw = self.container.page_encoding(encoding, where)
        return self.container.footer.metadata_start if holds_blobs(raw, where) else None

    # ------------------------------------------------------------------ columns

    def _column(self, index: int, kind: pa.DataType, name: str) -> ArrayColumn:
        """Return a physical column with its pages, parsed on first use."""
        key = index, kind
        with self._lock:
            column = self._arrays.get(key)
            if column is None:
                column = self._arrays[key] = self._open_arrays(index, kind, name)
            return column

    def _open_arrays(self, index: int, kind: pa.DataType, name: str) -> ArrayColumn:
        pages, latest = [], Latest()
        for number, message in enumerate(self.container.column(index, name).pages):
            where = Where(self.path, index, name, number)
            page = self.page_bytes(message, where)
            encoding = read_array(self._encoding(message, where), kind, page.rows, page, top=True)
            pages.append(ArrayPage(encoding, Source(page, latest)))
        return ArrayColumn(pages, Where(self.path, index, name), self.reader.size)

    def _encoding(self, page: Any, where: Where) -> Any:
        """Return the array encoding message of a page."""
        return parse_array_encoding(self.container.page_encoding(page.encoding, where), where)


def parse_array_encoding(raw: bytes, where: Where) -> Any:
    """Parse the bytes of a page's encoding into its ``ArrayEncoding``."""
    name, message = _message(raw, where)
    if name == _ARRAY_ENCODING:
        parsed = encodings20_pb2.ArrayEncoding()
        return parse(parsed, pa.py_buffer(message), "page encoding", where)
    raise UnsupportedFeatureError(
        f"unknown page encoding {name!r} (in {where}); in a file of format {V2_0.version} "
        f"this reader knows {_ARRAY_ENCODING}"
    )


def holds_blobs(raw: bytes, where: Where) -> bool:
    """Return whether the values of a column are outside of its pages, by its encoding."""
    message = pa.py_buffer(_message(raw, where)[1])
    parsed = parse(encodings20_pb2.ColumnEncoding(), message, "column encoding", where)
    return parsed.WhichOneof("column_encoding") == "blob"


def _columns_of(fields: Sequence[Field], column_of: Mapping[int, int]) -> Iterator[int]:
    """Yield the columns of the fields and all fields below."""
    for field in fields:
        for below in field.walk():
            if below.id in column_of:
                yield column_of[below.id]


def _message(raw: bytes, where: Where) -> tuple[str, bytes]:
    """Name and bytes of the message in an envelope."""
    try:
        return unseal(raw)
    except DecodeError as error:
        raise CorruptFileError(
            "encoding", expected="a protobuf message", found=str(error), where=where
        ) from None


def _leaf(column: ArrayColumn, kind: pa.DataType) -> LeafReader:
    """Return the reader of a column; all its pages must have values instead of ends of lists."""
    for page in column.pages:
        if page.encoding.structural:
            raise wrong_type(kind, page.encoding.wire_name, page.source.where)
    return LeafReader(column, kind)


# --- Write a 2.0 file: structs and lists are columns of their own, pages are array encodings
# Specification: ``docs/format/arrays.md``.

Pages = list[tuple[int, EncodedPage]]


class ArraysWriter(FileV2Writer):
    """A 2.0 file being written (a ``FileWriter``)."""

    page_url: ClassVar[str] = "/lance.encodings.ArrayEncoding"
    keeps_dictionaries: ClassVar[bool] = False

    _structs: dict[int, int]
    """Rows of each struct column."""

    _blob_columns: list[int]

    def _trees(self, schema: LanceSchema) -> tuple[Mapping[int, int], Sequence[Node]]:
        column_of = number_array_columns(schema.fields)
        nodes = [array_tree(field, column_of) for field in schema.fields]
        self._structs, self._blob_columns = {}, []
        for node in nodes:
            self._blob_columns.extend(_blob_columns(node))
            self._structs.update(dict.fromkeys(_struct_columns(node), 0))
        return column_of, nodes

    def _encode_rows(self, node: Node, array: pa.Array, symbols: Symbols) -> Iterator[Pages]:
        """Yield one page per column; a page of items belongs to the page of their lists.

        2.0 files lack FSST symbols.
        """
        pages: Pages = []
        self._encode_node(node, array, pages, node.name)
        yield pages

    def _encode_node(self, node: Node, array: Any, pages: Pages, path: str) -> None:
        out = Outlet()
        if node.kind == "struct":
            if array.null_count:
                newer = any(leaf.kind != "struct" for leaf in node.leaves())
                remedy = "use data_storage_version 2.1 or newer, or " if newer else ""
                raise SchemaError(
                    f"column {path!r} of type {array.type} has {array.null_count} null structs (in "
                    f"{self._where}), which format {self._profile.version} cannot hold; "
                    f"{remedy}make the members null instead"
                )
            self._put(node, SimpleStruct(), out, len(array), pages)
            for number, child in enumerate(node.children):
                self._encode_node(child, array.field(number), pages, f"{path}.{child.name}")
        elif node.kind == "list":
            ends, items = _ends(array)
            encoding, adjustment = write_ends(ends, out)
            shape = List(encoding, adjustment, len(items), ends.bits)
            self._put(node, shape, out, len(array), pages)
            child = node.children[0]
            self._encode_node(child, items, pages, f"{path}.{child.name}")
        elif is_blob(node.field) and node.column is not None:
            pages.append((node.column, pending_array_page(array)))
        else:
            if node.field.is_packed and array.null_count:
                raise SchemaError(
                    f"column {path!r} (in {self._where}) has {array.null_count} null structs; "
                    "packed structs cannot be null. Fill them, or remove 'packed' from its metadata"
                )
            wanted = self._wanted[node.field.id]
            values = encode_values(array, out, wanted.scheme, wanted.compression_level)
            self._put(node, values, out, len(array), pages)

    def _append(self, column: int, page: EncodedPage, first_row: int) -> None:
        if column in self._structs:
            # Readers expect a single page per struct column: it is written last, with all rows.
            self._structs[column] += page.rows
        else:
            super()._append(column, page, first_row)

    def _write_footer(self) -> int:
        for column, rows in self._structs.items():
            if self._rows:
                layout: Any = SimpleStruct().to_wire()
                super()._append(column, EncodedPage(layout, [], rows), 0)
        for column in self._blob_columns:
            self._columns[column].encoding.direct.encoding = seal(COLUMN_URL, BLOB_COLUMN)
        return super()._write_footer()

    def _put(
        self, node: Node, encoding: ArrayEncoding, out: Outlet, rows: int, pages: Pages
    ) -> None:
        if node.column is None:
            raise GlaiveError(f"field {node.name!r} of {self._where} has no column")
        layout: Any = encoding.to_wire()
        pages.append((node.column, EncodedPage(cast("Any", layout), out.buffers, rows)))


def _struct_columns(node: Node) -> Iterator[int]:
    """Yield the columns of all structs at or below a node."""
    if node.kind == "struct" and node.column is not None:
        yield node.column
    for child in node.children:
        yield from _struct_columns(child)


def _blob_columns(node: Node) -> Iterator[int]:
    """Yield the columns of all blobs at or below a node."""
    if node.kind == "leaf" and node.column is not None and is_blob(node.field):
        yield node.column
    for child in node.children:
        yield from _blob_columns(child)


def _ends(array: Any) -> tuple[NullableOffsets, Any]:
    """Return offsets of the valid lists with validity, and their items; null lists become empty."""
    offsets = as_numpy(array.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    items = array.values.slice(first, last - first)
    valid = validity_flags(array)
    if valid is None:
        return NullableOffsets(as_buffer(offsets), 64, None, 0, first, last), items
    lengths = np.diff(offsets)
    if lengths[~valid].any():
        items = items.filter(flag_array(valid.repeat(lengths)))
        lengths[~valid] = 0
    ends = np.concatenate((np.zeros(1, np.int64), lengths.cumsum()))
    nulls = len(valid) - int(np.count_nonzero(valid))
    return NullableOffsets(as_buffer(ends), 64, pack_flags(valid), nulls, 0, len(items)), items
