"""Write rows into data files, and commit them.

Files come first and are referenced by nothing; one commit makes all of them part of a new
version, or none. Spark tasks use :func:`write_fragments` alone and leave the commit to the
driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from glaive.dataset.conform import check_names, conform, match_schema
from glaive.dataset.source import Rows
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    OptionError,
    StoreError,
)
from glaive.file.open import check_encoding_options, create_writer
from glaive.file.protocol import FileWriter, WrittenFile
from glaive.file.versions import resolve_version
from glaive.format.fields import LanceSchema
from glaive.format.flags import check_writable
from glaive.format.fragment import DataFile, Fragment
from glaive.format.manifest import Manifest
from glaive.format.paths import data_file_path, new_data_file_name
from glaive.format.transaction import Transaction
from glaive.io.store import ObjectStore
from glaive.table.commit import commit_transaction
from glaive.table.dictionaries import load_dictionaries
from glaive.table.load import open_latest
from glaive.table.operations.append import Append
from glaive.table.operations.overwrite import Overwrite
from glaive.table.protocol import CommitOptions, TableOperation
from glaive.types import FormatVersion

__all__ = ["Target", "WriteOptions", "commit_fragments", "find_target", "write_fragments"]

Mode = Literal["create", "append", "overwrite"]
_MESSAGE = "__lance_commit_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How rows become files and a version.

    Parameters
    ----------
    mode
        ``create`` refuses a dataset that is there; ``append`` and ``overwrite`` create one
        that is not.
    max_rows_per_file
        Rows after which a new file, and with it a new fragment, is begun.
    max_bytes_per_file
        Bytes after which a new file is begun, about.
    data_storage_version
        Format of the files by name; by default that of the dataset, else the stable one.
    enable_stable_row_ids, enable_v2_manifest_paths
        How a new dataset is made; an existing one stays as it is.
    transaction_properties
        Text entries kept with the version.
    commit_message
        Shown with the version.
    progress
        Told of files: ``begin(fragment)`` and ``complete(fragment)``.
    encoding_options
        How columns are encoded, by path; see :func:`glaive.write_dataset`.
    """

    mode: Mode = "create"
    max_rows_per_file: int = 1024 * 1024
    max_bytes_per_file: int = 90 * 1024**3
    data_storage_version: str | None = None
    enable_stable_row_ids: bool = False
    enable_v2_manifest_paths: bool = True
    transaction_properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    commit_message: str | None = None
    progress: Any = None
    encoding_options: Mapping[str, Mapping[str, object]] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if self.mode not in ("create", "append", "overwrite"):
            raise OptionError(
                f"mode: expected 'create', 'append' or 'overwrite', found {self.mode!r}"
            )
        for name in ("max_rows_per_file", "max_bytes_per_file"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(f"{name}: expected a whole number ≥ 1, found {value!r}")
        for name in ("enable_stable_row_ids", "enable_v2_manifest_paths"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name}: expected True or False, found {getattr(self, name)!r}")
        texts: list[tuple[object, object]] = [
            *self.transaction_properties.items(),
            ("commit_message", self.commit_message or ""),
        ]
        for key, text in texts:
            if not isinstance(key, str) or not isinstance(text, str):
                raise OptionError(
                    f"transaction_properties and commit_message: expected text, found {key!r}: "
                    f"{text!r}"
                )


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go: the version they are written for, and the columns and format they get.

    ``base`` is ``None`` when the dataset is to be created. ``dictionaries`` are the items of
    dictionary columns by field id, where all files of the dataset must share them.
    """

    store: ObjectStore
    base: Manifest | None
    schema: LanceSchema
    version: str
    dictionaries: dict[int, pa.Array] = field(default_factory=dict, hash=False)


def find_target(
    store: ObjectStore, source: pa.Schema, options: WriteOptions, base: Manifest | None = None
) -> Target:
    """Look at the dataset, if there is one, before a row is written.

    Raises
    ------
    DatasetExistsError
        ``create`` was asked for and there is a dataset already.
    SchemaError
        Rows with this schema do not fit, or no dataset can have such columns.
    UnsupportedFeatureError
        The dataset uses something this writer does not know; the message names it.
    """
    if base is None:
        with suppress(DatasetNotFoundError):
            base = open_latest(store)
    version = options.data_storage_version
    if base is None:
        check_names(source.names)
        return Target(store, None, LanceSchema.from_arrow(source), resolve_version(version))
    if options.mode == "create":
        raise DatasetExistsError(
            f"{store.uri} is a dataset already (version {base.version}). Use mode='append' or "
            "mode='overwrite', or choose another place."
        )
    flags = base.wire.reader_feature_flags, base.wire.writer_feature_flags
    check_writable(*flags, where=base.where)
    version = resolve_version(str(base.data_format) if version is None else version)
    if options.mode == "overwrite":
        check_names(source.names)
        schema = LanceSchema.from_arrow(source, base.first_field_id)
        return Target(store, base, schema, version)
    schema = match_schema(source, base.schema, where=store.uri)
    return Target(store, base, schema, version, load_dictionaries(store, base))


def write_fragments(
    store: ObjectStore,
    rows: Iterable[Rows],
    schema: LanceSchema,
    options: WriteOptions,
    version: str | None = None,
    dictionaries: dict[int, pa.Array] | None = None,
) -> list[Fragment]:
    """Write rows into as many files as needed; one fragment each, without an id yet.

    Parameters
    ----------
    rows
        Pieces whose columns fit ``schema`` by name, in any order.
    schema
        Columns with the ids they have, or will have, in the dataset.
    version
        Format of the files; that of ``options`` when omitted.
    dictionaries
        Items of dictionary columns that the files must share; see :class:`Target`.

    Notes
    -----
    When anything fails, the files written so far are removed again as far as possible; no
    version refers to them in any case.
    """
    arrow = schema.to_arrow()
    version = version or options.data_storage_version
    check_encoding_options(schema, version, options.encoding_options)
    roll = _Rolling(store, schema, options, version)
    roll.dictionaries.update(dictionaries or {})
    try:
        for piece in rows:
            roll.write(conform(piece, arrow))
        roll.close()
    except BaseException:
        roll.discard()
        raise
    return roll.fragments


def commit_fragments(
    target: Target, fragments: Iterable[Fragment], options: WriteOptions, *, once: str | None = None
) -> Manifest:
    """Make fragments part of the dataset: one new version, retried while others write.

    ``once`` names a transaction property that identifies this commit: a version that has it
    already is returned instead of making another one.

    Where rows are appended to a dataset that was not there, and another writer was first to
    create it, they are appended to what is there now.
    """
    fragments = tuple(fragments)
    try:
        return _commit(target, fragments, options, once)
    except DatasetExistsError:
        if options.mode != "append":
            raise
        return _commit(_created_meanwhile(target), fragments, options, once)


def _created_meanwhile(target: Target) -> Target:
    """The target as it is now; files written for the one before must go with it.

    Raises
    ------
    SchemaError
        The rows do not fit the dataset.
    CommitConflictError
        They would fit, but their files name the columns by other ids.
    """
    base = open_latest(target.store)
    where = target.store.uri
    schema = match_schema(target.schema.to_arrow(), base.schema, where=where)
    written = {(one.id, one.name, one.logical_type) for one in target.schema.walk()}
    needed = {(one.id, one.name, one.logical_type) for one in schema.walk()}
    if written != needed or not all(
        base.schema.field_by_id(one.id).nullable for one in target.schema.walk() if one.nullable
    ):
        raise CommitConflictError(
            f"{where} was created by another writer while these rows were written, with columns "
            "in another order or of other forms. Nothing is wrong with the rows: append them again."
        )
    return replace(target, base=base, schema=schema)


def _commit(
    target: Target, fragments: tuple[Fragment, ...], options: WriteOptions, once: str | None
) -> Manifest:
    properties = dict(options.transaction_properties)
    if options.commit_message is not None:
        properties[_MESSAGE] = options.commit_message
    operation: TableOperation
    if target.base is not None and options.mode == "append":
        operation = Append(fragments)
    else:
        operation = Overwrite(fragments=fragments, schema=target.schema)
    base = target.base
    transaction = Transaction(
        read_version=0 if base is None else base.version,
        operation=operation,
        properties=properties,
    )
    commit = CommitOptions(
        storage_version=FormatVersion(*map(int, target.version.split("."))),
        enable_stable_row_ids=options.enable_stable_row_ids,
        enable_v2_manifest_paths=options.enable_v2_manifest_paths,
    )
    return commit_transaction(target.store, transaction, base=base, once=once, options=commit)


class _Rolling:
    """Writes rows, beginning a new file whenever the one before is full."""

    def __init__(
        self, store: ObjectStore, schema: LanceSchema, options: WriteOptions, version: str | None
    ) -> None:
        self.store, self.schema, self.options, self.version = store, schema, options, version
        self.fragments: list[Fragment] = []
        self.dictionaries: dict[int, pa.Array] = {}
        self._writer: FileWriter | None = None
        self._name = ""
        self._rows = 0

    def write(self, rows: Rows) -> None:
        start = 0
        while start < rows.num_rows:
            if self._writer is None:
                self._begin()
            for piece in self._pieces(rows, start):
                self._write(piece)
                start += piece.num_rows
                if self._full():
                    self.close()
                    break

    def _pieces(self, rows: Rows, start: int) -> Iterator[Rows]:
        """Rows from ``start`` on, in pieces that do not overfill the current file."""
        rest = rows.num_rows - start
        room = self.options.max_rows_per_file - self._rows
        budget = self.options.max_bytes_per_file
        step = min(rest, room)
        if rows.nbytes > budget:
            step = min(step, max(1, budget * rows.num_rows // rows.nbytes))
        for at in range(start, start + min(rest, room), step):
            yield rows.slice(at, min(step, start + min(rest, room) - at))

    def _begin(self) -> None:
        self._name = new_data_file_name()
        path = data_file_path(self._name)
        self._writer = create_writer(
            self.store,
            path,
            self.schema,
            self.version,
            encoding_options=self.options.encoding_options,
            dictionaries=self.dictionaries,
        )
        self._rows = 0
        if self.options.progress is not None:
            self.options.progress.begin(Fragment(files=(), physical_rows=0))

    def _write(self, rows: Rows) -> None:
        if self._writer is not None:
            self._writer.write(rows)
            self._rows += rows.num_rows

    def _full(self) -> bool:
        options, writer = self.options, self._writer
        return self._rows >= options.max_rows_per_file or (
            writer is not None and writer.position >= options.max_bytes_per_file
        )

    def close(self) -> None:
        """Finish the current file, if there is one."""
        if self._writer is None:
            return
        written = self._writer.finish()
        self._writer = None
        fragment = _fragment(self._name, written)
        self.fragments.append(fragment)
        if self.options.progress is not None:
            self.options.progress.complete(fragment)

    def discard(self) -> None:
        """Remove what was written."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        paths = [data_file_path(file.path) for one in self.fragments for file in one.files]
        with suppress(StoreError):
            self.store.delete(paths)


def _fragment(name: str, written: WrittenFile) -> Fragment:
    file = DataFile(
        path=name,
        fields=tuple(written.fields),
        column_indices=tuple(written.column_indices),
        version=written.version,
        size=written.size,
    )
    return Fragment(files=(file,), physical_rows=written.rows)
