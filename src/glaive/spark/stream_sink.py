"""The sink: each batch of a stream becomes one version, exactly once.

Tasks write data files. The driver commits them with the name of the application and the number of
the batch. Spark repeats a batch if the acknowledgement of its commit is missing: after a crash, or
after an error. Then the newest version shows that the batch was applied, and the next clean-up
removes the files of the second attempt.

Spark makes a new writer for the tasks of each batch, and another writer, in another process, for
its commit. Messages of the tasks carry all that the commit must know about them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from glaive.arrow.chunked import one_array
from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.merging.source import SourceKeys
from glaive.dataset.scanner import Scanner
from glaive.dataset.writing.fragments import discard_fragments
from glaive.dataset.writing.plan import WritePlan, staged_rows
from glaive.dataset.writing.rows import after_upkeep, commit_plan
from glaive.errors import (
    ColumnNotFoundError,
    CommitConflictError,
    DatasetNotFoundError,
    GlaiveError,
    OptionError,
    SchemaError,
)
from glaive.format.fields import LanceSchema
from glaive.format.fragment import FragmentList
from glaive.format.manifest import Manifest
from glaive.io.access import open_store
from glaive.scan.views import Views
from glaive.spark.failures import without_inner_frames
from glaive.spark.options import StreamOptions
from glaive.spark.versions import DataSourceStreamArrowWriter
from glaive.spark.writer import (
    FragmentsWritten,
    LanceArrowWriter,
    WriteJob,
    recording,
    refuse_blobs,
    refuse_missing_files,
    written_fragments,
)
from glaive.table.load import open_latest
from glaive.table.named_jobs import AppTransaction, last_applied
from glaive.types import VersionIdentity

# --- The name of the application of a stream: the id of its query -----------------------

_CHECKPOINT = "checkpointlocation"


def application_id(
    given: str | None, options: Mapping[str, str], storage: Mapping[str, str]
) -> str:
    """Return the option ``txnAppId``, or the id of the query, which its checkpoint keeps.

    A query that starts with a new checkpoint has a new id. So its batches are distinct from batches
    of the earlier query.

    Parameters
    ----------
    options
        All options of the sink; Spark adds the location of the checkpoint if the query names it.
    storage
        Settings of the object store of the dataset, used for the checkpoint as well.

    Raises
    ------
    OptionError
        The option and the checkpoint are missing, or the checkpoint is unreadable here.
    """
    if given is not None:
        return given
    lowered = {key.lower(): value for key, value in options.items()}
    location = lowered.get(_CHECKPOINT)
    if not location:
        raise OptionError(
            "the sink needs .option('checkpointLocation', ...) of the query, or 'txnAppId', a name "
            "that stays the same when the query starts again. It identifies batches"
        )
    if location.startswith("file:/"):
        location = "/" + location.removeprefix("file:").lstrip("/")
    try:
        content = json.loads(
            open_store(location, dict(storage) or None).get("metadata").to_pybytes()
        )
        return f"query {content['id']}"
    except (GlaiveError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise OptionError(
            f"the id of the query cannot be read from its checkpoint {location} ({error}). Give "
            "the sink option txnAppId: a name that stays when the query starts again, and "
            "changes when it starts with a new checkpoint"
        ) from error


# --- Upserts of streams: tasks write the rows of a batch to files, the commit merges them
# Tasks write the rows of a batch to data files that no version refers to. The commit reads them
# from there, so messages of the tasks carry only their paths. Then it removes the files.


def refuse_repeated(staged: Views, keys: Sequence[str]) -> None:
    """Refuse a batch with several rows of one key; rows with a null in their key have none.

    Memory: the keys of the batch.

    Raises
    ------
    SchemaError
        The message names the key.
    """
    rows = Scanner.of(staged, columns=list(keys)).to_table()
    found = SourceKeys(keys, [one_array(rows[name]) for name in keys])
    repeated = np.flatnonzero(found.repeated)
    if len(repeated):
        raise SchemaError(
            f"merge_keys: several rows of one batch have {found.text(int(repeated[0]))}. Make keys "
            "unique before the sink, or write with keys and sequence_by, which orders the rows"
        )


_logger = logging.getLogger(__name__)


@dataclass
class BatchWritten(FragmentsWritten):
    """The result of one task: fragments, the version it wrote for, and its columns."""

    read: VersionIdentity | None
    columns: str
    numbers: tuple[tuple[str, int], ...] = ()


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
            for name in options.merge_keys:
                if name not in job.columns.names:
                    where = job.plan.store.uri
                    raise ColumnNotFoundError.among(name, job.columns.names, where=where)
            refuse_blobs(job.plan.schema, "merge_keys")

    def write(  # type: ignore[override]  # as pyspark's own Arrow writer narrows it
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of one task to new files and return their fragments."""
        message = LanceArrowWriter(self.job).write(iterator)
        assert isinstance(message, FragmentsWritten)  # noqa: S101  # for the type checker
        plan = self.job.plan
        numbers = () if plan.rules is None else plan.rules.numbers
        return BatchWritten(message.fragments, plan.identity, _columns(plan.schema), numbers)

    @without_inner_frames
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Commit the fragments of all tasks as one version, unless the batch was applied.

        Raises
        ------
        OptionError
            A later batch was applied: the checkpoint is older, and its rows may differ.
        StoreError
            The files of the tasks are invisible to this process.
        """
        transaction = AppTransaction(self.app_id, batchId)
        newest = self._newest()
        last = None if newest is None else last_applied(newest, self.app_id)
        if last is not None and last > batchId:
            raise self._older_checkpoint(batchId, last)
        if last == batchId:
            return
        written = [message for message in messages if isinstance(message, BatchWritten)]
        fragments = written_fragments(written)
        changes, keys = self.job.changes, self.options.merge_keys
        if not fragments and (changes or keys or self.job.plan.options.mode == "append"):
            return
        plan = self._plan_of(written)
        refuse_missing_files(plan, fragments)
        if changes is not None:
            made = changes(_with_properties(plan, transaction), fragments)
        elif keys:
            made = self._merge(plan, fragments, transaction)
        else:
            plan = recording(_with_properties(plan, transaction), messages)
            made = commit_plan(plan, fragments)
        after_upkeep(plan, made)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Remove the files of a batch whose tasks failed, if the batch is uncommitted."""
        plan = self.job.plan
        fragments = written_fragments(messages)
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

    def _older_checkpoint(self, batch: int, last: int) -> OptionError:
        """Return the error for an old batch: Spark repeats only the last batch of a checkpoint."""
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
        """Return the plan that the tasks wrote with.

        Raises
        ------
        CommitConflictError
            The columns of the dataset changed meanwhile; the batch must be written again.
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
        rules = plan.rules and replace(plan.rules, numbers=written[0].numbers)
        return replace(plan, read_version=number, identity=read, base=None, rules=rules)

    def _merge(
        self, plan: WritePlan, fragments: FragmentList, transaction: AppTransaction
    ) -> Manifest:
        if self._newest() is None:
            commit_plan(plan, ())  # the transaction comes with the merge, as do the rows
        newest = open_latest(plan.store)
        staged = staged_rows(plan, fragments, newest.wire.base_paths)
        given, rules, keys = self.job.columns.names, plan.rules, self.options.merge_keys
        numbered = {name for name, _ in rules.numbers if name not in given} if rules else ()
        columns = [name for name in plan.schema.names if name not in numbered]
        refuse_repeated(staged, keys)
        dataset = LanceDataset.of(plan.store, newest)
        merge = dataset.merge_insert(keys).when_matched_update_all().when_not_matched_insert_all()
        rows = Scanner.of(staged, columns=columns).to_reader()
        merge.transaction_properties(transaction.properties).execute(rows)
        discard_fragments(plan, fragments)
        return dataset.manifest


def _with_properties(plan: WritePlan, transaction: AppTransaction) -> WritePlan:
    properties = {**plan.options.transaction_properties, **transaction.properties}
    return replace(plan, options=replace(plan.options, transaction_properties=properties))


def _columns(schema: LanceSchema) -> str:
    """Return a hash that two schemas share if files of one fit the other."""
    fields = [(field.id, field.name, field.logical_type) for field in schema.walk()]
    return sha256(repr(fields).encode()).hexdigest()
