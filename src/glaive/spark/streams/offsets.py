"""Offsets of the source: how far a stream has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from glaive.dataclass import dataclass
from glaive.dataset.changes.task import ChangeTask
from glaive.errors import OptionError

__all__ = ["Position", "between"]

_HIGHEST = 2**63 - 1


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
            raise OptionError(
                f"the checkpoint has the offset {offset!r:.200}, which is none of the lance "
                "source. It belongs to another source: use another checkpointLocation"
            )
        version, index, row = numbers
        return cls(version, index, row, snapshot)

    @property
    def next_version(self) -> Position:
        """After all rows of this version."""
        return Position(self.version + 1)


def between(tasks: Sequence[ChangeTask], start: Position, end: Position | None) -> list[ChangeTask]:
    """Tasks of one version from a position up to another one; ``None`` for all others."""
    stop = len(tasks) if end is None else min(len(tasks), end.index + (end.row > 0))
    found = []
    for at in range(start.index, stop):
        task = tasks[at]
        first = max(task.start, start.row) if at == start.index else task.start
        last = min(task.stop, end.row) if end is not None and at == end.index else task.stop
        if (first, last) != (task.start, task.stop):
            task = task.part(first, last)
        found.append(task)
    return found
