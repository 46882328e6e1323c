"""The layout of a dataset as data: version, fragments, files, and the contents of files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.errors import GlaiveError, OptionError
from glaive.file.layout import FileLayout, file_layout
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.fragment import DataFile
from glaive.format.manifest import Feature
from glaive.format.paths import deletion_file_path
from glaive.table.root import full_path


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

    uri: str = dataclasses.field(repr=False)
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


# --- Versions, schemas and commits as texts for people who look for a fault -------------

_INDENT = "    "
_LONGEST = 500


def format_schema(dataset: LanceDataset) -> str:
    """The schema with field ids, logical types and metadata."""
    return _block("Schema", _schema(dataset.lance_schema))


def format_manifest(dataset: LanceDataset) -> str:
    """What the manifest of this version says, with all fragments; grows with their number."""
    manifest = dataset.manifest
    wire = manifest.wire
    content = {
        "version": manifest.version,
        "branch": wire.branch or None,
        "writer_version": f"{wire.writer_version.library} {wire.writer_version.version}",
        "timestamp": manifest.timestamp.isoformat(),
        "data_storage_format": str(manifest.data_format),
        "reader_feature_flags": [one.name for one in Feature if wire.reader_feature_flags & one],
        "writer_feature_flags": [one.name for one in Feature if wire.writer_feature_flags & one],
        "max_fragment_id": wire.max_fragment_id,
        "next_row_id": wire.next_row_id,
        "transaction_file": wire.transaction_file or None,
        "schema": _Named("Schema", _schema(manifest.schema)),
        "fragments": [one.metadata for one in dataset.get_fragments()],
        "indices": [str(one.name) for one in manifest.indices],
        "config": dict(manifest.config),
        "table_metadata": dict(manifest.table_metadata),
        "base_paths": {str(key): str(base) for key, base in dataset.base_paths().items()},
    }
    return _block("Manifest", content)


def format_fragment(fragment: FragmentMetadata, dataset: LanceDataset) -> str:
    """The metadata of a fragment; its data files with the names of their columns.

    Raises
    ------
    OptionError
        It is no metadata of a fragment.
    """
    if not isinstance(fragment, FragmentMetadata):
        raise OptionError(
            f"fragment: expected a FragmentMetadata, found {type(fragment).__name__}; "
            "a LanceFragment has it as metadata"
        )
    names = {field.id: path for path, field in _paths(dataset.lance_schema.fields, "")}
    files = [
        _Named("DataFile", {**_values(one), "columns": [names.get(id) for id in one.fields]})
        for one in fragment.files
    ]
    return _block("Fragment", {**_values(fragment), "files": files})


def list_transactions(dataset: LanceDataset, max_transactions: int = 10) -> list[str]:
    """The newest commits, the newest first, as texts; one request each.

    Raises
    ------
    OptionError
        ``max_transactions`` is negative.
    """
    if max_transactions < 0:
        raise OptionError(f"max_transactions: expected 0 or more, found {max_transactions}")
    found = dataset.get_transactions(max_transactions) if max_transactions else []
    return [_text(one, 0) for one in found if one is not None]


class _Named:
    """Values under the name of their type."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name, self.values = name, values


def _schema(schema: LanceSchema) -> dict[str, Any]:
    metadata = {key: value.decode("utf-8", "replace") for key, value in schema.metadata.items()}
    return {"fields": [_field(one, -1) for one in schema.fields], "metadata": metadata}


def _field(field: Field, parent: int) -> _Named:
    values = {
        "name": field.name,
        "id": field.id,
        "parent_id": parent,
        "logical_type": field.logical_type,
        "nullable": field.nullable,
        "metadata": {
            key: value.decode("utf-8", "replace") for key, value in field.metadata.items()
        },
        "children": [_field(child, field.id) for child in field.children],
    }
    return _Named("Field", values)


def _paths(below: tuple[Field, ...], prefix: str) -> list[tuple[str, Field]]:
    found = []
    for field in below:
        found += [
            (f"{prefix}{field.name}", field),
            *_paths(field.children, f"{prefix}{field.name}."),
        ]
    return found


def _values(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


def _block(name: str, values: Mapping[str, Any], depth: int = 0) -> str:
    inside = _INDENT * (depth + 1)
    lines = [f"{inside}{key}: {_text(value, depth + 1)}," for key, value in values.items()]
    return "\n".join([f"{name} {{", *lines, f"{_INDENT * depth}}}"]) if lines else f"{name} {{}}"


def _text(value: Any, depth: int) -> str:
    if isinstance(value, _Named):
        return _block(value.name, value.values, depth)
    if is_dataclass(value) and not isinstance(value, type):
        return _block(type(value).__name__, _values(value), depth)
    if isinstance(value, pa.Schema):
        return _text(LanceSchema.from_arrow(value), depth)
    if isinstance(value, LanceSchema):
        return _block("Schema", _schema(value), depth)
    if isinstance(value, Mapping):
        return _block("", value, depth).lstrip()
    if isinstance(value, list | tuple):
        nested = [_text(one, depth + 1) for one in value]
        if not any("\n" in one for one in nested):
            return f"[{', '.join(nested)}]"
        inside = _INDENT * (depth + 1)
        return "\n".join(["[", *[f"{inside}{one}," for one in nested], f"{_INDENT * depth}]"])
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
