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
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from glaive.arrow.capacity import batch_parts
from glaive.dataset.writing.commit import commit_plan
from glaive.dataset.writing.conform import check_same_columns
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.options import Mode, WriteOptions
from glaive.dataset.writing.plan import WritePlan, plan_write
from glaive.dataset.writing.rolling import discard_fragments
from glaive.errors import DatasetNotFoundError, GlaiveError
from glaive.format.fragment import Fragment
from glaive.format.paths import data_file_path
from glaive.format.pb import table_pb2
from glaive.spark.assignable import assigned, refuse_missing, refuse_unassignable
from glaive.spark.cast import conform
from glaive.spark.options import Options
from glaive.spark.types import as_spark_sends, stored_schema
from glaive.table.load import find_transaction, open_latest
from glaive.table.root import open_root

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["JOB", "FragmentsWritten", "LanceArrowWriter", "WriteJob", "plan_frame", "plan_job"]

JOB = "glaive.job"
"""Transaction property that holds the id of the job."""

ENGINE = "glaive.engine"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """All that tasks and commit need to know; plain values, pickled with every task.

    Parameters
    ----------
    plan
        What is written where.
    columns
        The types that batches of Spark are cast to, by name.
    allow_truncation
        Drop digits of times below the unit of their column.
    """

    plan: WritePlan
    columns: pa.Schema
    allow_truncation: bool

    @property
    def id(self) -> str:
        """Identity of the job, the same in every attempt of its tasks and its commit."""
        return self.plan.options.transaction_properties[JOB]


@dataclass
class FragmentsWritten(WriterCommitMessage):
    """What one task wrote: fragments in wire form, without ids."""

    fragments: tuple[bytes, ...]


def plan_job(schema: StructType, options: Options, *, overwrite: bool) -> WriteJob:
    """Decide on the driver what is written where, and refuse what cannot end well.

    Raises
    ------
    GlaiveError
        As :func:`glaive.dataset.writing.plan.plan_write`; and a frame that lacks columns of the
        dataset it is appended to is refused, as Spark does everywhere.
    """
    stored = options.arrow_schema or stored_schema(
        schema, options.vector_columns, strict_nullability=options.strict_nullability
    )
    return plan_frame(as_spark_sends(schema), stored, options, overwrite=overwrite)


def plan_frame(
    sent: pa.Schema, stored: pa.Schema, options: Options, *, overwrite: bool
) -> WriteJob:
    """The same for schemas that are known.

    Parameters
    ----------
    sent
        As batches come from Spark.
    stored
        As a new dataset keeps them.
    """
    mode: Mode = "overwrite" if overwrite else "append"
    wanted = _write_options(options, "create" if options.must_not_exist else mode)
    store = open_root(options.uri, options.storage)
    base = None
    with suppress(DatasetNotFoundError):
        base = open_latest(store, to_follow=True)
    columns = stored
    if base is not None and wanted.mode == "append":
        columns = assigned(sent, base.schema.to_arrow())
    plan = plan_write(store, columns, wanted, base)
    if base is not None and plan.appends:
        refuse_missing(plan.schema, base.schema, where=options.uri)
    else:
        check_same_columns(sent.names, stored.names)
        refuse_unassignable(sent, stored, where=options.uri)
    return WriteJob(plan=plan, columns=columns, allow_truncation=options.allow_truncation)


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
        job = self.job
        truncate = job.allow_truncation
        cast = partial(conform, schema=job.columns, allow_truncation=truncate, writing=True)
        rows = (part for batch in iterator for part in batch_parts(cast, batch))
        written = write_fragments(job.plan, rows)
        return FragmentsWritten(
            tuple(fragment.to_wire().SerializeToString() for fragment in written)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make one version of what all tasks wrote; nothing if an earlier call already did."""
        fragments = list(_fragments(messages))
        if fragments or not self.job.plan.appends:
            commit_plan(self.job.plan, fragments, once=JOB)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files of a job whose tasks failed, if that can do no harm."""
        job = self.job
        fragments = list(_fragments(messages))
        paths = [data_file_path(file.path) for fragment in fragments for file in fragment.files]
        if not paths:
            return
        if None not in messages:
            _logger.warning(
                "job %s on %s: the commit failed; %d files are left to the next clean-up, for "
                "the version may have been written: %s",
                job.id,
                GlaiveError.without_secrets(job.plan.store.uri),
                len(paths),
                ", ".join(paths[:20]),
            )
            return
        if not _is_committed(job):
            discard_fragments(job.plan, fragments)


def _write_options(options: Options, mode: Mode) -> WriteOptions:
    names = (
        "max_rows_per_file",
        "max_bytes_per_file",
        "data_storage_version",
        "enable_stable_row_ids",
        "encoding_options",
    )
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    properties = {JOB: options.job or str(uuid4()), ENGINE: "spark"}
    return WriteOptions(mode=mode, transaction_properties=properties, **given)


def _is_committed(job: WriteJob) -> bool:
    plan = job.plan
    try:
        return find_transaction(plan.store, plan.read_version, JOB, job.id) is not None
    except DatasetNotFoundError:
        return False


def _fragments(messages: Sequence[WriterCommitMessage | None]) -> Iterator[Fragment]:
    for message in messages:
        if isinstance(message, FragmentsWritten):
            for data in message.fragments:
                yield Fragment.from_wire(table_pb2.DataFragment.FromString(data))
