"""The layout of a dataset as data: version, fragments, their files, and what is in those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from glaive.dataset.dataset import LanceDataset
from glaive.file.layout import FileLayout, file_layout
from glaive.format.fragment import DataFile
from glaive.format.paths import deletion_file_path
from glaive.table.bases import full_path

__all__ = ["DataFilePlace", "DatasetLayout", "DeletionPlace", "FragmentLayout", "dataset_layout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFilePlace:
    """A data file as the manifest lists it; ``layout`` where the file was looked into."""

    path: str
    size: int | None
    version: str
    fields: tuple[int, ...]
    layout: FileLayout | None

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values, ready for JSON."""
        return {
            "path": self.path,
            "size": self.size,
            "version": self.version,
            "fields": list(self.fields),
            "layout": None if self.layout is None else self.layout.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class DeletionPlace:
    """A deletion file: its path, its form, and how many rows it deletes."""

    path: str
    form: str
    rows: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"path": self.path, "form": self.form, "rows": self.rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentLayout:
    """One fragment. ``rows`` counts deleted rows too."""

    id: int
    rows: int
    files: tuple[DataFilePlace, ...]
    deletions: DeletionPlace | None

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values, ready for JSON."""
        return {
            "id": self.id,
            "rows": self.rows,
            "deletions": None if self.deletions is None else self.deletions.to_dict(),
            "files": [file.to_dict() for file in self.files],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetLayout:
    """One version of a dataset."""

    uri: str
    version: int
    timestamp: str
    data_storage_version: str
    rows: int
    schema: pa.Schema
    fragments: tuple[FragmentLayout, ...]

    def files(self) -> Iterator[FileLayout]:
        """The files that were looked into."""
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
        """Bytes of the data files whose size is known."""
        files = (file for fragment in self.fragments for file in fragment.files)
        return sum(file.size or 0 for file in files)

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values, ready for JSON."""
        return {
            "uri": self.uri,
            "version": self.version,
            "timestamp": self.timestamp,
            "data_storage_version": self.data_storage_version,
            "rows": self.rows,
            "size": self.size,
            "schema": [
                {"name": one.name, "type": str(one.type), "nullable": one.nullable}
                for one in self.schema
            ],
            "fragments": [fragment.to_dict() for fragment in self.fragments],
        }


def dataset_layout(dataset: LanceDataset, *, most_files: int | None = None) -> DatasetLayout:
    """Describe a version of a dataset, and what is in its first ``most_files`` data files.

    Raises
    ------
    DataFileMissingError, CorruptFileError
        A file that is looked into is absent or damaged.
    """
    manifest, snapshot = dataset.manifest, dataset.snapshot
    entries: list[tuple[int, DataFile]] = []
    fragments = [manifest.fragment(position) for position in range(manifest.num_fragments)]
    for fragment in fragments:
        entries.extend((fragment.id, entry) for entry in fragment.files)
    chosen = {id(entry) for _, entry in islice(entries, most_files)}

    def place(entry: DataFile) -> DataFilePlace:
        path = full_path(dataset.store, manifest, entry.path, entry.base_id, data=True)
        layout = file_layout(snapshot.open_file(entry)) if id(entry) in chosen else None
        return DataFilePlace(
            path=path,
            size=layout.size if layout is not None else entry.size,
            version=str(entry.version),
            fields=entry.fields,
            layout=layout,
        )

    found = []
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
            deletions = DeletionPlace(name, form, deleted)
        found.append(
            FragmentLayout(
                id=fragment.id,
                rows=fragment.physical_rows,
                files=tuple(place(entry) for entry in fragment.files),
                deletions=deletions,
            )
        )
    return DatasetLayout(
        uri=dataset.uri,
        version=dataset.version,
        timestamp=manifest.timestamp.isoformat(timespec="milliseconds"),
        data_storage_version=dataset.data_storage_version,
        rows=snapshot.num_rows,
        schema=dataset.schema,
        fragments=tuple(found),
    )
