"""A segment of an index: its entry in the manifest and the files in its folder.

Specification: "Segments" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import has_known_width, total_width
from glaive.config import USUAL_RATIO, settings
from glaive.dataclass import dataclass
from glaive.encodings.protocol import join
from glaive.errors import (
    CapacityError,
    CorruptFileError,
    DataFileMissingError,
    GlaiveError,
    LimitError,
    ObjectNotFoundError,
    StoreError,
    UnsupportedFeatureError,
)
from glaive.file.open import create_writer, open_reader
from glaive.file.protocol import BoundColumns, FileReader, run_fetch
from glaive.file.v2.reader import FileV2
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.format.paths import INDICES, index_file_path
from glaive.format.pb import table_pb2
from glaive.io.checksums import check_size, verification
from glaive.io.store import ObjectStore
from glaive.process import Origin, new_uuid
from glaive.table.configuration import wants_checksums
from glaive.table.root import locate_in_base
from glaive.types import FormatVersion, Int64s

if TYPE_CHECKING:
    from glaive.file.v2.writer import FileV2Writer


# --- Cache interface: opened indices keep what searches read in a session ----------------

Keep: TypeAlias = Callable[[Hashable, Callable[[], tuple[Any, int]]], Any]
"""Function that returns the cached value of a key, or calls a loader and caches its result."""


def load_uncached(_key: Hashable, load: Callable[[], tuple[Any, int]]) -> Any:
    """Load the value each time."""
    return load()[0]


# --- One file of a segment: opened, checked, read ---------------------------------------
# Specification: "Segments" in ``docs/format/indices.md``.

T = TypeVar("T")

_MAX_ROWS_OF_SMALL_FILE, _MAX_ROWS_PER_BYTE = 1 << 20, 256
"""Maximum rows of a file, absolute or per byte: rows of an index differ, so more is damage."""


def _nbytes(made: Any) -> int:
    """Return the bytes of an array, or of a list of arrays."""
    return sum(map(_nbytes, made)) if isinstance(made, list) else int(made.nbytes)


FIRST_WINDOW_ROWS, WINDOW_GROWTH = 256, 8
"""Rows of the first window, and maximum growth of the next windows."""

_WINDOW_BYTES = min(1 << 25, settings.max_decoded_bytes_per_page // WINDOW_GROWTH)
"""Approximate bytes of a window; if rows grow, eight times as many are within the limit."""

_MAX_OPENED_PAGES = 16
"""Maximum pages to open all at once before reading."""


class IndexFile:
    """One opened file of a segment; refused if it claims more rows than its bytes can hold.

    Parameters
    ----------
    size
        Required size in bytes if all reads are verified; ``None``: any size.
    """

    def __init__(self, store: ObjectStore, path: str, *, size: int | None = None) -> None:
        self._file: FileReader = open_reader(store, path, size=size)
        self.path = store.full(path)
        size_in_bytes = self._file.reader.size
        max_rows = max(_MAX_ROWS_OF_SMALL_FILE, _MAX_ROWS_PER_BYTE * size_in_bytes)
        if self.num_rows > max_rows:
            expected = f"at most {max_rows} in {size_in_bytes} bytes"
            raise self.corrupt("rows of an index file", expected, f"{self.num_rows}")

    def corrupt(self, part: str, expected: str, found: str) -> CorruptFileError:
        """Return an error for damage in this file."""
        return CorruptFileError(part, expected=expected, found=found, where=self.path)

    def corrupt_column(self, name: str, expected: str, found: str) -> CorruptFileError:
        """Return an error for damage in a column."""
        return self.corrupt(f"column {name!r} of an index", expected, found)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._file.reader.size

    @property
    def nbytes(self) -> int:
        """Estimated bytes of memory after all columns were read."""
        return self._file.nbytes + sum(bound.nbytes for bound in self._bound.values())

    @cached_property
    def schema(self) -> pa.Schema:
        """The stored columns, with their metadata.

        Raises
        ------
        UnsupportedFeatureError
            A type is unknown.
        CorruptFileError
            Two columns have the same name: Arrow cannot find either by name.
        """
        try:
            schema = self._file.schema.to_arrow()
        except UnsupportedFeatureError as error:
            raise UnsupportedFeatureError(f"{self.path}: {error}") from error
        if len(set(schema.names)) < len(schema.names):
            found = ", ".join(schema.names)[:200]
            raise self.corrupt("columns of an index", "a name for each", found)
        return schema

    @cached_property
    def metadata(self) -> dict[str, str]:
        """The metadata of the schema.

        Raises
        ------
        CorruptFileError
            A value is invalid UTF-8.
        """
        return {key: self._text(key, value) for key, value in self._file.schema.metadata.items()}

    def _text(self, key: str, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise self.corrupt(f"metadata {key!r}", "text", str(error)) from error

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._file.num_rows

    def check(self, **types: pa.DataType | None) -> None:
        """Check that columns of these names and types exist; ``None``: any type.

        Raises
        ------
        CorruptFileError
            A column is missing or has another type.
        """
        for name, kind in types.items():
            at = self.schema.get_field_index(name)
            stored = self.schema.field(at).type if at >= 0 else None
            if stored is None or (kind is not None and stored != kind):
                expected = f"type {kind or 'of the values'}"
                raise self.corrupt_column(name, expected, f"{stored or 'no such column'}")

    def check_lists(self, **types: pa.DataType) -> None:
        """Check that list columns of these names and item types exist.

        Raises
        ------
        CorruptFileError
            A column is missing or has another type.
        """
        self.check(**dict.fromkeys(types))
        for name, kind in types.items():
            stored: Any = self.schema.field(name).type
            if not pa.types.is_list(stored) or stored.value_type != kind:
                raise self.corrupt_column(name, f"lists of {kind}", f"{stored}")

    def check_present(self, column: pa.ChunkedArray | pa.Array) -> None:
        """Raise a ``CorruptFileError`` if a column has nulls."""
        if column.null_count:
            found = f"{column.null_count} nulls"
            raise self.corrupt("entries of an index", "a value for each", found)

    def number(self, key: str, default: int | None = None, minimum: int = 0) -> int:
        """Return an integer in the metadata.

        Raises
        ------
        CorruptFileError
            The value is required and missing, is invalid as an integer, or is below ``minimum``.
        """
        text = self.metadata.get(key)
        if text is None and default is not None:
            return default
        is_integer = text is not None and text.isascii() and text.isdecimal() and len(text) < 19
        if text is None or not is_integer or int(text) < minimum:
            expected = f"an integer from {minimum} on"
            raise self.corrupt(f"metadata {key!r}", expected, repr(text))
        return int(text)

    def read(
        self, columns: Sequence[str] | None = None, start: int = 0, stop: int | None = None
    ) -> pa.Table:
        """Read rows ``start`` to ``stop`` of some columns; by default all rows and columns.

        Raises
        ------
        CorruptFileError, UnsupportedFeatureError
            The file is damaged, or needs a newer version of glaive.
        """
        bound = self._bind(tuple(self.schema.names if columns is None else columns))
        stop = bound.num_rows if stop is None else min(stop, bound.num_rows)
        self._check_size(bound.schema, stop - start)
        arrays = self._made(bound.schema, lambda: bound.read(min(start, stop), stop))
        return pa.Table.from_arrays(arrays, schema=bound.schema).replace_schema_metadata(
            self.schema.metadata
        )

    def windows(self, columns: Sequence[str], max_rows: int | None = None) -> Iterator[pa.Table]:
        """Yield all rows of some columns, some megabytes at a time.

        The size of a window depends on the decoded bytes of the window before: compressed sizes say
        little. Each window is a request to an object store.

        Parameters
        ----------
        max_rows
            Maximum rows at a time, for columns that become Python objects.
        """
        start, rows = 0, FIRST_WINDOW_ROWS
        while start < self.num_rows:
            table = self.read(columns, start, start + rows)
            yield table
            start += len(table)
            per_row = max(1, table.nbytes // len(table))
            limit = min(WINDOW_GROWTH * rows, _WINDOW_BYTES // per_row, max_rows or self.num_rows)
            rows = max(1, limit)

    def read_ranges(
        self, wanted: Sequence[tuple[Sequence[str], Iterable[tuple[int, int]]]]
    ) -> list[list[pa.Array]]:
        """Read ranges of rows, different ones for different columns, with one parallel request.

        Parameters
        ----------
        wanted
            Pairs of columns, and their ranges of rows.

        Returns
        -------
        list of list of pyarrow.Array
            One array per column, with the ranges in order. All bytes are requested at once.

        Raises
        ------
        CorruptFileError, UnsupportedFeatureError
            The file is damaged, or needs a newer version of glaive.
        """
        planned: list[tuple[BoundColumns, list[tuple[int, int]]]] = []
        for columns, parts in wanted:
            bound, ranges = self._bind(tuple(columns)), list(parts)
            self._check_size(bound.schema, sum(stop - start for start, stop in ranges))
            planned.append((bound, ranges))

        def read() -> list[list[pa.Array]]:
            # Planning decodes mapped files already.
            steps = [bound.plan_read(*rows) for bound, ranges in planned for rows in ranges]
            return run_fetch(self._file.reader, join(steps, list))

        return self._made([field for bound, _ in planned for field in bound.schema], read)

    def open_pages(self, columns: Sequence[str]) -> None:
        """Read the page locations of some columns, unless there are many pages; one read."""
        self._bind(tuple(columns)).open_pages(_MAX_OPENED_PAGES)

    def take(self, columns: Sequence[str], rows: Int64s) -> list[pa.Array]:
        """Take rows by position; return an array per column. All bytes are requested at once.

        Raises
        ------
        CorruptFileError, UnsupportedFeatureError
            The file is damaged, or needs a newer version of glaive.
        """
        bound = self._bind(tuple(columns))
        self._check_size(bound.schema, len(rows))
        return self._made(bound.schema, lambda: bound.take(rows))

    def _check_size(self, schema: pa.Schema, rows: int) -> None:
        """Check the minimum memory of rows: rows of an index are read at once."""
        size = rows * total_width(schema.types).known
        self.check_decoded(int(size), f"{rows} rows of {', '.join(schema.names)}")

    def _made(self, fields: Iterable[pa.Field], read: Callable[[], list[T]]) -> list[T]:
        """Read rows, and check the memory of types with a variable width afterwards.

        Before reading, only the limit ``MAX_IMPLIED_BYTES`` applies to them.
        """
        if all(has_known_width(field.type) for field in fields):
            return read()
        try:
            made: list[Any] = read()
        except CapacityError as error:
            raise self._refused(str(error)) from error
        size = sum(_nbytes(one) for one in made)
        self.check_decoded(size, "rows")
        return made

    def check_decoded(self, size: int, what: str) -> None:
        """Check the decoded bytes of data in this file.

        Raises
        ------
        LimitError
            They exceed ``max_decoded_bytes_per_page`` and ``USUAL_RATIO`` times the bytes of the
            file.
        """
        limit = settings.max_decoded_bytes_per_page
        if size > limit and size > USUAL_RATIO * self.size:
            message = f"{what} in {self.size} bytes decode to {size} bytes or more"
            raise self._refused(f"{message}; at most {limit} are allowed")

    def _refused(self, why: str) -> LimitError:
        return LimitError(
            f"{self.path}: {why}. If the file is trusted, allow more: set "
            "GLAIVE_MAX_DECODED_BYTES_PER_PAGE."
        )

    def _bind(self, names: tuple[str, ...]) -> BoundColumns:
        if names not in self._bound:
            self.check(**dict.fromkeys(names))
            by_name = {field.name: field for field in self._file.schema.fields}
            self._bound[names] = self._file.bind([by_name[name] for name in names])
        return self._bound[names]

    @cached_property
    def _bound(self) -> dict[tuple[str, ...], BoundColumns]:
        return {}

    def named_buffer(self, key: str) -> bytes | None:
        """Return the buffer whose number is in the metadata under a key, or ``None``."""
        return self.buffer(self.number(key)).to_pybytes() if key in self.metadata else None

    def buffer(self, number: int) -> pa.Buffer:
        """Return a global buffer; number 0 is the schema.

        Raises
        ------
        CorruptFileError
            The buffer is missing.
        """
        if not isinstance(self._file, FileV2):
            raise UnsupportedFeatureError(
                f"{self.path} is of format {self._file.version}, which has no global buffers"
            )
        return self._file.container.global_buffer(number)


Entry = table_pb2.IndexMetadata

STAGING = "staging"
"""Folder within the folder of a segment, for parts to merge."""

_PLAIN_BYTES = 16 * 1024
"""Maximum bytes of columns that are stored plainly: choosing an encoding would take longer than
most builds of so few bytes."""


def file_version_of(data_format: FormatVersion) -> str:
    """Return the format version of index files: the version of data files, but at least 2.0."""
    return "2.0" if data_format.major == 0 else str(data_format)


def batches(bounds: Int64s, limit: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of lists or partitions to read at a time: at most ``limit`` rows, or one list.

    ``bounds`` are the first row of each list, and the end of the last.
    """
    first = 0
    while first < len(bounds) - 1:
        last = int(np.searchsorted(bounds, bounds[first] + limit, side="right")) - 1
        last = max(first + 1, last)
        yield first, last
        first = last


def rows_of_pages(pages: Int64s, size: int, items: int) -> Sequence[tuple[int, int]]:
    """Return row ranges of ascending pages of ``size`` rows; adjacent pages share a range."""
    edges = np.flatnonzero(np.diff(pages) != 1) + 1
    return [
        (int(run[0]) * size, min(items, (int(run[-1]) + 1) * size))
        for run in np.split(pages, edges)
    ]


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment to read.

    Parameters
    ----------
    store
        Store of the segment's folder: the dataset's own store, or the store of a base path.
    entry
        Entry in the manifest.
    keep
        Cache for what searches read: pages, partitions, posting lists.
    """

    store: ObjectStore
    entry: Entry
    keep: Keep = load_uncached

    @classmethod
    def of(
        cls, store: ObjectStore, manifest: Manifest, entry: Entry, keep: Keep = load_uncached
    ) -> Self:
        """Return the segment of an entry; its files are read later.

        Raises
        ------
        CorruptFileError
            The entry names a base path that the manifest lacks.
        """
        base = entry.base_id if entry.HasField("base_id") else None
        return cls(locate_in_base(store, manifest, INDICES, base)[0], entry, keep)

    @property
    def folder(self) -> str:
        """Path of the segment's folder within the store."""
        return f"{INDICES}/{UUID(bytes=self.entry.uuid.uuid)}"

    @property
    def where(self) -> str:
        """Name and location, for errors."""
        return f"index {self.entry.name!r}, {self.store.full(self.folder)}"

    def sizes(self) -> dict[str, int]:
        """Return names and sizes of the files, from the entry, otherwise from the folder.

        Subfolders are ignored: one could be a symlink to a folder with very many files.
        """
        if self.entry.files:
            return {file.path: file.size_bytes for file in self.entry.files}
        start = len(self.folder) + 1
        return {file.path[start:]: file.size for file in self.store.list(self.folder)}

    def has(self, name: str) -> bool:
        """Return whether the segment has a file of this name."""
        return name in self.sizes()

    def open(self, name: str) -> IndexFile:
        """Open a file of the segment.

        Raises
        ------
        DataFileMissingError, NotLanceError, CorruptFileError, UnsupportedFeatureError
            The file is missing, something else, damaged, or has an unknown version.
        """
        path = index_file_path(self.folder, name, where=self.where)
        return IndexFile(self.store, path, size=self._size_to_compare(name))

    def get(self, name: str) -> pa.Buffer:
        """Return the bytes of a file of the segment.

        Raises
        ------
        DataFileMissingError
            The file is missing.
        CorruptFileError
            All reads are verified, and the size differs from the entry.
        """
        path = index_file_path(self.folder, name, where=self.where)
        try:
            data = self.store.get(path)
        except ObjectNotFoundError as error:
            raise DataFileMissingError(
                f"{self.where}: file {name} does not exist. Restore it, or drop the index."
            ) from error
        check_size(self._size_to_compare(name), data.size, self.store.full(path))
        return data

    def _size_to_compare(self, name: str) -> int | None:
        """Return the size of a file in the entry if all reads are verified, otherwise ``None``.

        Otherwise files are opened at any size: a wrong size would make a good file look truncated.
        """
        if verification(self.store) != "always":
            return None
        return next((file.size_bytes for file in self.entry.files if file.path == name), 0) or None


class IndexFileWriter:
    """Writer of one file of a new segment; made by :meth:`SegmentWriter.create`."""

    def __init__(self, segment: SegmentWriter, name: str, schema: pa.Schema) -> None:
        self._segment, self._name = segment, name
        writer: Any = create_writer(
            segment.store,
            f"{segment.folder}/{name}",
            LanceSchema.from_arrow(schema),
            segment.file_version,
            checksums=segment.checksums,
        )
        writer.store_plain(_PLAIN_BYTES)
        self._writer: FileV2Writer = writer

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Append rows; the columns must be the schema's."""
        self._writer.write(rows)

    def add_buffer(self, data: bytes) -> int:
        """Append a global buffer; return its number."""
        return self._writer.add_global_buffer(data)

    def add_metadata(self, entries: Mapping[str, str]) -> None:
        """Add entries to the metadata of the schema."""
        for key, value in entries.items():
            self._writer.add_schema_metadata(key, value)

    def finish(self) -> None:
        """Write the footer and add the file to the segment."""
        self._segment.add_finished(self._name, self._writer.finish().size)

    def abort(self) -> None:
        """Remove what was written."""
        self._writer.abort()


class SegmentWriter:
    """Writer of a new segment: files in a new folder that a commit adds to the manifest.

    Parameters
    ----------
    store
        Store of the dataset.
    data_format
        Format version of the dataset's data files.
    uuid
        Id of the segment; ``None``: a random id.
    part
        Write a part of a segment that is merged later, in ``staging``.
    checksums
        Write checksums, by the configuration of the table; ``None``: as the store is set.
    """

    def __init__(
        self,
        store: ObjectStore,
        data_format: FormatVersion,
        uuid: UUID | None = None,
        *,
        part: bool = False,
        checksums: bool | None = None,
    ) -> None:
        self.store = store
        self.checksums = checksums
        self.file_version = file_version_of(data_format)
        self.id = uuid or new_uuid()
        self.folder = f"{INDICES}/{self.id}" + (f"/{STAGING}" if part else "")
        self._origin = Origin()
        self._sizes: dict[str, int] = {}
        self._open: dict[str, IndexFileWriter] = {}

    @classmethod
    def of(
        cls, store: ObjectStore, manifest: Manifest, uuid: UUID | None = None, *, part: bool = False
    ) -> Self:
        """Make a writer for a dataset, with the format and the checksums of its manifest."""
        checksums = wants_checksums(manifest.wire)
        return cls(store, manifest.data_format, uuid, part=part, checksums=checksums)

    def create(self, name: str, schema: pa.Schema) -> IndexFileWriter:
        """Start a file; metadata of the schema and its fields is stored with it."""
        self._open[name] = IndexFileWriter(self, name, schema)
        return self._open[name]

    def write(
        self,
        name: str,
        rows: pa.Table,
        *,
        metadata: Mapping[str, str] | None = None,
        buffers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Write a complete file.

        Parameters
        ----------
        metadata
            Metadata to add to the metadata of the rows' schema.
        buffers
            Global buffers by the metadata key that stores their number.
        """
        file = self.create(name, rows.schema)
        for key, data in (buffers or {}).items():
            file.add_metadata({key: str(file.add_buffer(data))})
        file.add_metadata(metadata or {})
        file.write(rows)
        file.finish()

    def copy(self, segment: Segment, name: str, new: str | None = None) -> None:
        """Copy a file of another segment unchanged, optionally under a new name."""
        data, name = segment.get(name), new or name
        self.store.put(f"{self.folder}/{name}", [data])
        self._sizes[name] = data.size

    def put(self, name: str, parts: Sequence[bytes]) -> None:
        """Write a file of another format than Lance 2.x."""
        self.store.put(f"{self.folder}/{name}", parts)
        self._sizes[name] = sum(map(len, parts))

    def add_finished(self, name: str, size: int) -> None:
        """Record a finished file."""
        del self._open[name]
        self._sizes[name] = size

    def finish(self) -> list[table_pb2.IndexFile]:
        """Return names and sizes of the files, as the manifest lists them."""
        if self._open:
            raise GlaiveError(f"files of {self.folder} are not finished: {sorted(self._open)}")
        return [
            table_pb2.IndexFile(path=name, size_bytes=size) for name, size in self._sizes.items()
        ]

    def abort(self, *, finished: bool = True) -> None:
        """Remove what was written, as far as possible.

        Set ``finished`` to False if other processes write finished files of the same names: these
        may be theirs.
        """
        for file in self._open.values():
            file.abort()
        if finished and self._origin.is_this_process:
            self.store.discard([f"{self.folder}/{name}" for name in self._sizes])
            with suppress(StoreError):  # a folder that stays is for a clean-up
                self.store.remove_empty([self.folder])
        self._open, self._sizes = {}, {}
