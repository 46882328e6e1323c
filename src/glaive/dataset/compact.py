"""Compaction in three steps: plan, tasks, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.dataset.compaction_tasks import (
    CONFIG_PREFIX,
    CompactionMetrics,
    CompactionOptions,
    CompactionPlan,
    CompactionTask,
    RewriteResult,
    RewriteTask,
    live_addresses,
)
from glaive.dataset.tasks import LOCAL, FragmentRange, Job, TaskRunner, commit_operation, opened_at
from glaive.errors import CommitConflictError, CommitContentionError, OptionError
from glaive.format.fragment import ids_of, unpacked_fragments
from glaive.format.manifest import Feature, Manifest
from glaive.index.remap import (
    MovedRows,
    RemappedIndices,
    RemappedSegment,
    pinned_fragments,
    remap_segments,
    segments_to_remap,
)
from glaive.process import DATASETS, emit
from glaive.table.index_coverage import (
    REUSE_INDEX,
    FragmentPositions,
    after_remapping,
    covered_fragments,
    reuse_entry,
)
from glaive.table.operations.rewrite import Rewrite, RewriteGroup
from glaive.table.operations.update_config import ReserveFragments
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion


# --- Plan a compaction ------------------------------------------------------------------
# Fragments with few rows and bytes, or with many deleted rows, are candidates. Adjacent
# candidates with the same index coverage are merged, in groups that fill a fragment each. A single
# fragment is rewritten only to remove its deleted rows.

Flags: TypeAlias = NDArray[np.bool_]

_MAX_ROWS: Final = 2**63 - 1
_MAX_ADDED_FILES: Final = 100_000
"""Maximum of files that a compaction may write beyond those it replaces: some minutes of work."""


def plan_compaction(dataset: OpenedVersion, options: CompactionOptions) -> CompactionPlan:
    """Compute the groups from manifests."""
    manifest = dataset.manifest
    ids = manifest.fragment_ids
    tasks = [
        CompactionTask(
            manifest.version,
            tuple(ids[group.start : group.stop].tolist()),
            for_tasks(options),
            tuple(map(manifest.fragment, group)),
        )
        for group in compaction_groups(dataset, options)
    ]
    return CompactionPlan(manifest.version, tasks)


def for_tasks(options: CompactionOptions) -> CompactionOptions:
    """Return the options that tasks need: reset options that only affect the plan."""
    return replace(options, excluded_fragment_ids=())


def compaction_groups(dataset: OpenedVersion, options: CompactionOptions) -> list[range]:
    """Return positions of the fragments to merge, or to rewrite alone.

    Raises
    ------
    OptionError
        The target has so few rows per fragment that there would be many more files than now.
    """
    many_deleted = with_many_deleted(dataset, options)
    wanted = _candidates(dataset, options) | many_deleted
    places = FragmentPositions(dataset.manifest.fragment_ids)
    for excluded in (pinned_fragments(dataset.manifest), options.excluded_fragment_ids):
        wanted &= ~places.marked(excluded)
    starts, target = dataset.snapshot.row_starts, options.target_rows_per_fragment
    groups = [
        group
        for run in _runs(dataset, wanted, places)
        for group in _split(starts, run, target)
        if len(group) > 1 or many_deleted[group.start]
    ]
    taken = list(_within_limits(dataset, groups, options))
    _check_added_files(starts, taken, target)
    return taken


def _check_added_files(starts: Int64s, groups: Sequence[range], target: int) -> None:
    """Refuse to write many more files than exist: a few bytes may encode billions of rows.

    The target may come from the table's configuration, which may be untrusted.
    """
    added = sum(
        max(0, int(starts[group.stop] - starts[group.start]) // target - len(group))
        for group in groups
    )
    if added > _MAX_ADDED_FILES:
        raise OptionError(
            f"target_rows_per_fragment: {target} rows a fragment make {added:,} files more than "
            f"there are; expected {_MAX_ADDED_FILES:,} at most. Give a larger one; without one, "
            f"{CONFIG_PREFIX}target_rows_per_fragment of the table's configuration applies"
        )


def with_many_deleted(dataset: OpenedVersion, options: CompactionOptions) -> Flags:
    """Return for each fragment whether its share of deleted rows exceeds the threshold."""
    physical, live = dataset.manifest.physical_rows, dataset.snapshot.live_counts
    if not options.materialize_deletions:
        return np.zeros(len(physical), np.bool_)
    return (physical - live) > options.materialize_deletions_threshold * physical


def _candidates(dataset: OpenedVersion, options: CompactionOptions) -> Flags:
    """Return for each fragment whether it has few rows and bytes."""
    manifest = dataset.manifest
    physical = manifest.physical_rows
    small = physical < options.target_rows_per_fragment
    # Usually the limit exceeds all files together, and the check of each is skipped.
    if manifest.columns.file_bytes >= options.max_bytes_per_file:
        live_share = dataset.snapshot.live_counts / np.maximum(physical, 1)
        small &= manifest.columns.data_bytes * live_share < options.max_bytes_per_file
    return small


def _runs(dataset: OpenedVersion, wanted: Flags, places: FragmentPositions) -> Iterator[range]:
    """Yield ranges of adjacent candidates with the same index coverage."""
    begins = np.zeros(len(wanted) + 1, np.bool_)
    begins[0] = begins[-1] = True
    begins[1:-1] = wanted[1:] != wanted[:-1]
    for entry in after_remapping(dataset.manifest.indices):
        if entry.name != REUSE_INDEX:
            covered = places.marked(covered_fragments(entry) or ())
            begins[1:-1] |= covered[1:] != covered[:-1]
    edges = np.flatnonzero(begins).tolist()
    return (range(*pair) for pair in pairwise(edges) if wanted[pair[0]])


def _split(starts: Int64s, run: range, target: int) -> Iterator[range]:
    """Split a run into groups of at least ``target`` rows, if the run has that many.

    ``starts`` are the numbers of live rows before each fragment, and the total.
    """
    first, end = run.start, int(starts[run.stop])
    while first < run.stop:
        full = min(int(starts[first]) + target, _MAX_ROWS)
        stop = first + 1 + int(np.searchsorted(starts[first + 1 : run.stop + 1], full))
        if stop > run.stop or end - int(starts[stop]) < target:
            stop = run.stop
        yield range(first, stop)
        first = stop


def _within_limits(
    dataset: OpenedVersion, groups: Sequence[range], options: CompactionOptions
) -> Iterator[range]:
    starts = dataset.snapshot.row_starts
    fragments = rows = 0
    size = 0.0
    for group in groups:
        fragments += len(group)
        rows += int(starts[group.stop] - starts[group.start])
        if options.max_source_bytes is not None:
            size += float(dataset.manifest.columns.data_bytes[group.start : group.stop].sum())
        for limit, reached in (
            (options.max_source_fragments, fragments),
            (options.max_source_rows, rows),
            (options.max_source_bytes, size),
        ):
            if limit is not None and reached > limit:
                return
        yield group


# --- Tasks that rebuild the indices of a compaction before its commit -------------------


@dataclass(frozen=True, slots=True)
class RemapTask:
    """Rebuild segments with the new addresses of rows; can be pickled.

    All tasks of a compaction share the map of moved rows.

    Parameters
    ----------
    read_version
        The version that was rewritten.
    segments
        Ids of the segments.
    """

    read_version: int
    segments: tuple[bytes, ...]

    def execute(
        self, dataset: OpenDataset, shared: Sequence[MovedRows]
    ) -> tuple[RemappedSegment, ...]:
        """Write the segments; leave out segments with a missing file.

        Raises
        ------
        VersionNotFoundError
            The version was cleaned up.
        CorruptFileError, NotLanceError, UnsupportedFeatureError
            A segment is unreadable. The files of this task were removed.
        """
        opened = opened_at(dataset, self.read_version)
        return tuple(remap_segments(opened.store, opened.manifest, self.segments, shared))


def remapped_indices(
    dataset: OpenedVersion, moved: Sequence[MovedRows], runner: TaskRunner
) -> RemappedIndices:
    """Run tasks that rebuild the segments with addresses of moved rows.

    One task rebuilds one segment. If tasks run one by one, one task rebuilds all segments, so the
    map of addresses is made once.
    """
    ids = segments_to_remap(dataset.manifest, moved)
    version = dataset.manifest.version
    if len(ids) > 1 and runner.parallelism > 1:
        tasks = [RemapTask(version, (segment,)) for segment in ids]
    else:
        tasks = [RemapTask(version, tuple(ids))] if ids else []
    made = runner.run(dataset, tasks, tuple(moved)) if tasks else []
    return RemappedIndices.of(segment for segments in made for segment in segments)


# --- Commit the results of compaction tasks as one version ------------------------------


def commit_rewrites(
    dataset: OpenedVersion,
    rewrites: Sequence[RewriteResult],
    *,
    defer_index_remap: bool = False,
    job: Job = LOCAL,
    earlier: CompactionMetrics | None = None,
) -> tuple[Manifest, CompactionMetrics]:
    """Commit the results of tasks as two versions: one reserves fragment ids, one rewrites.

    Tasks rebuild the indices that store addresses of the rows. With ``defer_index_remap`` they
    write a remapping table instead, unless it would have too many rows. The commit records the
    metrics of these results and of ``earlier`` commits of the same job.

    Raises
    ------
    CommitConflictError
        Another writer changed one of the fragments meanwhile; plan again.
    OptionError
        The results are for different versions, for the same fragments, or of another dataset.
    CorruptFileError, NotLanceError, UnsupportedFeatureError
        An index is unreadable. The dataset is unchanged.
    """
    for result in rewrites:
        if not isinstance(result, RewriteResult):
            raise OptionError(f"rewrites: expected RewriteResults of tasks, found {result!r:.60}")
    versions = {result.read_version for result in rewrites}
    if len(versions) > 1:
        raise OptionError(f"rewrites of different versions cannot be committed as one: {versions}")
    total = sum((result.metrics for result in rewrites), CompactionMetrics())
    if not rewrites:
        return dataset.manifest, total
    ids = sorted(number for result in rewrites for number in ids_of(result.old))
    twice = [fragment_id for fragment_id, following in pairwise(ids) if fragment_id == following]
    if twice:
        raise OptionError(
            f"rewrites of the same fragments cannot be committed as one: {twice[:10]}. Pass each "
            "result once."
        )
    base = dataset
    if versions != {dataset.manifest.version}:
        base = dataset.at(versions.pop())
    _check_origin(base.manifest, rewrites)
    counts = asdict(total if earlier is None else earlier + total)
    recorded: Any = {"properties": job.recording(**counts), "once": job.once}
    count = sum(len(result.new) for result in rewrites)
    reserved = base
    next_id = 0
    if count:
        manifest = commit_operation(base, ReserveFragments(count))
        next_id = manifest.wire.max_fragment_id - count + 1
        reserved = base.at(manifest)
    groups, moved = [], []
    for result in rewrites:
        numbered = []
        for fragment in result.new:
            numbered.append(replace(fragment, id=next_id))
            next_id += 1
        groups.append(RewriteGroup(result.old, tuple(numbered)))
        moved.append((result.moved, result.old, numbered))
    # A remapping table tells new addresses by the order of rows.
    defer_index_remap &= not any(result.is_sorted for result in rewrites)
    if defer_index_remap and not base.manifest.uses(Feature.STABLE_ROW_IDS):
        moved = [(live or live_addresses(base, old), old, new) for live, old, new in moved]
        entry = reuse_entry(dataset.store, reserved.manifest, moved)
        if entry is not None:
            operation = Rewrite(groups=tuple(groups), reuse_index=entry)
            return commit_operation(base, operation, **recorded), total
    # Results have addresses only if a segment needs them.
    needed = [MovedRows.of(live, old, new) for live, old, new in moved if live]
    indices = remapped_indices(base, needed, job.runner)
    operation = Rewrite(
        groups=tuple(groups), rewritten_indices=indices.rewritten, coverage=indices.coverage
    )
    try:
        return commit_operation(base, operation, **recorded), total
    except (CommitConflictError, CommitContentionError):
        indices.discard(dataset.store)
        raise


def _check_origin(manifest: Manifest, rewrites: Sequence[RewriteResult]) -> None:
    """Check that tasks read their fragments in this dataset, by the random names of files."""
    known = dict(zip(manifest.fragment_ids.tolist(), range(manifest.num_fragments), strict=True))
    for result in rewrites:
        first = next(iter(result.old), None)
        position = None if first is None else known.get(first.id)
        if first is None or position is None or manifest.fragment(position).files != first.files:
            raise OptionError(
                f"rewrites: {manifest.where} does not have the fragments that were rewritten. "
                "Commit them to the dataset that they were planned for"
            )


# --- Compact until all groups are merged ------------------------------------------------
# One pass is nearly always enough. But its new fragments come after all other fragments, and
# glaive knows the bytes of a file only after it wrote the file. So fragments can get new
# neighbours: the last files of two groups, or fragments that were on both sides of a group. A
# further pass merges these.
#
# Each file of a pass is full, by its rows or by its bytes, except the last file of each group. So
# each pass leaves fewer candidates than it found.

Rewriting = Callable[["OpenedVersion", CompactionOptions], Sequence[RewriteResult]]
"""Plans one pass and runs its tasks; returns their uncommitted results."""


def rewrite_locally(dataset: OpenedVersion, options: CompactionOptions) -> list[RewriteResult]:
    """Plan one pass and run its tasks in this process."""
    return rewrite_groups(dataset, compaction_groups(dataset, options), options, LOCAL.runner)


def rewrite_groups(
    dataset: OpenedVersion, groups: Sequence[range], options: CompactionOptions, runner: TaskRunner
) -> list[RewriteResult]:
    """Run the tasks of groups of fragments; return their uncommitted results."""
    results = runner.run(dataset, rewrite_tasks(dataset, groups, options))
    return with_old(dataset, groups, results)


def rewrite_tasks(
    dataset: OpenedVersion, groups: Sequence[range], options: CompactionOptions
) -> list[RewriteTask]:
    """Return a task for each group of fragments."""
    ranges = [FragmentRange(dataset.manifest.version, at.start, at.stop) for at in groups]
    shared = for_tasks(options)
    return [RewriteTask(fragments, shared) for fragments in ranges]


def with_old(
    dataset: OpenedVersion, groups: Sequence[range], results: Sequence[RewriteResult]
) -> list[RewriteResult]:
    """Return the results with the fragments of their groups, which tasks leave out."""
    manifest = dataset.manifest
    listed = manifest.complete_wire.fragments
    return [
        replace(result, old=unpacked_fragments(listed[group.start : group.stop], manifest.where))
        for result, group in zip(results, groups, strict=True)
    ]


def compact(
    dataset: OpenedVersion,
    options: CompactionOptions,
    rewriting: Rewriting = rewrite_locally,
    job: Job = LOCAL,
) -> tuple[Manifest, CompactionMetrics]:
    """Plan, execute and commit until a plan is empty; an empty first plan makes no version.

    Limits of the source limit a run: with them glaive makes one pass. If another writer commits
    meanwhile, the rest is also left to the next compaction.

    Returns
    -------
    tuple
        The last version, and the metrics of all passes, which the last commit also records.

    Raises
    ------
    CommitConflictError, CommitContentionError
        Another writer changed one of the fragments. The dataset is unchanged.
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


class Compaction:
    """Merge small fragments, in one process or many.

    :meth:`plan` selects groups of fragments. :meth:`execute_task` rewrites one group, in any
    process. :meth:`commit` commits the results. Plans, tasks and results can be pickled.
    """

    @staticmethod
    def plan(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionPlan:
        """Select the fragments to rewrite by their metadata.

        Raises
        ------
        OptionError
            An option is unknown or has an invalid value.
        """
        return plan_compaction(dataset.opened, _options(dataset, options))

    @staticmethod
    def execute_task(dataset: OpenDataset, task: CompactionTask) -> RewriteResult:
        """Write the fragments of one task, for :func:`commit`."""
        return task.execute(dataset)

    @staticmethod
    def commit(
        dataset: OpenDataset,
        rewrites: Sequence[RewriteResult],
        options: Mapping[str, Any] | None = None,
    ) -> CompactionMetrics:
        """Commit the results and move the dataset to the new version.

        Of the options, only ``defer_index_remap`` is used.

        Raises
        ------
        CommitConflictError
            Another writer changed one of the fragments meanwhile; plan again.
        """
        defer = CompactionOptions.of(options, {}).defer_index_remap
        manifest, metrics = commit_rewrites(dataset.opened, rewrites, defer_index_remap=defer)
        dataset.move_to(manifest)
        return metrics

    @staticmethod
    def execute(
        dataset: OpenDataset, options: Mapping[str, Any] | None = None
    ) -> CompactionMetrics:
        """Plan, execute and commit until a plan is empty; an empty first plan makes no version."""
        manifest, metrics = compact(dataset.opened, _options(dataset, options))
        dataset.move_to(manifest)
        return metrics


def _options(dataset: OpenDataset, given: Mapping[str, Any] | None) -> CompactionOptions:
    return CompactionOptions.of(given, dict(dataset.opened.manifest.config))
