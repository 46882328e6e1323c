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
from dataclasses import replace
from typing import TYPE_CHECKING

from glaive.dataset.compaction.commit import commit_rewrites
from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.plan import compaction_groups, for_tasks
from glaive.dataset.compaction.result import CompactionMetrics, RewriteResult
from glaive.dataset.compaction.task import RewriteTask
from glaive.dataset.tasks import LOCAL, FragmentRange, Job, TaskRunner
from glaive.errors import CommitConflictError, CommitContentionError
from glaive.events import DATASETS, emit
from glaive.format.fragment_list import unpacked_fragments

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest

__all__ = ["Rewriting", "compact", "rewrite_groups", "rewrite_here", "rewrite_tasks", "with_old"]

Rewriting = Callable[["OpenedVersion", CompactionOptions], Sequence[RewriteResult]]
"""Plans one pass and runs its tasks; their uncommitted results."""


def rewrite_here(dataset: OpenedVersion, options: CompactionOptions) -> list[RewriteResult]:
    """Plan one pass and run its tasks in this process."""
    return rewrite_groups(dataset, compaction_groups(dataset, options), options, LOCAL.runner)


def rewrite_groups(
    dataset: OpenedVersion, groups: Sequence[range], options: CompactionOptions, runner: TaskRunner
) -> list[RewriteResult]:
    """Run the tasks of groups of fragments; their uncommitted results."""
    results = runner.run(dataset, rewrite_tasks(dataset, groups, options))
    return with_old(dataset, groups, results)


def rewrite_tasks(
    dataset: OpenedVersion, groups: Sequence[range], options: CompactionOptions
) -> list[RewriteTask]:
    """A task for each group of fragments."""
    ranges = [FragmentRange(dataset.manifest.version, at.start, at.stop) for at in groups]
    shared = for_tasks(options)
    return [RewriteTask(fragments, shared) for fragments in ranges]


def with_old(
    dataset: OpenedVersion, groups: Sequence[range], results: Sequence[RewriteResult]
) -> list[RewriteResult]:
    """The results with the fragments of their groups, which tasks do not send."""
    manifest = dataset.manifest
    listed = manifest.complete_wire.fragments
    return [
        replace(result, old=unpacked_fragments(listed[group.start : group.stop], manifest.where))
        for result, group in zip(results, groups, strict=True)
    ]


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
