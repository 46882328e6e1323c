"""Parts of a clean-up as tasks, which run in this process or in those of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Generic, TypeVar

from glaive.dataclass import dataclass
from glaive.dataset.tasks import TaskRunner
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.io.store import ObjectStore
from glaive.table.cleanup_division import Division
from glaive.table.cleanup_parts import Part

__all__ = ["CleanupTask", "CleanupTasks"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CleanupTask(Generic[R]):
    """A part of a clean-up; can be pickled."""

    part: Part[R]

    def execute(self, dataset: OpenDataset) -> R:
        """Do it in the branch that the dataset is at."""
        return self.part.run(dataset.opened.store)


@dataclass(frozen=True, slots=True)
class CleanupTasks:
    """Runs parts of a clean-up as tasks; a lone one in this process, where it costs less.

    Parameters
    ----------
    dataset
        The version that the clean-up keeps.
    runner
        Runs the tasks.
    division
        How much is one task.
    """

    dataset: OpenedVersion
    runner: TaskRunner
    division: Division | None = field(default_factory=Division)

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        """Run parts in any order; their results in the order of the parts."""
        if len(parts) < 2:
            return [part.run(store) for part in parts]
        return self.runner.run(self.dataset, [CleanupTask(part) for part in parts])
