"""Write a frame in two phases: tasks write data files, the driver commits them in one version.

Spark runs the phases in different processes. It pickles the job for the tasks, and their messages
return to the driver. Commit and abort get a copy of the original writer. A task that fails or runs
twice leaves unreferenced files, which are invisible; the next clean-up removes them.

The transaction records the id of the job. Spark may call ``commit`` again after an unclear failure.
It calls ``abort`` with all messages when ``commit`` fails, even if the version was written. So both
first check whether a version has the id. ``abort`` deletes files only if a task failed, because
only then the commit was skipped.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import platform
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StructField, StructType

from glaive.arrow.chunked import batch_parts, coalesced, one_array
from glaive.dataclass import dataclass
from glaive.dataset.merging.source import SourceKeys, find_matches
from glaive.dataset.rows import DeletedRows, DeleteTask, RowsByFragment, delete_rows
from glaive.dataset.tasks import JOB, LOCAL, commit_operation
from glaive.dataset.version import OpenedVersion
from glaive.dataset.writing.conform import check_same_columns, compatible, match_schema
from glaive.dataset.writing.conform import conform as as_stored
from glaive.dataset.writing.fragments import discard_fragments, write_fragments
from glaive.dataset.writing.plan import Mode, WriteOptions, WritePlan, plan_write
from glaive.dataset.writing.rows import after_upkeep, commit_plan, missing_files, version_read
from glaive.errors import (
    ColumnNotFoundError,
    DatasetNotFoundError,
    GlaiveError,
    MissingDependencyError,
    OptionError,
    SchemaError,
    StoreError,
    UnsupportedFeatureError,
)
from glaive.expr.bind import check_column_texts
from glaive.expr.filters import bind_filter
from glaive.format.blobs import has_blobs
from glaive.format.field import BLOB, BLOB_V2, is_primary_key
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment, FragmentList, packed_fragments, unpacked_fragments
from glaive.format.logical_types import EXTENSION_NAME
from glaive.format.manifest import WRITER, Feature, Manifest
from glaive.format.paths import VERSIONS, data_file_path
from glaive.io.store import ObjectStore
from glaive.scan.options import Meter
from glaive.spark.cast import conform, restored_batch, restored_schema
from glaive.spark.change_rules import ChangeRules
from glaive.spark.failures import without_inner_frames
from glaive.spark.options import Options
from glaive.spark.types import (
    assigned,
    is_recorded,
    refuse_cut_names,
    refuse_missing,
    refuse_same_without_case,
    refuse_unassignable,
    respelled,
    same_type,
    spark_arrow_schema,
    stored_schema,
    stored_types,
    to_spark,
    vector_name,
)
from glaive.table.load import find_transaction, open_latest, open_version
from glaive.table.named_jobs import AppTransaction, CommitMarks, NamedJob
from glaive.table.operations.update import Update
from glaive.table.refs import branch_store, read_branch
from glaive.table.root import open_root

# --- Start and end of every task, in the Python worker of an executor -------------------

# --- Versions of glaive and Python, which must be equal on a driver and its workers ------

RELEASE: Final = f"{WRITER[0]} {WRITER[1]}, Python {'.'.join(platform.python_version_tuple()[:2])}"
"""Versions of this process; tasks carry the versions of the driver."""


def check_release(driver: str) -> None:
    """Raise if the driver has another version.

    Parameters
    ----------
    driver
        :data:`RELEASE` of the driver.

    Raises
    ------
    MissingDependencyError
        The message names both versions and this host.
    """
    if driver != RELEASE:
        raise MissingDependencyError(
            f"the executor {platform.node()} has {RELEASE}, the driver has {driver}. Install the "
            "same versions on all machines, or ship the driver's with spark.archives"
        )


@contextmanager
def in_task(release: str) -> Iterator[None]:
    """Run a task: refuse other versions than the driver's, and keep loaded modules.

    Parameters
    ----------
    release
        :data:`RELEASE` of the driver.

    Raises
    ------
    MissingDependencyError
        This executor has another version.
    """
    check_release(release)
    yield
    if TaskContext.get() is not None:
        _freeze_loaded()


@cache
def _freeze_loaded() -> None:
    """Exempt the objects that the first task has loaded from garbage collection.

    PySpark collects garbage after every task, which takes 35 ms for the modules that tasks load.
    """
    gc.collect()
    gc.freeze()


# --- Plan the write of a frame on the driver, before any task runs ----------------------
# This refuses options without effect, rows that do not fit the dataset, and outdated versions.
# :class:`WriteJob` holds the input of tasks and commit; Spark pickles it.

# --- The types to store the columns of a frame with -------------------------------------
# The type of a column is the first of these:
#
# 1. the option ``arrow_schema``
# 2. the options ``vector_columns`` and ``blob_columns``
# 3. the type that the column was read with, which Spark keeps as metadata until an aggregate or a
#    union drops it
# 4. the type of the column in the dataset to overwrite
# 5. Spark's type


def frame_types(
    schema: StructType, options: Options, replaced: pa.Schema | None = None
) -> pa.Schema:
    """Return the schema for storing a frame.

    Parameters
    ----------
    schema
        The frame.
    options
        Options of the user, including options for types.
    replaced
        Columns of the dataset to overwrite.

    Raises
    ------
    ColumnNotFoundError
        An option names a column that the frame lacks.
    SchemaError
        A column is incompatible with the type that an option names.
    """
    if options.arrow_schema is not None:
        return options.arrow_schema
    recorded = StructType([_recorded(field, options.column_types) for field in schema])
    stored = stored_schema(
        recorded, options.vector_columns, strict_nullability=options.strict_nullability
    )
    for name in options.blob_columns:
        if name not in schema.names:
            raise ColumnNotFoundError.among(name, schema.names, where="the frame")
        if not isinstance(schema[name].dataType, BinaryType):
            raise SchemaError(
                f"blob column {name!r}: expected a binary column, found {schema[name].dataType}"
            )
    vectors = {vector_name(entry, schema.names) for entry in options.vector_columns}
    for position, field in enumerate(recorded):
        if field.name in options.blob_columns:
            stored = stored.set(position, blob_field_of(stored.field(position)))
        elif replaced is not None and not is_recorded(field) and field.name not in vectors:
            at = replaced.get_field_index(field.name)
            if at >= 0 and (kept := _kept(field, replaced.field(at))) is not None:
                stored = stored.set(position, kept)
    for position, column in enumerate(LanceSchema.from_arrow(stored).fields):
        if is_primary_key(column):  # other readers refuse a table with a nullable key
            stored = stored.set(position, stored.field(position).with_nullable(False))
    return stored


def recorded_types(schema: StructType) -> dict[str, dict[str, str]]:
    """Return the types that columns of a frame were read with, by column.

    Spark's optimizer drops some of this metadata, for example in ``dropDuplicates``, before the
    writer sees it.
    """
    return {
        field.name: {key: str(value) for key, value in field.metadata.items()}
        for field in schema
        if is_recorded(field)
    }


def blob_field_of(field: Any) -> Any:
    """Return the field of a binary column as a blob column."""
    return pa.field(field.name, pa.large_binary(), field.nullable, {BLOB: "true"})


def refuse_other_types(stored: pa.Schema, dataset: pa.Schema, options: Options) -> None:
    """Refuse options of an append with types that differ from the dataset's.

    Raises
    ------
    OptionError
        An append keeps the types of the dataset, and an option names others.
    """
    named: dict[str, list[str]] = {
        "vector_columns": [vector_name(entry, stored.names) for entry in options.vector_columns],
        "blob_columns": list(options.blob_columns),
        "arrow_schema": [] if options.arrow_schema is None else stored.names,
    }
    for option, names in named.items():
        for name in names:
            if (at := dataset.get_field_index(name)) < 0:
                continue  # the write plan refuses it, or the column is added
            wanted, found = stored.field(name), dataset.field(at)
            both_blobs = _is_blob(wanted) and _is_blob(found)
            if not both_blobs and not compatible(wanted.type, found.type):
                raise OptionError(
                    f"{option}: the dataset stores column {name!r} as {found.type}, the option "
                    f"says {wanted.type}. An append keeps the types of the dataset; leave the "
                    "option out, or overwrite the dataset"
                )


def _recorded(field: StructField, types: Mapping[str, Mapping[str, str]]) -> StructField:
    lost = types.get(field.name)
    if lost is None or is_recorded(field):
        return field
    metadata: dict[str, Any] = {**(field.metadata or {}), **lost}
    return StructField(field.name, field.dataType, field.nullable, metadata)


def _kept(field: StructField, replaced: Any) -> Any:
    """Return the field of the dataset, if values of the frame's column can have its type."""
    if _is_blob(replaced):
        binary = isinstance(field.dataType, BinaryType)
        return blob_field_of(replaced.with_nullable(True)) if binary else None
    if EXTENSION_NAME.encode() in (replaced.metadata or {}):
        return None
    try:
        (read_as,) = to_spark(pa.schema([replaced]))
    except SchemaError:  # Spark lacks this type, so the frame's type differs
        return None
    if not same_type(read_as.dataType, field.dataType):
        return None
    return replaced.with_nullable(True)


def _is_blob(field: Any) -> bool:
    metadata = field.metadata or {}
    name = metadata.get(EXTENSION_NAME.encode())
    return metadata.get(BLOB.encode()) == b"true" or name == BLOB_V2.encode()


ENGINE = "glaive.engine"
"""Transaction property that names the engine that wrote the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """The settings of tasks and commit, as plain values that can be pickled.

    Parameters
    ----------
    plan
        The plan of the write.
    columns
        The types that batches from Spark are cast to, by name.
    allow_truncation
        Truncate times to the unit of their column.
    decimals
        Columns of batches from Spark that hold the unscaled values of decimals.
    replace_where
        Filter of the rows to replace; all written rows match it.
    replace_using
        Columns; rows with the values of a written row in them are replaced.
    changes
        Applies the written rows as changes, instead of a commit.
    applied
        Whether the dataset already has this transaction of an application, or this named job: then
        the write is skipped.
    release
        Version of glaive on the driver.
    """

    plan: WritePlan
    columns: pa.Schema
    allow_truncation: bool
    decimals: Mapping[str, str] = dataclasses.field(default_factory=dict)
    replace_where: str | None = None
    replace_using: tuple[str, ...] = ()
    changes: Callable[[WritePlan, FragmentList], Manifest] | None = dataclasses.field(
        default=None, repr=False
    )
    applied: bool = False
    release: str = RELEASE

    @property
    def id(self) -> str:
        """Identifier of the job, the same in every attempt of its tasks and its commit."""
        return self.plan.options.transaction_properties[JOB]


def open_target(options: Options) -> tuple[ObjectStore, Manifest | None]:
    """Return the root of the dataset or branch to write to, and its newest version, if any.

    Raises
    ------
    RefNotFoundError
        The branch is missing.
    """
    store = open_root(options.uri, options.storage)
    if options.branch is not None:
        read_branch(store, options.branch)
        store = branch_store(store, options.branch)
    base = None
    with suppress(DatasetNotFoundError):
        base = open_latest(store, to_follow=True)
    return store, base


def plan_job(schema: StructType, options: Options, *, overwrite: bool) -> WriteJob:
    """Plan the write on the driver, and reject invalid writes early.

    Raises
    ------
    GlaiveError
        See :func:`glaive.dataset.writing.plan.plan_write`. Also raised if the frame lacks columns
        of the dataset to append to, as in Spark's own sources.
    """
    schema = restored_schema(schema, options.decimals)
    store, base = open_target(options)
    appends = base is not None and _keeps_rows(options, overwrite=overwrite)
    replaced = None if base is None or appends else stored_types(base.schema)
    stored = frame_types(schema, options, replaced)
    sent = spark_arrow_schema(schema)
    if (
        base is not None
        and not options.case_sensitive
        and (appends or not options.overwrite_schema)
    ):
        sent, stored = (respelled(names, base.schema.to_arrow()) for names in (sent, stored))
    order, also = options.sequence_by, (options.delete_where, options.ignore_null_updates)
    if options.keys or order is not None or any(also) or options.scd != 1:
        return _plan_changes(sent, options, store, base, overwrite=overwrite)
    if base is not None and appends and options.merge_schema:
        base = _with_columns(stored, base, options)
    return _plan(sent, stored, options, store, base, overwrite=overwrite)


def app_transaction(options: Options) -> AppTransaction | None:
    """Return the application's transaction of a write.

    Raises
    ------
    OptionError
        You gave only one of the two options.
    """
    if options.txn_app_id is None and options.txn_version is None:
        return None
    if options.txn_app_id is None or options.txn_version is None:
        raise OptionError("txn_app_id and txn_version: give both, or none")
    return AppTransaction(options.txn_app_id, options.txn_version)


def _plan(
    sent: pa.Schema,
    stored: pa.Schema,
    options: Options,
    store: ObjectStore,
    base: Manifest | None,
    *,
    overwrite: bool,
) -> WriteJob:
    _check_together(options, overwrite=overwrite)
    refuse_cut_names(sent)
    keeps_rows = _keeps_rows(options, overwrite=overwrite)
    write_options = _write_options(options, "append" if keeps_rows else "overwrite")
    columns = stored
    if base is not None and (keeps_rows or not options.overwrite_schema):
        columns = assigned(sent, stored_types(base.schema))
    if base is None or keeps_rows or options.overwrite_schema:
        plan = plan_write(store, columns, write_options, base)
    else:
        same = match_schema(columns, base.schema, where=options.uri, ruled=True)
        plan = plan_write(store, same, write_options, base)
    if base is not None and (plan.appends or not options.overwrite_schema):
        if not options.merge_schema:
            refuse_missing(plan.schema, base.schema, where=options.uri)
    else:
        check_same_columns(sent.names, stored.names)
        refuse_unassignable(sent, stored, where=options.uri)
    if base is not None and plan.appends:
        refuse_other_types(stored, stored_types(base.schema), options)
        _refuse_row_ids(base, options)
    if options.replace_where is not None and base is not None:
        check_column_texts(base.schema, options.replace_where)
        bind_filter(options.replace_where, base.schema)
    for name in options.replace_using:
        if name not in columns.names:
            raise ColumnNotFoundError.among(name, columns.names, where="replace_using")
    marks = CommitMarks.of(write_options.transaction_properties)
    return WriteJob(
        plan=plan,
        columns=columns,
        allow_truncation=options.allow_truncation,
        decimals=options.decimals,
        replace_where=None if base is None else options.replace_where,
        replace_using=() if base is None else options.replace_using,
        applied=base is not None and marks.are_applied(base),
    )


def _plan_changes(
    sent: pa.Schema, options: Options, store: ObjectStore, base: Manifest | None, *, overwrite: bool
) -> WriteJob:
    """Plan to write changes to files, which the commit applies to the dataset.

    Raises
    ------
    OptionError
        The rows replace the dataset, or keys or sequence are missing.
    DatasetNotFoundError
        The dataset is missing.
    """
    _check_together(options, overwrite=overwrite)
    if overwrite or options.merge_schema or options.sequence_by is None:
        raise OptionError(
            "options keys and sequence_by: give both, and append rows without merge_schema"
        )
    if base is None:
        raise DatasetNotFoundError(
            f"{options.uri}: changes need a dataset. Create it with its columns first"
        )
    chosen = options.columns
    rules = ChangeRules(
        options.keys,
        options.sequence_by,
        options.delete_where,
        options.ignore_null_updates,
        options.scd,  # type: ignore[arg-type]  # the rules check it
        None if chosen is None else tuple(chosen),
    )
    types = assigned(sent, stored_types(base.schema))
    columns = pa.schema([_without_rules(field) for field in types])
    plan = plan_write(store, columns, _write_options(options, "overwrite"), base, enforce=False)
    refuse_blobs(plan.schema, "keys")
    return WriteJob(
        plan=plan,
        columns=columns,
        allow_truncation=options.allow_truncation,
        decimals=options.decimals,
        changes=partial(rules.commit, options.storage),
        applied=CommitMarks.of(plan.options.transaction_properties).are_applied(base),
    )


def _without_rules(field: Any) -> Any:
    """Return a nullable column without metadata, except for its extension type."""
    metadata = {key: text for key, text in (field.metadata or {}).items() if b"ARROW:" in key}
    return field.with_nullable(True).with_metadata(metadata)


def refuse_blobs(schema: LanceSchema, name: str) -> None:
    """Refuse rows with blobs for an option that merges them.

    Raises
    ------
    UnsupportedFeatureError
        A column has blobs.
    """
    blobs = [field.name for field in schema.fields if has_blobs(field)]
    if blobs:
        raise UnsupportedFeatureError(
            f"option {name}: rows with the blob column {blobs[0]!r} cannot be merged by a write or "
            "a stream. Append them, or merge them in foreachBatch"
        )


def _keeps_rows(options: Options, *, overwrite: bool) -> bool:
    return not overwrite or options.replace_where is not None or bool(options.replace_using)


_ROW_OPTIONS = ("columns", "filter", "limit", "nearest", "full_text_query")
"""Options that limit a view to a part of a dataset."""


def _check_together(options: Options, *, overwrite: bool) -> None:
    """Refuse options that glaive would ignore."""
    for name in _ROW_OPTIONS if overwrite else ():
        if getattr(options, name) is not None:
            raise OptionError(
                f"option {name}: an overwrite replaces all rows and columns of a dataset, not the "
                "part that a view has. Overwrite a view without it; replace_where replaces the "
                "rows that match a filter"
            )
    only_overwriting = {
        "replace_where": options.replace_where is not None,
        "replace_using": bool(options.replace_using),
        "overwrite_schema": not options.overwrite_schema,
        "expected_version": options.expected_version is not None,
    }
    for name, given in only_overwriting.items():
        if given and not overwrite:
            raise OptionError(f"{name}: only for mode overwrite, found append or create")
    if options.replace_using and options.replace_where is not None:
        raise OptionError("replace_using and replace_where: choose one of the two")
    if overwrite and options.merge_schema:
        raise OptionError(
            "merge_schema: only for mode append; an overwrite has the columns of the frame"
        )


def _with_columns(stored: pa.Schema, base: Manifest, options: Options) -> Manifest:
    """Return the version with the columns that the dataset lacks, null in its rows.

    They get their own version, before the version of the rows, so that tasks know their ids.

    Raises
    ------
    SchemaError
        A column differs from a column of the dataset in case only: for Spark they are the same.
    """
    from glaive.dataset.open import dataset

    new = [field for field in stored if field.name not in base.schema.by_name]
    if not new:
        return base
    if not options.case_sensitive:
        refuse_same_without_case(stored.names, base.schema.names, "merge_schema")
    version = base.version if options.branch is None else (options.branch, base.version)
    opened = dataset(options.uri, version=version, storage_options=options.storage or None)
    opened.add_columns(pa.schema([field.with_nullable(True) for field in new]))
    return opened.manifest


def _refuse_row_ids(base: Manifest, options: Options) -> None:
    """Refuse to switch stable row ids of an existing dataset on or off."""
    wanted, found = options.enable_stable_row_ids, base.uses(Feature.STABLE_ROW_IDS)
    if wanted is not None and wanted != found:
        raise OptionError(
            f"enable_stable_row_ids: {options.uri} was created "
            f"{'with' if found else 'without'} stable row ids, which an append cannot change. "
            "Leave the option out"
        )


def _write_options(options: Options, mode: Mode) -> WriteOptions:
    names = (
        "max_rows_per_file",
        "max_bytes_per_file",
        "data_storage_version",
        "enable_stable_row_ids",
        "encoding_options",
        "expected_version",
    )
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if mode == "overwrite" and options.expected_version is None and options.version is not None:
        given["expected_version"] = options.version  # of the view to overwrite
    properties = {JOB: options.job or options.job_id or str(uuid4()), ENGINE: "spark"}
    if options.job_id is not None:
        properties |= NamedJob(options.job_id).properties
    app = app_transaction(options)
    if app is not None:
        properties |= app.properties
    given["compression"] = "balanced"
    made = WriteOptions(mode=mode, transaction_properties=properties, **given)
    return replace(made, mode="create") if options.must_not_exist else made


# --- Replace the rows that match a filter by new rows, in one version -------------------


def only_matching(
    rows: Iterable[pa.RecordBatch], predicate: str, schema: LanceSchema
) -> Iterator[pa.RecordBatch]:
    """Yield the batches; check that each row matches.

    Raises
    ------
    SchemaError
        A row fails the filter, so the next write would keep it.
    """
    bound = bind_filter(predicate, schema)
    for batch in rows:
        mask = bound.mask(batch)
        matching = mask.true_count
        if matching != batch.num_rows:
            raise SchemaError(
                f"replace_where: {batch.num_rows - matching:,} of {batch.num_rows:,} rows of a "
                f"batch do not match {predicate!r}. Filter them out, or widen the filter"
            )
        yield batch


_SHARED_PATHS = (
    "All machines of the cluster must see the same files: use an object store (s3://, gs://, "
    "abfss://) or a directory that is mounted everywhere"
)

_logger = logging.getLogger(__name__)


@dataclass
class FragmentsWritten(WriterCommitMessage):
    """The fragments that one task wrote, serialized, before they get ids."""

    fragments: tuple[bytes, ...]


@dataclass
class KeysWritten(FragmentsWritten):
    """Fragments, with the distinct values of the columns of ``replace_using``."""

    keys: pa.Table


class LanceArrowWriter(DataSourceArrowWriter):
    """Executes a :class:`glaive.spark.writer.WriteJob`."""

    def __init__(self, job: WriteJob) -> None:
        self.job = job

    @without_inner_frames
    def write(  # type: ignore[override]  # as pyspark's own Arrow writer narrows it
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of one task to new files and return their fragments.

        A task writes files if it has rows and the job is still to be applied. File names are
        random, so a second attempt of the same task writes different files.
        """
        with in_task(self.job.release):
            keys: list[pa.Table] = []
            job = replace(self.job, plan=self.job.plan.for_task(partition_id()))
            fragments = write_rows(job, iterator, keys)
            return KeysWritten(fragments, *keys) if keys else FragmentsWritten(fragments)

    @without_inner_frames
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the fragments of all tasks as one version, unless an earlier call did."""
        job = self.job
        if job.applied:
            return
        fragments = written_fragments(messages)
        job = replace(job, plan=recording(job.plan, messages))
        refuse_missing_files(job.plan, fragments)
        if job.changes is not None:
            if fragments:
                job.changes(job.plan, fragments)
        elif job.replace_where is not None or (job.replace_using and fragments):
            if not _is_committed(job):
                _replace(job, fragments, _keys(messages))
        elif fragments or not job.plan.appends:
            after_upkeep(job.plan, commit_plan(job.plan, fragments, once=JOB))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files of a job whose tasks failed, if the job is uncommitted."""
        job = self.job
        fragments = written_fragments(messages)
        paths = [data_file_path(file.path) for fragment in fragments for file in fragment.files]
        if not paths:
            return
        if None not in messages:
            _logger.warning(
                "job %s on %s: the commit failed, but the version may have been written; %d "
                "files remain until the next clean-up: %s",
                job.id,
                GlaiveError.without_secrets(job.plan.store.uri),
                len(paths),
                ", ".join(paths[:20]),
            )
            return
        if not _is_committed(job):
            discard_fragments(job.plan, fragments)


def partition_id() -> int | None:
    """Return the number of the task of Spark that this process runs, if any."""
    context = TaskContext.get()
    return None if context is None else context.partitionId()


def recording(plan: WritePlan, messages: Sequence[WriterCommitMessage | None]) -> WritePlan:
    """Return the plan of a commit of tasks, which may have numbered rows."""
    rows = [written_fragments([message]).row_count for message in messages]
    return plan if plan.rules is None else plan.recording(rows, tasks=len(messages))


def write_rows(
    job: WriteJob, batches: Iterator[pa.RecordBatch], keys: list[pa.Table] | None = None
) -> tuple[bytes, ...]:
    """Write the rows of one task; return its fragments, packed.

    Parameters
    ----------
    keys
        Gets one table: the distinct values of the columns of ``replace_using``.

    Raises
    ------
    SchemaError
        A value does not fit its column, or a row fails the filter of replaced rows.
    StoreError
        The dataset is invisible to this machine.
    """
    if job.applied:
        return ()
    _refuse_missing_dataset(job.plan)
    truncate = job.allow_truncation
    cast = partial(conform, schema=job.columns, allow_truncation=truncate, writing=True)
    batches = coalesced(batches)  # Spark's may have few rows
    if job.decimals:
        batches = (restored_batch(batch, job.decimals) for batch in batches)
    rows: Iterator[pa.RecordBatch]
    rows = (part for batch in batches for part in batch_parts(cast, batch))
    if job.replace_where is not None:
        rows = only_matching(rows, job.replace_where, job.plan.schema)
    if job.replace_using and keys is not None:
        rows = _noting(rows, list(job.replace_using), keys)
    return packed_fragments(write_fragments(job.plan, rows))


def _noting(
    rows: Iterator[pa.RecordBatch], names: list[str], keys: list[pa.Table]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches; add the distinct values of some columns to ``keys``."""
    for batch in rows:
        keys.append(pa.Table.from_batches([batch.select(names)]))
        keys[:] = [_distinct(keys)]
        yield batch


def _distinct(keys: Sequence[pa.Table]) -> pa.Table:
    joined = pa.concat_tables(keys)
    return joined.group_by(joined.column_names).aggregate([])


def _keys(messages: Sequence[WriterCommitMessage | None]) -> pa.Table | None:
    """Return the distinct keys of all tasks, if they noted some."""
    parts = [message.keys for message in messages if isinstance(message, KeysWritten)]
    return _distinct(parts) if parts else None


def _replace(job: WriteJob, fragments: Sequence[Fragment], keys: pa.Table | None) -> None:
    """Commit fragments, and delete the rows that match in the version planned for.

    Rows that other writers appended meanwhile stay. This process searches the rows, as Spark's
    commit lacks a session for tasks.

    Raises
    ------
    CommitConflictError
        Another writer changed replaced rows. The dataset keeps its version.
    """
    plan = job.plan
    manifest = version_read(plan) or open_version(plan.store, plan.read_version)
    opened = OpenedVersion.of(plan.store, manifest, uri=plan.store.uri)
    if job.replace_where is not None:
        tasks = [DeleteTask(part, job.replace_where) for part in LOCAL.runner.parts(opened)]
        deleted = DeletedRows.joined(LOCAL.runner.run(opened, tasks))
    else:
        deleted = _with_keys(opened, keys)
    operation = Update(
        removed=deleted.removed,
        updated=deleted.updated,
        new=FragmentList.of(fragments),
        affected=deleted.affected,
    )
    properties = plan.options.transaction_properties
    commit_operation(opened, operation, properties=properties, once=JOB)


def _with_keys(opened: OpenedVersion, keys: pa.Table | None) -> DeletedRows:
    """Write deletion files for the rows that have one of some keys."""
    found = RowsByFragment()
    if keys is not None:
        stored = opened.manifest.schema.project(keys.column_names).to_arrow()
        columns = as_stored(keys.select(stored.names), stored).columns
        values = [one_array(column) for column in columns]
        found.add(find_matches(opened, SourceKeys(stored.names, values), Meter()).addresses)
    return delete_rows(opened, found)


def _refuse_missing_dataset(plan: WritePlan) -> None:
    """Refuse, in a task, a local dataset that this machine lacks.

    Raises
    ------
    StoreError
        Only some machines of the cluster have the path.
    """
    store = plan.store
    if store.is_local and plan.read_version and store.folder_state(VERSIONS) is None:
        raise StoreError(
            f"{store.uri} is a dataset for the driver, but does not exist on the executor "
            f"{socket.gethostname()}. {_SHARED_PATHS}"
        )


def refuse_missing_files(plan: WritePlan, fragments: Sequence[Fragment]) -> None:
    """Refuse, before the commit, files in a local path that this machine lacks.

    Raises
    ------
    StoreError
        Only some machines of the cluster have the path. The dataset keeps its version.
    CommitConflictError
        Another dataset has replaced the dataset of the plan.
    """
    if missing := missing_files(plan, fragments):
        version_read(plan)  # another dataset lacks the files as well
        raise StoreError(
            f"executors wrote {len(missing)} files to {plan.store.uri} that the driver "
            f"{socket.gethostname()} does not see, such as {missing[0]}. Nothing was committed. "
            f"{_SHARED_PATHS}"
        )


def _is_committed(job: WriteJob) -> bool:
    plan = job.plan
    try:
        return find_transaction(plan.store, plan.read_version, JOB, job.id) is not None
    except DatasetNotFoundError:
        return False


def written_fragments(messages: Sequence[WriterCommitMessage | None]) -> FragmentList:
    """Return the fragments of all tasks that ended."""
    written = (message for message in messages if isinstance(message, FragmentsWritten))
    packed = (data for message in written for data in message.fragments)
    return unpacked_fragments(packed, "the message of a task")
