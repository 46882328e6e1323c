"""Plan the build of an index as tasks, and commit their segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.indexing.create import commit_segments
from glaive.dataset.indexing.shared_model import with_shared_model
from glaive.dataset.tasks import FragmentRange
from glaive.errors import IndexExistsError, OptionError
from glaive.spark.jobs.runner import cut_evenly

if TYPE_CHECKING:
    from glaive.dataset.commits.index_metadata import Index
    from glaive.dataset.indexing.task import IndexTask
    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest

__all__ = ["SegmentTask", "build_index", "segment_tasks"]


def build_index(
    opened: OpenedVersion, job: Job, task: IndexTask, *, replaces: bool, segments: int | None
) -> tuple[Manifest, None]:
    """Build and commit an index over all fragments; see ``LanceTable.createIndex``.

    ``task`` is what one process would do.
    """
    manifest = opened.manifest
    if not replaces and any(entry.name == task.name for entry in manifest.indices):
        raise IndexExistsError(
            f"Index name {task.name!r} already exists: choose another name, or set replace=True"
        )
    runner: Any = job.runner  # that of a session
    wanted: object = segments
    if wanted is not None and (not isinstance(wanted, int) or wanted < 1):
        raise OptionError(f"segments: expected a number of tasks, found {segments!r}")
    cuts = cut_evenly(manifest.physical_rows, segments or runner.parallelism)
    if task.kind == "vector":
        task = with_shared_model(opened, task, runner, len(cuts) - 1)
    if len(cuts) < 2 or (task.kind == "vector" and "ivf_centroids" not in task.parameters):
        cuts = [0, manifest.num_fragments]
    built = runner.run(opened, segment_tasks(manifest, cuts), task)
    counts = {"num_segments": len(built), "num_indexed_fragments": manifest.num_fragments}
    return commit_segments(opened, task.name, task.column, built, job=job, counts=counts), None


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Build the segment of some fragments; can be pickled."""

    fragments: FragmentRange

    def execute(self, dataset: LanceDataset, shared: IndexTask) -> Index:
        """Write the segment, uncommitted; ``shared`` is the task for all fragments."""
        opened = self.fragments.opened(dataset)
        positions = self.fragments.positions(opened)
        ids = opened.manifest.fragment_ids[positions.start : positions.stop]
        return replace(shared, fragment_ids=tuple(ids.tolist())).execute(dataset)


def segment_tasks(manifest: Manifest, cuts: Sequence[int]) -> list[SegmentTask]:
    """A task for the fragments between each two cuts, as :func:`cut_evenly` makes them."""
    ranges = [FragmentRange(manifest.version, start, stop) for start, stop in pairwise(cuts)]
    return list(map(SegmentTask, ranges))
