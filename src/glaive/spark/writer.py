"""Write a frame in two phases: tasks write data files, the driver commits them in one version.

Spark runs the phases in different processes that share no state: the job is pickled for the
tasks, their messages return to the driver, and commit and abort get a copy of the original
writer. A task that fails or runs twice leaves unreferenced files, which are invisible and removed
by the next clean-up.

The transaction records the id of the job. Spark may call ``commit`` again after an unclear
failure, and calls ``abort`` with all messages when ``commit`` fails, even if the version was in
fact written. So both first check whether a version has the id, and ``abort`` deletes files only
if a task failed, because then no commit was attempted.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from glaive.arrow.capacity import batch_parts
from glaive.dataclass import dataclass
from glaive.dataset.tasks import JOB
from glaive.dataset.writing.commit import commit_plan, version_read
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import WritePlan
from glaive.dataset.writing.rolling import discard_fragments
from glaive.errors import DatasetNotFoundError, GlaiveError, StoreError
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import FragmentList, packed_fragments, unpacked_fragments
from glaive.format.paths import VERSIONS, data_file_path
from glaive.spark.cast import conform
from glaive.spark.failures import without_inner_frames
from glaive.spark.task import in_task
from glaive.spark.unscaled import restored_batch
from glaive.spark.write_job import WriteJob
from glaive.table.load import find_transaction

__all__ = ["FragmentsWritten", "LanceArrowWriter", "refuse_missing_files", "write_rows"]

_SHARE = (
    "All machines of the cluster must see the same files: use an object store (s3://, gs://, "
    "abfss://) or a directory that is mounted everywhere"
)

_logger = logging.getLogger(__name__)


@dataclass
class FragmentsWritten(WriterCommitMessage):
    """The fragments that one task wrote, serialized, without ids."""

    fragments: tuple[bytes, ...]


class LanceArrowWriter(DataSourceArrowWriter):
    """Executes a :class:`glaive.spark.write_job.WriteJob`."""

    def __init__(self, job: WriteJob) -> None:
        self.job = job

    @without_inner_frames
    def write(  # type: ignore[override]  # as pyspark's own Arrow writer narrows it
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of one task to new files and return their fragments.

        A task without rows writes no file, nor does one of a job that is applied already. File
        names are random, so a second attempt of the same task writes different files.
        """
        with in_task(self.job.release):
            return FragmentsWritten(write_rows(self.job, iterator))

    @without_inner_frames
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the fragments of all tasks as one version, unless an earlier call did."""
        job = self.job
        if job.applied:
            return
        fragments = _fragments(messages)
        refuse_missing_files(job.plan, fragments)
        if job.replace_where is not None:
            if not _is_committed(job):
                _replace(job.plan, job.replace_where, fragments)
        elif fragments or not job.plan.appends:
            commit_plan(job.plan, fragments, once=JOB)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files of a job whose tasks failed, if no version can refer to them."""
        job = self.job
        fragments = _fragments(messages)
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


def write_rows(job: WriteJob, batches: Iterator[pa.RecordBatch]) -> tuple[bytes, ...]:
    """Write the rows of one task; returns its fragments, packed.

    Raises
    ------
    SchemaError
        A value does not fit its column, or a row is outside of what is replaced.
    StoreError
        This machine does not see the dataset.
    """
    if job.applied:
        return ()
    _refuse_missing_dataset(job.plan)
    truncate = job.allow_truncation
    cast = partial(conform, schema=job.columns, allow_truncation=truncate, writing=True)
    if job.decimals:
        batches = (restored_batch(batch, job.decimals) for batch in batches)
    rows: Iterator[pa.RecordBatch]
    rows = (part for batch in batches for part in batch_parts(cast, batch))
    if job.replace_where is not None:
        from glaive.spark.replacing import only_matching

        rows = only_matching(rows, job.replace_where, job.plan.schema)
    return packed_fragments(write_fragments(job.plan, rows))


def _replace(plan: WritePlan, predicate: str, fragments: Sequence[Fragment]) -> None:
    """Look for the rows to replace in this process: Spark's commit has no session for tasks."""
    from glaive.dataset.tasks import InProcess
    from glaive.dataset.version import OpenedVersion
    from glaive.spark.replacing import commit_replacement
    from glaive.table.load import open_version

    manifest = version_read(plan) or open_version(plan.store, plan.read_version)
    opened = OpenedVersion.of(plan.store, manifest, uri=plan.store.uri)
    commit_replacement(opened, plan, predicate, fragments, once=JOB, runner=InProcess())


def _refuse_missing_dataset(plan: WritePlan) -> None:
    """Refuse, in a task, a local dataset that this machine does not have.

    Raises
    ------
    StoreError
        The path is not shared by the machines of the cluster.
    """
    store = plan.store
    if store.is_local and plan.read_version and store.folder_state(VERSIONS) is None:
        raise StoreError(
            f"{store.uri} is a dataset for the driver, but does not exist on the executor "
            f"{socket.gethostname()}. {_SHARE}"
        )


def refuse_missing_files(plan: WritePlan, fragments: Sequence[Fragment]) -> None:
    """Refuse, before the commit, files in a local path that this machine does not have.

    Raises
    ------
    StoreError
        The path is not shared by the machines of the cluster; nothing is committed.
    CommitConflictError
        Another dataset is in the place of the one that the plan was made for.
    """
    if not plan.store.is_local:
        return
    names = (
        data_file_path(file.path)
        for fragment in fragments
        for file in fragment.files
        if file.base_id is None
    )
    missing = [name for name in names if plan.store.is_free(name)]
    if missing:
        version_read(plan)  # another dataset has none of them either
        raise StoreError(
            f"executors wrote {len(missing)} files to {plan.store.uri} that the driver "
            f"{socket.gethostname()} does not see, such as {missing[0]}. Nothing was committed. "
            f"{_SHARE}"
        )


def _is_committed(job: WriteJob) -> bool:
    plan = job.plan
    try:
        return find_transaction(plan.store, plan.read_version, JOB, job.id) is not None
    except DatasetNotFoundError:
        return False


def _fragments(messages: Sequence[WriterCommitMessage | None]) -> FragmentList:
    written = (message for message in messages if isinstance(message, FragmentsWritten))
    packed = (data for message in written for data in message.fragments)
    return unpacked_fragments(packed, "the message of a task")
