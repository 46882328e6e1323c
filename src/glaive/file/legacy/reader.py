"""Read a 0.1 file: metadata, schema, page table and statistics, each when it is needed.

Specification: ``docs/format/legacy.md``.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth, Variable, pack_flags
from glaive.arrow.build import all_null, leaf_bits, list_array, offset_bits, to_array
from glaive.arrow.conditions import Condition
from glaive.dataclass import dataclass
from glaive.encodings.legacy import (
    STATISTICS,
    FileBytes,
    ListParts,
    PageBounds,
    Pages,
    Spans,
    keys_into,
    may_pass,
    read_lists,
    read_plain,
    read_var_binary,
)
from glaive.encodings.predicate import PagePredicate, array_matches
from glaive.encodings.protocol import Fetch, and_then, join
from glaive.errors import CorruptFileError, RowIndexError, UnsupportedFeatureError
from glaive.file.protocol import BoundField, FileColumns, run_fetch
from glaive.file.versions import V0_1, LegacyProfile
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.footer import LegacyFooter
from glaive.format.pb import file_pb2, table_pb2
from glaive.format.wire import parse
from glaive.io.store import RangeReader
from glaive.kernels.match import list_rows
from glaive.kernels.strings import value_lengths
from glaive.process import patiently, renewed
from glaive.types import ByteRange, FormatVersion, Int64s, RowRange, Where, as_array, items_of

# --- Fields of a 0.1 file, which assemble their values from pages -----------------------
# A field has one page per batch; structs have none, only their members have. The format has no
# validity: nulls read as the value in their slot. Only empty strings and binary read as null, in
# nullable fields.
#
# Specification: "Pages" and "Nulls" in ``docs/format/legacy.md``.

Opener = Callable[[Field, int, int], Pages | None]
"""Pages of a field, by the bits of its values and how many more values a page has than the page
table says; None when the file does not have the field."""

Step = Fetch[pa.Array] | pa.Array


class Node(ABC):
    """One field, with all fields below."""

    __slots__ = ()

    kind: pa.DataType

    @abstractmethod
    def read(self, spans: Spans) -> Step:
        """The values of spans, in order, as one array."""


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
    known: pa.Array | None = field(default=None)

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
    """A column of nulls, or one that the file does not have."""

    kind: pa.DataType

    def read(self, spans: Spans) -> Step:
        return all_null(self.kind, spans.total)


def plain_bits(kind: pa.DataType) -> tuple[int, int]:
    """Bits of a value of a fixed-width type, and the booleans in one value, else 1."""
    bits = leaf_bits(kind)
    if bits is None or bits == 0:
        raise UnsupportedFeatureError(f"format 0.1 has no plain values of type {kind}")
    inner: Any = kind
    while pa.types.is_fixed_size_list(inner):
        inner = inner.value_type
    return bits, bits if pa.types.is_boolean(inner) else 1


def open_node(field: Field, pages: Opener, items: Callable[[Field], Step], where: Where) -> Node:
    """The node of a field and those below.

    Parameters
    ----------
    pages
        Finds the pages of a field.
    items
        Reads the items of a dictionary field.

    Raises
    ------
    UnsupportedFeatureError
        0.1 files cannot contain such fields.
    """
    kind: Any = field.arrow_type
    logical = field.logical_type
    if field.is_blob_v2:
        raise UnsupportedFeatureError(
            f"column {field.name!r} has blobs, of which files of format 0.1 have no descriptions "
            f"(in {where})"
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


# --- Columns of a 0.1 file bound to fields: read and take whole fields ------------------

_VIEW_BYTES = 64 * 1024
"""Smaller pages are joined into one array."""

_COLUMN_BYTES = 2048
"""Bytes of memory of a column besides its page table."""

_GROUP_ROWS = 64 * 1024
_GROUP_BYTES = 2 * 1024 * 1024
"""Approximate rows of joined smaller pages, and bytes of narrow values, which make more rows."""


class LegacyField(BoundField):
    """A top-level field with all pages below it (a ``BoundColumn``)."""

    __slots__ = ("_batches", "_bounds", "_cuts", "_node")

    def __init__(
        self,
        field: Field,
        node: Node,
        batches: Int64s,
        reader: RangeReader,
        bounds: Callable[[], PageBounds | None],
    ) -> None:
        where = f"{reader.path}, column {field.name!r}"
        super().__init__(field.to_arrow(), int(batches[-1]), reader, where)
        self._bounds = bounds
        self._node = node
        self._batches = batches
        self._cuts = _cuts(getattr(node, "pages", None), batches)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held: page tables, a few numbers per batch."""
        return _COLUMN_BYTES + 32 * len(self._cuts)

    def cuts(self) -> Int64s:
        """Rows at which pages begin, except for pages that are better joined."""
        return self._cuts

    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """``read`` as a value."""
        self._check_range(start, stop)
        if start == stop:
            return all_null(self.field.type, 0)
        batches = self._batches
        first = int(np.searchsorted(batches, start, "right")) - 1
        last = int(np.searchsorted(batches, stop))
        edges = batches[first : last + 1]
        page = np.arange(first, last)
        begins = np.maximum(edges[:-1], start)
        return self._node.read(
            Spans(page, begins - edges[:-1], np.minimum(edges[1:], stop) - begins)
        )

    def prune(self, condition: Condition, start: int, stop: int) -> list[RowRange]:
        """The ranges of ``start`` to ``stop`` in which rows may pass, by page statistics."""
        self._check_range(start, stop)
        bounds = self._bounds()
        if bounds is None or len(bounds.null_count) != len(self._batches) - 1:
            return super().prune(condition, start, stop)
        if bounds.min_value.type != self.field.type or bounds.max_value.type != self.field.type:
            return super().prune(condition, start, stop)
        flags = np.concatenate(([False], may_pass(bounds, condition), [False]))
        edges = np.flatnonzero(flags[1:] != flags[:-1])
        begins = np.maximum(self._batches[edges[::2]], start)
        ends = np.minimum(self._batches[edges[1::2]], stop)
        pairs = zip(begins.tolist(), ends.tolist(), strict=True)
        return [RowRange(*pair) for pair in pairs if pair[0] < pair[1]]

    def _search(self, predicate: PagePredicate, start: int, stop: int) -> Int64s | None:
        self._check_range(start, stop)
        encoded = pa.types.is_dictionary(self.field.type)
        if not self.reader.mapped or pa.types.is_nested(self.field.type):
            return None
        if not (encoded or (predicate.any_width and offset_bits(self.field.type) is None)):
            return None
        where = Where(self.reader.path, None, self.field.name)
        matches = array_matches(self.read(start, stop), predicate, where)
        if matches is None:
            return None
        return list_rows(matches.bits, matches.begin, stop - start, start)

    def plan_take(self, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """``take`` as a value."""
        if not len(rows):
            return all_null(self.field.type, 0)
        if int(rows.min()) < 0 or int(rows.max()) >= self.num_rows:
            raise RowIndexError(
                f"rows {rows.min()}..{rows.max()} of a file with {self.num_rows} rows "
                f"(in {self._where})"
            )
        page = np.searchsorted(self._batches, rows, "right") - 1
        return self._node.read(Spans(page, rows - self._batches[page], np.ones_like(rows)))


class LegacyColumns(FileColumns):
    """Several fields of one file (a ``BoundColumns``)."""

    __slots__ = ()

    def plan_take(self, rows: Int64s) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``take`` as a value: texts may lie anywhere in the file, also where others lie."""
        checked = self.in_proportion(len(rows))
        return join([and_then(column.plan_take(rows), checked) for column in self.columns], list)


def _cuts(pages: Pages | None, batches: Int64s) -> Int64s:
    """Where reads should begin: at large pages, between runs of pages, or at regular intervals."""
    rows = int(batches[-1])
    if rows == 0 or len(batches) == 2:
        return np.unique(np.array([0, rows], np.int64))
    if pages is None:
        return _every(batches)
    sizes = np.diff(batches) * pages.bits // 8
    gaps = np.flatnonzero(pages.positions[1:] != pages.positions[:-1] + sizes[:-1]) + 1
    runs = np.concatenate((batches[:1], batches[gaps], batches[-1:]))
    # Runs of adjacent pages are views of the file.
    if rows * pages.bits // 8 >= _VIEW_BYTES * (len(runs) - 1):
        return np.unique(runs)
    return _every(batches, max(_GROUP_ROWS, 8 * _GROUP_BYTES // max(1, pages.bits)))


def _every(batches: Int64s, step: int = _GROUP_ROWS) -> Int64s:
    """Starts of batches, about every ``step`` rows."""
    rows = np.arange(0, int(batches[-1]) + 1, step)
    starts = batches[np.searchsorted(batches, rows)]
    return np.unique(np.concatenate((starts, batches[-1:])))


TAIL_BYTES = 64 * 1024
"""Bytes of the first request."""

_ENTRY = 16
"""Bytes of a (position, length) pair in the page table."""


def number_ids(ids: Iterable[int]) -> dict[int, int]:
    """Row of the page table by field id: rows count from the lowest id of the file."""
    known = sorted(field_id for field_id in ids if field_id >= 0)
    return {field_id: field_id - known[0] for field_id in known}


class LegacyFile:
    """An opened data file of format 0.1 (a ``FileReader``)."""

    def __init__(
        self, reader: RangeReader, tail: pa.Buffer | None = None, profile: LegacyProfile = V0_1
    ) -> None:
        self.reader = reader
        self.path = reader.path
        self.profile = profile
        self.version: FormatVersion = profile.version
        self._tail = reader.tail(TAIL_BYTES) if tail is None else tail
        self._start = reader.size - self._tail.size
        self._end = reader.size - LegacyFooter.SIZE
        footer = LegacyFooter.parse(self._tail, reader.size, where=self.path)
        self._metadata: Any = parse(
            file_pb2.Metadata(), self._section(footer.position, "metadata"), "metadata", self.path
        )
        self.batches = self._batch_offsets()
        whole = reader.read([ByteRange(0, reader.size)])[0] if reader.mapped else None
        self._bytes = FileBytes(whole, footer.position)
        self._schema: LanceSchema | None = None
        self._bounds: dict[int, PageBounds | None] = {}
        self._tables: dict[tuple[int, int, int], Int64s] = {}
        self._items: dict[int, float] = {}
        self._lock = renewed(RLock())

    # ------------------------------------------------------------------ metadata

    @property
    def num_rows(self) -> int:
        """Rows in the file."""
        return int(self.batches[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of memory held: metadata, and page tables of all columns read so far."""
        tail = 0 if self.reader.mapped else self._tail.size
        tables = sum(table.nbytes for table in self._tables.values())
        message = 2 * int(self._metadata.ByteSize())
        return 4096 + tail + int(self.batches.nbytes) + tables + message

    @property
    def num_columns(self) -> int:
        """Rows of the page table: ids from the lowest to the highest field of the file."""
        return max(number_ids(self.schema.field_ids()).values(), default=-1) + 1

    @property
    def page_table_position(self) -> int:
        """Where the page table begins."""
        return int(self._metadata.page_table_position)

    @property
    def metadata_position(self) -> int:
        """Where the message at the end of the file begins: its length."""
        return LegacyFooter.parse(self._tail, self.reader.size, where=self.path).position

    @property
    def schema_position(self) -> int:
        """Where the schema begins, with its length; 0 in a file that has none."""
        return int(self._metadata.manifest_position)

    def statistics_table(self) -> tuple[int, int] | None:
        """Position of the page table of the statistics, and its entries; None without one."""
        if not self._metadata.HasField("statistics"):
            return None
        position = int(self._metadata.statistics.page_table_position)
        return position, max(self._statistics_rows.values(), default=-1) + 1

    @property
    def schema(self) -> LanceSchema:
        """The schema stored in the file.

        Raises
        ------
        UnsupportedFeatureError
            The file has none: only the dataset knows its columns.
        """
        if self._schema is None:
            at = self._metadata.manifest_position
            if not at:
                raise UnsupportedFeatureError(
                    f"{self.path} has no schema of its own. Open the dataset it belongs to."
                )
            wire = parse(table_pb2.Manifest(), self._section(at, "schema"), "schema", self.path)
            self._schema = LanceSchema.from_wire(wire.fields, wire.schema_metadata, where=self.path)
        return self._schema

    @cached_property
    def _own_fields(self) -> Mapping[int, Field]:
        """Fields of the file's schema by their row of the page table."""
        numbers = number_ids(self.schema.field_ids())
        walk = self.schema.walk()
        return {numbers[field.id]: field for field in walk if field.id in numbers}

    def _batch_offsets(self) -> Int64s:
        offsets = np.array(self._metadata.batch_offsets or [0], np.int64)
        if int(offsets[0]) != 0 or (offsets[1:] < offsets[:-1]).any():
            raise CorruptFileError(
                "batch offsets",
                expected="ascending row numbers from 0 on",
                found=f"{offsets[:5].tolist()}…",
                where=self.path,
            )
        return offsets

    def _section(self, position: int, section: str) -> pa.Buffer:
        """Bytes of a message after its length."""
        (size,) = struct.unpack("<I", self._read(position, 4, section))
        return self._read(position + 4, size, section)

    def _read(self, position: int, size: int, section: str) -> pa.Buffer:
        if position < 0 or size < 0 or position > self._end - size:
            raise CorruptFileError(
                section,
                expected=f"bytes within 0..{self._end}",
                found=f"{size} bytes at {position}",
                where=self.path,
            )
        if position >= self._start:
            return self._tail.slice(position - self._start, size)
        return self.reader.read([ByteRange(position, size)])[0]

    # ------------------------------------------------------------------ columns

    def bind(
        self,
        fields: Sequence[Field],
        column_of: Mapping[int, int] | None = None,
        rows: int | None = None,
    ) -> LegacyColumns:
        """Bind columns to fields; see :class:`glaive.file.protocol.FileReader`.

        The column of a field is its row in the page table.
        """
        if column_of is None:
            column_of = number_ids(self.schema.field_ids())
        if rows is not None and rows != self.num_rows:
            raise CorruptFileError(
                "batch offsets",
                expected=f"{rows} rows in all",
                found=f"{self.num_rows}",
                where=self.path,
            )
        numbers = {
            field.id: column_of[field.id]
            for top in fields
            for field in top.walk()
            if column_of.get(field.id, -1) >= 0
        }
        table = self.page_table_position
        rows_of = self._load_tables(table, len(self.batches) - 1, numbers.values())

        def items(field: Field) -> Fetch[pa.Array] | pa.Array:
            return self.dictionary_items(numbers[field.id], field)

        where, pages = Where(self.path), self._opener(rows_of, numbers)
        bound = [
            LegacyField(
                field,
                open_node(field, pages, items, where),
                self.batches,
                self.reader,
                partial(self._bounds_of, field.id, numbers.get(field.id, -1)),
            )
            for field in fields
        ]
        return LegacyColumns(bound, self.num_rows, self.reader)

    def page_table(self, numbers: Iterable[int]) -> dict[int, Int64s]:
        """Rows of the page table: a (position, length) pair per batch."""
        return self._load_tables(self.page_table_position, len(self.batches) - 1, numbers)

    def _load_tables(self, table: int, batches: int, numbers: Iterable[int]) -> dict[int, Int64s]:
        """Rows of a page table; one request for all that are not loaded yet.

        A damaged file may say of two tables, with other numbers of batches, that they are in one
        place.
        """
        keys = {number: (table, batches, number) for number in numbers}
        with patiently(self._lock):
            wanted = sorted(number for number, key in keys.items() if key not in self._tables)
            if wanted and not batches:
                empty = np.zeros((0, 2), np.int64)
                self._tables.update({keys[number]: empty for number in wanted})
            elif wanted:
                size = _ENTRY * batches
                first, last = wanted[0], wanted[-1]
                raw = self._read(table + first * size, (last - first + 1) * size, "page table")
                rows = as_array(raw, "<i8").reshape(-1, batches, 2)
                self._tables.update({keys[number]: rows[number - first] for number in wanted})
            return {number: self._tables[key] for number, key in keys.items()}

    def _opener(
        self, tables: Mapping[int, Int64s], numbers: Mapping[int, int], note: str | None = None
    ) -> Opener:
        sizes: dict[int, float] = {}

        def pages(field: Field, bits: int, more: int) -> Pages | None:
            number = numbers.get(field.id)
            if number is None:
                return None
            where = Where(self.path, number, field.name, note=note)
            found = self._pages(tables[number], bits, more, where)
            self._count_bytes(sizes, number, found)
            return found

        return pages

    def _count_bytes(self, sizes: dict[int, float], number: int, pages: Pages) -> None:
        """Refuse bytes that pages of several columns share: each would take memory for them.

        ``sizes`` are those of the columns before, and under -1 of all.
        """
        if number in sizes:
            return
        total = sizes.get(-1, 0.0) + pages.nbytes
        if total > self._bytes.size:
            raise CorruptFileError(
                "page table",
                expected=f"at most {self._bytes.size} bytes in all columns, those of the file",
                found=f"{total:.0f} up to this column",
                where=pages.where,
            )
        sizes[number], sizes[-1] = pages.nbytes, total

    def _pages(self, table: Int64s, bits: int, more: int, where: Where) -> Pages:
        positions, lengths = table[:, 0], table[:, 1]
        if more:
            lengths = np.minimum(lengths, 2**62) + more
        return Pages(np.ascontiguousarray(positions), lengths, bits, self._bytes, where)

    def dictionary_items(self, column: int, field: Field) -> Fetch[pa.Array] | pa.Array:
        """The items of a dictionary column, as one array.

        Raises
        ------
        CorruptFileError
            The file's schema lacks their position.
        """
        own = self._own_fields.get(column)
        if own is None or own.dictionary is None:
            raise CorruptFileError(
                f"dictionary of column {field.name!r}",
                expected="its position in the file's schema",
                found="none",
                where=self.path,
            )
        kind: Any = field.arrow_type
        position, length = own.dictionary
        where = Where(self.path, column, field.name, note="dictionary")
        entry = np.array([[position, length]], np.int64)

        def pages(_: Field, bits: int, more: int) -> Pages:
            found = self._pages(entry, bits, more, where)
            with patiently(self._lock):
                self._count_bytes(self._items, column, found)
            return found

        items = pa.field(field.name, kind.value_type, field.nullable)
        schema = LanceSchema.from_arrow(pa.schema([items]))
        node = open_node(schema.fields[0], pages, _no_items, where)
        return node.read(Spans(*np.array([[0], [0], [length]], np.int64)))

    # ------------------------------------------------------------------ statistics

    def page_statistics(self) -> pa.Table | None:
        """Bounds of the values of each page; None when the file has none.

        Returns
        -------
        pyarrow.Table
            One row per batch of ``batches``, and one column per field that has statistics,
            named by the field's id: a struct of ``null_count``, ``min_value`` and
            ``max_value``. Bounds need not be attained; a null bound is unknown.

        Raises
        ------
        CorruptFileError
            The statistics are damaged.
        """
        if not self._metadata.HasField("statistics"):
            return None
        arrays = [self._statistics_of(field) for field in self._measured.values()]
        fields = [field.to_arrow() for field in self._measured.values()]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def page_bounds(self, field_id: int) -> PageBounds | None:
        """Bounds of the pages of one field, read once; None when the file has none."""
        if field_id not in self._bounds:
            statistics = self._measured.get(str(field_id))
            bounds: PageBounds | None = None
            if statistics is not None and _is_complete(statistics):
                array: Any = self._statistics_of(statistics)
                nulls, low, high = [array.field(name) for name in STATISTICS]
                bounds = PageBounds(np.asarray(nulls.cast(pa.int64())), low, high)
            self._bounds[field_id] = bounds
        return self._bounds[field_id]

    def _bounds_of(self, field_id: int, number: int) -> PageBounds | None:
        """The same, unless a damaged manifest leads the field to the pages of another one."""
        bounds, has_schema = self.page_bounds(field_id), self._metadata.manifest_position
        own = self._own_fields.get(number) if bounds is not None and has_schema else None
        return bounds if own is not None and own.id == field_id else None

    @cached_property
    def _statistics_schema(self) -> LanceSchema:
        return LanceSchema.from_wire(self._metadata.statistics.schema, where=self.path)

    @cached_property
    def _statistics_rows(self) -> Mapping[int, int]:
        """Rows of the statistics' page table by field id."""
        return number_ids(self._metadata.statistics.fields or self._statistics_schema.field_ids())

    @cached_property
    def _measured(self) -> Mapping[str, Field]:
        """Statistics of fields by the id that is their name."""
        # The format may get more statistics; unknown ones are ignored.
        return {
            field.name: replace(
                field, children=tuple(child for child in field.children if child.name in STATISTICS)
            )
            for field in self._statistics_schema.fields
        }

    def _statistics_of(self, statistics: Field) -> pa.Array:
        """The statistics of one field, a struct per page."""
        numbers = self._statistics_rows
        table = int(self._metadata.statistics.page_table_position)
        leaves = [leaf for leaf in statistics.walk() if leaf.id in numbers]
        tables = self._load_tables(table, 1, [numbers[leaf.id] for leaf in leaves])

        pages = self._opener(tables, numbers, "statistics")
        rows = Spans(*np.array([[0], [0], [len(self.batches) - 1]], np.int64))
        node = open_node(statistics, pages, _no_items, Where(self.path, note="statistics"))
        return run_fetch(self.reader, node.read(rows))

    def close(self) -> None:
        """Close the file; arrays read from it stay valid."""
        self.reader.close()


def _no_items(field: Field) -> Fetch[pa.Array] | pa.Array:
    raise UnsupportedFeatureError(f"a dictionary within field {field.name!r} is not supported")


def _is_complete(statistics: Field) -> bool:
    """Whether the statistics of a field have each part once, and null counts are integers."""
    if sorted(child.name for child in statistics.children) != sorted(STATISTICS):
        return False
    kind: Any = statistics.arrow_type
    return pa.types.is_struct(kind) and pa.types.is_signed_integer(kind.field(STATISTICS[0]).type)
