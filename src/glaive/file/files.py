"""Single data files by path, in pylance's names: for files that are not part of a dataset.

>>> with LanceFileWriter(path, schema) as writer:          # doctest: +SKIP
...     writer.write_batch(batch)
>>> LanceFileReader(path).read_all().to_table()            # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.capacity import in_parts
from glaive.arrow.extensions import to_type
from glaive.arrow.layout import checked_layout
from glaive.arrow.own_memory import own_rows
from glaive.errors import OptionError, RowIndexError, SchemaError, UnsupportedFeatureError
from glaive.file.extension_columns import ExtensionColumns
from glaive.file.layout import FileLayout, file_layout
from glaive.file.location import split_path
from glaive.file.metadata import (
    LanceFileMetadata,
    LanceFileStatistics,
    file_metadata,
    file_statistics,
)
from glaive.file.open import create_writer, open_reader
from glaive.file.positions import positions
from glaive.file.protocol import BoundColumns, FileReader
from glaive.file.results import ReaderResults
from glaive.file.v2.reading.reader import FileV2
from glaive.file.v2.writing.writer import FileV2Writer
from glaive.file.versions import resolve_version
from glaive.format.fields import LanceSchema
from glaive.io.catalogue import catalogued_options
from glaive.io.store import ObjectStore
from glaive.types import Int64s

__all__ = ["LanceFileReader", "LanceFileWriter", "ReaderResults"]

WINDOW_ROWS = 65_536
"""Rows decoded at a time when a file is read in batches."""

MOST_BATCHES = 65_536
"""Batches of a table: a file may stand for so many rows that their batches alone take gigabytes."""


class LanceFileReader:
    """A data file opened for reading.

    Parameters
    ----------
    path
        Path or URI of the file.
    storage_options
        For object stores, as :func:`glaive.dataset` takes them.
    columns
        Names of top-level columns or dotted paths; all columns when omitted.
    namespace_client, table_id
        The table of a catalogue that the file belongs to: its credentials are used.

    Raises
    ------
    DataFileMissingError, NotLanceError, CorruptFileError, UnsupportedFeatureError
        The file is missing, not a Lance file, damaged, or of an unknown version.
    ColumnNotFoundError
        A column does not exist; the message names the closest ones.

    Notes
    -----
    Opening takes one request for the last 64 KiB, and one more when the metadata is larger.
    Only the metadata of the requested columns is parsed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        *,
        namespace_client: object = None,
        table_id: Sequence[str] | None = None,
    ) -> None:
        options = catalogued_options(namespace_client, table_id, storage_options, path)
        store, name = split_path(path, options)
        self._open(store, name, columns)

    def _open(self, store: ObjectStore, name: str, columns: Sequence[str] | None) -> None:
        self._file: FileReader = open_reader(store, name)
        schema = self._file.schema
        self._schema = schema if columns is None else schema.project(list(columns))
        self._bound: BoundColumns | None = None

    @classmethod
    def within(cls, store: ObjectStore, name: str, columns: Sequence[str] | None = None) -> Self:
        """Open a file of a store that is connected already."""
        reader = cls.__new__(cls)
        reader._open(store, name, columns)  # noqa: SLF001  # of this class
        return reader

    def _columns(self) -> BoundColumns:
        if self._bound is None:
            bound = self._file.bind(self._schema.fields)
            schema = self.schema
            same = schema.equals(bound.schema)
            self._bound = bound if same else ExtensionColumns(bound, schema)
        return self._bound

    @property
    def schema(self) -> pa.Schema:
        """The columns read, with the file's schema metadata; JSON is in its binary form."""
        return self._schema.logical_schema(json=False)

    def num_rows(self) -> int:
        """Rows in the file."""
        return self._file.num_rows

    def read_all(self, *, batch_size: int = 1024, batch_readahead: int = 16) -> ReaderResults:
        """All rows; see :meth:`read_range`."""
        return self.read_range(
            0, self.num_rows(), batch_size=batch_size, batch_readahead=batch_readahead
        )

    def read_range(
        self, start: int, num_rows: int, *, batch_size: int = 1024, batch_readahead: int = 16
    ) -> ReaderResults:
        """Rows ``start`` to ``start + num_rows``, in batches of ``batch_size`` rows.

        Raises
        ------
        RowIndexError
            The range exceeds the file.
        """
        _check_counts(batch_size, batch_readahead)
        rows = self.num_rows()
        if not 0 <= start <= start + num_rows <= rows:
            raise RowIndexError(
                f"rows {start}..{start + num_rows} of {self._file_name()}, which has {rows} rows"
            )
        return self._results(start, start + num_rows, batch_size)

    def take_rows(
        self,
        indices: Sequence[int] | NDArray[np.integer[Any]] | pa.Array,
        *,
        batch_size: int = 1024,
        batch_readahead: int = 16,
    ) -> ReaderResults:
        """The rows at these positions, in this order, repeats allowed.

        Raises
        ------
        RowIndexError
            A position is negative or not below the number of rows.
        OptionError
            They are no integers.
        """
        _check_counts(batch_size, batch_readahead)
        rows = self.num_rows()
        wanted = positions(indices, rows)
        if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) < rows:
            outside = int(wanted[(wanted < 0) | (wanted >= rows)][0])
            raise RowIndexError(f"row {outside} of {self._file_name()}, which has {rows} rows")
        return self._results(0, len(wanted), batch_size, wanted)

    def read_global_buffer(self, index: int) -> bytes:
        """Bytes of a global buffer; 0 is the schema, added ones follow, else OptionError."""
        container = self._v2().container
        count = container.footer.global_buffers
        if not 0 <= index < count:
            raise OptionError(f"index: {self._file_name()} has {count} global buffers, not {index}")
        return bytes(container.global_buffer(index).to_pybytes())

    def layout(self) -> FileLayout:
        """The layout of the whole file: columns, pages, buffers, encodings."""
        return file_layout(self._file)

    def metadata(self) -> LanceFileMetadata:
        """The schema, and where pages and buffers are, with pylance's names."""
        return file_metadata(self.layout())

    def file_statistics(self) -> LanceFileStatistics:
        """Pages and bytes per physical column."""
        return file_statistics(self.layout())

    def _v2(self) -> FileV2:
        if not isinstance(self._file, FileV2):
            raise UnsupportedFeatureError(
                f"{self._file_name()} is of format {self._file.version}, which has no "
                "global buffers"
            )
        return self._file

    def _file_name(self) -> str:
        return str(getattr(self._file, "path", "the file"))

    def _results(
        self, start: int, stop: int, size: int, rows: Int64s | None = None
    ) -> ReaderResults:
        batches = self._batches(start, stop, size, rows)
        window = max(WINDOW_ROWS, -(-(stop - start) // MOST_BATCHES))
        return ReaderResults(
            pa.RecordBatchReader.from_batches(self.schema, batches),
            self._batches(start, stop, window, rows),
        )

    def _batches(
        self, start: int, stop: int, size: int, rows: Int64s | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of a range of rows; of ``rows``, by position, if they are given."""
        columns, schema = self._columns(), self.schema
        step = max(1, WINDOW_ROWS // size) * size

        def read(first: int, last: int) -> list[pa.Array]:
            return columns.read(first, last) if rows is None else columns.take(rows[first:last])

        for first in range(start, stop, step):
            for arrays in in_parts(read, first, min(first + step, stop)):
                window = pa.RecordBatch.from_arrays(arrays, schema=schema)
                for at in range(0, window.num_rows, size):
                    yield window.slice(at, size)


class LanceFileWriter:
    """A data file being written; invisible until :meth:`close`.

    Parameters
    ----------
    path
        Path or URI of the file.
    schema
        The columns; taken from the first batch when omitted.
    data_cache_bytes
        Arrow bytes that all columns buffer in total before pages are written.
    version
        Format version such as ``"2.1"`` or ``"stable"``; 2.2 when omitted.
    storage_options, namespace_client, table_id
        As for :class:`LanceFileReader`.
    keep_original_array
        Whether arrays wait as they are; otherwise those that the caller could change are copied.
    max_page_bytes
        Approximate maximum bytes of values per page; 8 MiB by default. Not in format 0.1.
    encoding_options
        How columns are encoded; see ``docs/guide/files.md``.

    Raises
    ------
    SchemaError
        The version cannot hold a type.

    Notes
    -----
    ``size_bytes`` is that of the finished file, None before :meth:`close`.
    As a context manager: closed when the block ends, aborted if with an error.
    """

    def __init__(  # noqa: PLR0913  # pylance's parameters
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema | None = None,
        *,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        namespace_client: object = None,
        table_id: Sequence[str] | None = None,
        keep_original_array: bool | None = None,
        max_page_bytes: int | None = None,
        encoding_options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        resolve_version(version)
        options = catalogued_options(namespace_client, table_id, storage_options, path)
        self._store, self._name = split_path(path, options)
        self._version = version
        self._cache_bytes = data_cache_bytes
        self._page_bytes = max_page_bytes
        self._options = encoding_options
        self._copies = not keep_original_array
        self._writer: Any = None
        self._given = self._stored = pa.schema([])
        self._closed = False
        self._rows = 0
        self.size_bytes: int | None = None
        self._metadata: dict[str, str] = {}
        self._buffers: list[bytes] = []
        if schema is not None:
            if not isinstance(schema, pa.Schema):
                raise OptionError(f"schema: expected a pyarrow.Schema, found {schema!r:.60}")
            self._begin(schema)

    def _begin(self, schema: pa.Schema) -> None:
        options: Any = self._options
        lance = LanceSchema.from_arrow(schema)
        self._given, self._stored = schema, lance.to_arrow()
        place = (self._store, self._name, lance, self._version)
        pages = self._page_bytes
        self._writer = create_writer(*place, encoding_options=options, page_bytes=pages)
        if isinstance(self._writer, FileV2Writer) and self._cache_bytes is not None:
            self._writer.limit_cache(self._cache_bytes)
        for data in self._buffers:
            self._writer.add_global_buffer(data)

    def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows; the schema must be the writer's."""
        self._check_open()
        if not isinstance(batch, pa.RecordBatch | pa.Table):
            raise OptionError(f"batch: expected a RecordBatch or Table, found {batch!r:.60}")
        if self._writer is None:
            self._begin(batch.schema)
        for checked in checked_layout([batch], "batch"):
            rows = own_rows(checked) if self._copies else checked
            is_given = rows.schema.equals(self._given)
            self._writer.write(_as_stored(rows, self._stored) if is_given else rows)
            self._rows += rows.num_rows

    def add_global_buffer(self, data: bytes) -> int:
        """Write bytes that belong to no column; returns the number of the buffer."""
        self._check_open()
        if self._writer is None:
            self._buffers.append(bytes(data))
            return len(self._buffers)
        if not isinstance(self._writer, FileV2Writer):
            why = f"files of format {self._version} have no global buffers; use 2.0 or newer"
            raise UnsupportedFeatureError(why)
        return self._writer.add_global_buffer(bytes(data))

    @property
    def closed(self) -> bool:
        """Whether the file was written or discarded."""
        return self._closed

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add an entry to the schema's metadata; it is written when the file is closed."""
        self._check_open()
        if not all(isinstance(text, str) for text in (key, value)):
            raise OptionError(f"schema metadata: expected texts, found {key!r:.40}: {value!r:.40}")
        self._metadata[key] = value

    def close(self) -> int:
        """Write buffered rows and the footer; :class:`SchemaError` without schema and rows."""
        if self._closed:
            return self._rows
        if self._writer is None:
            self._closed = True
            why = "Schema is unknown and file cannot be created: no rows were written"
            raise SchemaError(f"{self._store.full(self._name)}: {why}. Give the writer a schema")
        try:
            for key, value in self._metadata.items():
                self._writer.add_schema_metadata(key, value)
            self.size_bytes = self._writer.finish().size
        except BaseException:
            self.abort()
            raise
        self._closed = True
        return self._rows

    def abort(self) -> None:
        """Discard the file."""
        if self._writer is not None and not self._closed:
            self._writer.abort()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise OptionError(f"{self._store.full(self._name)} is closed; start a new file")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def _as_stored(batch: Any, schema: pa.Schema) -> Any:
    """The batch with storage types instead of extension types and views."""
    if batch.schema.equals(schema):
        return batch
    arrays = [
        to_type(batch.column(at), field.type, f"column {field.name!r}")
        for at, field in enumerate(schema)
    ]
    return type(batch).from_arrays(arrays, schema=schema)


def _check_counts(batch_size: int, batch_readahead: int) -> None:
    if batch_size < 1 or batch_readahead < 0:
        raise OptionError(
            "batch_size must be at least 1 and batch_readahead at least 0, found "
            f"{batch_size} and {batch_readahead}"
        )
