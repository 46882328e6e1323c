"""Build an index in tasks, and commit its segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glaive.dataset.indexing.create import commit_segments
from glaive.dataset.indexing.segment_tasks import build_segments, check_segments
from glaive.errors import IndexExistsError

if TYPE_CHECKING:
    from glaive.dataset.indexing.task import IndexTask
    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest

__all__ = ["build_index"]


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
    check_segments(segments)
    built = build_segments(opened, job.runner, task, segments)
    counts = {"num_segments": len(built), "num_indexed_fragments": manifest.num_fragments}
    return commit_segments(opened, task.name, task.column, built, job=job, counts=counts), None
