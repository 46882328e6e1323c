"""Compact until nothing is left to merge.

Nearly always one pass does it. What it writes stands behind all other fragments, though, and how
many bytes a file gets is known when it is written. So fragments can meet neighbours that they had
not before: the last files of two groups, or fragments that had stood around a group. A further
pass merges those.

A file that a pass writes is full, by its rows or by its bytes, except for the last one of each
group. So each pass leaves fewer fragments to merge, or to remove deleted rows from, than it met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from glaive.dataset.compaction.commit import commit_rewrites
from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.plan import compaction_groups, plan_compaction
from glaive.dataset.compaction.result import CompactionMetrics, RewriteResult
from glaive.dataset.tasks import LOCAL, Job
from glaive.errors import CommitConflictError, CommitContentionError
from glaive.events import DATASETS, emit

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest

__all__ = ["Rewriting", "compact", "rewrite_here"]

Rewriting = Callable[["OpenedVersion", CompactionOptions], Sequence[RewriteResult]]
"""Plans one pass and runs its tasks; their uncommitted results."""


def rewrite_here(dataset: OpenedVersion, options: CompactionOptions) -> list[RewriteResult]:
    """Plan one pass and run its tasks in this process."""
    plan = plan_compaction(dataset, options)
    return LOCAL.runner.run(dataset, plan.tasks)


def compact(
    dataset: OpenedVersion,
    options: CompactionOptions,
    rewriting: Rewriting = rewrite_here,
    job: Job = LOCAL,
) -> tuple[Manifest, CompactionMetrics]:
    """Plan, execute and commit, until a plan has no task; no version if the first has none.

    Limits of the source are limits of a run: with them there is one pass. Once another writer
    has committed since this began, the rest is left to the next compaction, too.

    Returns
    -------
    tuple
        The last version, and what all passes did, which is also what the last commit records.

    Raises
    ------
    CommitConflictError, CommitContentionError
        Another writer changed one of the fragments; nothing was changed.
    """
    emit(DATASETS, event="compacting", uri=dataset.uri)
    total = CompactionMetrics()
    while True:
        results = rewriting(dataset, options)
        try:
            manifest, done = commit_rewrites(
                dataset,
                results,
                defer_index_remap=options.defer_index_remap,
                job=job,
                earlier=total,
            )
        except (CommitConflictError, CommitContentionError):
            if total == CompactionMetrics():
                raise
            return dataset.manifest, total
        total += done
        versions = 2 if done.fragments_added else 1
        alone = manifest.version == dataset.manifest.version + versions
        if not results or not alone or options.limits_source:
            return manifest, total
        dataset = dataset.at(manifest)
        if not compaction_groups(dataset, options):
            return manifest, total
