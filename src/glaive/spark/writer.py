"""Write a frame in two phases: tasks write data files, the driver commits them at once.

Spark runs the parts in different processes and keeps nothing between them but what travels:
the job goes to the tasks, their messages come back, and commit and abort get a copy of the
original writer. A task that fails or runs twice leaves files that nobody names; they are
invisible and go with the next clean-up.

The transaction carries the id of the job. Spark may call ``commit`` again after an unclear
failure, and calls ``abort`` with all messages when ``commit`` fails, also if the version was
in fact written. So both look first whether a version carries the id, and ``abort`` deletes
files only when a task failed, for then no commit was ever tried.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from glaive.arrow.capacity import batch_parts
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.write import write_fragments
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    GlaiveError,
)
from glaive.file.open import check_encoding_options
from glaive.file.versions import resolve_version
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment
from glaive.format.paths import data_file_path
from glaive.format.pb import table_pb2
from glaive.format.transaction import Transaction
from glaive.spark.assignable import refuse_unassignable
from glaive.spark.cast import conform
from glaive.spark.options import Options
from glaive.spark.types import as_spark_sends, stored_schema
from glaive.table.commit import commit_transaction
from glaive.table.load import find_transaction, open_latest
from glaive.table.operations.append import Append
from glaive.table.operations.overwrite import Overwrite
from glaive.table.protocol import CommitOptions, TableOperation
from glaive.table.root import open_root
from glaive.types import FormatVersion

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from glaive.format.manifest import Manifest
    from glaive.io.store import ObjectStore

__all__ = ["JOB", "FragmentsWritten", "LanceArrowWriter", "WriteJob", "plan_write"]

JOB = "glaive.job"
"""Transaction property that holds the id of the job."""

ENGINE = "glaive.engine"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """All that tasks and commit need to know; plain values, pickled with every task.

    Parameters
    ----------
    options
        The options of the write.
    id
        Identity of the job, the same in every attempt of its tasks and its commit.
    mode
        ``append`` to the version read, or ``replace`` it; also to create what was not there.
    overwrite
        What the user asked for; tells the two reasons to replace apart.
    schema
        Columns as stored, with their ids.
    read_version
        The version the job was planned against; 0 where there was no dataset.
    storage_version
        Format version of the files, such as ``2.2``.
    """

    options: Options
    id: str
    mode: Literal["append", "replace"]
    overwrite: bool
    schema: LanceSchema
    read_version: int
    storage_version: str


@dataclass
class FragmentsWritten(WriterCommitMessage):
    """What one task wrote: fragments in wire form, without ids."""

    fragments: tuple[bytes, ...]


def plan_write(schema: StructType, options: Options, *, overwrite: bool) -> WriteJob:
    """Decide on the driver what is written where, and refuse what cannot end well.

    Raises
    ------
    DatasetExistsError
        The dataset must not exist, but does.
    SchemaError, ColumnNotFoundError
        The frame does not fit the dataset it is appended to, or an encoding option is for a
        column that is not there.
    OptionError
        An encoding option does not exist.
    """
    store = open_root(options.uri, options.storage)
    base = _latest(store)
    if base is not None and options.must_not_exist:
        raise _exists(options.uri)
    sent = as_spark_sends(schema)
    if base is None or overwrite:
        stored = options.arrow_schema or stored_schema(
            schema, options.vector_columns, strict_nullability=options.strict_nullability
        )
        lance = LanceSchema.from_arrow(stored)
        version = options.data_storage_version
    else:
        lance, version = base.schema, None
    if version is None and base is not None:
        version = str(base.data_format)
    refuse_unassignable(sent, lance.to_arrow(), where=options.uri)
    check_encoding_options(lance, resolve_version(version), options.encoding_options)
    return WriteJob(
        options=options,
        id=str(uuid4()),
        mode="replace" if base is None or overwrite else "append",
        overwrite=overwrite,
        schema=lance,
        read_version=0 if base is None else base.version,
        storage_version=resolve_version(version),
    )


class LanceArrowWriter(DataSourceArrowWriter):
    """Carries out a :class:`WriteJob`."""

    def __init__(self, job: WriteJob) -> None:
        self.job = job

    def write(  # type: ignore[override]  # as pyspark's own Arrow writer narrows it
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of one task to new files; return what was written.

        A task without rows makes no file. Files have random names: another attempt of the same
        task writes others.
        """
        job, target = self.job, self.job.schema.to_arrow()
        truncate = job.options.allow_truncation
        cast = partial(conform, schema=target, allow_truncation=truncate, writing=True)
        fragments = write_fragments(
            open_root(job.options.uri, job.options.storage),
            (part for batch in iterator for part in batch_parts(cast, batch)),
            job.schema,
            _file_options(job.options),
            job.storage_version,
        )
        return FragmentsWritten(tuple(one.to_wire().SerializeToString() for one in fragments))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make one version of what all tasks wrote; nothing if an earlier call already did."""
        job = self.job
        store = open_root(job.options.uri, job.options.storage)
        fragments = tuple(_fragments(messages))
        if job.mode == "append":
            if fragments:
                _commit(store, job, Append(fragments), job.read_version)
            return
        operation = Overwrite(fragments=fragments, schema=job.schema)
        try:
            _commit(store, job, operation, job.read_version)
        except DatasetExistsError as error:
            # Another writer created the dataset meanwhile. The rows can follow if the columns
            # are the very same, with the ids that the files were written with.
            if _is_committed(store, job):
                return
            if job.options.must_not_exist:
                raise _exists(job.options.uri) from error
            base = open_latest(store)
            if job.overwrite or base.schema.fields != job.schema.fields:
                raise CommitConflictError(
                    f"another writer created {job.options.uri} while this job ran, and "
                    f"{'it was to be replaced' if job.overwrite else 'its columns differ'}. "
                    "Run the job again"
                ) from error
            if fragments:
                _commit(store, job, Append(fragments), base.version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files of a job whose tasks failed, if that can do no harm."""
        job = self.job
        store = open_root(job.options.uri, job.options.storage)
        paths = [
            data_file_path(file.path)
            for fragment in _fragments(messages)
            for file in fragment.files
        ]
        if not paths:
            return
        if None not in messages:
            _logger.warning(
                "job %s on %s: the commit failed; %d files are left to the next clean-up, for "
                "the version may have been written: %s",
                job.id,
                GlaiveError.without_secrets(job.options.uri),
                len(paths),
                ", ".join(paths[:20]),
            )
            return
        if not _is_committed(store, job):
            store.discard(paths)


def _file_options(options: Options) -> WriteOptions:
    default = WriteOptions()
    return WriteOptions(
        max_rows_per_file=options.max_rows_per_file or default.max_rows_per_file,
        max_bytes_per_file=options.max_bytes_per_file or default.max_bytes_per_file,
        encoding_options=options.encoding_options,
    )


def _commit(store: ObjectStore, job: WriteJob, operation: TableOperation, version: int) -> None:
    major, minor = job.storage_version.split(".")
    commit_transaction(
        store,
        Transaction(
            read_version=version,
            operation=operation,
            properties={JOB: job.id, ENGINE: "spark"},
        ),
        once=JOB,
        options=CommitOptions(
            storage_version=FormatVersion(int(major), int(minor)),
            enable_stable_row_ids=bool(job.options.enable_stable_row_ids),
        ),
    )


def _is_committed(store: ObjectStore, job: WriteJob) -> bool:
    try:
        return find_transaction(store, job.read_version, JOB, job.id) is not None
    except DatasetNotFoundError:
        return False


def _fragments(messages: Sequence[WriterCommitMessage | None]) -> Iterator[Fragment]:
    for message in messages:
        if isinstance(message, FragmentsWritten):
            for data in message.fragments:
                yield Fragment.from_wire(table_pb2.DataFragment.FromString(data))


def _latest(store: ObjectStore) -> Manifest | None:
    try:
        return open_latest(store)
    except DatasetNotFoundError:
        return None


def _exists(uri: str) -> DatasetExistsError:
    return DatasetExistsError(
        f"there is a dataset in {uri} already. Write with mode='append' to add rows or "
        "mode='overwrite' to replace them"
    )
