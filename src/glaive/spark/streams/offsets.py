"""Offsets of the source: how far a stream has read, and of which dataset.

Spark writes down where each batch ends, and takes it for where the next one starts. It does not
write down where the first batch starts: a query that was stopped in that batch is asked again, when
the dataset may have more versions. So the end of the first batch has its start as well.

Versions are numbers, which another dataset in the same place gives again. So the end of a batch has
what its last version is recognised by, too: :attr:`glaive.format.manifest.Manifest.identity`.
"""

from __future__ import annotations

from typing import Any, Final, Self

from glaive.dataclass import dataclass
from glaive.dataset.changes.task import ChangeTask
from glaive.dataset.changes.task_list import ChangeTasks
from glaive.errors import OptionError
from glaive.types import VersionIdentity

__all__ = ["Position", "batch_end", "batch_start", "between", "identity_of", "initial"]

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
