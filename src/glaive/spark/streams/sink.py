"""The sink: each batch of a stream becomes one version, exactly once.

Tasks write data files; the driver commits them with the name of the application and the number of
the batch. Spark runs a batch again if it does not know that it was committed: after a crash, or an
error while it was acknowledged. Then the newest version says that the batch was applied, and the
files written by the second attempt are left to the next clean-up.

Spark makes a new writer for the tasks of each batch, and another one, in another process, for its
commit. What the commit must know of the tasks is in their messages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from glaive.dataclass import dataclass
from glaive.dataset.compaction.commit import commit_rewrites
from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.passes import rewrite_groups
from glaive.dataset.compaction.plan import compaction_groups
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.tasks import LOCAL
from glaive.dataset.writing.commit import commit_plan
from glaive.dataset.writing.plan import WritePlan
from glaive.dataset.writing.rolling import discard_fragments
from glaive.dataset.writing.staged import staged_rows
from glaive.errors import (
    CommitConflictError,
    DatasetNotFoundError,
    GlaiveError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.format.blobs import has_blobs
from glaive.format.fields import LanceSchema
from glaive.format.fragment_list import FragmentList, unpacked_fragments
from glaive.format.manifest import Manifest
from glaive.spark.failures import without_inner_frames
from glaive.spark.streams.options import StreamOptions
from glaive.spark.streams.upsert import check_keys, upsert
from glaive.spark.versions import DataSourceStreamArrowWriter
from glaive.spark.write_job import WriteJob
from glaive.spark.writer import FragmentsWritten, LanceArrowWriter, refuse_missing_files
from glaive.table.app_transactions import AppTransaction, last_applied
from glaive.table.load import open_latest
from glaive.types import VersionIdentity

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchWritten", "LanceStreamWriter"]

_logger = logging.getLogger(__name__)


@dataclass
class BatchWritten(WriterCommitMessage):
    """What one task wrote, for which version, and with which columns."""

    written: FragmentsWritten
    read: VersionIdentity | None
    columns: str


class LanceStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream.

    Parameters
    ----------
    job
        The plan of the write, as for a frame.
    options
        Options of the stream.
    app_id
        Name of the application, the same whenever the query starts with its checkpoint.
    """

    def __init__(self, job: WriteJob, options: StreamOptions, app_id: str) -> None:
        self.job = job
        self.options = options
        self.app_id = app_id
        if options.merge_keys:
            check_keys(job.columns, options.merge_keys, options.merge_order_by, job.plan.store.uri)
            blobs = [field.name for field in job.plan.schema.fields if has_blobs(field)]
            if blobs:
                raise UnsupportedFeatureError(
                    f"option merge_keys: rows with the blob column {blobs[0]!r} cannot be merged "
                    "by a stream. Append them, or merge them in foreachBatch"
                )

    def write(  # type: ignore[override]  # as pyspark's own Arrow writer narrows it
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of one task to new files and return their fragments."""
        message = LanceArrowWriter(self.job).write(iterator)
        assert isinstance(message, FragmentsWritten)  # noqa: S101  # for the type checker
        plan = self.job.plan
        return BatchWritten(message, plan.identity, _columns(plan.schema))

    @without_inner_frames
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Commit the fragments of all tasks as one version, unless the batch was applied.

        Raises
        ------
        OptionError
            A later batch was applied: the checkpoint is older, and its rows may be others.
        StoreError
            Files of the tasks are not where this process sees them.
        """
        transaction = AppTransaction(self.app_id, batchId)
        newest = self._newest()
        last = None if newest is None else last_applied(newest, self.app_id)
        if last is not None and last > batchId:
            raise self._is_behind(batchId, last)
        if last == batchId:
            return
        written = [message for message in messages if isinstance(message, BatchWritten)]
        fragments = _fragments(written)
        if not fragments and (self.options.merge_keys or self.job.plan.options.mode == "append"):
            return
        plan = self._plan_of(written)
        refuse_missing_files(plan, fragments)
        if self.options.merge_keys:
            self._merge(plan, fragments, transaction)
        else:
            commit_plan(_with_properties(plan, transaction), fragments)
        self._compact()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Remove the files of a batch whose tasks failed, if no version can refer to them."""
        plan = self.job.plan
        fragments = _fragments(messages)
        if not fragments:
            return
        newest = self._newest()
        applied = newest is not None and AppTransaction(self.app_id, batchId).is_applied(newest)
        if None in messages and not applied:
            discard_fragments(plan, fragments)
            return
        _logger.warning(
            "batch %d of %s on %s failed, but may have been committed; %d files without a version "
            "remain until the next clean-up",
            batchId,
            self.app_id,
            GlaiveError.without_secrets(plan.store.uri),
            len(fragments),
        )

    def _is_behind(self, batch: int, last: int) -> OptionError:
        """Spark repeats the last batch of a checkpoint, and none before it."""
        return OptionError(
            f"batch {batch} of {self.app_id} on {self.job.plan.store.uri}: the dataset has batch "
            f"{last} already, so the checkpoint is an older one or, with txnAppId, of another "
            "query, and the rows of this batch may not be those of the first one with its number. "
            "Nothing was written. Restore the dataset of that time as well, or start with a new "
            "checkpoint (and another txnAppId) from the version that comes next (startingVersion)"
        )

    def _newest(self) -> Manifest | None:
        with suppress(DatasetNotFoundError):
            return open_latest(self.job.plan.store)
        return None

    def _plan_of(self, written: Sequence[BatchWritten]) -> WritePlan:
        """The plan by which the tasks wrote.

        Raises
        ------
        CommitConflictError
            The columns of the dataset changed meanwhile; the batch has to be written again.
        """
        plan = self.job.plan
        if not written or written[0].read == plan.identity:
            return plan
        read = written[0].read
        number = 0 if read is None else read[0]
        if {message.columns for message in written} != {_columns(plan.schema)}:
            raise CommitConflictError(
                f"the columns of {plan.store.uri} changed while a batch of the stream was written "
                f"for version {number}. Start the query again: it repeats the "
                "batch"
            )
        return replace(plan, read_version=number, identity=read, base=None)

    def _merge(self, plan: WritePlan, fragments: FragmentList, transaction: AppTransaction) -> None:
        if self._newest() is None:
            commit_plan(plan, ())  # without the transaction: the rows come with the merge
        newest = open_latest(plan.store)
        staged = staged_rows(plan, fragments, newest.wire.base_paths)
        keys, order_by = self.options.merge_keys, self.options.merge_order_by
        upsert(LanceDataset.of(plan.store, newest), staged, keys, order_by, transaction)
        discard_fragments(plan, fragments)

    def _compact(self) -> None:
        """Compact small files by the option's rule. The batch is committed whatever happens."""
        limit = self.options.auto_compact_files
        if limit is None:
            return
        store = self.job.plan.store
        try:
            opened = LanceDataset.of(store, open_latest(store)).opened
            options = CompactionOptions.of({}, dict(opened.manifest.config))
            crowded = [at for at in compaction_groups(opened, options) if len(at) >= limit]
            commit_rewrites(opened, rewrite_groups(opened, crowded, options, LOCAL.runner))
        except GlaiveError as error:
            _logger.warning("small files of %s were not compacted: %s", store.public_uri, error)


def _with_properties(plan: WritePlan, transaction: AppTransaction) -> WritePlan:
    properties = {**plan.options.transaction_properties, **transaction.properties}
    return replace(plan, options=replace(plan.options, transaction_properties=properties))


def _columns(schema: LanceSchema) -> str:
    """A text that two schemas share if files written by one fit the other."""
    fields = [(field.id, field.name, field.logical_type) for field in schema.walk()]
    return sha256(repr(fields).encode()).hexdigest()


def _fragments(messages: Sequence[WriterCommitMessage | None]) -> FragmentList:
    written = (message.written for message in messages if isinstance(message, BatchWritten))
    packed = (data for message in written for data in message.fragments)
    return unpacked_fragments(packed, "the message of a task")
