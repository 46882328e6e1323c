"""Describe the layout of a dataset: version, fragments, files, and contents of files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from typing import Any
from uuid import UUID

import pyarrow as pa

from glaive.arrow.validation import damaged_text
from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.fragment_metadata import FragmentMetadata
from glaive.dataset.validate import (
    Place,
    check_fragment_ids,
    check_index,
    check_row_ids,
    check_rules,
    check_schema,
    validate_fragment,
)
from glaive.errors import CorruptFileError, GlaiveError, OptionError, UnsupportedFeatureError
from glaive.file.files import compare_file
from glaive.file.layout import FileLayout, file_layout
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.fragment import DataFile
from glaive.format.manifest import Feature
from glaive.format.paths import INDICES, deletion_file_path, index_file_path
from glaive.format.pb import table_pb2
from glaive.index.protocol import kind_of
from glaive.index.segment import IndexFile, Segment
from glaive.io.checksums import checksum_function
from glaive.io.store import ObjectStore
from glaive.scan.snapshot import Snapshot
from glaive.table.deletions import load_deleted_runs
from glaive.table.load import load_again
from glaive.table.root import full_path, locate_data_file


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileEntry:
    """A data file in the manifest; ``layout`` is ``None`` unless the file was read.

    ``columns`` maps physical columns to columns of the dataset; dropped or replaced columns
    are left out.
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
    """One fragment. ``rows`` includes deleted rows."""

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
    """One version of a dataset; ``uri`` hides passwords."""

    uri: str = dataclasses.field(repr=False)
    version: int
    timestamp: str
    data_storage_version: str
    rows: int
    schema: pa.Schema
    fragments: tuple[FragmentLayout, ...]

    def files(self) -> Iterator[FileLayout]:
        """Yield the layouts of the files that were read."""
        for fragment in self.fragments:
            for file in fragment.files:
                if file.layout is not None:
                    yield file.layout

    @property
    def num_files(self) -> int:
        """Number of data files of all fragments."""
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
    limit = len(entries) if max_files is None else min(max_files, len(entries))
    chosen = {id(entry) for _, entry in islice(entries, limit)}

    read: dict[tuple[str, object, int | None], FileLayout] = {}

    def contents(entry: DataFile, path: str) -> FileLayout:
        """Return the layout of a file; read it once however many fragments name it."""
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


# --- Versions, schemas and commits as strings, for people who debug ---------------------

_INDENT = "    "
_MAX_TEXT_CHARACTERS = 500


def format_schema(dataset: LanceDataset) -> str:
    """Format the schema with field ids, logical types and metadata."""
    return _block("Schema", _schema(dataset.lance_schema))


def format_manifest(dataset: LanceDataset) -> str:
    """Format the manifest of this version with all fragments; grows with their number."""
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
    """Format the metadata of a fragment, with the names of columns of its data files.

    Raises
    ------
    OptionError
        The argument is not metadata of a fragment.
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
    """Format the newest commits, newest first; one request each.

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
    """Values with the name of their type."""

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
    return text if len(text) <= _MAX_TEXT_CHARACTERS else f"{text[:_MAX_TEXT_CHARACTERS]}…"


# --- Check a version: each fragment and each index independently, with remedies ---------

# --- Compare the files of a version with their checksums --------------------------------


def compare_manifest(snapshot: Snapshot) -> None:
    """Read the manifest of a version again, and compare it with its checksum, if any.

    Raises
    ------
    CorruptFileError
        The manifest differs.
    """
    if checksum_function() is not None:  # which the comparison needs
        manifest = snapshot.manifest
        load_again(snapshot.store, manifest.version, manifest.scheme, verify=True)


def compare_fragment(snapshot: Snapshot, position: int, compared: set[str]) -> int:
    """Read the files of a fragment that have checksums, and compare them.

    Parameters
    ----------
    compared
        Files compared earlier, which are skipped; the files compared now are added.

    Returns
    -------
    int
        Number of compared bytes of data files.

    Raises
    ------
    CorruptFileError
        A file differs; the message names the file, column and page.
    DataFileMissingError
        A file is missing.
    """
    if checksum_function() is None:
        return 0
    manifest = snapshot.manifest
    fragment = manifest.fragment(position)
    if manifest.deleted_rows[position]:
        load_deleted_runs(snapshot.store, manifest, fragment, verify=True)
    files = [(*locate_data_file(snapshot.store, manifest, one), one.size) for one in fragment.files]
    return sum(_compare_once(store, path, size, compared) for store, path, size in files)


def compare_segment(snapshot: Snapshot, index: table_pb2.IndexMetadata, compared: set[str]) -> int:
    """Compare the files of an index segment with their checksums; skip other base paths."""
    if checksum_function() is None or index.HasField("base_id"):
        return 0
    folder, where = f"{INDICES}/{UUID(bytes=index.uuid.uuid)}", snapshot.manifest.where
    if {part.path for part in index.files} == {"index.idx"}:
        return 0  # a vector index of old releases, with a different layout
    parts = [part for part in index.files if part.path.endswith((".lance", ".idx"))]
    files = [(index_file_path(folder, one.path, where=where), one.size_bytes) for one in parts]
    return sum(_compare_once(snapshot.store, *one, compared) for one in files)


def _compare_once(store: ObjectStore, path: str, size: int | None, compared: set[str]) -> int:
    full = store.full(path)
    if full in compared:
        return 0
    count = compare_file(store, path, size=size or None) or 0
    compared.add(full)
    return count


@dataclass(frozen=True)
class Problem:
    """A fault of a version.

    Parameters
    ----------
    message
        Description and location of the fault.
    fragment
        Id of the fragment with damaged or missing files.
    index
        Name of the index with damaged or missing files; all rows are safe.
    """

    message: str
    fragment: int | None = None
    index: str | None = None


class VersionCheck:
    """Finds faults of versions of a dataset; reads files that several versions use once.

    Parameters
    ----------
    deep
        Decode all values of rows and of index files.
    """

    def __init__(self, *, deep: bool) -> None:
        self._deep = deep
        self._compared: set[str] = set()
        self._decoded: dict[Hashable, str | None] = {}
        self._segments: dict[bytes, Problem | None] = {}

    def problems(self, dataset: LanceDataset, number: int) -> list[Problem]:
        """Return all faults of version ``number``; empty if it is sound."""
        try:
            version = dataset.checkout_version(number)
            snapshot = version.snapshot
            check_schema(snapshot)
            check_fragment_ids(snapshot)
            compare_manifest(snapshot)
            indices = snapshot.manifest.indices
        except GlaiveError as error:
            return [Problem(str(error))]
        found = [*self._of_fragments(version)]
        found += [problem for entry in indices if (problem := self._of_index(snapshot, entry))]
        if not found and (broken := _error_of(lambda: check_rules(snapshot))) is not None:
            found.append(Problem(broken))
        return found

    def _of_fragments(self, version: LanceDataset) -> Iterator[Problem]:
        snapshot, row_ids = version.snapshot, []
        parsed: set[Place] = set()
        columns = _columns_of(version) if self._deep else None
        for position, fragment_id in enumerate(snapshot.manifest.fragment_ids.tolist()):

            def check(position: int = position) -> None:
                row_ids.append(validate_fragment(snapshot, position, parsed))
                compare_fragment(snapshot, position, self._compared)

            message = _error_of(check)
            if message is None and self._deep:
                message = self._problem_of_rows(version, position, columns)
            if message is not None:
                yield Problem(message, fragment=fragment_id)
        message = _error_of(lambda: check_row_ids(snapshot, row_ids))
        if message is not None:
            yield Problem(message)

    def _problem_of_rows(
        self, version: LanceDataset, position: int, columns: Hashable
    ) -> str | None:
        """Check the rows of a fragment, once for fragments with equal files; return the fault."""
        fragment = version.snapshot.manifest.fragment(position)
        rows = columns, replace(fragment, id=0)
        if rows not in self._decoded:
            self._decoded[rows] = _error_of(lambda: _decode_rows(version, fragment.id))
        return self._decoded[rows]

    def _of_index(self, snapshot: Snapshot, entry: table_pb2.IndexMetadata) -> Problem | None:
        message = _error_of(lambda: check_index(snapshot, entry))
        if message is not None:
            return Problem(message, index=entry.name)
        uuid = entry.uuid.uuid
        if uuid not in self._segments:
            message = _error_of(lambda: self._read_segment(snapshot, entry))
            self._segments[uuid] = None if message is None else Problem(message, index=entry.name)
        return self._segments[uuid]

    def _read_segment(self, snapshot: Snapshot, entry: table_pb2.IndexMetadata) -> None:
        compare_segment(snapshot, entry, self._compared)
        segment = Segment.of(snapshot.store, snapshot.manifest, entry)
        kind = kind_of(entry, segment.sizes(), snapshot.manifest.schema)
        if kind is None:  # newer, or unknown: glaive cannot check it
            return
        try:
            kind.open(segment)
        except UnsupportedFeatureError:
            return
        # One file holds all of a vector index of old releases, with a different layout.
        if self._deep and set(segment.sizes()) != {"index.idx"}:
            for name in segment.sizes():
                if name.endswith((".lance", ".idx")):
                    _decode_file(segment.open(name))


def _columns_of(version: LanceDataset) -> Hashable:
    """Return all that rows depend on besides their fragment's message: locations and fields."""
    wire = version.manifest.wire
    parts = [part.SerializeToString() for part in [*wire.fields, *wire.base_paths]]
    return version.snapshot.store.full(""), *parts


def _decode_rows(version: LanceDataset, fragment_id: int) -> None:
    fragment = version.get_fragment(fragment_id)
    if fragment is None:
        return
    found, counted = 0, fragment.count_rows()
    for batch in fragment.to_batches():
        found += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            damaged = damaged_text(column)
            if damaged is not None:
                raise CorruptFileError(
                    f"texts of column {name!r} in fragment {fragment_id}",
                    expected="UTF-8",
                    found=damaged,
                    where=version.manifest.where,
                )
    if found != counted:
        raise CorruptFileError(
            f"rows of fragment {fragment_id}",
            expected=f"{counted}",
            found=f"{found}",
            where=version.manifest.where,
        )


def _decode_file(file: IndexFile) -> None:
    for _ in file.windows(file.schema.names):
        pass


def _error_of(check: Callable[[], object]) -> str | None:
    """Return the error message of a check that fails."""
    try:
        check()
    except GlaiveError as error:
        return str(error)
    return None
