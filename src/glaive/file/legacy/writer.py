"""Write a 0.1 file: rows are collected, divided into batches and written column by column.

All batches but the last have equally many rows, unless rows are very large. The schema, the
metadata and the footer come last; until then nothing is visible.

Specification: ``docs/format/legacy.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import FixedWidth, Variable
from glaive.arrow.build import block_from_array, offset_bits
from glaive.arrow.chunked import check_column, join_batches
from glaive.encodings.legacy import (
    PageBounds,
    encode_lists,
    encode_plain,
    encode_var_binary,
    has_statistics,
    measure_pages,
)
from glaive.errors import CapacityError, SchemaError
from glaive.file.protocol import WrittenFile, unfinished
from glaive.file.versions import V0_1, LegacyProfile
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.footer import LegacyFooter
from glaive.format.manifest import WRITER
from glaive.format.pb import file_pb2, table_pb2
from glaive.io.store import BytesLike, ObjectStore
from glaive.io.wrapped import PAD, AlignedSink
from glaive.types import Int64s, items_of

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
    """The version that supports a field that 0.1 does not, and why 0.1 does not."""
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
        Items by field id, shared by all files of a dataset: those of the first array of a field
        apply to all later ones.
    """

    def __init__(self, sink: AlignedSink, dictionaries: dict[int, pa.Array]) -> None:
        self.sink = sink
        self.dictionaries = dictionaries
        self.table: dict[int, list[Int64s]] = {}

    def write(self, field: Field, array: Any, bounds: Int64s) -> None:
        """Write the pages of a field and those below; ``bounds`` divide its values into batches.

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
                self._write_strings(field, block, bounds)
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

    def _write_strings(self, field: Field, block: Variable, bounds: Int64s) -> None:
        text, offsets = encode_var_binary(block, self.sink.pad())
        self.sink.write([text])
        self._put(field, offsets, bounds[:-1] * 8, np.diff(bounds))

    def _write_plain(self, field: Field, array: Any, bounds: Int64s) -> None:
        items = 1
        while pa.types.is_fixed_size_list(array.type):
            size = array.type.list_size
            array = array.values.slice(array.offset * size, len(array) * size)
            items *= size
        if pa.types.is_boolean(array.type) and array.null_count:
            # Only for booleans the value in the slot of a null is not stored.
            array = array.fill_null(False)
        block = block_from_array(array)
        if not isinstance(block, FixedWidth):
            raise SchemaError(
                f"column {field.name!r} has type {array.type}, which format 0.1 cannot hold"
            )
        values, starts = encode_plain(block, bounds * items)
        self._put(field, values, starts, np.diff(bounds))

    def _keys(self, field: Field, array: Any) -> pa.Array:
        """Keys into the items that all files share."""
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
        filled: pa.Array = keys.fill_null(0) if keys.null_count else keys
        return filled

    def _put(self, field: Field, data: BytesLike, starts: Int64s, lengths: Int64s) -> None:
        (written,) = self.sink.write_aligned([data])
        self._add(field, written.offset + starts, lengths)

    def _add(self, field: Field, positions: Int64s, lengths: Int64s) -> None:
        self.table.setdefault(field.id, []).append(np.stack((positions, lengths), 1))

    def table_bytes(self, ids: list[int], batches: int) -> bytes:
        """The page table: an entry per id from the lowest to the highest, and per batch.

        Raises
        ------
        SchemaError
            It would be far larger than what it is of.
        """
        if not ids:
            return b""
        low = min(ids)
        if (max(ids) - low + 1) * batches > _MAX_ENTRIES:
            raise SchemaError(
                f"fields have ids from {low} to {max(ids)}: the page table of a file of format "
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
        Items of dictionary columns by field id, shared by all files of a dataset. Those of
        new columns are added.
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
        # No file has more rows, and bounds of batches are sums of these.
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
        if self._sink.position == 0:  # this position means that there is no schema
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
        """A manifest with the schema alone, for readers of a single file."""
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
    """Fields with statistics: at the top level and within structs, not within lists."""
    for field in fields:
        if field.logical_type == "struct":
            yield from _measured(field.children)
        elif not field.children and has_statistics(field.arrow_type):
            yield field
