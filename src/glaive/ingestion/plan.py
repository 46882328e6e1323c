"""Plan an ingest: list the files, find the columns, cut the work into tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.tasks import JOB
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.plan import WritePlan, plan_write
from glaive.errors import FormatError, OptionError, SchemaError
from glaive.format.manifest import Manifest
from glaive.ingestion.columns import with_vectors
from glaive.ingestion.drift import DriftRule, Reconciled, check_rule, reconcile
from glaive.ingestion.expectations import Expectations
from glaive.ingestion.formats.protocol import Piece, SourceFormat
from glaive.ingestion.formats.registry import format_named, format_of
from glaive.ingestion.journal import Journal
from glaive.ingestion.partition_folders import folder_columns, folder_texts
from glaive.ingestion.rejects import BAD_RECORDS
from glaive.ingestion.sources import SourceFile, list_sources, source_names
from glaive.ingestion.task import IngestTask
from glaive.io.pool import ordered_map
from glaive.io.store import ObjectStore
from glaive.table.named_jobs import NamedJob

__all__ = ["TASK_BYTES", "IngestMode", "IngestPlan", "Sources", "find_sources", "plan_ingest"]

TASK_BYTES = 128 << 20
"""Bytes of the sources of one task, about."""

_READERS = 16
"""Threads that read footers and samples."""

IngestMode: TypeAlias = Literal["create", "append", "overwrite", "merge"]


@dataclass(frozen=True, slots=True)
class Sources:
    """Files, how to read them, and the columns that result."""

    files: tuple[SourceFile, ...]
    source_format: SourceFormat
    columns: Reconciled


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """Tasks that can run anywhere, and what their commit needs.

    Parameters
    ----------
    tasks
        In the order of the rows.
    write
        Of the dataset.
    bad_records
        Of the dataset of bad records.
    job_id
        In the properties of both commits.
    """

    tasks: tuple[IngestTask, ...]
    write: WritePlan
    bad_records: WritePlan | None
    job_id: str

    @property
    def journal(self) -> Journal | None:
        """Where finished tasks are written down, if the caller named the job."""
        return self.tasks[0].journal if self.tasks else None


def find_sources(
    source: str | Sequence[str],
    *,
    format: str | None,  # the public name
    existing: pa.Schema | None,
    schema: pa.Schema | None,
    vectors: Sequence[str],
    schema_drift: DriftRule,
    storage_options: Mapping[str, str] | None,
    reader_options: Mapping[str, object],
) -> Sources:
    """List the files and find their columns.

    One listing for each folder, one or two requests for each file.

    Parameters
    ----------
    format
        Name of the format; ``None``: that which the names of the files suggest.
    existing
        Columns of the dataset to which rows are added, if there is one.
    schema
        Columns that the caller chose; those of ``existing``, if there is one.
    vectors
        Columns of lists that become vectors of one length; likewise.
    schema_drift
        What becomes of columns in which files differ.
    storage_options, reader_options
        Of the places of the files, and of the reader of their format.

    Raises
    ------
    OptionError
        An option has a value it cannot have, or contradicts another; or there are no files.
    FormatError
        A file cannot be read as one of its format.
    SchemaError
        Columns of files do not fit each other, or the dataset.
    """
    check_rule(schema_drift)
    names = source_names(source)
    _check_chosen(schema)
    files = list_sources(names, storage_options)
    source_format = format_named(format or format_of(files), reader_options)
    if existing is not None:
        _refuse_other_columns(existing, schema, vectors, schema_drift)
    known = schema if existing is None else existing
    folders = _folder_columns(files, known, schema_drift, chosen=schema is not None)
    schemas: Iterable[pa.Schema]
    if known is not None and not _depends_on_files(source_format, schema, schema_drift):
        schemas = repeat(known, len(files))
    else:
        # A schema at a time: there can be a million, and each can be of a thousand columns.
        schemas = ordered_map(partial(_schema_of, source_format), files, workers=_READERS)
    if folders:
        schemas = map(partial(_with_folders, folders), files, schemas)
    columns = reconcile(
        zip(files, schemas, strict=True),
        known,
        schema_drift,
        typed=source_format.typed,
        named=source_format.named,
        chosen=schema is not None,
    )
    if existing is None:
        columns = Reconciled(with_vectors(columns.schema, vectors))
    source_format.check(columns.schema)
    return Sources(tuple(files), source_format, columns)


def _check_chosen(schema: object) -> None:
    """Refuse columns that a caller chose, unless each has a name of its own."""
    if schema is None:
        return
    if not isinstance(schema, pa.Schema):
        raise OptionError(
            "schema: expected a pyarrow.Schema, or a text such as 'id bigint', found "
            f"{schema!r:.80}"
        )
    for name, count in Counter(schema.names).items():
        if count > 1:
            raise OptionError(f"schema: several columns are called {name!r:.80}")


def _depends_on_files(
    source_format: SourceFormat, chosen: pa.Schema | None, rule: DriftRule
) -> bool:
    """Whether files have a say in columns that are known; else none is read before its rows are.

    A record that does not fit is an error of its own then, or a bad record.
    """
    if source_format.typed or source_format.named:
        return True
    return rule == "add" or (chosen is None and rule != "fail")


def _refuse_other_columns(
    existing: pa.Schema, schema: pa.Schema | None, vectors: Sequence[str], rule: DriftRule
) -> None:
    """Refuse columns that the caller chose, unless a dataset has them.

    It has those that a run of the same call gave it, which was stopped after that.
    """
    chosen = with_vectors(existing if schema is None else schema, vectors)
    same = all(
        field.name in existing.names and existing.field(field.name).type == field.type
        for field in chosen
    )
    if not same or (rule != "add" and len(chosen) != len(existing)):
        raise OptionError(
            "schema, vectors: the dataset has its own, which differ; leave them out, or overwrite"
        )


def _folder_columns(
    files: Sequence[SourceFile], known: pa.Schema | None, rule: DriftRule, *, chosen: bool
) -> dict[str, pa.Field[Any]]:
    """Columns in names of folders, by name in lower case; known columns keep their spelling.

    Raises
    ------
    SchemaError
        The dataset lacks one.
    """
    of_known = {field.name.lower(): field for field in known or ()}
    folders = {}
    for field in folder_columns((file.folder, file.path) for file in files):
        key = field.name.lower()
        if key in of_known or known is None or rule == "add":
            column = of_known.get(key, field)
            folders[key] = field.with_name(column.name) if rule == "widen" else column
        elif not chosen:
            raise SchemaError(
                f"{files[0].uri}: the column {field.name!r} in names of folders is not in the "
                "dataset. Pass schema_drift='add' to add it, or schema= with the columns of the "
                "dataset to leave it out"
            )
    return folders


def _with_folders(
    folders: Mapping[str, pa.Field[Any]], file: SourceFile, schema: pa.Schema
) -> pa.Schema:
    """The columns of a file, and columns that only the names of its folders have."""
    own = {name.lower() for name in schema.names}
    keys = [name.lower() for name in folder_texts(file.folder, file.path)]
    return pa.schema([*schema, *(folders[key] for key in keys if key in folders.keys() - own)])


def _schema_of(source_format: SourceFormat, file: SourceFile) -> pa.Schema:
    try:
        schema = source_format.schema(file)
        names = Counter(schema.names)  # parsers of Arrow leave it to Python to read them
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{file.uri}: the name of a column is not UTF-8: {error}. Rename it, or leave the "
            "file out"
        ) from None
    if len(names) < len(schema):
        name = next(name for name, count in names.items() if count > 1)
        raise FormatError(
            f"{file.uri}: several columns are called {name!r}. Rename them, or leave the file out"
        )
    return schema


def plan_ingest(
    store: ObjectStore,
    sources: Sources,
    options: WriteOptions,
    *,
    job_id: str | None = None,
    bad_records: ObjectStore | None = None,
    expectations: Expectations | None = None,
    base: Manifest | None = None,
    task_bytes: int = TASK_BYTES,
) -> IngestPlan:
    """Cut the files into tasks of about the same bytes.

    Parameters
    ----------
    store, bad_records
        Roots of the dataset, and of that for bad records.
    sources
        What to read.
    options
        Of the write.
    job_id
        Default: a new one.
    expectations
        Conditions that rows have to fulfil.
    base
        The version to append to.
    task_bytes
        Bytes of the sources of a task.
    """
    size: object = task_bytes
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise OptionError(f"task_bytes: expected a number ≥ 1, found {size!r:.80}")
    job = job_id or str(uuid4())
    named = {JOB: job} if job_id is None else {JOB: job, **NamedJob(job).properties}
    properties = {**options.transaction_properties, **named}
    options = replace(options, transaction_properties=properties)
    write = plan_write(store, sources.columns.schema, options, base)
    if expectations is not None:
        expectations.check(write.schema)
    journal = None if job_id is None else Journal(store, job_id)
    aside = None
    if bad_records is not None:
        aside_options = WriteOptions(mode="append", transaction_properties=named)
        aside = plan_write(bad_records, BAD_RECORDS, aside_options)
    pieces = (
        piece for file in sources.files for piece in sources.source_format.pieces(file, task_bytes)
    )
    schema = sources.columns.schema
    tasks = tuple(
        IngestTask(group, sources.source_format, schema, write, aside, job, journal, expectations)
        for group in _grouped(pieces, task_bytes)
    )
    return IngestPlan(tasks, write, aside, job)


def _grouped(pieces: Iterable[Piece], task_bytes: int) -> Iterable[tuple[Piece, ...]]:
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        if group and size + piece.size > task_bytes:
            yield tuple(group)
            group, size = [], 0
        group.append(piece)
        size += piece.size
    if group:
        yield tuple(group)
