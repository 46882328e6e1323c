"""Options of streams and change feeds: names, meanings and parsing.

Those with names of their own in other sources have these names. They are taken out of the options
before the others are parsed by :mod:`glaive.spark.options`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, Self

from glaive.dataclass import dataclass
from glaive.dataset.change_plan import ChangeTask, ChangeTasks
from glaive.errors import OptionError
from glaive.spark.options import ALIASES, READERS, flag, names_of, positive, text_of
from glaive.types import VersionIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of streams and change feeds.

    Parameters
    ----------
    starting_version
        ``startingVersion``: the first version whose changes are read; ``latest`` for those after
        the newest one. A stream without it starts with all rows of the newest version.
    starting_timestamp
        ``startingTimestamp``: the first version created at or after this point in time.
    ending_version, ending_timestamp
        ``endingVersion``, ``endingTimestamp``: the last version of a change feed that is no stream.
    read_change_feed
        ``readChangeFeed``: read changes of rows, with ``_change_type``, ``_commit_version`` and
        ``_commit_timestamp``, instead of new rows.
    preimages
        Whether a change feed has updated rows as they were before; true when omitted.
    deduplication_mode
        ``deduplicationMode``: ``netChanges`` for the difference of the two ends, in a change feed
        that is no stream; ``none`` when omitted.
    max_files, max_rows, max_bytes
        ``maxFilesPerTrigger``, ``maxRowsPerTrigger``, ``maxBytesPerTrigger``: limits of a batch.
    skip_change_commits
        ``skipChangeCommits``: leave out versions that update or delete rows; otherwise they are an
        error in a stream of new rows.
    ignore_deletes
        ``ignoreDeletes``: leave out versions that only delete rows.
    merge_keys
        Writing: update the rows that have the keys of new ones, insert the others.
    merge_order_by
        Writing with ``merge_keys``: of several rows with one key, keep the one that has the highest
        value in this column; rows of the dataset with a higher value stay as they are.
    app_id
        ``txnAppId``: name of the application; by default the id of the query, from its checkpoint.
    auto_compact_files
        Writing: compact small files after a batch, once there are so many of them.
    """

    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    ending_version: int | None = None
    ending_timestamp: str | None = None
    read_change_feed: bool = False
    preimages: bool = True
    deduplication_mode: Literal["none", "netChanges"] = "none"
    max_files: int | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    skip_change_commits: bool = False
    ignore_deletes: bool = False
    merge_keys: tuple[str, ...] = ()
    merge_order_by: str | None = None
    app_id: str | None = None
    auto_compact_files: int | None = None


def stream_options(options: Mapping[str, str]) -> tuple[StreamOptions, dict[str, str]]:
    """Parse the options of streams; also returns the others.

    Raises
    ------
    OptionError
        A value is invalid, or two options contradict each other.
    """
    values: dict[str, Any] = {}
    others: dict[str, str] = {}
    for key, text in options.items():
        if key.lower() in _SET_BY_SPARK:
            continue
        found = _PARSERS.get(key.lower())
        if found is None:
            _refuse_misspelt(key)
            others[key] = text
            continue
        name, parse = found
        values[name] = parse(key, text)
    for first, second in _EXCLUSIVE:
        if first in values and second in values:
            raise OptionError(f"options {_SPARK[first]} and {_SPARK[second]}: give only one")
    if "merge_order_by" in values and "merge_keys" not in values:
        raise OptionError("option merge_order_by needs merge_keys, the columns that identify a row")
    return StreamOptions(**values), others


def _refuse_misspelt(name: str) -> None:
    """Refuse a name that is nearly that of an option of streams; others are parsed elsewhere."""
    lowered = name.lower()
    if lowered in READERS or lowered in ALIASES:
        return
    for close in get_close_matches(lowered, _PARSERS, 1, _MISSPELT):
        known = _SPARK[_PARSERS[close][0]]
        raise OptionError(
            f"option {name!r} of the lance source does not exist; did you mean {known}?"
        )


def _bytes(name: str, text: str) -> int:
    from glaive.config import memory_size

    digits = text.strip()
    return memory_size(f"option {name}", int(digits) if digits.isdecimal() else digits)


def _start(name: str, text: str) -> int | str:
    return "latest" if text.strip().lower() == "latest" else positive(name, text)


def _keys(name: str, text: str) -> tuple[str, ...]:
    names = names_of(name, text)
    if len(set(names)) < len(names):
        raise OptionError(f"option {name}: expected distinct names as in 'a,b', found {text!r}")
    return names


def _mode(name: str, text: str) -> str:
    for known in ("none", "netChanges"):
        if text.strip().lower() == known.lower():
            return known
    raise OptionError(f"option {name}: expected none or netChanges, found {text!r}")


_SPARK = {
    "starting_version": "startingVersion",
    "starting_timestamp": "startingTimestamp",
    "ending_version": "endingVersion",
    "ending_timestamp": "endingTimestamp",
    "read_change_feed": "readChangeFeed",
    "preimages": "preimages",
    "deduplication_mode": "deduplicationMode",
    "max_files": "maxFilesPerTrigger",
    "max_rows": "maxRowsPerTrigger",
    "max_bytes": "maxBytesPerTrigger",
    "skip_change_commits": "skipChangeCommits",
    "ignore_deletes": "ignoreDeletes",
    "merge_keys": "merge_keys",
    "merge_order_by": "merge_order_by",
    "app_id": "txnAppId",
    "auto_compact_files": "auto_compact_files",
}
"""What users write for each parameter."""

_READERS: dict[str, Callable[[str, str], object]] = {
    "starting_version": _start,
    "starting_timestamp": text_of,
    "ending_version": positive,
    "ending_timestamp": text_of,
    "read_change_feed": flag,
    "preimages": flag,
    "deduplication_mode": _mode,
    "max_files": positive,
    "max_rows": positive,
    "max_bytes": _bytes,
    "skip_change_commits": flag,
    "ignore_deletes": flag,
    "merge_keys": _keys,
    "merge_order_by": text_of,
    "app_id": text_of,
    "auto_compact_files": positive,
}

_PARSERS = {_SPARK[name].lower(): (name, parse) for name, parse in _READERS.items()}

_MISSPELT = 0.85
"""How alike two names are of which one is taken for the other misspelt, of at most 1."""

_SET_BY_SPARK = frozenset({"queryname"})
"""Keys that Spark adds to the options of a sink, besides those it adds everywhere."""

_EXCLUSIVE = (("starting_version", "starting_timestamp"), ("ending_version", "ending_timestamp"))


# --- Offsets of the source: how far a stream has read, and of which dataset -------------
# Spark writes down where each batch ends, and takes it for where the next one starts. It does not
# write down where the first batch starts: a query that was stopped in that batch is asked again,
# when the dataset may have more versions. So the end of the first batch has its start as well.
#
# Versions are numbers, which another dataset in the same place gives again. So the end of a batch
# has what its last version is recognised by, too:
# :attr:`glaive.format.manifest.Manifest.identity`.

_HIGHEST = 2**63 - 1

_INITIAL: Final = "initial"
"""Entry of the offset at which a query without batches starts."""

_START: Final = "start"
"""Entry of the offset at which the first batch ends: where it starts."""

_IDENTITY: Final = "identity"
"""Entry of the offset at which a batch ends: the last version of which it has rows."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """What comes next in a stream.

    The rows of a version are a list of tasks, which is the same whenever it is planned.

    Parameters
    ----------
    version
        The version whose rows come next; it may not exist yet.
    index, row
        Number of the next task of it, and its first physical row, 0 for all of them.
    snapshot
        Whether these are all rows of the version, with which a stream starts, instead of those that
        it changed.
    """

    version: int
    index: int = 0
    row: int = 0
    snapshot: bool = False

    def to_spark(self) -> dict[str, Any]:
        """The offset that Spark keeps in its checkpoint."""
        return {
            "version": self.version,
            "index": self.index,
            "row": self.row,
            "snapshot": self.snapshot,
        }

    @classmethod
    def of(cls, offset: dict[str, Any]) -> Self:
        """The position of an offset.

        Raises
        ------
        OptionError
            It is not one of this source.
        """
        try:
            values = [offset[name] for name in ("version", "index", "row")]
            snapshot = offset["snapshot"]
        except (KeyError, TypeError):
            values, snapshot = [], None
        numbers = [value for value in values if type(value) is int and 0 <= value <= _HIGHEST]
        if len(numbers) != 3 or not isinstance(snapshot, bool) or numbers[0] < 1:
            raise _not_ours(offset)
        version, index, row = numbers
        return cls(version, index, row, snapshot)

    @property
    def last_version(self) -> int:
        """The last version of which rows were read; 0 if there is none."""
        return self.version - (not (self.snapshot or self.index or self.row))

    @property
    def next_version(self) -> Position:
        """After all rows of this version."""
        return Position(self.version + 1)


def initial(start: Position) -> dict[str, Any]:
    """The offset at which a query without batches starts."""
    return {**start.to_spark(), _INITIAL: True}


def batch_end(
    start: dict[str, Any], end: Position, identity: VersionIdentity | None = None
) -> dict[str, Any]:
    """The offset for Spark's checkpoint at which a batch ends; the same as its start if empty.

    Parameters
    ----------
    start
        The offset at which the batch starts.
    identity
        That of :attr:`Position.last_version` of the end, if there is such a version.
    """
    begins = Position.of(start)
    if end == begins and not start.get(_INITIAL):
        return start
    offset = end.to_spark() if identity is None else {**end.to_spark(), _IDENTITY: list(identity)}
    return {**offset, _START: begins.to_spark()} if start.get(_INITIAL) else offset


def identity_of(offset: object) -> VersionIdentity | None:
    """What the last version of a batch is recognised by, from the offset at which it ends.

    ``None`` for the start of a stream, and for checkpoints of earlier versions of glaive.

    Raises
    ------
    OptionError
        The offset is not one of this source.
    """
    if not isinstance(offset, dict):  # a checkpoint may have anything
        raise _not_ours(offset)
    found = offset.get(_IDENTITY)
    if found is None:
        return None
    if not isinstance(found, list) or list(map(type, found)) != [int, int, int, str]:
        raise _not_ours(offset)
    number, seconds, nanos, transaction = found
    return number, seconds, nanos, transaction


def batch_start(start: dict[str, Any], end: dict[str, Any]) -> Position:
    """Where a batch starts that may have been planned by an earlier run of the query.

    Parameters
    ----------
    start
        The offset at which the batch starts, as Spark says.
    end
        The offset at which the batch ends, from the checkpoint.

    Raises
    ------
    OptionError
        An offset is not one of this source.
    """
    begins = Position.of(start)
    Position.of(end)
    return Position.of(end[_START]) if start.get(_INITIAL) and _START in end else begins


def _not_ours(offset: object) -> OptionError:
    return OptionError(
        f"the checkpoint has the offset {offset!r:.200}, which is none of the lance "
        "source. It belongs to another source: use another checkpointLocation"
    )


def between(tasks: ChangeTasks, start: Position, end: Position | None) -> ChangeTasks:
    """Tasks of one version from a position up to another one; ``None`` for all others.

    Raises
    ------
    OptionError
        A position is in rows that there are not.
    """
    for place in (start, end):
        if place is not None and (place.index or place.row) and place.index >= len(tasks):
            raise _not_there(place)
    stop = len(tasks) if end is None else min(len(tasks), end.index + (end.row > 0))
    if stop <= start.index:
        return ChangeTasks()
    first, last = tasks[start.index], tasks[stop - 1]
    low = max(first.start, start.row)
    high = min(last.stop, end.row) if end is not None and end.index == stop - 1 else last.stop
    alone = stop - start.index == 1
    if low > (high if alone else first.stop) or high < last.start:
        raise _not_there(start)
    if alone:
        return ChangeTasks.of([_within(first, low, high)])
    inner = tasks[start.index + 1 : stop - 1]
    ends = _within(first, low, first.stop), _within(last, last.start, high)
    return ChangeTasks.joined([ChangeTasks.of(ends[:1]), inner, ChangeTasks.of(ends[1:])])


def _not_there(place: Position) -> OptionError:
    return OptionError(
        f"the checkpoint has read version {place.version} up to row {place.row} of a fragment, "
        "where there is none: it is damaged, or of another dataset. Use another "
        "checkpointLocation"
    )


def _within(task: ChangeTask, start: int, stop: int) -> ChangeTask:
    return task if (start, stop) == (task.start, task.stop) else task.part(start, stop)
