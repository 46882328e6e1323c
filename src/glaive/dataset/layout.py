"""The layout of a dataset as data: version, fragments, files, and the contents of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import islice
from typing import Any

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.errors import GlaiveError
from glaive.file.layout import FileLayout, file_layout
from glaive.format.fragment import DataFile
from glaive.format.paths import deletion_file_path
from glaive.table.bases import full_path

__all__ = [
    "DataFileEntry",
    "DatasetLayout",
    "DeletionFileEntry",
    "FragmentLayout",
    "dataset_layout",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileEntry:
    """A data file in the manifest; ``layout`` is ``None`` if the file was not read.

    ``columns``: the column of the dataset by physical column, without those that were dropped or
    replaced.
    """

    path: str
    size: int | None
    version: str
    fields: tuple[int, ...]
    columns: Mapping[int, str]
    layout: FileLayout | None

    def to_dict(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        return {
            "path": self.path,
            "size": self.size,
            "version": self.version,
            "fields": list(self.fields),
            "layout": None if self.layout is None else self.layout.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class DeletionFileEntry:
    """A deletion file: path, encoding, and number of deleted rows."""

    path: str
    form: str
    rows: int

    def to_dict(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        return {"path": self.path, "form": self.form, "rows": self.rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentLayout:
    """One fragment. ``rows`` counts deleted rows too."""

    id: int
    rows: int
    files: tuple[DataFileEntry, ...]
    deletions: DeletionFileEntry | None

    def to_dict(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        return {
            "id": self.id,
            "rows": self.rows,
            "deletions": None if self.deletions is None else self.deletions.to_dict(),
            "files": [file.to_dict() for file in self.files],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetLayout:
    """One version of a dataset; ``uri`` is without a password."""

    uri: str = field(repr=False)
    version: int
    timestamp: str
    data_storage_version: str
    rows: int
    schema: pa.Schema
    fragments: tuple[FragmentLayout, ...]

    def files(self) -> Iterator[FileLayout]:
        """The layouts of the files that were read."""
        for fragment in self.fragments:
            for file in fragment.files:
                if file.layout is not None:
                    yield file.layout

    @property
    def num_files(self) -> int:
        """Data files of all fragments."""
        return sum(len(fragment.files) for fragment in self.fragments)

    @property
    def size(self) -> int:
        """Total bytes of data files of known size."""
        files = (file for fragment in self.fragments for file in fragment.files)
        return sum(file.size or 0 for file in files)

    def to_dict(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        return {
            "uri": self.uri,
            "version": self.version,
            "timestamp": self.timestamp,
            "data_storage_version": self.data_storage_version,
            "rows": self.rows,
            "size": self.size,
            "schema": [
                {"name": field.name, "type": str(field.type), "nullable": field.nullable}
                for field in self.schema
            ],
            "fragments": [fragment.to_dict() for fragment in self.fragments],
        }


def dataset_layout(dataset: LanceDataset, *, max_files: int | None = None) -> DatasetLayout:
    """Describe a version of a dataset, and the contents of its first ``max_files`` data files.

    Raises
    ------
    DataFileMissingError, CorruptFileError
        A file that is read is missing or damaged.
    """
    manifest, snapshot = dataset.manifest, dataset.snapshot
    entries: list[tuple[int, DataFile]] = []
    fragments = [manifest.fragment(position) for position in range(manifest.num_fragments)]
    for fragment in fragments:
        entries.extend((fragment.id, entry) for entry in fragment.files)
    top = {field.id: one.name for one in manifest.schema.fields for field in one.walk()}
    most = len(entries) if max_files is None else min(max_files, len(entries))
    chosen = {id(entry) for _, entry in islice(entries, most)}

    read: dict[tuple[str, object, int | None], FileLayout] = {}

    def contents(entry: DataFile, path: str) -> FileLayout:
        """The layout of a file, read once however many fragments name it."""
        key = (path, entry.version, entry.size)
        if key not in read:
            read[key] = file_layout(snapshot.open_file(entry))
        return read[key]

    def describe(entry: DataFile) -> DataFileEntry:
        path = full_path(dataset.store, manifest, entry.path, entry.base_id, data=True)
        layout = contents(entry, path) if id(entry) in chosen else None
        return DataFileEntry(
            path=path,
            size=layout.size if layout is not None else entry.size,
            version=str(entry.version),
            fields=entry.fields,
            columns={at: top[field] for field, at in entry.columns().items() if field in top},
            layout=layout,
        )

    layouts = []
    for position, fragment in enumerate(fragments):
        deletions = None
        file = fragment.deletion_file
        if file is not None:
            name = deletion_file_path(
                fragment.id, file.read_version, file.number, bitmap=file.bitmap
            )
            name = full_path(dataset.store, manifest, name, file.base_id)
            deleted = fragment.physical_rows - int(snapshot.live_counts[position])
            form = "roaring bitmap" if file.bitmap else "Arrow array"
            deletions = DeletionFileEntry(name, form, deleted)
        layouts.append(
            FragmentLayout(
                id=fragment.id,
                rows=fragment.physical_rows,
                files=tuple(map(describe, fragment.files)),
                deletions=deletions,
            )
        )
    return DatasetLayout(
        uri=GlaiveError.without_secrets(dataset.uri),
        version=dataset.version,
        timestamp=manifest.timestamp.isoformat(timespec="milliseconds"),
        data_storage_version=dataset.data_storage_version,
        rows=snapshot.num_rows,
        schema=dataset.schema,
        fragments=tuple(layouts),
    )
