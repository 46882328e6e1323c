"""Execute a write plan: write rows to data files, uncommitted."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from glaive.arrow.chunked import cut_views, null_count
from glaive.dataset.fragment_metadata import DataFile, FragmentMetadata
from glaive.dataset.monitoring import note_rows
from glaive.dataset.writing.conform import conform
from glaive.dataset.writing.plan import WritePlan
from glaive.dataset.writing.source import Rows, batches_of
from glaive.errors import OptionError, SchemaError, StoreError, UnsupportedFeatureError
from glaive.file.open import create_writer
from glaive.file.protocol import FileWriter, WrittenFile
from glaive.format import fragment as stored
from glaive.format.blobs import has_blobs_v2
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment
from glaive.format.paths import blob_folder, is_blob_file_name, new_data_file_name
from glaive.io.access import open_store
from glaive.io.store import ObjectStore
from glaive.io.wrapped import NewFiles
from glaive.process import FILES, Origin, emit
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.dataset.writing.rules import BoundRules

# --- Progress of writes: callbacks for each started and finished data file --------------


class FragmentWriteProgress(ABC):
    """Callbacks for each file. Derive from it and pass an instance as ``progress``."""

    @abstractmethod
    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """React to a started file. In ``LanceFragment.create`` the fragment has its name and id."""

    @abstractmethod
    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """React to a finished file, which the fragment contains."""


class NoopFragmentWriteProgress(FragmentWriteProgress):
    """Does nothing."""

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Do nothing."""

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Do nothing."""


class NumberedProgress(FragmentWriteProgress):
    """Reports the only fragment of a write, whose id is known, to another callback."""

    def __init__(self, inner: FragmentWriteProgress, number: int) -> None:
        self._inner, self._number = inner, number

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Report that the file is started."""
        self._inner.begin(replace(fragment, id=self._number), **kwargs)

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Report that the file is finished."""
        self._inner.complete(replace(fragment, id=self._number), **kwargs)


class FileSystemFragmentWriteProgress(FragmentWriteProgress):
    """Keeps notes of unfinished files in a folder, so that other processes can see them.

    Each file has a note ``fragment_<id>.json`` with its metadata. While glaive writes the file, it
    also has a note ``fragment_<id>.in_progress`` with the id and ``metadata``.

    Parameters
    ----------
    base_uri
        The folder: a path, or a URI of an object store.
    metadata
        Strings to store in each note, such as the name of the worker.
    """

    PROGRESS_EXT: ClassVar[str] = ".in_progress"

    def __init__(self, base_uri: str, metadata: Mapping[str, str] | None = None) -> None:
        self._base_uri = base_uri
        self._metadata = dict(metadata or {})
        self._store: ObjectStore | None = None
        if any(not isinstance(one, str) for pair in self._metadata.items() for one in pair):
            raise OptionError(f"metadata: expected strings, found {metadata!r:.80}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None}

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Write both notes of the fragment."""
        note = {"fragment_id": fragment.id, "metadata": self._metadata}
        self._put(f"fragment_{fragment.id}{self.PROGRESS_EXT}", note)
        self._put(f"fragment_{fragment.id}.json", fragment.to_json())

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Delete the note of the unfinished file."""
        self._open().delete([f"fragment_{fragment.id}{self.PROGRESS_EXT}"])

    def _open(self) -> ObjectStore:
        if self._store is None:
            self._store = open_store(self._base_uri)
        return self._store

    def _put(self, name: str, content: object) -> None:
        self._open().put(name, [json.dumps(content).encode()])


# --- Write a stream of rows into data files of limited size -----------------------------

_PART_BYTES: Final = 8 * 1024 * 1024
"""Minimum bytes of rows between two checks of the size of a file: about a page."""


class RollingWriter:
    """Writes rows, and starts a new file when the written bytes of the current file exceed a limit.

    Only written pages count, as in pylance, so a small limit makes no tiny files.
    """

    def __init__(self, plan: WritePlan) -> None:
        self.plan, self.options = plan, plan.options
        self.fragments: list[Fragment] = []
        self._origin = Origin()
        self._dictionaries = dict(plan.dictionaries)  # the writer adds dictionaries of new columns
        self._location = plan.locations[0]
        self._writer: FileWriter | None = None
        self._name = ""
        self._rows = 0

    def write(self, rows: Rows) -> None:
        """Append rows; finish files that are full and start others."""
        start = 0
        while start < rows.num_rows:
            writer = self._writer or self._start_file()
            for part in self._parts(rows, start):
                writer.write(part)
                self._rows += part.num_rows
                start += part.num_rows
                note_rows(part.num_rows)
                if self._is_full(writer):
                    self.close()
                    break

    def _parts(self, rows: Rows, start: int) -> Iterator[Rows]:
        """Yield rows from ``start`` on that fit the current file, in parts of limited size."""
        stop = min(rows.num_rows, start + self._max_rows - self._rows)
        budget = max(self.options.max_bytes_per_file, _PART_BYTES)
        step = stop - start
        # The buffer size is an upper bound and cheap to compute.
        if rows.get_total_buffer_size() > budget and rows.nbytes > budget:
            step = min(step, max(1, budget * rows.num_rows // rows.nbytes))
        if step == rows.num_rows:
            yield rows
            return
        for first in range(start, stop, step):
            yield rows.slice(first, min(step, stop - first))

    def _start_file(self) -> FileWriter:
        plan = self.plan
        self._name = new_data_file_name(self.options.name_end)
        self._location = location = plan.locations[len(self.fragments) % len(plan.locations)]
        if location.base_id is not None and any(map(has_blobs_v2, plan.schema.fields)):
            raise UnsupportedFeatureError(
                "target_bases: files with blob columns must be in the dataset's own root"
            )
        writer = self._writer = create_writer(
            NewFiles(location.store),
            location.path_of(self._name),
            plan.schema,
            plan.version,
            encoding_options=plan.encoding_options,
            dictionaries=self._dictionaries,
            blobs=plan.blobs,
            rows_per_batch=self.options.max_rows_per_group,
            page_bytes=self.options.page_bytes(len(plan.schema.fields)),
            checksums=plan.checksums,
        )
        self._rows = 0
        if self.options.progress is not None:
            self.options.progress.begin(self._begun(self.options.progress))
        return writer

    def _begun(self, progress: object) -> FragmentMetadata:
        """Return the fragment of a started file; the file has a name if the fragment has an id."""
        begun = FragmentMetadata(0, [], None)  # type: ignore[arg-type]  # not known, as in pylance
        if isinstance(progress, NumberedProgress):
            version = map(int, self.plan.version.split("."))
            begun.files.append(DataFile(self._name, [], [], *version))
        return begun

    @property
    def _max_rows(self) -> int:
        """Maximum rows of the current file."""
        full, limit = self.options.full_files, self.options.max_rows_per_file
        return limit if full is None or len(self.fragments) < full else max(1, limit - 1)

    def _is_full(self, writer: FileWriter) -> bool:
        return self._rows >= self._max_rows or writer.position >= self.options.max_bytes_per_file

    def close(self) -> None:
        """Finish the current file, if any."""
        if self._writer is None:
            return
        written = self._writer.finish()
        self._writer = None
        emit(FILES, mode="create", type="data", path=self._name)
        fragment = _fragment(self._name, written, self._location.base_id)
        self.fragments.append(fragment)
        if self.options.progress is not None:
            self.options.progress.complete(FragmentMetadata.of(fragment))

    def discard(self) -> None:
        """Remove all written files; forks of the writing process keep them."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        if self._origin.is_this_process:
            discard_fragments(self.plan, self.fragments)


def discard_fragments(plan: WritePlan, fragments: Iterable[Fragment], *, own: bool = True) -> None:
    """Remove uncommitted files, if possible.

    In symlinked folders, remove only files of this run (``own``).
    """
    files = [file for fragment in fragments for file in fragment.files]
    for location in plan.locations:
        paths = [location.path_of(file.path) for file in files if file.base_id == location.base_id]
        if any(map(has_blobs_v2, plan.schema.fields)):
            paths += blob_files(location.store, paths)
        location.store.discard(paths, own=own)


def blob_files(store: ObjectStore, data_files: Iterable[str]) -> list[str]:
    """Return paths of the blob files that belong to data files; empty if listing fails.

    Symlinked folders are skipped: writers never make them, so they hold other files.
    """
    folders = map(blob_folder, data_files)
    try:
        own = [folder for folder in folders if not store.is_link(folder)]
        found = [meta.path for folder in own for meta in store.list(folder)]
    except StoreError:
        return []
    return [path for path in found if is_blob_file_name(path.rpartition("/")[2])]


def _fragment(name: str, written: WrittenFile, base_id: int | None) -> Fragment:
    file = stored.DataFile(
        path=name,
        fields=tuple(written.fields),
        column_indices=tuple(written.column_indices),
        version=written.version,
        size=written.size,
        base_id=base_id,
    )
    return Fragment(files=(file,), physical_rows=written.rows)


def write_fragments(
    plan: WritePlan,
    rows: Iterable[Rows],
    *,
    keep_dictionaries: bool = False,
    snapshot: Snapshot | None = None,
) -> list[Fragment]:
    """Write rows into as many files as needed; return one fragment per file.

    Parameters
    ----------
    plan
        Columns, locations, limits and encodings.
    rows
        Tables or batches with the columns of the plan, matched by name, in any order.
    keep_dictionaries
        Whether strings may be dictionary-encoded, as from
        :meth:`glaive.scan.query.Query.tables`.
    snapshot
        The version before the write: its session keeps the rows if they are few.

    Raises
    ------
    SchemaError
        A batch has other columns, or invalid values. The plan checks the schema of
        the input as a whole. Only this function compares each batch with the plan.

    Notes
    -----
    On failure glaive removes the files written so far, if possible.
    """
    writer = FragmentWriter(plan, keep_dictionaries=keep_dictionaries)
    try:
        for piece in rows:
            writer.write(piece)
        written = writer.finish()
    except BaseException:
        writer.discard()
        raise
    if snapshot is not None and writer.few and len(written) == 1:
        from glaive.scan.small import keep_written  # imported here: appends keep no rows

        few = pa.Table.from_batches(list(batches_of(writer.few)))
        keep_written(snapshot, written[0], plan.schema, few)
    return written


_MAX_KEPT_BYTES: Final = 1024 * 1024
"""Maximum bytes of rows that the session keeps after writing them."""


class FragmentWriter:
    """Writes rows as they come, for callers that write several streams at a time.

    :func:`write_fragments` explains parameters and errors. After an error call :meth:`discard`.
    """

    __slots__ = ("_arrow", "_bytes", "_keep_dictionaries", "_plan", "_roll", "_rules", "few")

    def __init__(self, plan: WritePlan, *, keep_dictionaries: bool = False) -> None:
        self._plan, self._keep_dictionaries = plan, keep_dictionaries
        self._arrow = plan.schema.to_arrow()
        self._roll = RollingWriter(plan)
        self._rules: BoundRules | None = None
        self._bytes, self.few = 0, list[Rows]()
        if plan.rules is not None:  # imported here: few tables have rules
            from glaive.dataset.writing.rules import BoundRules

            self._rules = BoundRules(plan.rules, plan.schema)

    def write(self, piece: Rows) -> None:
        """Append rows."""
        for part in cut_views(piece):
            if self._rules is None:
                fitted = conform(part, self._arrow, keep_dictionaries=self._keep_dictionaries)
            else:
                fitted = self._rules.applied(part)
            _check_members(fitted, self._plan.schema)
            self._roll.write(fitted)
            self._bytes += fitted.get_total_buffer_size()
            self.few = [*self.few, fitted] if self._bytes <= _MAX_KEPT_BYTES else []

    def finish(self) -> list[Fragment]:
        """Finish the last file; return one fragment per file."""
        self._roll.close()
        return self._roll.fragments

    def discard(self) -> None:
        """Remove the files written so far, if possible."""
        self._roll.discard()


def _check_members(rows: Rows, schema: LanceSchema) -> None:
    """Refuse nulls in non-nullable struct members and list items, except within a null.

    File writers check top-level columns, as they count nulls anyway. The rows have the columns of
    ``schema``, in its order.
    """
    for at in _strict_columns(schema):
        field, column = schema.fields[at], rows.column(at)
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            _check(chunk, field, field.name)


@lru_cache(maxsize=64)  # repeated appends have the same schema
def _strict_columns(schema: LanceSchema) -> tuple[int, ...]:
    """Return columns with a non-nullable member or item."""
    return tuple(at for at, field in enumerate(schema.fields) if _is_strict(field))


def _is_strict(field: Field) -> bool:
    children = field.children
    if field.logical_type == "map":  # Arrow never has null entries or keys of maps
        children = field.children[0].children[1:]
    return any(not child.nullable or _is_strict(child) for child in children)


def _check(array: Any, field: Field, path: str) -> None:
    if not _is_strict(field):
        return
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_struct(array.type):
        array = array.drop_null() if array.null_count else array
        parts = [array.field(child.name) for child in field.children]
    else:
        if pa.types.is_map(array.type):  # Arrow cannot flatten maps
            array = _listed(array, field.children[0])
        parts = [array.flatten()]
    for child, part in zip(field.children, parts, strict=True):
        below = f"{path}.{child.name}"
        if not child.nullable and (nulls := null_count(part)):
            raise SchemaError(
                f"column {below!r}: expected no nulls, found {nulls}. Fill them, or "
                "make it nullable: in a dataset by alter_columns."
            )
        _check(part, child, below)


def _listed(array: Any, entries: Field) -> Any:
    """Return a map as lists of its entries; a cast would refuse nulls itself."""
    names = [child.name for child in entries.children]
    pairs = pa.StructArray.from_arrays([array.keys, array.items], names)
    kind = pa.list_(pairs.type)
    own = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(array), own, array.null_count, array.offset, children=[pairs]
    )
