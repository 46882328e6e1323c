"""An index over all rows, built as several segments: tasks for ranges of fragments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from glaive.dataclass import dataclass
from glaive.dataset.commits.index_metadata import Index
from glaive.dataset.indexing.shared_model import with_shared_model
from glaive.dataset.indexing.task import IndexTask
from glaive.dataset.tasks import FragmentRange, cut_evenly
from glaive.errors import OptionError
from glaive.format.manifest import Manifest

if TYPE_CHECKING:
    from glaive.dataset.tasks import TaskRunner
    from glaive.dataset.version import OpenDataset, OpenedVersion

__all__ = ["SegmentTask", "build_segments", "check_segments", "segment_tasks"]


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Build the segment of some fragments; can be pickled."""

    fragments: FragmentRange

    def execute(self, dataset: OpenDataset, shared: IndexTask) -> Index:
        """Write the segment, uncommitted; ``shared`` is the task for all fragments."""
        ids = self.fragments.ids(self.fragments.opened(dataset))
        return replace(shared, fragment_ids=ids).execute(dataset)


def build_segments(
    opened: OpenedVersion, runner: TaskRunner, task: IndexTask, segments: int | None = None
) -> list[Index]:
    """Write the segments of an index over all fragments, in tasks; nothing is committed.

    Parameters
    ----------
    task
        What one process would do.
    segments
        That the index has, at most; default: the tasks that run at a time.

    Raises
    ------
    OptionError
        A parameter of the index is wrong.
    """
    manifest = opened.manifest
    cuts = cut_evenly(manifest.physical_rows, segments or runner.parallelism)
    if task.kind == "vector":
        task = with_shared_model(opened, task, runner, len(cuts) - 1)
    if len(cuts) < 2 or (task.kind == "vector" and "ivf_centroids" not in task.parameters):
        cuts = [0, manifest.num_fragments]
    return runner.run(opened, segment_tasks(manifest, cuts), task)


def check_segments(segments: object) -> None:
    """Check how many segments are asked for; ``None`` for the default.

    Raises
    ------
    OptionError
        It is no number, or not positive.
    """
    if segments is not None and (not isinstance(segments, int) or segments < 1):
        raise OptionError(f"segments: expected a number of tasks, found {segments!r}")


def segment_tasks(manifest: Manifest, cuts: Sequence[int]) -> list[SegmentTask]:
    """A task for the fragments between each two cuts, as :func:`cut_evenly` makes them."""
    ranges = [FragmentRange(manifest.version, start, stop) for start, stop in pairwise(cuts)]
    return list(map(SegmentTask, ranges))
