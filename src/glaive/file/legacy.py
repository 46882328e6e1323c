"""Read and write files of format 0.1: a page for each column and batch of rows."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from threading import RLock
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import FixedWidth, Variable
from glaive.arrow.build import all_null, block_from_array, offset_bits
from glaive.arrow.chunked import check_column, join_batches
from glaive.arrow.conditions import Condition, filled
from glaive.encodings.legacy import (
    STATISTICS,
    FileBytes,
    Node,
    Opener,
    PageBounds,
    Pages,
    Spans,
    encode_lists,
    encode_plain,
    encode_var_binary,
    has_statistics,
    may_pass,
    measure_pages,
    open_node,
)
from glaive.encodings.predicate import PagePredicate, array_matches
from glaive.encodings.protocol import Fetch
from glaive.errors import (
    CapacityError,
    CorruptFileError,
    RowIndexError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.file.protocol import BoundField, FileColumns, WrittenFile, run_fetch, unfinished
from glaive.file.versions import V0_1, LegacyProfile
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.footer import LegacyFooter
from glaive.format.manifest import WRITER
from glaive.format.pb import file_pb2, table_pb2
from glaive.format.wire import parse
from glaive.io.store import BytesLike, ObjectStore, RangeReader
from glaive.io.wrapped import PAD, AlignedSink
from glaive.kernels.match import list_rows
from glaive.process import fork_safe, lock_with_timeout
from glaive.types import ByteRange, FormatVersion, Int64s, RowRange, Where, as_array, items_of

# --- Read a 0.1 file: metadata, schema, page table and statistics, each when it is needed
# Specification: ``docs/format/legacy.md``.

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
        """Return the rows at which pages begin, except for pages that are better joined."""
        return self._cuts

    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Return ``read`` as a value."""
        self._check_range(start, stop)
        if start == stop:
            return all_null(self.field.type, 0)
        batches = self._batches
        first = int(batches.searchsorted(start, "right")) - 1
        last = int(batches.searchsorted(stop))
        edges = batches[first : last + 1]
        page = np.arange(first, last)
        begins = np.maximum(edges[:-1], start)
        return self._node.read(
            Spans(page, begins - edges[:-1], np.minimum(edges[1:], stop) - begins)
        )

    def prune(self, condition: Condition, start: int, stop: int) -> list[RowRange]:
        """Return the ranges of ``start`` to ``stop`` where rows may pass, by page statistics."""
        self._check_range(start, stop)
        bounds = self._bounds()
        if bounds is None or len(bounds.null_count) != len(self._batches) - 1:
            return super().prune(condition, start, stop)
        if bounds.min_value.type != self.field.type or bounds.max_value.type != self.field.type:
            return super().prune(condition, start, stop)
        flags = np.concatenate(([False], may_pass(bounds, condition), [False]))
        edges = (flags[1:] != flags[:-1]).nonzero()[0]
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
        """Return ``take`` as a value."""
        if not len(rows):
            return all_null(self.field.type, 0)
        if int(rows.min()) < 0 or int(rows.max()) >= self.num_rows:
            raise RowIndexError(
                f"rows {rows.min()}..{rows.max()} of a file with {self.num_rows} rows "
                f"(in {self._where})"
            )
        page = self._batches.searchsorted(rows, "right") - 1
        return self._node.read(Spans(page, rows - self._batches[page], np.ones_like(rows)))


def _cuts(pages: Pages | None, batches: Int64s) -> Int64s:
    """Return where reads should begin: at large pages, between runs of pages, or regularly."""
    rows = int(batches[-1])
    if rows == 0 or len(batches) == 2:
        return np.unique(np.array([0, rows], np.int64))
    if pages is None:
        return _every(batches)
    sizes = np.diff(batches) * pages.bits // 8
    gaps = (pages.positions[1:] != pages.positions[:-1] + sizes[:-1]).nonzero()[0] + 1
    runs = np.concatenate((batches[:1], batches[gaps], batches[-1:]))
    # Runs of adjacent pages are views of the file.
    if rows * pages.bits // 8 >= _VIEW_BYTES * (len(runs) - 1):
        return np.unique(runs)
    return _every(batches, max(_GROUP_ROWS, 8 * _GROUP_BYTES // max(1, pages.bits)))


def _every(batches: Int64s, step: int = _GROUP_ROWS) -> Int64s:
    """Return the starts of batches, about every ``step`` rows."""
    rows = np.arange(0, int(batches[-1]) + 1, step)
    starts = batches[batches.searchsorted(rows)]
    return np.unique(np.concatenate((starts, batches[-1:])))


TAIL_BYTES = 64 * 1024
"""Bytes of the first request."""

_ENTRY = 16
"""Bytes of a (position, length) pair in the page table."""


def number_ids(ids: Iterable[int]) -> dict[int, int]:
    """Return the row of the page table by field id: rows count from the lowest id of the file."""
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
        self.metadata_position = footer.position
        raw = self._section(footer.position, "metadata")
        self._metadata: Any = parse(file_pb2.Metadata(), raw, "metadata", self.path)
        self.batches = self._batch_offsets()
        whole = reader.read([ByteRange(0, reader.size)])[0] if reader.mapped else None
        self._bytes = FileBytes(whole, self.metadata_position)
        self._schema: LanceSchema | None = None
        self._bounds: dict[int, PageBounds | None] = {}
        self._tables: dict[tuple[int, int, int], Int64s] = {}
        self._items: dict[int, float] = {}
        self._lock = fork_safe(RLock())

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
    def schema_position(self) -> int:
        """Where the schema begins, with its length; 0 if the file lacks one."""
        return int(self._metadata.manifest_position)

    def statistics_table(self) -> tuple[int, int] | None:
        """Return position and entries of the page table of the statistics, or ``None``."""
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
            The file lacks one: only the dataset knows its columns.
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
        """Return the bytes of a message after its length."""
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
    ) -> FileColumns:
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
        return FileColumns(bound, self.num_rows, self.reader)

    def page_table(self, numbers: Iterable[int]) -> dict[int, Int64s]:
        """Return the rows of the page table: a (position, length) pair per batch."""
        return self._load_tables(self.page_table_position, len(self.batches) - 1, numbers)

    def _load_tables(self, table: int, batches: int, numbers: Iterable[int]) -> dict[int, Int64s]:
        """Return the rows of a page table; one request for all unread tables.

        A damaged file may give one location to two tables with different numbers of batches.
        """
        keys = {number: (table, batches, number) for number in numbers}
        with lock_with_timeout(self._lock):
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

        ``sizes`` has the bytes of the columns before, and under -1 of all.
        """
        if number in sizes:
            return
        total = sizes.get(-1, 0.0) + pages.nbytes
        if total > self._bytes.size:
            raise CorruptFileError(
                "page table",
                expected=f"at most {self._bytes.size} bytes in all columns, as the file has",
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
        """Return the items of a dictionary column, as one array.

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
            with lock_with_timeout(self._lock):
                self._count_bytes(self._items, column, found)
            return found

        items = pa.field(field.name, kind.value_type, field.nullable)
        schema = LanceSchema.from_arrow(pa.schema([items]))
        node = open_node(schema.fields[0], pages, _no_items, where)
        return node.read(Spans(*np.array([[0], [0], [length]], np.int64)))

    # ------------------------------------------------------------------ statistics

    def page_bounds(self, field_id: int) -> PageBounds | None:
        """Return the bounds of the pages of one field, if the file has them; read once."""
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
        """Return the same, unless a damaged manifest leads the field to pages of another field."""
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
        """Return the statistics of one field, a struct per page."""
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
    """Return whether a field's statistics have each part once, and null counts are integers."""
    if sorted(child.name for child in statistics.children) != sorted(STATISTICS):
        return False
    kind: Any = statistics.arrow_type
    return pa.types.is_struct(kind) and pa.types.is_signed_integer(kind.field(STATISTICS[0]).type)


# --- Write a 0.1 file: rows are collected, divided into batches and written column by column
#
# All batches but the last have equally many rows, unless rows are very large. The schema, the
# metadata and the footer come last and make the file visible.
#
# Specification: ``docs/format/legacy.md``.

# --- Which types files of format 0.1 can hold -------------------------------------------


def check_legacy_types(schema: LanceSchema) -> None:
    """Refuse a schema that format 0.1 cannot hold.

    Raises
    ------
    SchemaError
        Names the column, its type and the version that supports it.
    """
    for top in schema.fields:
        _check(top, top.name)


def _check(field: Field, path: str) -> None:
    reason = _reason(field)
    if reason is not None:
        version, rule = reason
        raise SchemaError(
            f"column {path!r} has type {field.arrow_type}, which format 0.1 cannot hold: {rule}. "
            f"Use data_storage_version {version} or newer, or cast the column."
        )
    for child in field.children:
        _check(child, f"{path}.{child.name}")


def _reason(field: Field) -> tuple[str, str] | None:
    """Return the version that supports a field, and why 0.1 lacks it."""
    logical = field.logical_type
    kind: Any = None if field.children else field.arrow_type
    if logical == "map":
        return "2.2", "it has no maps"
    if logical.startswith("fixed_size_list:struct"):
        return "2.2", "its fixed-size lists have items that are numbers"
    if logical == "struct" and not field.children:
        return "2.1", "a struct needs members"
    if field.is_blob_v2:
        return "2.2", "it has no such columns"
    if logical == "blob" or "lance-encoding:blob" in field.metadata:
        return "2.0", "it has no such columns"
    if logical in ("list", "large_list"):
        item = field.children[0]
        if not item.nullable or item.name != "item" or item.metadata:
            return "2.0", "its list items are named 'item', nullable and without metadata"
    if kind is None:
        return None
    if pa.types.is_dictionary(kind):
        values: Any = kind.value_type
        if not (pa.types.is_integer(values) or offset_bits(values)):
            return "2.0", "its dictionaries have items that are strings, binary or integers"
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 0:
        return "2.2", "values need at least one byte"
    return _fixed_list_reason(kind)


def _fixed_list_reason(kind: Any) -> tuple[str, str] | None:
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
        other = pa.types.is_null(kind) or pa.types.is_dictionary(kind) or kind == pa.binary(0)
        if other or offset_bits(kind):
            return "2.1", "its fixed-size lists have items that are numbers"
    return None


# --- Divide arrays into the pages of a 0.1 file and write them --------------------------
#
# Pages of one column that are written at once are adjacent: a reader finds one run of values.
#
# Specification: "Pages" in ``docs/format/legacy.md``.

_MAX_ENTRIES: Final = 4 * 1024 * 1024
"""Entries of a page table, of 16 bytes: ids that lie far apart leave most of it empty."""


class PageWriter:
    """Writes pages and keeps the page table.

    Parameters
    ----------
    dictionaries
        Items by field id, shared by all files of a dataset. The items of the first array of a field
        apply to all later ones.
    """

    def __init__(self, sink: AlignedSink, dictionaries: dict[int, pa.Array]) -> None:
        self.sink = sink
        self.dictionaries = dictionaries
        self.table: dict[int, list[Int64s]] = {}

    def write(self, field: Field, array: Any, bounds: Int64s) -> None:
        """Write the pages of a field and of the fields below; ``bounds`` divide its values.

        Raises
        ------
        SchemaError
            A dictionary has other items than before.
        """
        kind = array.type
        if field.logical_type == "struct":
            for at, child in enumerate(field.children):
                self.write(child, array.field(at), bounds)
        elif field.logical_type.startswith(("list", "large_list")):
            self._write_lists(field, array, bounds)
        elif pa.types.is_null(kind):
            self._add(field, np.full(len(bounds) - 1, self.sink.position), np.diff(bounds))
        elif pa.types.is_dictionary(kind):
            self._write_plain(field, self._keys(field, array), bounds)
        else:
            block = None if pa.types.is_nested(kind) else block_from_array(array)
            if isinstance(block, Variable):
                text, offsets = encode_var_binary(block, self.sink.pad())
                self.sink.write([text])
                self._put(field, offsets, bounds[:-1] * 8, np.diff(bounds))
            else:
                self._write_plain(field, array, bounds)

    def _write_lists(self, field: Field, array: Any, bounds: Int64s) -> None:
        width = 8 if pa.types.is_large_list(array.type) else 4
        count = len(array)
        if count:
            ends = items_of(array.buffers()[1], f"<i{width}", count + 1, array.offset * width)
        else:
            ends = np.zeros(1, f"<i{width}")
        offsets, starts = encode_lists(ends, bounds)
        self._put(field, offsets, starts, np.diff(bounds) + 1)
        first, last = int(ends[0]), int(ends[-1])
        items = array.values.slice(first, last - first)
        self.write(field.children[0], items, ends[bounds].astype(np.int64) - first)

    def _write_plain(self, field: Field, array: Any, bounds: Int64s) -> None:
        items = 1
        while pa.types.is_fixed_size_list(array.type):
            size = array.type.list_size
            array = array.values.slice(array.offset * size, len(array) * size)
            items *= size
        if pa.types.is_boolean(array.type) and array.null_count:
            # The value in the slot of a null is stored, except for booleans.
            array = filled(array, False)
        block = block_from_array(array)
        if not isinstance(block, FixedWidth):
            raise SchemaError(
                f"column {field.name!r} has type {array.type}, which format 0.1 cannot hold"
            )
        values, starts = encode_plain(block, bounds * items)
        self._put(field, values, starts, np.diff(bounds))

    def _keys(self, field: Field, array: Any) -> pa.Array:
        """Return keys into the items that all files share."""
        items = self.dictionaries.setdefault(field.id, array.dictionary)
        keys: Any = array.indices
        if not items.equals(array.dictionary):
            moved = pc.index_in(array.dictionary, items)
            keys = moved.take(keys)
            lost = keys.null_count - array.null_count
            if lost:
                raise SchemaError(
                    f"column {field.name!r} ({array.type}): format 0.1 keeps one dictionary per "
                    f"dataset, and {lost} values are not among its {len(items)} items. Write "
                    f"rows that share one dictionary, cast the column to "
                    f"{array.type.value_type}, or use data_storage_version 2.0 or newer."
                )
            keys = keys.cast(array.type.index_type)
        # The values in null slots would be read as keys.
        valid: pa.Array = filled(keys, 0)
        return valid

    def _put(self, field: Field, data: BytesLike, starts: Int64s, lengths: Int64s) -> None:
        (written,) = self.sink.write_aligned([data])
        self._add(field, written.offset + starts, lengths)

    def _add(self, field: Field, positions: Int64s, lengths: Int64s) -> None:
        self.table.setdefault(field.id, []).append(np.stack((positions, lengths), 1))

    def table_bytes(self, ids: list[int], batches: int) -> bytes:
        """Return the page table: an entry per id from the lowest to the highest, and per batch.

        Raises
        ------
        SchemaError
            It would be far larger than the pages that it describes.
        """
        if not ids:
            return b""
        low = min(ids)
        if (max(ids) - low + 1) * batches > _MAX_ENTRIES:
            raise SchemaError(
                f"fields have ids from {low} to {max(ids)}. The page table of a file of format "
                f"0.1 has an entry for each number between, here for each of {batches} batches, "
                f"{_MAX_ENTRIES} at most. Write a new dataset, where fields count from 0, or "
                "use data_storage_version 2.0 or newer."
            )
        entries = np.zeros((max(ids) - low + 1, batches, 2), "<i8")
        for field_id, parts in self.table.items():
            entries[field_id - low] = np.concatenate(parts)
        return entries.tobytes()


_RUN_BATCHES = 64
"""Batches that are collected before they are written."""

_RUN_BYTES = 32 * 1024 * 1024
"""With more Arrow bytes rows are written earlier, in a short batch if necessary."""

_LENGTH = struct.Struct("<I")
_MAX_ROWS = 2**31 - 1


class LegacyFileWriter:
    """A file being written (a ``FileWriter``).

    Parameters
    ----------
    rows_per_batch
        Rows of a page at most; the profile's by default.
    dictionaries
        Items of dictionary columns by field id, shared by all files of a dataset. Items of new
        columns are added.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        schema: LanceSchema,
        profile: LegacyProfile = V0_1,
        *,
        rows_per_batch: int | None = None,
        dictionaries: dict[int, pa.Array] | None = None,
    ) -> None:
        check_legacy_types(schema)
        self.path = path
        self._where = store.full(path)
        self._schema = schema
        self._arrow = schema.to_arrow()
        self._profile = profile
        # Files have fewer rows, and bounds of batches are sums of these.
        self._step = min(rows_per_batch or profile.rows_per_batch, _MAX_ROWS)
        self._sink = AlignedSink(store.create(path))
        self._pages = PageWriter(self._sink, {} if dictionaries is None else dictionaries)
        self._measured = list(_measured(schema.fields))
        self._statistics: dict[int, list[PageBounds]] = {field.id: [] for field in self._measured}
        self._edges: list[Int64s] = [np.zeros(1, np.int64)]
        self._rows = 0
        self._is_whole = True
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0

    @property
    def position(self) -> int:
        """Bytes written plus bytes waiting (estimate)."""
        return self._sink.position + self._waiting_bytes

    @property
    def rows(self) -> int:
        """Rows taken so far."""
        return self._rows + self._waiting_rows

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows; the columns must be the schema's, in its order."""
        if not batch.schema.equals(self._arrow, check_metadata=False):
            raise SchemaError(
                f"batch for {self._where}: expected the columns\n{self._arrow}\n"
                f"found\n{batch.schema}\nCast the batch to the schema first."
            )
        columns: list[Any] = list(batch.columns)
        for field, column in zip(self._schema.fields, columns, strict=True):
            check_column(column, field.name, self._where, nullable=field.nullable)
        if self.rows + batch.num_rows > _MAX_ROWS:
            raise SchemaError(
                f"more than {_MAX_ROWS} rows for {self._where}, the limit of files of format "
                "0.1. Lower max_rows_per_file."
            )
        is_whole, self._is_whole = self._is_whole, False
        for part in [batch] if isinstance(batch, pa.RecordBatch) else batch.to_batches():
            if part.num_rows:
                self._take(part)
        self._is_whole = is_whole

    def finish(self) -> WrittenFile:
        """Write pending rows, tables, schema and footer; the file becomes visible."""
        if not self._is_whole:
            raise unfinished(self._where)
        self._flush(last=True)
        ids = sorted(self._schema.field_ids())
        batches = np.concatenate(self._edges)
        metadata = file_pb2.Metadata(batch_offsets=batches.tolist())
        table = self._pages.table_bytes(ids, len(batches) - 1)
        metadata.page_table_position = self._sink.write_aligned([table])[0].offset
        if self._measured and len(batches) > 1:
            self._write_statistics(metadata.statistics)
        schema = self._schema_message()
        if self._sink.position == 0:  # this position means that the schema is absent
            self._sink.write([PAD])
        metadata.manifest_position = self._write_message(schema)
        position = self._write_message(metadata)
        major, minor = self._profile.footer
        self._sink.write([LegacyFooter(position, major, minor).build()])
        return WrittenFile(
            path=self.path,
            size=self._sink.finish(),
            rows=self._rows,
            version=self._profile.version,
            fields=ids,
            column_indices=[],
        )

    def abort(self) -> None:
        """Discard the file."""
        self._waiting = []
        self._sink.abort()

    # ------------------------------------------------------------------ rows

    def _take(self, batch: pa.RecordBatch) -> None:
        run = self._step * _RUN_BATCHES
        if self._waiting and batch.num_rows >= run:
            # Only the rows that complete a batch are copied.
            head = -self._waiting_rows % self._step
            self._wait(batch.slice(0, head))
            self._flush(last=False)
            batch = batch.slice(head)
        for start in range(0, batch.num_rows, _MAX_ROWS // 64):
            self._wait(batch.slice(start, _MAX_ROWS // 64))
            if self._waiting_rows >= run or self._waiting_bytes >= _RUN_BYTES:
                self._flush(last=self._waiting_rows < self._step)

    def _wait(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            self._waiting_bytes += batch.nbytes

    def _flush(self, *, last: bool) -> None:
        """Write pending rows in full batches, and the rest as a short one if it is the last."""
        if not self._waiting:
            return
        pending = self._waiting[0]
        if len(self._waiting) > 1:
            pending, *more = join_batches(pa.Table.from_batches(self._waiting))
            if more:
                raise CapacityError(
                    f"a batch of {self._step} rows of {self._where} does not fit one array, "
                    "where offsets of a column of text or lists have 32 bits. Choose a smaller "
                    "max_rows_per_group."
                )
        rows = pending.num_rows
        written = rows if last else rows - rows % self._step
        bounds = np.arange(0, written + self._step, self._step, dtype=np.int64)
        bounds = np.minimum(bounds, written)[: -(-written // self._step) + 1]
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        if written < rows:
            self._wait(pending.slice(written))
        if written:
            self._write(pending.slice(0, written), bounds)

    def _write(self, batch: pa.RecordBatch, bounds: Int64s) -> None:
        for field, column in zip(self._schema.fields, batch.columns, strict=True):
            self._pages.write(field, column, bounds)
            self._measure(field, column, bounds)
        self._edges.append(self._rows + bounds[1:])
        self._rows += batch.num_rows

    # ------------------------------------------------------------------ statistics

    def _measure(self, field: Field, array: Any, bounds: Int64s) -> None:
        if field.logical_type == "struct":
            for at, child in enumerate(field.children):
                self._measure(child, array.field(at), bounds)
        elif field.id in self._statistics:
            try:
                measured = measure_pages(array, bounds)
            except (UnicodeDecodeError, pa.ArrowInvalid) as error:
                text = isinstance(error, UnicodeDecodeError)
                found = "text that is not UTF-8" if text else "a value that its type does not have"
                raise SchemaError(
                    f"column {field.name!r} for {self._where}: {found}: {error}. "
                    "If it was read from a file, the file is damaged; else check the array with "
                    "array.validate(full=True)."
                ) from None
            self._statistics[field.id].append(measured)

    def _write_statistics(self, message: Any) -> None:
        """Write one batch with a row per batch of the file, and a page table of its own."""
        fields = []
        arrays = []
        for field in self._measured:
            parts = self._statistics[field.id]
            counts = pa.array(np.concatenate([part.null_count for part in parts]))
            lows = pa.concat_arrays([part.min_value for part in parts])
            highs = pa.concat_arrays([part.max_value for part in parts])
            kinds = [
                pa.field("null_count", pa.int64(), nullable=False),
                pa.field("min_value", lows.type),
                pa.field("max_value", highs.type),
            ]
            arrays.append(pa.StructArray.from_arrays([counts, lows, highs], fields=kinds))
            fields.append(pa.field(str(field.id), pa.struct(kinds)))
        schema = LanceSchema.from_arrow(pa.schema(fields))
        pages = PageWriter(self._sink, {})
        for field, array in zip(schema.fields, arrays, strict=True):
            pages.write(field, array, np.array([0, len(array)], np.int64))
        ids = schema.field_ids()
        table = pages.table_bytes(ids, 1)
        message.page_table_position = self._sink.write_aligned([table])[0].offset
        message.schema.extend(schema.to_wire())
        message.fields.extend(ids)

    # ------------------------------------------------------------------ metadata

    def _schema_message(self) -> Any:
        """Return a manifest with the schema alone, for readers of a single file."""
        schema = replace(self._schema, fields=tuple(map(self._with_items, self._schema.fields)))
        message = table_pb2.Manifest(fields=schema.to_wire(), version=1)
        message.writer_version.library, message.writer_version.version = WRITER
        message.data_format.file_format = "lance"
        message.data_format.version = str(self._profile.version)
        for key, value in schema.metadata.items():
            message.schema_metadata[key] = value
        return message

    def _with_items(self, field: Field) -> Field:
        """Write the items of a field's dictionary; returns the field with their position."""
        if field.children:
            return replace(field, children=tuple(map(self._with_items, field.children)))
        items = self._pages.dictionaries.get(field.id)
        if items is None:
            return replace(field, dictionary=None)
        values = replace(field, logical_type=field.logical_type.split(":")[1])
        pages = PageWriter(self._sink, {})
        pages.write(values, items, np.array([0, len(items)], np.int64))
        ((position, length),) = pages.table[field.id][0].tolist()
        return replace(field, dictionary=(position, length))

    def _write_message(self, message: Any) -> int:
        raw = message.SerializeToString()
        return self._sink.write([_LENGTH.pack(len(raw)), raw]).offset


def _measured(fields: tuple[Field, ...]) -> Iterator[Field]:
    """Yield the fields with statistics: at the top level and within structs, outside of lists."""
    for field in fields:
        if field.logical_type == "struct":
            yield from _measured(field.children)
        elif not field.children and has_statistics(field.arrow_type):
            yield field
