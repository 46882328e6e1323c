"""How much of a stream one batch reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glaive.dataclass import dataclass
from glaive.dataset.changes.task import ChangeTask
from glaive.dataset.changes.task_list import ChangeTasks
from glaive.spark.streams.offsets import Position, between
from glaive.spark.streams.options import StreamOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

__all__ = ["Budget", "default_limit"]

_UNLIMITED = 2**63 - 1


def default_limit(options: StreamOptions) -> ReadLimit:
    """The limit that the options give, for Spark, which knows one at a time.

    If there are several, all of them are kept to whenever Spark asks for this one. Spark asks for
    none before 4.2.
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
    """What a batch may still read. Files are fragments; rows and bytes are those of manifests.

    A batch has at least one task, or one row of a fragment, so that every stream goes on.
    """

    files: int = _UNLIMITED
    rows: int = _UNLIMITED
    file_bytes: int = _UNLIMITED
    empty: bool = True

    @classmethod
    def of(cls, options: StreamOptions) -> Budget:
        """The limits of the options."""
        return cls(
            options.max_files or _UNLIMITED,
            options.max_rows or _UNLIMITED,
            options.max_bytes or _UNLIMITED,
        )

    @property
    def unlimited(self) -> bool:
        """Whether there is no limit."""
        return min(self.files, self.rows, self.file_bytes) >= _UNLIMITED

    def admit(self, tasks: ChangeTasks, start: Position) -> Position | None:
        """Take tasks of one version from a position on.

        Returns
        -------
        Position or None
            The position at which the limit is reached; ``None`` if all are taken.
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
        """The physical row up to which a task can be taken."""
        if self.files < 1 and not self.empty:
            return task.start
        if task.rows <= self.rows and task.file_bytes <= self.file_bytes:
            return task.stop
        if not task.complete:  # its rows are spread over the fragment
            return task.stop if self.empty else task.start
        share = min(self.rows / max(1, task.rows), self.file_bytes / max(1, task.file_bytes))
        fitting = int((task.stop - task.start) * share)
        return task.start + max(fitting, int(self.empty))

    def _take(self, task: ChangeTask) -> None:
        self.files -= 1
        self.rows -= task.rows
        self.file_bytes -= task.file_bytes
        self.empty = False
