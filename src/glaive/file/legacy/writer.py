"""Write a 0.1 file: rows are collected, divided into batches and written column by column.

All batches but the last have equally many rows, unless rows are very large. The schema, the
metadata and the footer come last; until then nothing is visible.

Specification: ``docs/format/legacy.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import join_batches
from glaive.arrow.dictionaries import check_column
from glaive.encodings.legacy.statistics import PageBounds, has_statistics, measure_pages
from glaive.errors import CapacityError, SchemaError
from glaive.file.legacy.pager import PageWriter
from glaive.file.legacy.profile import V0_1, LegacyProfile
from glaive.file.legacy.types import check_legacy_types
from glaive.file.protocol import WrittenFile, unfinished
from glaive.format.fields import Field, LanceSchema
from glaive.format.footer import LegacyFooter
from glaive.format.manifest import WRITER
from glaive.format.pb import file_pb2, table_pb2
from glaive.io.sink import PAD, AlignedSink
from glaive.io.store import ObjectStore
from glaive.types import Int64s

__all__ = ["LegacyFileWriter"]

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
