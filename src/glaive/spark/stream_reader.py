"""Read streams and batch change feeds.

For a query Spark keeps one reader in a separate process, which plans the batches. Tasks get copies
that only read. Spark hides errors of the constructor, so the methods open the dataset.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from glaive.arrow.chunked import batch_parts
from glaive.dataclass import dataclass
from glaive.dataset.change_feed import CHANGE_COLUMNS, ChangeReader, change_feed
from glaive.dataset.change_plan import (
    ChangeTask,
    Commit,
    load_for_changes,
    plan_commit,
    plan_snapshot,
)
from glaive.errors import NotFoundError, ObjectNotFoundError, OptionError
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.io.pool import task_bytes
from glaive.io.store import ObjectStore
from glaive.spark.cast import conform
from glaive.spark.failures import without_inner_frames
from glaive.spark.frame import SPLIT_ROWS, frame_schema, open_dataset
from glaive.spark.options import (
    Options,
    StreamOptions,
    from_spark,
    stream_options,
    with_absolute_path,
)
from glaive.spark.types import spark_arrow_schema
from glaive.spark.versions import (
    HAS_READ_LIMITS,
    SPARK,
    SupportsTriggerAvailableNow,
    is_placeholder,
)
from glaive.table.load import describe_versions, load_numbered, open_latest_since, read_transaction
from glaive.types import VersionIdentity

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

    from glaive.dataset.dataset import LanceDataset


# --- Offsets of the source: how far a stream has read, and its dataset ------------------
# Spark records where each batch ends, and starts the next batch there. It omits where the first
# batch starts. If a query stops in that batch, Spark asks again, when the dataset may have more
# versions. So the end of the first batch also records its start.
#
# Another dataset in the same location has the same version numbers. So the end of a batch also
# records the identity of its last version:
# :attr:`glaive.format.manifest.Manifest.identity`.

_INITIAL: Final = "initial"
"""Entry of the offset where a new query starts."""

_START: Final = "start"
"""Entry of the end offset of the first batch: its start."""

_IDENTITY: Final = "identity"
"""Entry of the end offset of a batch: identity of its last version."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The next rows of a stream.

    The rows of a version are a list of tasks, which is the same whenever it is planned.

    Parameters
    ----------
    version
        The version whose rows come next; it may be in the future.
    index, row
        Number of its next task, and the first physical row of that task, 0 for all rows.
    snapshot
        Whether to read all rows of the version, with which a stream starts, instead of the rows
        that it changed.
    """

    version: int
    index: int = 0
    row: int = 0
    snapshot: bool = False

    @classmethod
    def of(cls, offset: dict[str, Any]) -> Self:
        """Return the position of an offset.

        Raises
        ------
        OptionError
            The offset belongs to another source.
        """
        try:
            return cls(*(offset[name] for name in ("version", "index", "row", "snapshot")))
        except (KeyError, TypeError):
            raise _foreign_offset(offset) from None

    @property
    def last_version(self) -> int:
        """The last version whose rows were read; 0 before the first."""
        return self.version - (not (self.snapshot or self.index or self.row))

    @property
    def next_version(self) -> Position:
        """The position after all rows of this version."""
        return Position(self.version + 1)


def initial(start: Position) -> dict[str, Any]:
    """Return the offset where a new query starts."""
    return {**asdict(start), _INITIAL: True}


def batch_end(
    start: dict[str, Any], end: Position, identity: VersionIdentity | None = None
) -> dict[str, Any]:
    """Return the end offset of a batch for Spark's checkpoint; the start offset if it is empty.

    Parameters
    ----------
    start
        The offset at which the batch starts.
    identity
        Identity of the version :attr:`Position.last_version` of the end, if it exists.
    """
    begins = Position.of(start)
    if end == begins and not start.get(_INITIAL):
        return start
    offset = asdict(end) if identity is None else {**asdict(end), _IDENTITY: list(identity)}
    return {**offset, _START: asdict(begins)} if start.get(_INITIAL) else offset


def identity_of(offset: object) -> VersionIdentity | None:
    """Return the identity of the last version of a batch, from its end offset.

    Returns ``None`` for the start of a stream, and for checkpoints of earlier versions of glaive.

    Raises
    ------
    OptionError
        The offset belongs to another source.
    """
    if not isinstance(offset, dict):  # a checkpoint may have anything
        raise _foreign_offset(offset)
    found: Any = offset.get(_IDENTITY)
    return None if found is None else tuple(found)


def batch_start(start: dict[str, Any], end: dict[str, Any]) -> Position:
    """Return the start of a batch that an earlier run of the query may have planned.

    Parameters
    ----------
    start
        The start offset of the batch, by Spark.
    end
        The end offset of the batch, from the checkpoint.

    Raises
    ------
    OptionError
        An offset belongs to another source.
    """
    begins = Position.of(start)
    Position.of(end)
    return Position.of(end[_START]) if start.get(_INITIAL) and _START in end else begins


def _foreign_offset(offset: object) -> OptionError:
    return OptionError(
        f"the checkpoint has the offset {offset!r:.200}, which is none of the lance "
        "source. It belongs to another source: use another checkpointLocation"
    )


def between(
    tasks: Sequence[ChangeTask], start: Position, end: Position | None
) -> Sequence[ChangeTask]:
    """Return tasks of one version from one position to another; ``None`` means the end."""
    stop = len(tasks) if end is None else min(len(tasks), end.index + (end.row > 0))
    if stop <= start.index:
        return []
    first, last = tasks[start.index], tasks[stop - 1]
    low = max(first.start, start.row)
    high = min(last.stop, end.row) if end is not None and end.index == stop - 1 else last.stop
    if stop - start.index == 1:
        return [_within(first, low, high)]
    inner = tasks[start.index + 1 : stop - 1]
    return [_within(first, low, first.stop), *inner, _within(last, last.start, high)]


def _within(task: ChangeTask, start: int, stop: int) -> ChangeTask:
    return task if (start, stop) == (task.start, task.stop) else task.part(start, stop)


# --- Limits of a batch of a stream ------------------------------------------------------

_UNLIMITED = 2**63 - 1


def default_limit(options: StreamOptions) -> ReadLimit:
    """Return the limit of the options, for Spark, which supports one limit at a time.

    If the options have several limits, glaive obeys all of them whenever Spark passes this limit.
    Spark passes limits since 4.2.
    """
    from pyspark.sql.streaming import datasource as limits

    if options.max_files is not None:
        return limits.ReadMaxFiles(options.max_files)
    if options.max_rows is not None:
        return limits.ReadMaxRows(options.max_rows)
    if options.max_bytes is not None:
        return limits.ReadMaxBytes(options.max_bytes)
    return limits.ReadAllAvailable()


@dataclass(slots=True)
class Budget:
    """The rest that a batch may read. Files are fragments; manifests give rows and bytes.

    A batch has at least one task, or one row of a fragment, so that every stream makes progress.
    """

    files: int = _UNLIMITED
    rows: int = _UNLIMITED
    file_bytes: int = _UNLIMITED
    empty: bool = True

    @classmethod
    def of(cls, options: StreamOptions) -> Budget:
        """Return the limits of the options."""
        return cls(
            options.max_files or _UNLIMITED,
            options.max_rows or _UNLIMITED,
            options.max_bytes or _UNLIMITED,
        )

    @property
    def unlimited(self) -> bool:
        """Whether all limits are unset."""
        return min(self.files, self.rows, self.file_bytes) >= _UNLIMITED

    def admit(self, tasks: Sequence[ChangeTask], start: Position) -> Position | None:
        """Take tasks of one version from a position on.

        Returns
        -------
        Position or None
            The position where the limit is reached; ``None`` if the batch takes all tasks.
        """
        for at, task in enumerate(between(tasks, start, None), start.index):
            stop = self._stop(task)
            if stop == task.start:
                row = task.start if task.start != tasks[at].start else 0
                return Position(start.version, at, row, start.snapshot)
            self._take(task if stop == task.stop else task.part(task.start, stop))
            if stop != task.stop:
                return Position(start.version, at, stop, start.snapshot)
        return None

    def _stop(self, task: ChangeTask) -> int:
        """Return the physical row where a task must stop."""
        if self.files < 1 and not self.empty:
            return task.start
        if task.rows <= self.rows and task.file_bytes <= self.file_bytes:
            return task.stop
        if not task.complete:  # its changed rows are spread over the fragment
            return task.stop if self.empty else task.start
        share = min(self.rows / max(1, task.rows), self.file_bytes / max(1, task.file_bytes))
        fitting = int((task.stop - task.start) * share)
        return task.start + max(fitting, int(self.empty))

    def _take(self, task: ChangeTask) -> None:
        self.files -= 1
        self.rows -= task.rows
        self.file_bytes -= task.file_bytes
        self.empty = False


# --- Versions of a dataset for a stream: the rows of each, and the start ----------------

_MAX_PLANS = 16
"""Versions whose tasks glaive keeps between planning and reading a batch."""


class Timeline:
    """Plans the tasks of each version; keeps the latest plans.

    Parameters
    ----------
    store
        Root of the dataset.
    options
        Options of the stream.
    """

    def __init__(self, store: ObjectStore, options: StreamOptions) -> None:
        self._store = store
        self._options = options
        self._newest: Manifest | None = None
        self._before: Manifest | None = None
        self._plans: dict[tuple[int, bool], list[ChangeTask]] = {}

    def newest(self, known: int = 0) -> int:
        """Return the number of the newest version, at least ``known``. One or two requests."""
        return self._open_newest(known).version

    def _open_newest(self, known: int) -> Manifest:
        self._newest = None  # release it before reading the next: each lists all fragments
        self._newest = open_latest_since(self._store, known)
        return self._newest

    def identity(self, number: int) -> VersionIdentity | None:
        """Return the identity of a planned version; at most one request.

        Returns ``None`` if the version is missing, or was cleaned up.
        """
        for known in (self._newest, self._before):
            if known is not None and known.version == number:
                return known.identity
        return self.identity_there(number)

    def identity_there(self, number: int) -> VersionIdentity | None:
        """Return the identity of the version that has this number now.

        Makes one request, or none for the newest version, which was opened before each batch.
        """
        newest = self._newest or self._open_newest(number)
        if newest.version == number:
            return newest.identity
        try:
            return load_numbered(self._store, number, newest.scheme).identity
        except ObjectNotFoundError:
            return None

    def tasks(self, position: Position) -> list[ChangeTask]:
        """Return the tasks of the version of a position.

        Raises
        ------
        VersionNotFoundError
            The version, or the version before it, was cleaned up.
        OptionError
            The version updates or deletes rows, and an option has to tell how to read it.
        """
        key = (position.version, position.snapshot)
        found = self._plans.get(key)
        if found is None:
            found = self._snapshot(key[0]) if position.snapshot else self._changes(key[0])
            while len(self._plans) >= _MAX_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = found
        return found

    def _snapshot(self, version: int) -> list[ChangeTask]:
        self._before = self._load(version)
        return plan_snapshot(self._before)

    def _changes(self, version: int) -> list[ChangeTask]:
        before = self._before
        if version > 1 and (before is None or before.version != version - 1):
            before = self._load(version - 1)
        after = self._load(version)
        transaction = read_transaction(self._store, after)
        commit = Commit(before if version > 1 else None, after, transaction)
        self._before = after
        return self._selected(commit, plan_commit(commit))

    def _selected(self, commit: Commit, tasks: list[ChangeTask]) -> list[ChangeTask]:
        """Return the tasks of a commit that belong to the stream."""
        options = self._options
        sides = {task.side.after for task in tasks}
        if options.read_change_feed or False not in sides:
            return tasks
        if options.skip_change_commits:
            return []
        if True not in sides:
            if options.ignore_deletes:
                return []
            what, remedy = ("deletes", "ignoreDeletes or skipChangeCommits to leave them out")
        else:
            what, remedy = "updates or deletes", "skipChangeCommits to leave them out"
        raise OptionError(
            f"version {commit.version} of {self._store.uri} {what} rows ({commit.operation}), and "
            f"the stream reads new rows only. Set the option {remedy}, or readChangeFeed for a "
            "stream of changes, which needs a new checkpoint"
        )

    def _load(self, version: int) -> Manifest:
        newest = self._newest
        if newest is None or newest.version < version:
            newest = self._newest = open_latest_since(self._store, version)
        return load_for_changes(self._store, newest, version)


def first_since(store: ObjectStore, text: str) -> int:
    """Return the first version created at or after a point in time. One request per version.

    Raises
    ------
    OptionError
        All versions are older, or ``text`` is not a point in time.
    """
    moment = _moment("startingTimestamp", text)
    versions = describe_versions(store)
    for version in versions:
        if version.timestamp >= moment:
            return version.version
    raise OptionError(
        f"startingTimestamp: no version of {store.uri} was created at or after {moment}; the "
        f"newest one was at {versions[-1].timestamp}. Use startingVersion=latest for later ones"
    )


def end_version(store: ObjectStore, options: StreamOptions, newest: int) -> int:
    """Return the number of the last version of a batch change feed.

    Raises
    ------
    OptionError
        All versions are newer than that time.
    """
    if options.ending_version is not None:
        return options.ending_version
    if options.ending_timestamp is None:
        return newest
    moment = _moment("endingTimestamp", options.ending_timestamp)
    until = [one.version for one in describe_versions(store) if one.timestamp <= moment]
    if not until:
        raise OptionError(f"endingTimestamp: no version of {store.uri} is as old as {moment}")
    return until[-1]


def _moment(name: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise OptionError(
            f"option {name}: expected a time such as 2026-05-01T12:00:00Z, found {text!r}"
        ) from None


# --- Tasks of change feeds as Spark's partitions: how glaive groups and reads them ------

MAX_PARTITIONS = 10_000
"""Maximum partitions of one batch; each holds the schema."""


_PARTS: Final = [entry.name for entry in fields(ChangeTask)]


class ChangePartition(InputPartition):
    """Tasks that one Spark task reads, and the schema of their feed.

    Parameters
    ----------
    schema
        The packed schema, shared by all partitions.
    tasks
        The tasks.
    """

    def __init__(self, schema: bytes, tasks: Sequence[ChangeTask]) -> None:
        # By columns: pickle would memoise each value of a row.
        columns = [[getattr(task, name) for task in tasks] for name in _PARTS]
        super().__init__((schema, _packed(columns)))


def tasks_in(partition: InputPartition) -> list[ChangeTask]:
    """Return the tasks of a :class:`ChangePartition`."""
    rows = zip(*_unpacked(partition.value[1]), strict=True)
    return [ChangeTask(**dict(zip(_PARTS, row, strict=True))) for row in rows]


def _packed(value: object) -> bytes:
    return zlib.compress(pickle.dumps(value), 1)


def _unpacked(packed: bytes) -> Any:
    # Safe: Spark's own channel between processes that trust each other.
    return pickle.loads(zlib.decompress(packed))  # noqa: S301  # see above


def partitions_of(
    tasks: Sequence[ChangeTask], schema: LanceSchema, options: Options
) -> list[InputPartition]:
    """Group tasks in order, so that each group has about the same bytes."""
    total = sum(task.file_bytes for task in tasks)
    target = options.split_bytes or int(task_bytes(total, options.parallelism))
    target = max(target, -(-total // MAX_PARTITIONS))
    described = _packed(schema)
    found: list[InputPartition] = []
    held: list[ChangeTask] = []
    left = target
    for part in (part for task in tasks for part in _cut(task, target)):
        held.append(part)
        left -= part.file_bytes
        if left <= 0:
            found.append(ChangePartition(described, held))
            held, left = [], target
    if held:
        found.append(ChangePartition(described, held))
    return found


def _cut(task: ChangeTask, target: int) -> Iterable[ChangeTask]:
    """Split a task into parts of about ``target`` bytes, if all its rows are read."""
    if not task.complete:
        return [task]
    parts = max(-(-task.file_bytes // target), 1)
    return task.cut(max(SPLIT_ROWS, -(-(task.stop - task.start) // parts)))


def read_partition(
    partition: InputPartition, options: Options, of_stream: StreamOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, in order, with exactly the schema that Spark expects."""
    if is_placeholder(partition):
        return
    wanted: LanceSchema = _unpacked(partition.value[0])
    # Open the newest version: the version of the feed's schema may have been cleaned up.
    dataset = open_dataset(replace(options, version=None, identity=None))
    names = [name for name in schema.names if name not in CHANGE_COLUMNS.names]
    reader = ChangeReader(
        dataset.opened,
        names,
        schema=wanted,
        preimages=of_stream.preimages,
        batch_size=options.batch_size,
    )
    expected = spark_arrow_schema(schema)
    truncate = options.allow_truncation
    cast = partial(conform, schema=expected, allow_truncation=truncate, writing=False)
    for task in tasks_in(partition):
        for batch in reader.read(task):
            yield from batch_parts(cast, batch)


def open_changes(options: Options, of_stream: StreamOptions) -> LanceDataset:
    """Open a dataset at the last version of a change feed."""
    dataset = open_dataset(options)
    end = end_version(dataset.store, of_stream, dataset.version)
    return dataset if end == dataset.version else dataset.checkout_version(end)


def change_schema(dataset: LanceDataset, options: Options) -> pa.Schema:
    """Return the schema of a change feed: columns of the options, then columns of the change.

    Raises
    ------
    OptionError
        The options compute columns, filter rows or read values of blobs.
    """
    _refuse_expressions(options)
    rows = frame_schema(dataset, options)
    ChangeReader(dataset.opened, rows.names)  # raises for names that the feed adds
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
    """Reads a batch change feed.

    Parameters
    ----------
    options
        Options with the last version pinned.
    of_stream
        The first version, and how to read.
    schema
        The columns to read, by name, and the types that Spark expects.
    """

    def __init__(self, options: Options, of_stream: StreamOptions, schema: StructType) -> None:
        self.options = options
        self.of_stream = of_stream
        self.schema = schema

    @without_inner_frames
    def partitions(self) -> Sequence[InputPartition]:
        """Compare the versions; return one partition for each group of tasks."""
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
        The columns to read, by name, and the types that Spark expects.
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
        """Return where a query with a new checkpoint starts."""
        self._reached = initial(self._planned().first())
        return self._reached

    @without_inner_frames
    def latestOffset(  # noqa: N802  # Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return where the next batch ends.

        Spark 4.0 and 4.1 omit its start: it is the end of the last batch they planned.
        """
        plan = self._planned()
        start = start or self._reached or initial(plan.first())
        end = plan.batch_end(start, limit)
        return batch_end(start, end, plan.identity(end))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the limit of the options."""
        return default_limit(self._planned().of_stream)

    @without_inner_frames
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the position after the newest version."""
        return asdict(Position(self._planned().newest() + 1))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Stop at the version that is newest now."""
        self._planned().stop_at_newest()

    @without_inner_frames
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
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
            except NotFoundError:  # cleaned up: the newest version also has the columns
                return open_dataset(replace(pinned, version=None, identity=None))
        return open_dataset(self._options)

    def first(self) -> Position:
        """Return where the stream starts."""
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
        """Return the last version to read, at least ``known``, which exists."""
        return self._timeline.newest(known) if self._target is None else self._target

    def stop_at_newest(self) -> None:
        """Read up to the version that is the newest now."""
        self._target = self._timeline.newest()

    def batch_end(self, offset: dict[str, Any], limit: ReadLimit | None) -> Position:
        """Return where a batch that starts at an offset ends."""
        start = Position.of(offset)
        newest = self.newest(start.version - 1)
        if start.version > newest + 1:  # or a stale listing
            self._expect_version(start.version - 1)
        self._last = None  # it may have changed
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
        """Return the identity of the last version of a batch that was just planned."""
        self._last = self._timeline.identity(end.last_version)
        return self._last

    def expect_same(self, offset: dict[str, Any]) -> None:
        """Raise if another dataset has replaced the dataset that was read up to an offset.

        Makes one request, or none for the batch that was planned last. A cleaned-up version passes.
        """
        identity = identity_of(offset)
        if identity is None or identity == self._last:
            return
        there = self._timeline.identity_there(identity[0])
        if there is None:
            self._expect_version(identity[0])
        elif there != identity:
            raise self._replaced(f"up to version {identity[0]}, and another one is there now")

    def _expect_version(self, number: int) -> None:
        """Check that the dataset has had this version: clean-up keeps the newest version."""
        newest = self._timeline.newest(number)
        if newest < number:
            raise self._replaced(f"up to version {number}, but its newest version is {newest}")

    def _replaced(self, what: str) -> OptionError:
        return OptionError(
            f"the checkpoint has read {self._store.uri} {what}: it is another dataset. Use another "
            "checkpointLocation"
        )

    def partitions(self, start: Position, end: Position) -> list[InputPartition]:
        """Return the partitions from one position to another."""
        parts: list[ChangeTask] = []
        while start < end:
            same = start.version == end.version
            parts += between(self._timeline.tasks(start), start, end if same else None)
            start = end if same else start.next_version
        return partitions_of(parts, self._schema, self._options)
