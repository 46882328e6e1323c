"""The source of streams, and change feeds that are no streams.

Spark keeps one reader for a query, in a process of its own, which plans the batches; tasks get
copies that only read. Spark hides errors of the constructor, so nothing is opened there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from glaive.dataset.changes.columns import CHANGE_COLUMNS
from glaive.dataset.changes.feed import ChangeReader, change_feed
from glaive.dataset.changes.task_list import ChangeTasks
from glaive.errors import NotFoundError, OptionError
from glaive.format.fields import LanceSchema
from glaive.spark.failures import without_inner_frames
from glaive.spark.frame import frame_schema, open_dataset
from glaive.spark.options import Options, from_spark, with_absolute_path
from glaive.spark.streams.limits import Budget, default_limit
from glaive.spark.streams.offsets import (
    Position,
    batch_end,
    batch_start,
    between,
    identity_of,
    initial,
)
from glaive.spark.streams.options import StreamOptions, stream_options
from glaive.spark.streams.partitions import partitions_of, read_partition
from glaive.spark.streams.timeline import Timeline, end_version, first_since
from glaive.spark.versions import HAS_READ_LIMITS, SPARK, SupportsTriggerAvailableNow
from glaive.types import VersionIdentity

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

    from glaive.dataset.dataset import LanceDataset

__all__ = ["LanceChangesReader", "LanceStreamReader", "change_schema", "open_changes"]


def open_changes(options: Options, of_stream: StreamOptions) -> LanceDataset:
    """Open a dataset at the last version of a change feed."""
    dataset = open_dataset(options)
    end = end_version(dataset.store, of_stream, dataset.version)
    return dataset if end == dataset.version else dataset.checkout_version(end)


def change_schema(dataset: LanceDataset, options: Options) -> pa.Schema:
    """The schema of a change feed: columns of the options, then those that describe the change.

    Raises
    ------
    OptionError
        The options compute columns, filter rows or read values of blobs.
    """
    _refuse_expressions(options)
    rows = frame_schema(dataset, options)
    ChangeReader(dataset.opened, rows.names)  # refuses names that the feed adds
    fields: list[Any] = [*(field.with_nullable(True) for field in rows), *CHANGE_COLUMNS]
    return pa.schema(fields)


def _refuse_expressions(options: Options) -> None:
    given = {
        "filter": options.filter is not None,
        "push_filters": options.push_filters,
        "columns with expressions": isinstance(options.columns, Mapping),
    }
    for name, is_given in given.items():
        if is_given:
            raise OptionError(
                f"option {name}: streams and change feeds have whole rows; use where and select"
            )
    if options.blobs != "descriptor":
        raise OptionError(
            "option blobs: streams and change feeds say where values of blobs are. Leave it out "
            "and read the values with glaive.spark.read, such as in foreachBatch"
        )


class LanceChangesReader(DataSourceReader):
    """Reads a change feed that ends.

    Parameters
    ----------
    options
        With the last version pinned.
    of_stream
        The first version, and what is read.
    schema
        The columns to read, by name, and the types Spark expects.
    """

    def __init__(self, options: Options, of_stream: StreamOptions, schema: StructType) -> None:
        self.options = options
        self.of_stream = of_stream
        self.schema = schema

    @without_inner_frames
    def partitions(self) -> Sequence[InputPartition]:
        """Compare the versions; one partition for each group of tasks."""
        given = self.of_stream
        dataset = open_dataset(self.options)
        start = given.starting_version
        if given.starting_timestamp is not None:
            start = first_since(dataset.store, given.starting_timestamp)
        if not isinstance(start, int):
            raise OptionError(
                "readChangeFeed needs startingVersion, a number, or startingTimestamp: the first "
                "version whose changes are read"
            )
        net = given.deduplication_mode == "netChanges"
        names = [name for name in self.schema.names if name not in CHANGE_COLUMNS.names]
        feed = change_feed(
            dataset.opened, start, None, columns=names, preimages=given.preimages, net=net
        )
        return partitions_of(feed.tasks, dataset.lance_schema, self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changed rows of a partition."""
        yield from read_partition(partition, self.options, self.of_stream, self.schema)


class LanceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new rows, or changes of rows, version by version.

    Parameters
    ----------
    given
        The options of the user.
    pinned
        Options with the version whose schema the stream has; ``None`` if the user gave a schema.
    schema
        The columns to read, by name, and the types Spark expects.
    """

    def __init__(
        self, given: Mapping[str, str], pinned: Options | None, schema: StructType
    ) -> None:
        self.given = with_absolute_path(given)
        self.pinned = pinned
        self.schema = schema
        self._plan: _StreamPlan | None = None
        self._reached: dict[str, Any] | None = None

    # ------------------------------------------------------------------ planning, in one process

    @without_inner_frames
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where a query without a checkpoint starts."""
        self._reached = initial(self._planned().first())
        return self._reached

    @without_inner_frames
    def latestOffset(  # noqa: N802  # Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Where the next batch ends.

        Spark 4.0 and 4.1 do not say where it starts: where the last batch ended that they planned.
        """
        plan = self._planned()
        start = start or self._reached or initial(plan.first())
        end = plan.batch_end(start, limit)
        return batch_end(start, end, plan.identity(end))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """The limit of the options."""
        return default_limit(self._planned().of_stream)

    @without_inner_frames
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """After the newest version."""
        return Position(self._planned().newest() + 1).to_spark()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Stop at what is the newest version now."""
        self._planned().stop_at_newest()

    @without_inner_frames
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        plan = self._planned()
        plan.expect_same(end)
        self._reached = end
        return plan.partitions(batch_start(start, end), Position.of(end))

    def _planned(self) -> _StreamPlan:
        if self._plan is None:
            self._plan = _StreamPlan(self.given, self.pinned)
        return self._plan

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}

    # ------------------------------------------------------------------ tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        of_stream, others = stream_options(self.given)
        yield from read_partition(partition, from_spark(others), of_stream, self.schema)


class _StreamPlan:
    """Plans the batches of a stream."""

    def __init__(self, given: Mapping[str, str], pinned: Options | None) -> None:
        self.of_stream, others = stream_options(given)
        self._options = from_spark(others)
        _refuse_expressions(self._options)
        for name in ("ending_version", "ending_timestamp"):
            if getattr(self.of_stream, name) is not None:
                raise OptionError(f"option {name.replace('_', ' ')}: a stream has no end")
        if not (HAS_READ_LIMITS or Budget.of(self.of_stream).unlimited):
            raise OptionError(
                "options maxFilesPerTrigger, maxRowsPerTrigger, maxBytesPerTrigger: "
                f"{SPARK} tells sources no limits. Use Spark 4.2, or leave them out"
            )
        if self.of_stream.deduplication_mode != "none":
            raise OptionError("deduplicationMode: net changes need an end; streams have none")
        dataset = self._open(pinned)
        self._version = dataset.version
        self._schema: LanceSchema = dataset.lance_schema
        self._store = dataset.store
        self._timeline = Timeline(dataset.store, self.of_stream)
        self._target: int | None = None
        self._last: VersionIdentity | None = None

    def _open(self, pinned: Options | None) -> LanceDataset:
        if pinned is not None:
            try:
                return open_dataset(pinned)
            except NotFoundError:  # it was cleaned up since: the newest has the columns as well
                return open_dataset(replace(pinned, version=None, identity=None))
        return open_dataset(self._options)

    def first(self) -> Position:
        """Where the stream starts."""
        given = self.of_stream
        newest = self._timeline.newest()
        if given.starting_timestamp is not None:
            return Position(first_since(self._store, given.starting_timestamp))
        if given.starting_version is None:
            return Position(self._version, snapshot=True)
        if given.starting_version == "latest":
            return Position(newest + 1)
        assert isinstance(given.starting_version, int)  # noqa: S101  # for the type checker
        if given.starting_version > newest + 1:
            raise OptionError(
                f"startingVersion: the newest version of {self._store.uri} is {newest}, found "
                f"{given.starting_version}"
            )
        return Position(given.starting_version)

    def newest(self, known: int = 0) -> int:
        """The last version to be read; none before ``known``, which was seen."""
        return self._timeline.newest(known) if self._target is None else self._target

    def stop_at_newest(self) -> None:
        """Read no later versions than those of now."""
        self._target = self._timeline.newest()

    def batch_end(self, offset: dict[str, Any], limit: ReadLimit | None) -> Position:
        """Where a batch from an offset on ends."""
        start = Position.of(offset)
        newest = self.newest(start.version - 1)
        if start.version > newest + 1:  # a listing that was stale may say so
            self._expect_version(start.version - 1)
        self._last = None  # it may be another one now
        self.expect_same(offset)
        limited = type(limit).__name__ != "ReadAllAvailable"
        budget = Budget.of(self.of_stream) if limited else Budget()
        if budget.unlimited:
            return max(start, Position(newest + 1))
        while start.version <= newest:
            reached = budget.admit(self._timeline.tasks(start), start)
            if reached is not None:
                return reached
            start = start.next_version
        return start

    def identity(self, end: Position) -> VersionIdentity | None:
        """What the last version of a batch that was just planned is recognised by."""
        self._last = self._timeline.identity(end.last_version)
        return self._last

    def expect_same(self, offset: dict[str, Any]) -> None:
        """Refuse another dataset in the place of the one that was read up to an offset.

        One request, or none for the batch that was planned last. A version that was cleaned up is
        no sign of either.
        """
        identity = identity_of(offset)
        if identity is None or identity == self._last:
            return
        there = self._timeline.identity_there(identity[0])
        if there is None:
            self._expect_version(identity[0])
        elif there != identity:
            raise self._is_another(f"up to version {identity[0]}, and another one is there now")

    def _expect_version(self, number: int) -> None:
        """Refuse a dataset that has never had this version: the newest is not cleaned up."""
        newest = self._timeline.newest(number)
        if newest < number:
            raise self._is_another(f"up to version {number}, but its newest version is {newest}")

    def _is_another(self, what: str) -> OptionError:
        return OptionError(
            f"the checkpoint has read {self._store.uri} {what}: it is another dataset. Use another "
            "checkpointLocation"
        )

    def partitions(self, start: Position, end: Position) -> list[InputPartition]:
        """The tasks from one position to another."""
        parts = []
        while start < end:
            same = start.version == end.version
            parts.append(between(self._timeline.tasks(start), start, end if same else None))
            start = end if same else start.next_version
        return partitions_of(ChangeTasks.joined(parts), self._schema, self._options)
