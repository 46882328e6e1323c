"""Formats by name; whole files as rows; tables of Delta and Iceberg."""

from __future__ import annotations

import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from importlib import import_module
from io import BytesIO
from operator import attrgetter
from typing import Any, ClassVar, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from glaive.config import added
from glaive.dataclass import NamedTuple
from glaive.dataset.blobs import blob_array, blob_field
from glaive.dataset.version import sanitize_ts
from glaive.errors import (
    FormatError,
    MissingDependencyError,
    ObjectNotFoundError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.ingestion.columnar import Arrow, Avro, Orc, Parquet
from glaive.ingestion.lines import Csv, Json, Text
from glaive.ingestion.sources import (
    Piece,
    Rejects,
    Rows,
    SourceFile,
    SourceFormat,
    file_at,
    files_in,
    folder_of,
    open_source,
    refuse_failure,
)
from glaive.ingestion.task import scalar_of
from glaive.io.access import open_store
from glaive.io.failures import as_store_errors, from_object_store
from glaive.options import TEXT, Kind, integer

# --- Whole files as rows: images, audio or other files, as blobs with facts about them ---

_FIELDS = (
    pa.field("path", pa.string(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("modified", pa.timestamp("us", "UTC")),
    pa.field("sha256", pa.string(), nullable=False),
)


class Binary(SourceFormat):
    """A row for each file: ``path``, ``size``, ``modified``, ``sha256`` and the bytes.

    Options: ``content`` (``content``), the name of the column with the bytes, which are blobs.
    """

    name = "binary"
    options: ClassVar = {"content": (TEXT, "content")}
    _extra: ClassVar[tuple[Any, ...]] = ()

    def schema(self, file: SourceFile) -> pa.Schema:  # the same for all
        """Return the columns, the same for every file."""
        return pa.schema([*_FIELDS, *self._extra, blob_field(self.given.content, nullable=False)])

    def read(
        self, piece: Piece, schema: pa.Schema, rejects: Rejects
    ) -> Iterator[Rows]:  # always the same
        """Yield one row; memory: the file."""
        file = piece.file
        try:
            with open_source(file) as source, as_store_errors(file.uri, "read"):
                content = source.read()
            facts = self._facts(file, content, rejects)
        except MemoryError as error:
            raise FormatError(
                f"{file.uri}: {file.size} bytes are one value, and there is too little memory. "
                "Leave the file out, or give the process more memory"
            ) from error
        if facts is None:
            return
        digest = hashlib.sha256(content).hexdigest()
        values = [file.named[1], len(content), file.modified, digest, *facts]
        arrays = [
            pa.array([value], field.type)
            for value, field in zip(values, (*_FIELDS, *self._extra), strict=True)
        ]
        yield pa.table([*arrays, blob_array([content])], schema=self.schema(file))

    def _facts(
        self, file: SourceFile, content: bytes, rejects: Rejects
    ) -> list[Any] | None:  # of subclasses
        """Return values of further columns; ``None`` to reject the file."""
        return []


class Images(Binary):
    """The same as :class:`Binary`, with ``width``, ``height`` and ``format`` of images."""

    name = "images"
    suffixes: ClassVar[tuple[str, ...]] = (
        ".jpg",
        ".jpeg",
        ".png",
        ".webp",
        ".gif",
        ".bmp",
        ".tiff",
    )
    _extra = (
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
        pa.field("format", pa.string()),
    )

    def _facts(self, file: SourceFile, content: bytes, rejects: Rejects) -> list[Any] | None:
        try:
            images: Any = import_module("PIL.Image")
        except ImportError as error:
            raise MissingDependencyError(
                "images: Pillow is not installed: pip install 'glaive[images]'; or use "
                "format='binary', which does not decode the files"
            ) from error
        try:
            with images.open(BytesIO(content)) as image:
                return [image.width, image.height, image.format]
        except MemoryError:
            raise
        except Exception as error:  # of any type: each format is a plugin
            rejects.add(file, None, f"not an image: {error}", content)
            return None


# --- Tables of Delta and Iceberg: one version, or what changed since an earlier one -------
#
# A package of the format reads the metadata in this process; tasks read the files.

_VERSION: Final = integer(0)
_OPTIONS: Final[dict[str, tuple[Kind, Any]]] = {
    "version": (
        # of the command line and of SQL, too
        Kind(
            _VERSION.expected,
            lambda given: (_VERSION.parse if isinstance(given, str) else _VERSION.check)(
                "version", given
            ),
        ),
        None,
    ),
    "asof": (Kind("a datetime or a string", lambda given: sanitize_ts(given).astimezone()), None),
}

Parts: TypeAlias = dict[Hashable, tuple[SourceFile, Any]]
"""Files of a table by all that decides on their rows, with what a task needs to read them."""


class TableFormat(SourceFormat):
    """A version of a table of another system.

    Options: ``version``, or ``asof``, a time; by default the newest version.

    Parameters
    ----------
    table
        The place of the table.
    removed
        Files with rows that the table had before and lacks now.
    """

    folders = False
    options: ClassVar = _OPTIONS

    def __init__(self, options: Mapping[str, object]) -> None:
        super().__init__(options)
        if self.given.version is not None and self.given.asof is not None:
            raise OptionError(f"{self.name}: found version and asof. Pass one of them.")
        self.table, self.version, self.identity = "", 0, ""
        self.removed: list[SourceFile] = []
        self._since: int | None = None
        self._columns = pa.schema([])
        self._parts: dict[tuple[str, str | None], Any] = {}
        self._opened: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}

    def described(self) -> tuple[str, dict[str, object]]:
        """Return the name, the version that was listed, and the version before."""
        return self.name, {**self.properties, "since": self._since}

    @property
    def mark(self) -> SourceFile:
        """The entry of this version in the list of loaded files."""
        return SourceFile("", self.table, 0, None, etag=f"{self.identity} {self.version}")

    def files(
        self,
        sources: Sequence[str],
        options: Mapping[str, str],
        last: Callable[[SourceFile], str | None] = lambda _: None,
        *,
        by_keys: bool = False,
    ) -> list[SourceFile]:
        """Return the files of the version, or the files with what changed since the last load.

        Parameters
        ----------
        last
            Returns the ETag of the entry of the last load, if there is one.
        by_keys
            Whether rows have keys, so that changed and removed rows can be found.

        Raises
        ------
        MissingDependencyError
            The package of the format is missing.
        OptionError
            There are several sources, or the table has no such version. Or rows were changed or
            removed, and they have no keys.
        UnsupportedFeatureError
            The table has a feature that the reader lacks.
        """
        if len(sources) != 1:
            raise OptionError(f"{self.name}: name one table, found {len(sources)} sources")
        self._open(sources[0], options)
        self.properties = {
            f"{self.name}.table": self.table,
            f"{self.name}.version": f"{self.version}",
        }
        identity, _, since = (last(self.mark) or "").rpartition(" ")
        self._since = int(since) if since else None
        if self._since is None:
            added, removed = self._all(self.version), Parts()
        elif identity != self.identity:
            raise OptionError(
                f"{sources[0]}: the table was created again since its last load. Pass "
                "mode='overwrite' to load it anew"
            )
        else:
            added, removed = self._changes(self._since, by_keys=by_keys)
        both = [*removed.values(), *added.values()]
        self._parts = {(file.path, file.etag): part for file, part in both}
        self.removed, files = (
            sorted((file for file, _ in parts.values()), key=attrgetter("path"))
            for parts in (removed, added)
        )
        return files

    def _changes(self, since: int, *, by_keys: bool) -> tuple[Parts, Parts]:
        """Return the files with rows that are new or changed, and the files with rows removed."""
        if since == self.version:
            return {}, {}
        appended = self._appended(since)
        if appended is not None:
            return appended, {}
        if not by_keys:
            raise OptionError(
                f"{self.table}: rows were changed or removed since version {since}, the last "
                "load, or the table's history is too short to tell. Pass mode='merge' and "
                "merge_keys='…', or mode='overwrite'"
            )
        before, now = self._all(since), self._all(self.version)
        added = {key: now[key] for key in now.keys() - before.keys()}
        removed = {key: before[key] for key in before.keys() - now.keys()}
        return self._narrowed(added, removed)

    def _narrowed(self, added: Parts, removed: Parts) -> tuple[Parts, Parts]:
        """Leave out rows that both have, if this is cheap."""
        return added, removed

    @abstractmethod
    def _open(self, source: str, options: Mapping[str, str]) -> None:
        """Open the table at a version: set ``table``, ``version``, ``identity``, columns."""

    @abstractmethod
    def _all(self, version: int) -> Parts:
        """Return all files of a version."""

    @abstractmethod
    def _appended(self, since: int) -> Parts | None:
        """Return the files that were added since; ``None`` if other rows changed, or may have."""

    def schema(self, file: SourceFile) -> pa.Schema:
        """Return the columns of the table."""
        return self._columns

    def for_task(self, pieces: Sequence[Piece]) -> TableFormat:
        """Return the same format with the files of a task only; a table may have a million."""
        lean = copy(self)
        keys = {(piece.file.path, piece.file.etag) for piece in pieces}
        vars(lean).update(_parts={key: self._parts[key] for key in keys}, removed=[])
        return lean

    def _needed(self, module: str, source: str) -> Any:
        """Import a module of the package that reads the metadata."""
        try:
            return import_module(module)
        except ImportError as error:
            package = module.partition(".")[0]
            raise MissingDependencyError(
                f"{source}: {self.name.title()} tables need the package {package}. Install it: pip "
                f"install 'glaive[{self.name}]'"
            ) from error


class _Live(NamedTuple):
    """The rows of a file of Delta that count, and the values of its partition.

    Parameters
    ----------
    mask
        Whether a row counts, for the first rows.
    rest
        Whether the other rows count.
    """

    partition: Mapping[str, Any]
    mask: Any
    rest: bool = True

    def masked(self, start: int, count: int) -> Any:
        """Return whether rows count."""
        known = self.mask.slice(start, count)
        return pa.concat_arrays([known, pa.repeat(self.rest, count - len(known))])

    def without(self, other: _Live) -> _Live | None:
        """Return the rows that only this file has, or ``None``."""
        size = max(len(self.mask), len(other.mask))
        kept = pc.and_not(self.masked(0, size), other.masked(0, size))
        return _Live(self.partition, kept, rest=False) if kept.true_count else None


class Delta(TableFormat, Parquet):
    """One version of a Delta table. It has the options of :class:`TableFormat`."""

    name = "delta"
    suffixes: ClassVar[tuple[str, ...]] = ()

    def _open(self, source: str, options: Mapping[str, str]) -> None:
        deltalake = self._needed("deltalake", source)

        def opened(version: int | None) -> Any:
            try:
                return deltalake.DeltaTable(
                    source, version=version, storage_options=dict(options) or None
                )
            except deltalake.exceptions.DeltaError as error:
                raise OptionError(
                    f"{source}: no such Delta table or version: {error}. Name another; if clean-up "
                    "removed the version of the last load, pass mode='overwrite'"
                ) from error
            except OSError as error:  # its message may have credentials
                raise from_object_store(error, source, "read", options) from None

        table = opened(self.given.version)
        if self.given.asof is not None:
            table.load_as_version(self.given.asof)
        settings = table.metadata().configuration
        mapping = settings.get("delta.columnMapping.mode", "none")
        if mapping != "none":
            raise UnsupportedFeatureError(
                f"{source}: the table maps columns by {mapping}. Read it with Spark's delta source "
                "and write it with glaive.spark.write"
            )
        self.table, self.version = table.table_uri, table.version()
        self.identity = f"{table.metadata().id}"
        self._columns = pa.schema(table.schema().to_arrow()).remove_metadata()
        with as_store_errors(source, "list"):
            store = open_store(source, options)
        self._opened = opened, store, options
        if self.given.asof is not None:
            # For a time before all versions, deltalake loads the first.
            with suppress(ObjectNotFoundError):  # the log may have only a checkpoint of it
                made = store.head(_log_path(self.version)).modified
                if made is not None and made > self.given.asof:
                    raise OptionError(
                        f"{source}: no version is as old as {self.given.asof}. Pass a later time"
                    )

    def _all(self, version: int) -> Parts:
        opened, _, _ = self._opened
        table, parts, kept = opened(version), Parts(), {}
        for batch in table.deletion_vectors():
            for uri, mask in zip(*(pa.record_batch(batch).columns), strict=True):
                name = unquote(uri.as_py()).removeprefix(unquote(table.table_uri)).lstrip("/")
                kept[name] = pa.array(mask.values)
        actions = pa.table(table.get_add_actions())
        names = ("path", "size_bytes", "modification_time", "partition")
        known = [name for name in names if name in actions.column_names]
        for action in actions.select(known).to_pylist():
            file = self._file(version, *(action[name] for name in names[:3]))
            mask = kept.get(file.path)
            live = _Live(action.get("partition") or {}, mask)
            key = mask and hashlib.sha256(b"".join(map(bytes, mask.buffers()[1:]))).digest()
            parts[file.path, key] = file, live
        return parts

    def _file(self, version: int, path: str, size: int, changed: int) -> SourceFile:
        _, store, options = self._opened
        path, modified = unquote(path), datetime.fromtimestamp(changed / 1000, UTC)
        if "://" in path or path.startswith("/"):
            raise UnsupportedFeatureError(
                f"{self.table}: the file {path!r:.80} is in another folder, as in a shallow clone. "
                "Name the origin of the clone"
            )
        folder = folder_of(store)
        return SourceFile(folder, path, size, modified, options, store.secret, f"{version}")

    def _appended(self, since: int) -> Parts | None:
        _, store, _ = self._opened
        parts = Parts()
        if since > self.version:
            return None
        for version in range(since + 1, self.version + 1):
            path = _log_path(version)
            try:
                log = store.get(path).to_pybytes()
            except ObjectNotFoundError:  # the table keeps its log for 30 days
                return None
            try:
                actions = [json.loads(line) for line in log.splitlines() if line.strip()]
                removes = [one["remove"] for one in actions if "remove" in one]
                adds = [one["add"] for one in actions if "add" in one]
                if any(one.get("dataChange", True) for one in removes):
                    return None
                if any(one.get("dataChange", True) and one.get("deletionVector") for one in adds):
                    return None
                for add in adds:
                    if add.get("dataChange", True):
                        names = ("path", "size", "modificationTime")
                        file = self._file(version, *(add[name] for name in names))
                        texts = add.get("partitionValues") or {}
                        columns = map(self._columns.field, texts)
                        values = {
                            one.name: scalar_of(texts[one.name] or None, one, file.uri).as_py()
                            for one in columns
                        }
                        parts[file.path] = file, _Live(values, None)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
                raise FormatError(
                    f"{self.table}: {path} is damaged: {error!r}. Repair the table"
                ) from error
        return parts

    def _narrowed(self, added: Parts, removed: Parts) -> tuple[Parts, Parts]:
        """Leave out rows of a file that both versions have, if only its deletion vector changed."""
        by_path = [
            {file.path: (key, file, live) for key, (file, live) in parts.items()}
            for parts in (added, removed)
        ]
        empty = pa.array([], pa.bool_())
        for path in by_path[0].keys() & by_path[1].keys():
            both = [of[path] for of in by_path]
            new, old = (
                _Live(live.partition, empty if live.mask is None else live.mask)
                for _, _, live in both
            )
            for parts, (key, file, _), live in (
                (added, both[0], new.without(old)),
                (removed, both[1], old.without(new)),
            ):
                del parts[key]
                if live is not None:
                    parts[key] = file, live
        return added, removed

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Return runs of row groups; a file with deleted rows is one piece."""
        if self._parts[file.path, file.etag].mask is not None:
            return SourceFormat.pieces(self, file, target_bytes)
        return super().pieces(file, target_bytes)

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Yield the rows that the version has, with the values of their partition."""
        live, at = self._parts[piece.file.path, piece.file.etag], 0
        # The numbers of deleted rows count all rows of the file, so none may be left out.
        strict = rejects if live.mask is None else Rejects(keep=False)
        for batch in self._refuse_removed(super().read(piece, schema, strict), piece.file):
            rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
            if live.mask is not None:
                rows = rows.filter(live.masked(at, len(batch)))
                at += len(batch)
            for name, value in live.partition.items():
                if name in schema.names and name not in rows.schema.names:
                    field = self._columns.field(name)
                    column = pa.array([value], field.type)[0]
                    rows = rows.append_column(field, pa.repeat(column, len(rows)))
            yield rows

    def _refuse_removed(self, batches: Iterator[Rows], file: SourceFile) -> Iterator[Rows]:
        try:
            yield from batches
        except ObjectNotFoundError as error:
            raise ObjectNotFoundError(
                f"{file.uri}: the file of the Delta table was removed, perhaps by VACUUM. Pass "
                "mode='overwrite' to load the newest version anew"
            ) from error


def _log_path(version: int) -> str:
    return f"_delta_log/{version:020}.json"


class Iceberg(TableFormat):
    """One snapshot of an Iceberg table, read by pyiceberg. A file is one task.

    It has the options of :class:`TableFormat`; ``version`` is the id of a snapshot. ``catalog``
    is the name of a catalogue of pyiceberg's configuration; the source is then the name of a
    table. Otherwise the source is the folder of a table, or its ``metadata.json``.
    """

    name = "iceberg"
    options: ClassVar = {**_OPTIONS, "catalog": (TEXT, None)}

    def _open(self, source: str, options: Mapping[str, str]) -> None:
        tables, files = (
            self._needed(f"pyiceberg.{name}", source) for name in ("table", "io.pyarrow")
        )
        named: Any = import_module("pyiceberg.exceptions")
        errors: Any = (
            ValueError,
            ObjectNotFoundError,
            named.NoSuchTableError,
            named.ValidationError,
        )
        try:
            if self.given.catalog is None:
                io, place = StoreFiles(source, options), _newest_metadata(source, options)
                read = import_module("pyiceberg.serializers").FromInputFile.table_metadata
                metadata = read(io.new_input(place))
                catalog = import_module("pyiceberg.catalog.noop").NoopCatalog("static-table")
                table = tables.StaticTable((source,), metadata, place, io, catalog)
            else:
                catalogs = import_module("pyiceberg.catalog")
                table = catalogs.load_catalog(self.given.catalog, **options).load_table(source)
                metadata = table.metadata
        except errors as error:
            raise OptionError(f"{source}: no such Iceberg table: {error}") from error
        except OSError as error:  # its message may have credentials
            raise from_object_store(error, source, "read", options) from None
        if self.given.asof is not None:
            snapshot = table.snapshot_as_of_timestamp(int(self.given.asof.timestamp() * 1000))
        elif self.given.version is not None:
            snapshot = table.snapshot_by_id(self.given.version)
        else:
            snapshot = table.current_snapshot()
        is_newest = self.given.asof is None and self.given.version is None
        if snapshot is None and not is_newest:
            raise OptionError(f"{source}: no such Iceberg snapshot. Name another.")
        # A table without rows may lack snapshots: its version is 0.
        self.table, self.version = table.location(), 0 if snapshot is None else snapshot.snapshot_id
        schema = table.schema() if is_newest else table.scan(snapshot_id=self.version).projection()
        self.identity = f"{metadata.table_uuid}"
        try:
            columns = files.schema_to_pyarrow(schema, include_field_ids=False)
        except (NotImplementedError, ValueError, TypeError) as error:
            raise UnsupportedFeatureError(f"{source}: {error}. Read it with Spark") from error
        self._columns = files._pyarrow_schema_ensure_small_types(columns)  # noqa: SLF001  # pinned
        # Tasks need only the schemas, partition specs and properties.
        lean: dict[str, Any] = {"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}}
        self._reader = metadata.model_copy(update=lean), table.io, schema
        self._opened = table

    def _all(self, version: int) -> Parts:
        if not version:
            return Parts()
        if self._opened.snapshot_by_id(version) is None:
            raise OptionError(
                f"{self.table}: snapshot {version} was removed. Pass mode='overwrite' to load the "
                "table anew"
            )
        return self._planned(self._opened.scan(snapshot_id=version))

    def _planned(self, scan: Any) -> Parts:
        try:
            tasks = list(scan.plan_files())
        except ValueError as error:
            raise UnsupportedFeatureError(
                f"{self.table}: {error}. Compact the table, or read it with Spark's iceberg source "
                "and write it with glaive.spark.write"
            ) from error
        parts = Parts()
        for task in tasks:
            file = task.file
            deletes = frozenset(
                (one.file_path, getattr(one, "content_offset", None)) for one in task.delete_files
            )
            key = hashlib.sha256(repr(sorted(deletes, key=repr)).encode()).hexdigest()
            found = SourceFile("", file.file_path, file.file_size_in_bytes, None, etag=key)
            parts[file.file_path, key] = found, task
        return parts

    def _appended(self, since: int) -> Parts | None:
        table: Any = self._opened
        at = self.version
        while at != since:
            snapshot = table.snapshot_by_id(at)
            done = snapshot and snapshot.summary and snapshot.summary.operation.value
            if done not in ("append", "replace"):
                return None
            at = snapshot.parent_snapshot_id or 0
        return self._planned(
            table.incremental_append_scan(
                from_snapshot_id_exclusive=since or None, to_snapshot_id_inclusive=self.version
            )
        )

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Yield the rows of a file that the snapshot has; memory: a batch."""
        reader = self._needed("pyiceberg.io.pyarrow", piece.file.uri)
        every = import_module("pyiceberg.expressions").AlwaysTrue()
        metadata, io, columns = self._reader
        task = self._parts[piece.file.path, piece.file.etag]
        names = [name for name in schema.names if name in self._columns.names]
        if not names:
            raise OptionError(f"{self.table}: the table lacks {schema.names}. Name its columns")
        scan = reader.ArrowScan(metadata, io, columns.select(*names), every)
        try:
            deletes = reader._read_all_delete_files(io, [task])  # noqa: SLF001  # pinned
            # The public method reads a whole file into memory.
            batches = scan._record_batches_from_scan_tasks_and_deletes  # noqa: SLF001  # pinned
            yield from batches([task], deletes)
        except (pa.ArrowException, OSError, ValueError, NotImplementedError) as error:
            refuse_failure(piece.file, error)
            raise FormatError(f"{piece.file.uri}: pyiceberg cannot read it: {error}") from error


_METADATA: Final = re.compile(r"(?:v|0*)(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")


def _newest_metadata(source: str, options: Mapping[str, str]) -> str:
    """Return the newest file of metadata of a table: the source, or in its folder."""
    if "metadata.json" in source.rpartition("/")[2]:
        return source
    folder = f"{source.rstrip('/')}/metadata"
    found = [
        (int(name[1]), file.modified, file.uri)
        for file in files_in(folder, options)
        if (name := _METADATA.fullmatch(file.path))
    ]
    if not found:
        raise OptionError(f"{source}: no such Iceberg table: metadata/ has no metadata.json")
    return max(found)[2]


class StoreFiles:
    """The stores of glaive as files of pyiceberg; can be pickled."""

    def __init__(self, table: str, options: Mapping[str, str]) -> None:
        self.properties = dict(options)
        self._is_local = _is_local(table)

    def new_input(self, location: str) -> StoredInput:
        """Return a file by its URI, which the metadata of a stranger may name."""
        if _is_local(location) and not self._is_local:
            raise UnsupportedFeatureError(
                f"{location}: a table of an object store names a local file. Repair the table"
            )
        # In a location, ``%20`` stands for these three characters.
        location = re.sub("^file:(?://)?(?=/)", "local://", location)
        return StoredInput(re.sub("^s3[an]://", "s3://", location), self.properties)


def _is_local(uri: str) -> bool:
    return uri.partition("://")[0].lower() in ("file", uri.lower())


class StoredInput:
    """A file that pyiceberg opens."""

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.location, self._options = location, options

    def open(self, *, seekable: bool = True) -> pa.NativeFile:
        """Open the file; it costs one request for its size."""
        return open_source(file_at(self.location, self._options))


# --- Formats by name, and the format that names of files suggest ------------------------

FORMATS: dict[str, type[SourceFormat]] = {
    kind.name: kind
    for kind in (Csv, Json, Parquet, Orc, Avro, Arrow, Text, Images, Binary, Delta, Iceberg)
}


def format_named(name: str, options: Mapping[str, object]) -> SourceFormat:
    """Return the format of this name.

    Raises
    ------
    OptionError
        The format does not exist, or an option is wrong.
    """
    kind = FORMATS.get(name) or added("formats").get(name)
    if kind is None:
        raise OptionError(f"format: expected one of {', '.join(FORMATS)}, found {name!r}")
    made: SourceFormat = kind(options)
    return made


def _names_by_suffix(kinds: Mapping[str, type[SourceFormat]]) -> dict[str, str]:
    return {suffix: kind.name for kind in kinds.values() for suffix in kind.suffixes}


def format_of(files: Sequence[SourceFile]) -> str:
    """Return the common format of files, from their names.

    Raises
    ------
    OptionError
        The files have different formats, or an unknown one.
    """
    by_suffix = _names_by_suffix(FORMATS)
    if not by_suffix.keys() >= {file.suffix for file in files}:
        by_suffix = {**_names_by_suffix(added("formats")), **by_suffix}
    found: dict[str | None, str] = {}
    for file in files:
        found.setdefault(by_suffix.get(file.suffix), file.named[1])
    if len(found) == 1 and (name := next(iter(found))) is not None:
        return name
    listed = ", ".join(f"{path} ({name or 'unknown'})" for name, path in found.items())
    raise OptionError(
        f"the names of the files have no common format: {listed}. Pass format=, one of "
        f"{', '.join(FORMATS)}"
    )
