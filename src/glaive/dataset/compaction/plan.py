"""Which fragments a compaction puts together.

Fragments with few rows and bytes, or with many deleted rows, are candidates. Neighbours among them
are put together as long as the same indices cover them, in groups that fill a fragment each. A
group of one is only rewritten to get rid of its deleted rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.task import CompactionPlan, CompactionTask
from glaive.index.remap import pinned_fragments
from glaive.table.index_coverage import covered_fragments
from glaive.table.moved_rows import REUSE_INDEX, followed

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["plan_compaction"]


def plan_compaction(dataset: OpenedVersion, options: CompactionOptions) -> CompactionPlan:
    """Work out the groups; reads no data file."""
    groups: list[list[int]] = []
    for run in _runs(dataset, options):
        groups.extend(_split(dataset, run, options.target_rows_per_fragment))
    groups = [group for group in groups if len(group) > 1 or _is_worn(dataset, group[0], options)]
    manifest = dataset.manifest
    ids = manifest.fragment_ids
    # Sizes that steer only the plan are no business of the tasks.
    alone = replace(options, excluded_fragment_ids=())
    tasks = tuple(
        CompactionTask(
            dataset.manifest.version,
            tuple(ids[group].tolist()),
            alone,
            tuple(map(manifest.fragment, group)),
        )
        for group in _within_limits(dataset, groups, options)
    )
    return CompactionPlan(dataset.manifest.version, tasks)


def _runs(dataset: OpenedVersion, options: CompactionOptions) -> Iterator[list[int]]:
    """Positions of neighbouring candidates that the same indices cover."""
    manifest = dataset.manifest
    ids = manifest.fragment_ids.tolist()
    physical = manifest.physical_rows.tolist()
    covered = [
        covered_fragments(entry) or frozenset()
        for entry in followed(manifest.indices)
        if entry.name != REUSE_INDEX
    ]
    excluded = pinned_fragments(manifest).union(options.excluded_fragment_ids)
    run: list[int] = []
    cover: list[bool] | None = None
    for position, fragment_id in enumerate(ids):
        small = physical[position] < options.target_rows_per_fragment
        small = small and _stored_bytes(dataset, position) < options.max_bytes_per_file
        wanted = small or _is_worn(dataset, position, options)
        if fragment_id in excluded or not wanted:
            if run:
                yield run
            run, cover = [], None
            continue
        mine = [fragment_id in indexed for indexed in covered]
        if run and mine != cover:
            yield run
            run = []
        run.append(position)
        cover = mine
    if run:
        yield run


def _stored_bytes(dataset: OpenedVersion, position: int) -> int:
    """Bytes of the data files of a fragment, as far as the manifest says."""
    return sum(file.size or 0 for file in dataset.manifest.fragment(position).files)


def _is_worn(dataset: OpenedVersion, position: int, options: CompactionOptions) -> bool:
    """Whether enough rows are deleted."""
    if not options.materialize_deletions:
        return False
    physical = int(dataset.manifest.physical_rows[position])
    deleted = physical - int(dataset.snapshot.live_counts[position])
    return deleted > options.materialize_deletions_threshold * physical


def _split(dataset: OpenedVersion, run: Sequence[int], target: int) -> Iterator[list[int]]:
    """Cut a run into groups that fill a fragment each, as long as the rest fills one too."""
    counts = dataset.snapshot.live_counts
    left = sum(int(counts[position]) for position in run)
    group: list[int] = []
    rows = 0
    for position in run:
        group.append(position)
        rows += int(counts[position])
        if rows >= target and left - rows >= target:
            yield group
            left -= rows
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
            size += sum(_stored_bytes(dataset, position) for position in group)
        for limit, reached in (
            (options.max_source_fragments, fragments),
            (options.max_source_rows, rows),
            (options.max_source_bytes, size),
        ):
            if limit is not None and reached > limit:
                return
        yield list(group)
