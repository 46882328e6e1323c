"""Lists of tasks of a change feed: a million need a tenth of the memory of their values.

Nearly all tasks of a commit differ only in their fragment and its rows. So a list has what they
share once, and numbers of each; a :class:`ChangeTask` is made when one is asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Self, overload

import numpy as np

from glaive.dataclass import dataclass
from glaive.dataset.changes.task import ChangeTask, RewrittenRows
from glaive.types import Int64s

__all__ = ["ChangeTasks", "TaskGroup"]


@dataclass(frozen=True, slots=True, eq=False)
class TaskGroup:
    """Tasks that differ only in their fragment and its rows.

    Parameters
    ----------
    template
        One of them; its fragment and rows mean nothing.
    places
        ``fragment_id``, ``start``, ``stop``, ``rows`` and ``file_bytes`` of each; shape
        ``(tasks, 5)``.
    offsets
        Of each, ``offsets`` of its rewritten rows; ``None`` if these are those of ``template``.
    """

    template: ChangeTask
    places: Int64s
    offsets: Sequence[bytes | None] | None = None

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[ChangeTask]:
        return map(self.task, range(len(self)))

    def __getitem__(self, at: slice) -> TaskGroup:
        offsets = None if self.offsets is None else self.offsets[at]
        return TaskGroup(self.template, self.places[at], offsets)

    def task(self, at: int) -> ChangeTask:
        """The task with this number."""
        rewritten = self.template.rewritten
        if self.offsets is not None:
            rewritten = RewrittenRows(offsets=self.offsets[at])
        number, start, stop, rows, file_bytes = self.places[at].tolist()
        return replace(
            self.template,
            fragment_id=number,
            start=start,
            stop=stop,
            rows=rows,
            file_bytes=file_bytes,
            rewritten=rewritten,
        )

    def cut(self, steps: Int64s) -> TaskGroup:
        """The same rows in tasks for so many physical rows each, by the task, at most."""
        length = self.places[:, 2] - self.places[:, 1]
        counts = -(-length // steps)
        if len(counts) and counts.min() == counts.max() == 1:
            return self
        whole = np.repeat(np.arange(len(self)), counts)
        parts, step, length = self.places[whole], steps[whole], length[whole]
        parts[:, 1] += (np.arange(len(whole)) - (np.cumsum(counts) - counts)[whole]) * step
        parts[:, 2] = np.minimum(parts[:, 1] + step, parts[:, 2])
        share = (parts[:, 2] - parts[:, 1]) / length
        parts[:, 3:] = np.rint(parts[:, 3:] * share[:, None])
        given = self.offsets
        offsets = None if given is None else [given[number] for number in whole.tolist()]
        return TaskGroup(self.template, parts, offsets)


class ChangeTasks(Sequence[ChangeTask]):
    """Tasks in order, a sequence of values; can be pickled.

    Parameters
    ----------
    groups
        Neighbouring tasks that differ only in their fragment and its rows.
    """

    def __init__(self, groups: Iterable[TaskGroup] = ()) -> None:
        self.groups = tuple(group for group in groups if len(group))
        """The tasks, without empty groups."""
        self._ends = list(accumulate(map(len, self.groups)))

    @classmethod
    def of(cls, tasks: Iterable[ChangeTask]) -> Self:
        """A list of few tasks, each a group of its own."""
        return cls(
            TaskGroup(
                task,
                np.array(
                    [[task.fragment_id, task.start, task.stop, task.rows, task.file_bytes]],
                    np.int64,
                ),
            )
            for task in tasks
        )

    @classmethod
    def joined(cls, parts: Iterable[ChangeTasks]) -> Self:
        """The tasks of several lists."""
        return cls(group for part in parts for group in part.groups)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[ChangeTask]:
        for group in self.groups:
            yield from group

    @overload
    def __getitem__(self, at: int) -> ChangeTask: ...
    @overload
    def __getitem__(self, at: slice) -> ChangeTasks: ...
    def __getitem__(self, at: int | slice) -> ChangeTask | ChangeTasks:
        if isinstance(at, slice):
            first, last, step = at.indices(len(self))
            if step != 1:
                return ChangeTasks.of(self[number] for number in range(first, last, step))
            return ChangeTasks(self._between(first, last))
        number = at + len(self) if at < 0 else at
        if not 0 <= number < len(self):
            raise IndexError(at)
        holder = self._group_of(number)
        group = self.groups[holder]
        return group.task(number - self._ends[holder] + len(group))

    def _between(self, first: int, last: int) -> Iterator[TaskGroup]:
        for at in range(self._group_of(first), len(self.groups)):
            group, end = self.groups[at], self._ends[at]
            start = end - len(group)
            if start >= last:
                return
            yield group[max(0, first - start) : min(end, last) - start]

    def _group_of(self, number: int) -> int:
        """Which group has this task: a stream of many versions has many."""
        return bisect_right(self._ends, number)

    def __repr__(self) -> str:
        return f"ChangeTasks(<{len(self)} tasks>)"

    @property
    def rows(self) -> int:
        """Changed rows of all tasks, about."""
        return sum(int(group.places[:, 3].sum()) for group in self.groups)

    @property
    def file_bytes(self) -> int:
        """Bytes of the data files for these rows, about."""
        return int(self.sizes.sum())

    @property
    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Bytes of the data files for the rows of each task, about."""
        parts = [group.places[:, 4].astype(np.float64) for group in self.groups]
        return np.concatenate(parts) if parts else np.zeros(0)

    def knowing_fields(self, others: Callable[[int], frozenset[int] | None] | None) -> ChangeTasks:
        """Tasks that know which fields mean other columns.

        Parameters
        ----------
        others
            Gives their ids in a version; ``None``, or if it gives ``None``: they are not known.
        """
        return ChangeTasks(
            TaskGroup(
                replace(
                    group.template,
                    others=None if others is None else others(group.template.read_version),
                ),
                group.places,
                group.offsets,
            )
            for group in self.groups
        )
