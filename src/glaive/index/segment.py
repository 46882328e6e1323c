"""A segment of an index: its entry in the manifest and the files in its folder.

Specification: "Segments" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self
from uuid import UUID, uuid4

import pyarrow as pa

from glaive.errors import (
    CorruptFileError,
    DataFileMissingError,
    GlaiveError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from glaive.file.open import create_writer, open_reader
from glaive.file.protocol import BoundColumns, FileReader
from glaive.file.v2.reading.reader import FileV2
from glaive.file.v2.writing.writer import FileV2Writer
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.format.paths import INDICES, index_file_path
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.table.bases import locate_in_base
from glaive.types import FormatVersion

__all__ = ["IndexFile", "IndexFileWriter", "Segment", "SegmentWriter", "file_version_of"]

Entry = table_pb2.IndexMetadata

_FEW_ROWS, _ROWS_PER_BYTE = 1 << 20, 256
"""Rows of a small file, or of a byte, at most: they differ, unlike those of a page of one value."""


def file_version_of(data_format: FormatVersion) -> str:
    """Format version of the index files of a dataset: that of its data files, from 2.0 on."""
    return "2.0" if data_format.major == 0 else str(data_format)


class IndexFile:
    """One file of a segment, opened; damage if its bytes cannot hold as many rows as it says."""

    def __init__(self, store: ObjectStore, path: str, size: int | None = None) -> None:
        self._file: FileReader = open_reader(store, path, size=size)
        self.path = store.full(path)
        most = max(_FEW_ROWS, _ROWS_PER_BYTE * self._file.reader.size)
        if self._file.num_rows > most:
            raise CorruptFileError(
                "rows of an index file",
                expected=f"at most {most} in {self._file.reader.size} bytes",
                found=f"{self._file.num_rows}",
                where=self.path,
            )

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns as they are stored, with their metadata.

        Raises
        ------
        UnsupportedFeatureError
            A type is not known.
        """
        try:
            return self._file.schema.to_arrow()
        except UnsupportedFeatureError as error:
            raise UnsupportedFeatureError(f"{self.path}: {error}") from error

    @cached_property
    def metadata(self) -> dict[str, str]:
        """The schema's metadata.

        Raises
        ------
        CorruptFileError
            A value is no text.
        """
        return {key: self._text(key, value) for key, value in self._file.schema.metadata.items()}

    def _text(self, key: str, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise CorruptFileError(
                f"metadata {key!r}", expected="text", found=str(error), where=self.path
            ) from error

    @property
    def num_rows(self) -> int:
        """Rows in the file."""
        return self._file.num_rows

    def check(self, **types: pa.DataType | None) -> None:
        """Make sure that there are columns of these names and types; ``None``: of any type.

        Raises
        ------
        CorruptFileError
            A column is absent or of another type.
        """
        for name, kind in types.items():
            at = self.schema.get_field_index(name)
            found = self.schema.field(at).type if at >= 0 else None
            if found is None or (kind is not None and found != kind):
                raise CorruptFileError(
                    f"column {name!r} of an index",
                    expected=f"type {kind or 'of the values'}",
                    found=f"{found or 'no such column'}",
                    where=self.path,
                )

    def check_lists(self, **types: pa.DataType) -> None:
        """Make sure that there are columns of these names that are lists of these types.

        Raises
        ------
        CorruptFileError
            A column is absent or of another type.
        """
        self.check(**dict.fromkeys(types))
        for name, kind in types.items():
            found: Any = self.schema.field(name).type
            if not pa.types.is_list(found) or found.value_type != kind:
                raise CorruptFileError(
                    f"column {name!r} of an index",
                    expected=f"lists of {kind}",
                    found=f"{found}",
                    where=self.path,
                )

    def check_present(self, column: pa.ChunkedArray) -> None:
        """Make sure that a column has no nulls.

        Raises
        ------
        CorruptFileError
            It has.
        """
        if column.null_count:
            raise CorruptFileError(
                "entries of an index",
                expected="a value for each",
                found=f"{column.null_count} nulls",
                where=self.path,
            )

    def number(self, key: str, default: int | None = None, least: int = 0) -> int:
        """An integer of the metadata.

        Raises
        ------
        CorruptFileError
            It is absent and there is no default, or is no number, or too small a one.
        """
        text = self.metadata.get(key)
        if text is None and default is not None:
            return default
        sound = text is not None and text.isascii() and text.isdecimal() and len(text) < 19
        if text is None or not sound or int(text) < least:
            raise CorruptFileError(
                f"metadata {key!r}",
                expected=f"an integer from {least} on",
                found=repr(text),
                where=self.path,
            )
        return int(text)

    def read(
        self, columns: Sequence[str] | None = None, start: int = 0, stop: int | None = None
    ) -> pa.Table:
        """Rows ``start`` to ``stop`` (all by default) of some columns (all by default).

        Raises
        ------
        CorruptFileError, UnsupportedFeatureError
            The file is damaged, or has what this version does not read.
        """
        bound = self._bind(tuple(self.schema.names if columns is None else columns))
        stop = bound.num_rows if stop is None else min(stop, bound.num_rows)
        arrays = bound.read(min(start, stop), stop)
        return pa.Table.from_arrays(arrays, schema=bound.schema).replace_schema_metadata(
            self.schema.metadata
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

    def buffer(self, number: int) -> pa.Buffer:
        """A global buffer; number 0 is the file's own.

        Raises
        ------
        CorruptFileError
            There is no such buffer.
        """
        if not isinstance(self._file, FileV2):
            raise UnsupportedFeatureError(
                f"{self.path} is of format {self._file.version}, which has no global buffers"
            )
        return self._file.container.global_buffer(number)


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment to be read.

    Parameters
    ----------
    store
        Where its folder is: the dataset's own store, or that of a base path.
    entry
        As the manifest has it.
    """

    store: ObjectStore
    entry: Entry

    @classmethod
    def of(cls, store: ObjectStore, manifest: Manifest, entry: Entry) -> Self:
        """Find the segment of an entry; reads nothing.

        Raises
        ------
        CorruptFileError
            The entry names a base path that the manifest does not have.
        """
        base = entry.base_id if entry.HasField("base_id") else None
        return cls(locate_in_base(store, manifest, INDICES, base)[0], entry)

    @property
    def folder(self) -> str:
        """Path of its folder within the store."""
        return f"{INDICES}/{UUID(bytes=self.entry.uuid.uuid)}"

    @property
    def where(self) -> str:
        """Name and place, for errors."""
        return f"index {self.entry.name!r}, {self.store.full(self.folder)}"

    def sizes(self) -> dict[str, int]:
        """Names and sizes of its files: as the entry lists them, else as the folder does."""
        if self.entry.files:
            return {file.path: file.size_bytes for file in self.entry.files}
        start = len(self.folder) + 1
        return {one.path[start:]: one.size for one in self.store.walk(self.folder)}

    def has(self, name: str) -> bool:
        """Whether it has a file of this name."""
        return name in self.sizes()

    def open(self, name: str) -> IndexFile:
        """Open one of its files.

        Raises
        ------
        DataFileMissingError, NotLanceError, CorruptFileError, UnsupportedFeatureError
            The file is absent, something else, damaged, or of an unknown version.
        """
        # Sizes in the entry are not relied on: a wrong one would make a sound file look cut off.
        return IndexFile(self.store, index_file_path(self.folder, name, where=self.where))

    def get(self, name: str) -> pa.Buffer:
        """The bytes of one of its files.

        Raises
        ------
        DataFileMissingError
            The file is absent.
        """
        try:
            return self.store.get(index_file_path(self.folder, name, where=self.where))
        except ObjectNotFoundError as error:
            raise DataFileMissingError(
                f"{self.where}: file {name} does not exist. Restore it, or drop the index."
            ) from error


class IndexFileWriter:
    """One file of a new segment, being written; made by :meth:`SegmentWriter.create`."""

    def __init__(self, segment: SegmentWriter, name: str, schema: pa.Schema) -> None:
        self._segment, self._name = segment, name
        writer: Any = create_writer(
            segment.store,
            f"{segment.folder}/{name}",
            LanceSchema.from_arrow(schema),
            segment.file_version,
        )
        self._writer: FileV2Writer = writer

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Append rows; the columns must be the schema's."""
        self._writer.write(rows)

    def add_buffer(self, data: bytes) -> int:
        """Append a global buffer; returns the number it is referred to by."""
        return self._writer.add_global_buffer(data)

    def add_metadata(self, entries: Mapping[str, str]) -> None:
        """Add to the schema's metadata."""
        for key, value in entries.items():
            self._writer.add_schema_metadata(key, value)

    def finish(self) -> None:
        """Write the footer; the file is part of the segment now."""
        self._segment.took(self._name, self._writer.finish().size)

    def abort(self) -> None:
        """Leave nothing behind."""
        self._writer.abort()


class SegmentWriter:
    """A new segment: files in a folder of its own, which no manifest names yet."""

    def __init__(self, store: ObjectStore, data_format: FormatVersion) -> None:
        self.store = store
        self.file_version = file_version_of(data_format)
        self.id = uuid4()
        self.folder = f"{INDICES}/{self.id}"
        self._sizes: dict[str, int] = {}
        self._open: dict[str, IndexFileWriter] = {}

    def create(self, name: str, schema: pa.Schema) -> IndexFileWriter:
        """Begin a file; metadata of the schema and its fields is stored with it."""
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
        """Write a whole file.

        Parameters
        ----------
        metadata
            Added to that of the rows' schema.
        buffers
            Global buffers by the key of the metadata that is to hold their numbers.
        """
        file = self.create(name, rows.schema)
        for key, data in (buffers or {}).items():
            file.add_metadata({key: str(file.add_buffer(data))})
        file.add_metadata(metadata or {})
        file.write(rows)
        file.finish()

    def copy(self, segment: Segment, name: str) -> None:
        """Take over a file of another segment as it is."""
        data = segment.get(name)
        self.store.put(f"{self.folder}/{name}", [data])
        self._sizes[name] = data.size

    def put(self, name: str, parts: Sequence[bytes]) -> None:
        """Write a file that is no Lance file of 2.x."""
        self.store.put(f"{self.folder}/{name}", parts)
        self._sizes[name] = sum(map(len, parts))

    def took(self, name: str, size: int) -> None:
        """Note a finished file."""
        del self._open[name]
        self._sizes[name] = size

    def finish(self) -> list[table_pb2.IndexFile]:
        """Names and sizes of the files, as the manifest lists them."""
        if self._open:
            raise GlaiveError(f"files of {self.folder} are not finished: {sorted(self._open)}")
        return [
            table_pb2.IndexFile(path=name, size_bytes=size) for name, size in self._sizes.items()
        ]

    def abort(self) -> None:
        """Remove what was written."""
        for file in self._open.values():
            file.abort()
        self.store.discard([f"{self.folder}/{name}" for name in self._sizes])
        self._open, self._sizes = {}, {}
