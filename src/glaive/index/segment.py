"""A segment of an index: its entry in the manifest and the files in its folder.

Specification: "Segments" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.entropy import new_uuid
from glaive.errors import (
    DataFileMissingError,
    GlaiveError,
    ObjectNotFoundError,
    StoreError,
)
from glaive.file.open import create_writer
from glaive.forks import Origin
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.format.paths import INDICES, index_file_path
from glaive.format.pb import table_pb2
from glaive.index.index_file import IndexFile
from glaive.index.keeping import Keep, keep_nothing
from glaive.io.checksums import check_size, verification
from glaive.io.store import ObjectStore
from glaive.table.bases import locate_in_base
from glaive.types import FormatVersion, Int64s

if TYPE_CHECKING:
    from glaive.file.v2.writing.writer import FileV2Writer

__all__ = [
    "STAGING",
    "IndexFile",
    "IndexFileWriter",
    "Segment",
    "SegmentWriter",
    "batches",
    "file_version_of",
]

Entry = table_pb2.IndexMetadata

STAGING = "staging"
"""Folder within that of a segment, for parts that are going to be merged."""

_PLAIN_BYTES = 16 * 1024
"""Columns of so many bytes are read at once when an index is opened: to choose how they could be
packed would take longer than most builds that have so few."""


def file_version_of(data_format: FormatVersion) -> str:
    """Format version of the index files of a dataset: that of its data files, but at least 2.0."""
    return "2.0" if data_format.major == 0 else str(data_format)


def batches(bounds: Int64s, limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of lists or partitions to read at a time: ``limit`` rows at most, or one of them.

    ``bounds`` are the rows where each begins, and the end of the last.
    """
    first = 0
    while first < len(bounds) - 1:
        last = int(np.searchsorted(bounds, bounds[first] + limit, side="right")) - 1
        last = max(first + 1, last)
        yield first, last
        first = last


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment to be read.

    Parameters
    ----------
    store
        Where its folder is: the dataset's own store, or that of a base path.
    entry
        As the manifest has it.
    keep
        Keeps what searches read of it: pages, partitions, posting lists.
    """

    store: ObjectStore
    entry: Entry
    keep: Keep = keep_nothing

    @classmethod
    def of(
        cls, store: ObjectStore, manifest: Manifest, entry: Entry, keep: Keep = keep_nothing
    ) -> Self:
        """Find the segment of an entry; reads nothing.

        Raises
        ------
        CorruptFileError
            The entry names a base path that the manifest does not have.
        """
        base = entry.base_id if entry.HasField("base_id") else None
        return cls(locate_in_base(store, manifest, INDICES, base)[0], entry, keep)

    @property
    def folder(self) -> str:
        """Path of its folder within the store."""
        return f"{INDICES}/{UUID(bytes=self.entry.uuid.uuid)}"

    @property
    def where(self) -> str:
        """Name and location, for errors."""
        return f"index {self.entry.name!r}, {self.store.full(self.folder)}"

    def sizes(self) -> dict[str, int]:
        """Names and sizes of its files, from the entry or, if it lists none, from the folder.

        Folders within it are not looked at: it may be a link to one with all files of a disk.
        """
        if self.entry.files:
            return {file.path: file.size_bytes for file in self.entry.files}
        start = len(self.folder) + 1
        return {file.path[start:]: file.size for file in self.store.list(self.folder)}

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
        path = index_file_path(self.folder, name, where=self.where)
        return IndexFile(self.store, path, size=self._size_to_compare(name))

    def get(self, name: str) -> pa.Buffer:
        """The bytes of one of its files.

        Raises
        ------
        DataFileMissingError
            The file is absent.
        CorruptFileError
            All that is read is compared, and it has another size than the entry says.
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
        """The size of a file in the entry, where all that is read is compared; None elsewhere.

        Else files are opened without it: a wrong one would make a sound file look truncated.
        """
        if verification(self.store) != "always":
            return None
        return next((file.size_bytes for file in self.entry.files if file.path == name), 0) or None


class IndexFileWriter:
    """One file of a new segment, being written; made by :meth:`SegmentWriter.create`."""

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
        """Append a global buffer; returns its number."""
        return self._writer.add_global_buffer(data)

    def add_metadata(self, entries: Mapping[str, str]) -> None:
        """Add to the schema's metadata."""
        for key, value in entries.items():
            self._writer.add_schema_metadata(key, value)

    def finish(self) -> None:
        """Write the footer and add the file to the segment."""
        self._segment.add_finished(self._name, self._writer.finish().size)

    def abort(self) -> None:
        """Remove what was written."""
        self._writer.abort()


class SegmentWriter:
    """A new segment: files in a folder of its own, which no manifest names yet.

    Parameters
    ----------
    store
        Of the dataset.
    data_format
        Of the dataset's data files.
    uuid
        Id of the segment; None for a random one.
    part
        Whether what is written is a part of a segment that is merged later: in ``staging``.
    checksums
        What the configuration of the table says of them; by default what the store says.
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
            Added to that of the rows' schema.
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
        """Copy a file of another segment unchanged, under a new name if there is one."""
        data, name = segment.get(name), new or name
        self.store.put(f"{self.folder}/{name}", [data])
        self._sizes[name] = data.size

    def put(self, name: str, parts: Sequence[bytes]) -> None:
        """Write a file that is not a Lance file of 2.x."""
        self.store.put(f"{self.folder}/{name}", parts)
        self._sizes[name] = sum(map(len, parts))

    def add_finished(self, name: str, size: int) -> None:
        """Record a finished file."""
        del self._open[name]
        self._sizes[name] = size

    def finish(self) -> list[table_pb2.IndexFile]:
        """Names and sizes of the files, as the manifest lists them."""
        if self._open:
            raise GlaiveError(f"files of {self.folder} are not finished: {sorted(self._open)}")
        return [
            table_pb2.IndexFile(path=name, size_bytes=size) for name, size in self._sizes.items()
        ]

    def abort(self, *, finished: bool = True) -> None:
        """Remove what was written, if that is possible.

        Not the ``finished`` files where other processes write such of the same names: these may be
        theirs.
        """
        for file in self._open.values():
            file.abort()
        if finished and self._origin.is_here:
            self.store.discard([f"{self.folder}/{name}" for name in self._sizes])
            with suppress(StoreError):  # as files that cannot be removed, it stays for a clean-up
                self.store.remove_empty([self.folder])
        self._open, self._sizes = {}, {}
