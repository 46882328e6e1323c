"""Plan a compaction.

Fragments with few rows and bytes, or with many deleted rows, are candidates. Neighbouring
candidates that the same indices cover are merged, in groups that fill a fragment each. A single
fragment is only rewritten to remove its deleted rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.task import CompactionPlan, CompactionTask
from glaive.index.remap import pinned_fragments
from glaive.table.index_coverage import covered_fragments
from glaive.table.relocated_rows import REUSE_INDEX, followed

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["compaction_groups", "for_tasks", "plan_compaction"]


def plan_compaction(dataset: OpenedVersion, options: CompactionOptions) -> CompactionPlan:
    """Compute the groups; reads no data file."""
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
    """Options without those that only affect the plan."""
    return replace(options, excluded_fragment_ids=())


def compaction_groups(dataset: OpenedVersion, options: CompactionOptions) -> list[range]:
    """Positions of the fragments that are merged, or rewritten alone; reads no data file."""
    groups: list[list[int]] = []
    for run in _runs(dataset, options):
        groups.extend(_split(dataset, run, options.target_rows_per_fragment))
    groups = [
        group for group in groups if len(group) > 1 or _has_many_deleted(dataset, group[0], options)
    ]
    # A group is a part of a run, whose fragments are neighbours.
    return [range(group[0], group[-1] + 1) for group in _within_limits(dataset, groups, options)]


def _runs(dataset: OpenedVersion, options: CompactionOptions) -> Iterator[list[int]]:
    """Positions of neighbouring candidates with the same index coverage."""
    manifest = dataset.manifest
    ids = manifest.fragment_ids.tolist()
    physical = manifest.physical_rows.tolist()
    covered = [
        covered_fragments(entry) or frozenset()
        for entry in followed(manifest.indices)
        if entry.name != REUSE_INDEX
    ]
    excluded = pinned_fragments(manifest).union(options.excluded_fragment_ids)
    # No fragment is larger than all of them, so most often none has to be looked at.
    any_large = manifest.columns.file_bytes >= options.max_bytes_per_file
    run: list[int] = []
    run_coverage: list[bool] | None = None
    for position, fragment_id in enumerate(ids):
        small = physical[position] < options.target_rows_per_fragment
        if any_large and small:
            small = _live_bytes(dataset, position) < options.max_bytes_per_file
        wanted = small or _has_many_deleted(dataset, position, options)
        if fragment_id in excluded or not wanted:
            if run:
                yield run
            run, run_coverage = [], None
            continue
        coverage = [fragment_id in indexed for indexed in covered]
        if run and coverage != run_coverage:
            yield run
            run = []
        run.append(position)
        run_coverage = coverage
    if run:
        yield run


def _stored_bytes(dataset: OpenedVersion, position: int) -> int:
    """Bytes of the data files of a fragment, as far as the manifest says."""
    return sum(file.file_size_bytes for file in dataset.manifest.fragment_wire(position).files)


def _live_bytes(dataset: OpenedVersion, position: int) -> int:
    """The share of the live rows in these bytes, about."""
    physical = int(dataset.manifest.physical_rows[position])
    live = int(dataset.snapshot.live_counts[position])
    return _stored_bytes(dataset, position) * live // max(1, physical)


def _has_many_deleted(dataset: OpenedVersion, position: int, options: CompactionOptions) -> bool:
    """Whether the share of deleted rows exceeds the threshold."""
    if not options.materialize_deletions:
        return False
    physical = int(dataset.manifest.physical_rows[position])
    deleted = physical - int(dataset.snapshot.live_counts[position])
    return deleted > options.materialize_deletions_threshold * physical


def _split(dataset: OpenedVersion, run: Sequence[int], target: int) -> Iterator[list[int]]:
    """Split a run into groups of at least ``target`` rows, if the run has that many."""
    counts = dataset.snapshot.live_counts
    remaining = sum(int(counts[position]) for position in run)
    group: list[int] = []
    rows = 0
    for position in run:
        group.append(position)
        rows += int(counts[position])
        if rows >= target and remaining - rows >= target:
            yield group
            remaining -= rows
            group, rows = [], 0
    if group:
        yield group


def _within_limits(
    dataset: OpenedVersion, groups: Sequence[Sequence[int]], options: CompactionOptions
) -> Iterator[list[int]]:
    counts = dataset.snapshot.live_counts
    fragments = rows = size = 0
    for group in groups:
        fragments += len(group)
        rows += sum(int(counts[position]) for position in group)
        if options.max_source_bytes is not None:
            size += sum(
                file.size or 0
                for position in group
                for file in dataset.manifest.fragment(position).files
            )
        for limit, reached in (
            (options.max_source_fragments, fragments),
            (options.max_source_rows, rows),
            (options.max_source_bytes, size),
        ):
            if limit is not None and reached > limit:
                return
        yield list(group)
