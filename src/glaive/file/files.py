"""Single data files by path, in pylance's names: for files outside of datasets.

>>> with LanceFileWriter(path, schema) as writer:          # doctest: +SKIP
...     writer.write_batch(batch)
>>> LanceFileReader(path).read_all().to_table()            # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import in_parts
from glaive.arrow.conditions import Condition, IsNull
from glaive.arrow.extensions import to_type
from glaive.arrow.validation import own_rows
from glaive.compat.absent import Absence, refuse_members
from glaive.dataclass import dataclass
from glaive.encodings.protocol import Fetch, and_then
from glaive.errors import (
    AccessError,
    ObjectNotFoundError,
    OptionError,
    RowIndexError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.file.layout import BufferLocation, ColumnLayout, FileLayout, PageInfo, file_layout
from glaive.file.open import create_writer, open_reader
from glaive.file.protocol import BoundColumn, BoundColumns, Entries, FileReader, positions
from glaive.file.v2.reader import FileV2
from glaive.file.v2.writer import FileV2Writer
from glaive.file.versions import profile_of, resolve_version
from glaive.format.fields import LanceSchema
from glaive.io.access import catalogued_options, open_object, open_store
from glaive.io.checksums import VerifyingReader, checksum_function
from glaive.io.confined import is_downloaded, real_path
from glaive.io.failures import as_store_errors
from glaive.io.store import ObjectStore
from glaive.types import ByteRange, Int64s, RowRange

if TYPE_CHECKING:
    from glaive.file.layout import EncodingNode


# --- Where single files are, as users write it ------------------------------------------


@dataclass(frozen=True, slots=True)
class FileWithin(os.PathLike[str]):
    """A file of a store that is connected already, where a path is expected.

    Parameters
    ----------
    store
        The directory.
    name
        Path below it; the store refuses a path that leads out.
    """

    store: ObjectStore
    name: str

    def __fspath__(self) -> str:
        return self.store.full(self.name)


def split_path(
    path: str | os.PathLike[str], storage_options: Mapping[str, str] | None
) -> tuple[ObjectStore, str]:
    """Return the store of the directory that holds a file, and the file's name."""
    if isinstance(path, FileWithin):
        return path.store, path.name
    return open_object(os.fspath(path), storage_options)


# --- The rows that the reader of a file was asked for -----------------------------------


class ReaderResults:
    """The requested rows: as a table, or as batches that are decoded when needed.

    Parameters
    ----------
    reader
        The rows in batches of the requested size.
    whole
        The same rows in fewer batches, for a table; the batches of ``reader`` when omitted.
    """

    def __init__(
        self, reader: pa.RecordBatchReader, whole: Iterable[pa.RecordBatch] | None = None
    ) -> None:
        self.reader = reader
        self._whole = reader if whole is None else whole

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the batches, each decoded when the reader reaches it."""
        return self.reader

    def to_table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(list(self._whole), self.reader.schema)


# --- Columns with extension types instead of storage types ------------------------------
#
# Files have storage types and metadata. Readers of datasets see Arrow's extension types, and JSON
# as text.


class ExtensionColumn(BoundColumn):
    """One field as an extension type (a ``BoundColumn``)."""

    def __init__(self, column: BoundColumn, field: pa.Field) -> None:
        self._column = column
        where = f"column {field.name!r}"
        self._convert: Callable[[Any], Any] = partial(to_type, kind=field.type, where=where)
        self.field = field
        self.num_rows = column.num_rows
        kind = field.type
        storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        self._has_storage_type = column.field.type.equals(storage)

    @property
    def value_bytes(self) -> int:
        """Bytes of a decoded value, about."""
        return self._column.value_bytes

    def cuts(self) -> Int64s:
        """Return row numbers at which pages begin."""
        return self._column.cuts()

    def read(self, start: int, stop: int) -> Any:
        """Return the rows ``start`` to ``stop`` as one array."""
        return self._convert(self._column.read(start, stop))

    def take(self, rows: Int64s) -> Any:
        """Return the rows at these positions, in this order."""
        return self._convert(self._column.take(rows))

    def find(self, condition: Condition, start: int, stop: int) -> Int64s | None:
        """Return the rows that pass, where conditions apply to the stored values."""
        if self._has_storage_type or isinstance(condition, IsNull):
            return self._column.find(condition, start, stop)
        return None

    def match(self, condition: Condition, start: int, stop: int) -> Any:
        """Return the rows that pass, one bit each."""
        if self._has_storage_type or isinstance(condition, IsNull):
            return self._column.match(condition, start, stop)
        return None

    def find_entries(self, passing: Entries, start: int, stop: int) -> Int64s | None:
        """Return the rows that pass, where conditions apply to the stored values."""
        return self._column.find_entries(passing, start, stop) if self._has_storage_type else None

    def prune(self, condition: Condition, start: int, stop: int) -> list[RowRange]:
        """Return the ranges where rows may pass."""
        if self._has_storage_type:
            return self._column.prune(condition, start, stop)
        return super().prune(condition, start, stop)

    def plan_read(self, start: int, stop: int) -> Any:
        """Return ``read`` as a value."""
        return and_then(self._column.plan_read(start, stop), self._convert)

    def plan_take(self, rows: Int64s) -> Any:
        """Return ``take`` as a value."""
        return and_then(self._column.plan_take(rows), self._convert)


def as_extension(column: BoundColumn, field: pa.Field) -> BoundColumn:
    """Return the column with the type of ``field``; the column itself if it has that type."""
    return column if column.field.type.equals(field.type) else ExtensionColumn(column, field)


class ExtensionColumns:
    """Several fields of one file, with the types of a schema (a ``BoundColumns``)."""

    def __init__(self, columns: BoundColumns, schema: pa.Schema) -> None:
        self._columns = columns
        self.schema = schema
        self.num_rows = columns.num_rows
        self.columns: Sequence[BoundColumn] = list(map(as_extension, columns.columns, schema))

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by all columns; an estimate."""
        return self._columns.nbytes

    def cuts(self) -> Int64s:
        """Return row numbers at which a page of any of the fields begins, both ends included."""
        return self._columns.cuts()

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Return the rows ``start`` to ``stop``, one array per field."""
        return self._convert(self._columns.read(start, stop))

    def take(self, rows: Int64s) -> list[pa.Array]:
        """Return the rows at these positions, one array per field."""
        return self._convert(self._columns.take(rows))

    def prefetch(self, rows: Int64s) -> bool:
        """Have the system read the bytes that a take of these rows needs."""
        return self._columns.prefetch(rows)

    def open_pages(self, limit: int) -> None:
        """Fetch what at most so many pages read before any row."""
        self._columns.open_pages(limit)

    def plan_read(self, start: int, stop: int) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """Return ``read`` as a value."""
        return and_then(self._columns.plan_read(start, stop), self._convert)

    def plan_take(self, rows: Int64s) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """Return ``take`` as a value."""
        return and_then(self._columns.plan_take(rows), self._convert)

    def _convert(self, arrays: list[pa.Array]) -> list[pa.Array]:
        return [
            to_type(array, field.type, f"column {field.name!r}")
            for array, field in zip(arrays, self.schema, strict=True)
        ]


# --- Compare a whole file with its checksums --------------------------------------------


def compare_file(store: ObjectStore, path: str, *, size: int | None = None) -> int | None:
    """Read all of a file that has a checksum, and compare it.

    Returns
    -------
    int or None
        The bytes of pages and global buffers that were compared. ``None`` if the file lacks
        checksums, or if xxhash, which computes them, is missing.

    Raises
    ------
    CorruptFileError
        Some bytes differ from their checksum.
    """
    if checksum_function() is None:
        return None
    file = open_reader(store, path, size=size, verify="always")
    if not isinstance(file, FileV2) or not isinstance(file.reader, VerifyingReader):
        return None
    if file.container.checksums is None:
        return None
    for column in range(file.num_columns):
        file.container.column(column)
    return file.reader.compare_all()


def has_checksums(file: FileReader) -> bool:
    """Return whether an opened file has checksums."""
    return isinstance(file, FileV2) and file.container.checksums_range() is not None


# --- Metadata of a data file with pylance's names: :meth:`LanceFileReader.metadata` -----
#
# :meth:`LanceFileReader.layout` has more: encodings as trees, ratios, gaps.

_TABLE_ENTRY = 16
"""Bytes per column of the table of column metadata: a position and a size."""


@dataclass(frozen=True, slots=True)
class LanceBufferDescriptor:
    """Where a buffer is, in bytes."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class LancePageMetadata:
    """One page: its buffers, and its encoding as text."""

    buffers: list[LanceBufferDescriptor]
    encoding: str


@dataclass(frozen=True, slots=True)
class LanceColumnMetadata:
    """One physical column: its own buffers, and its pages."""

    column_buffers: list[LanceBufferDescriptor]
    pages: list[LancePageMetadata]


@dataclass(frozen=True, slots=True)
class LanceFileMetadata:
    """Facts that the end of a file states.

    Parameters
    ----------
    schema
        The columns.
    num_rows
        Rows.
    num_data_bytes
        Bytes of pages, and of padding between them and the global buffers.
    num_column_metadata_bytes
        Bytes of the metadata of all columns, with the table of where each is.
    num_global_buffer_bytes
        Bytes of the global buffers.
    global_buffers
        The schema, then the added buffers.
    columns
        The physical columns.
    major_version, minor_version
        Format version, as the footer has it: 0.3 in files of 2.0.
    """

    schema: pa.Schema
    num_rows: int
    num_data_bytes: int
    num_column_metadata_bytes: int
    num_global_buffer_bytes: int
    global_buffers: list[LanceBufferDescriptor]
    columns: list[LanceColumnMetadata]
    major_version: int
    minor_version: int


@dataclass(frozen=True, slots=True)
class LanceColumnStatistics:
    """Pages of one physical column and their size in bytes."""

    num_pages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LanceFileStatistics:
    """One entry per physical column."""

    columns: list[LanceColumnStatistics]


def file_metadata(layout: FileLayout) -> LanceFileMetadata:
    """Return the metadata of a file from its layout."""
    buffers = [_descriptor(one) for one in layout.global_buffers]
    buffers_size = sum(one.size for one in buffers)
    major, minor = profile_of(layout.version).footer
    return LanceFileMetadata(
        schema=layout.schema.logical_schema(),
        num_rows=layout.num_rows,
        num_data_bytes=layout.column_metadata.position - buffers_size,
        num_column_metadata_bytes=layout.column_metadata.size + _TABLE_ENTRY * len(layout.columns),
        num_global_buffer_bytes=buffers_size,
        global_buffers=buffers,
        columns=[_column(one) for one in layout.columns],
        major_version=major,
        minor_version=minor,
    )


def file_statistics(layout: FileLayout) -> LanceFileStatistics:
    """Return pages and bytes per physical column out of the layout of a file."""
    return LanceFileStatistics(
        [LanceColumnStatistics(column.num_pages, column.size) for column in layout.columns]
    )


def _descriptor(buffer: BufferLocation) -> LanceBufferDescriptor:
    return LanceBufferDescriptor(buffer.position, buffer.size)


def _column(column: ColumnLayout) -> LanceColumnMetadata:
    own = [_descriptor(one) for one in column.buffers]
    return LanceColumnMetadata(own, [_page(one) for one in column.pages])


def _page(page: PageInfo) -> LancePageMetadata:
    return LancePageMetadata([_descriptor(one) for one in page.buffers], _text(page.encoding, 0))


def _text(node: EncodingNode, depth: int) -> str:
    """Return a tree of encodings, one line each."""
    indent = "    " * depth
    settings = ", ".join(f"{name}={value}" for name, value in node.settings.items())
    lines = [f"{node.name}({settings})" if settings else node.name]
    for role, child in node.children:
        lines.append(f"{indent}    {role}: {_text(child, depth + 1)}")
    return "\n".join(lines)


WINDOW_ROWS = 65_536
"""Rows decoded at a time when a file is read in batches."""

MAX_BATCHES = 65_536
"""Batches of a table: a file may encode so many rows that their batches alone take gigabytes."""


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
        A column is missing; the message names the closest ones.

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
        self._file: FileReader = open_reader(store, name)
        schema = self._file.schema
        self._schema = schema if columns is None else schema.project(list(columns))
        self._bound: BoundColumns | None = None

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
        """Return the number of rows in the file."""
        return self._file.num_rows

    def read_all(self, *, batch_size: int = 1024, batch_readahead: int = 16) -> ReaderResults:
        """Return all rows; see :meth:`read_range`."""
        return self.read_range(
            0, self.num_rows(), batch_size=batch_size, batch_readahead=batch_readahead
        )

    def read_range(
        self, start: int, num_rows: int, *, batch_size: int = 1024, batch_readahead: int = 16
    ) -> ReaderResults:
        """Return the rows ``start`` to ``start + num_rows``, in batches of ``batch_size`` rows.

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
        """Return the rows at these positions, in this order, repeats allowed.

        Raises
        ------
        RowIndexError
            A position is negative or not below the number of rows.
        OptionError
            They are other values than integers.
        """
        _check_counts(batch_size, batch_readahead)
        rows = self.num_rows()
        wanted = positions(indices, rows)
        if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) < rows:
            outside = int(wanted[(wanted < 0) | (wanted >= rows)][0])
            raise RowIndexError(f"row {outside} of {self._file_name()}, which has {rows} rows")
        return self._results(0, len(wanted), batch_size, wanted)

    def read_global_buffer(self, index: int) -> bytes:
        """Return bytes of a global buffer; 0 is the schema, added ones follow, else OptionError."""
        container = self._v2().container
        count = container.footer.global_buffers
        if not 0 <= index < count:
            raise OptionError(f"index: {self._file_name()} has {count} global buffers, not {index}")
        return bytes(container.global_buffer(index).to_pybytes())

    def layout(self) -> FileLayout:
        """Return the layout of the whole file: columns, pages, buffers, encodings."""
        return file_layout(self._file)

    def metadata(self) -> LanceFileMetadata:
        """Return the schema and the locations of pages and buffers, with pylance's names."""
        return file_metadata(self.layout())

    def file_statistics(self) -> LanceFileStatistics:
        """Return pages and bytes per physical column."""
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
        window = max(WINDOW_ROWS, -(-(stop - start) // MAX_BATCHES))
        return ReaderResults(
            pa.RecordBatchReader.from_batches(self.schema, batches),
            self._batches(start, stop, window, rows),
        )

    def _batches(
        self, start: int, stop: int, size: int, rows: Int64s | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a range of rows; of ``rows``, by position, if they are given."""
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
        Whether arrays wait as they are; otherwise arrays that the caller could change are copied.
    max_page_bytes
        Approximate maximum bytes of values per page from format 2.0 on; 8 MiB by default.
    encoding_options
        How columns are encoded; see ``docs/guide/files.md``.

    Raises
    ------
    SchemaError
        The version cannot hold a type.

    Notes
    -----
    ``size_bytes`` is the size of the finished file, ``None`` before :meth:`close`. As a context
    manager it is closed when the block ends, aborted if with an error.
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
        rows = own_rows(batch) if self._copies else batch
        is_given = rows.schema.equals(self._given)
        self._writer.write(_as_stored(rows, self._stored) if is_given else rows)
        self._rows += rows.num_rows

    def add_global_buffer(self, data: bytes) -> int:
        """Write a global buffer; return its number."""
        self._check_open()
        if self._writer is None:
            self._buffers.append(bytes(data))
            return len(self._buffers)
        if not isinstance(self._writer, FileV2Writer):
            reason = f"files of format {self._version} have no global buffers; use 2.0 or newer"
            raise UnsupportedFeatureError(reason)
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
            reason = "Schema is unknown and file cannot be created: no rows were written"
            raise SchemaError(f"{self._store.full(self._name)}: {reason}. Give the writer a schema")
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
    """Return the batch with storage types instead of extension types and views."""
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


# --- Several files below one directory, with pylance's names: the store is connected once

_BLOB_FILES = (
    Absence(
        "files of blobs are written with the rows that own them",
        "Pass blob_array(...) to write_dataset or fragment.write_fragments, which pack the values",
        "LanceFileSession.open_dedicated_blob_writer LanceFileSession.open_packed_blob_writer",
    ),
)


@dataclass
class ListResult:
    """A directory: its sub-directories and its files, relative to the session's base path."""

    common_prefixes: list[str]
    objects: list[str]


@refuse_members(_BLOB_FILES)
class LanceFileSession:
    """Several files below one directory: the store is connected once.

    The directory may be untrusted. The session refuses links that lead out of it, except the links
    that ``huggingface_hub`` makes to its downloads.

    Parameters
    ----------
    base_path
        Path or URI of the directory.
    storage_options
        For object stores.
    namespace_client, table_id
        The table of a catalogue that the files belong to: its credentials are used.
    """

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        namespace_client: object = None,
        table_id: Sequence[str] | None = None,
    ) -> None:
        options = catalogued_options(namespace_client, table_id, storage_options, base_path)
        self._store = open_store(base_path, options)

    def open_reader(
        self, path: str | os.PathLike[str], columns: Sequence[str] | None = None
    ) -> LanceFileReader:
        """Open a file below the base path."""
        return LanceFileReader(FileWithin(self._store, os.fspath(path)), columns=columns)

    def open_writer(
        self,
        path: str | os.PathLike[str],
        *,
        schema: pa.Schema | None = None,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        keep_original_array: bool | None = None,
        max_page_bytes: int | None = None,
    ) -> LanceFileWriter:
        """Begin a file below the base path; :class:`LanceFileWriter` describes the options.

        Raises
        ------
        OptionError
            The path names a directory.
        StoreError
            It leads out of the base path.
        """
        name = os.fspath(path).lstrip("/")
        if not name or name.endswith("/"):
            raise OptionError(f"path: {path!r:.200} names a directory; give the path of a file")
        return LanceFileWriter(
            FileWithin(self._store, name),
            schema,
            data_cache_bytes=data_cache_bytes,
            version=version,
            keep_original_array=keep_original_array,
            max_page_bytes=max_page_bytes,
        )

    def contains(self, path: str) -> bool:
        """Return whether there is a file with this path."""
        folder = str(PurePosixPath(path).parent)
        prefix = "" if folder == "." else folder
        return any(entry.path == path for entry in self._store.list(prefix))

    def list(self, path: str | None = None) -> list[str]:
        """Return the paths of all files below a directory, in order."""
        return [entry.path for entry in self._store.walk(path or "")]

    def list_with_delimiter(self, path: str | None = None) -> ListResult:
        """Return the files directly in a directory, and its sub-directories, in order."""
        prefix = (path or "").strip("/")
        start = f"{prefix}/" if prefix else ""
        objects = [entry.path for entry in self._store.list(prefix)]
        below = (entry.path.removeprefix(start) for entry in self._store.walk(prefix))
        folders = {name.partition("/")[0] for name in below if "/" in name}
        return ListResult([f"{start}{folder}" for folder in sorted(folders)], objects)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return the raw bytes of a file.

        Raises
        ------
        OptionError
            The range exceeds the file.
        AccessError
            It is a link that leads out of the base path.
        """
        self._refuse_link(path)
        source = self._store.open(path)
        if offset < 0 or length < 0 or length > source.size - offset:
            raise OptionError(
                f"read_range: {path} has {source.size} bytes, which do not hold {length} from "
                f"{offset} on"
            )
        return bytes(source.read([ByteRange(offset, length)])[0].to_pybytes())

    def delete_file(self, path: str) -> None:
        """Delete a file; raise ``ObjectNotFoundError`` if it is missing."""
        if not self.contains(path):
            raise ObjectNotFoundError(
                f"cannot delete {self._store.full(path)}: there is no such file. Check the path."
            )
        self._store.delete([path])

    def upload_file(self, local_path: str | os.PathLike[str], remote_path: str) -> None:
        """Copy a local file to below the base path."""
        with as_store_errors(os.fspath(local_path), "read"):
            content = Path(local_path).read_bytes()
        self._store.put(remote_path, [content])

    def download_file(self, remote_path: str, local_path: str | os.PathLike[str]) -> None:
        """Copy a file from below the base path to a local one.

        Raises
        ------
        AccessError
            It is a link that leads out of the base path.
        """
        self._refuse_link(remote_path)
        content = self._store.get(remote_path).to_pybytes()
        with as_store_errors(os.fspath(local_path), "write"):
            Path(local_path).write_bytes(content)

    def _refuse_link(self, path: str) -> None:
        """Refuse a link out of the base path: only its name is below it."""
        store, full = self._store, self._store.full(path)
        reason = store.file_link_out(path)
        if reason is None:
            return
        if store.is_local:
            with as_store_errors(full, "follow"):
                if is_downloaded(real_path(store.uri), real_path(full)):
                    return
        raise AccessError(f"{full} was not read: {reason}")
