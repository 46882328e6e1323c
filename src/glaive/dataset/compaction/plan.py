"""Plan a compaction.

Fragments with few rows and bytes, or with many deleted rows, are candidates. Neighbouring
candidates that the same indices cover are merged, in groups that fill a fragment each. A single
fragment is only rewritten to remove its deleted rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glaive.dataset.compaction.options import CONFIG_PREFIX, CompactionOptions
from glaive.dataset.compaction.task import CompactionPlan, CompactionTask
from glaive.dataset.fragment_positions import FragmentPositions
from glaive.errors import OptionError
from glaive.index.remap import pinned_fragments
from glaive.table.index_coverage import covered_fragments
from glaive.table.relocated_rows import REUSE_INDEX, followed
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["compaction_groups", "for_tasks", "plan_compaction"]

Flags: TypeAlias = NDArray[np.bool_]

_MAX_ROWS: Final = 2**63 - 1
_MOST_ADDED: Final = 100_000
"""Files that a compaction may write beyond those that it replaces: some minutes of work."""


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
    """Positions of the fragments that are merged, or rewritten alone; reads no data file.

    Raises
    ------
    OptionError
        So few rows a fragment that there would be many more files than now.
    """
    many_deleted = _with_many_deleted(dataset, options)
    wanted = _candidates(dataset, options) | many_deleted
    places = FragmentPositions(dataset.manifest.fragment_ids)
    for apart in (pinned_fragments(dataset.manifest), options.excluded_fragment_ids):
        wanted &= ~places.marked(apart)
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
    """Refuse to write many more files than there are: a few bytes may stand for billions of rows.

    The target may be that of the table's configuration, which whoever made the table has written.
    """
    added = sum(
        max(0, int(starts[group.stop] - starts[group.start]) // target - len(group))
        for group in groups
    )
    if added > _MOST_ADDED:
        raise OptionError(
            f"target_rows_per_fragment: {target} rows a fragment make {added:,} files more than "
            f"there are; expected {_MOST_ADDED:,} at most. Give a larger one; without one, "
            f"{CONFIG_PREFIX}target_rows_per_fragment of the table's configuration applies"
        )


def _with_many_deleted(dataset: OpenedVersion, options: CompactionOptions) -> Flags:
    """Fragments whose share of deleted rows exceeds the threshold."""
    physical, live = dataset.manifest.physical_rows, dataset.snapshot.live_counts
    if not options.materialize_deletions:
        return np.zeros(len(physical), np.bool_)
    return (physical - live) > options.materialize_deletions_threshold * physical


def _candidates(dataset: OpenedVersion, options: CompactionOptions) -> Flags:
    """Fragments with few rows and bytes."""
    manifest = dataset.manifest
    physical = manifest.physical_rows
    small = physical < options.target_rows_per_fragment
    # No fragment is larger than all of them, so most often none has to be looked at.
    if manifest.columns.file_bytes >= options.max_bytes_per_file:
        live_share = dataset.snapshot.live_counts / np.maximum(physical, 1)
        small &= manifest.columns.data_bytes * live_share < options.max_bytes_per_file
    return small


def _runs(dataset: OpenedVersion, wanted: Flags, places: FragmentPositions) -> Iterator[range]:
    """Positions of neighbouring candidates with the same index coverage."""
    begins = np.zeros(len(wanted) + 1, np.bool_)
    begins[0] = begins[-1] = True
    begins[1:-1] = wanted[1:] != wanted[:-1]
    for entry in followed(dataset.manifest.indices):
        if entry.name != REUSE_INDEX:
            covered = places.marked(covered_fragments(entry) or ())
            begins[1:-1] |= covered[1:] != covered[:-1]
    edges = np.flatnonzero(begins).tolist()
    return (range(*pair) for pair in pairwise(edges) if wanted[pair[0]])


def _split(starts: Int64s, run: range, target: int) -> Iterator[range]:
    """Split a run into groups of at least ``target`` rows, if the run has that many.

    ``starts`` are the live rows before each fragment, and those of all.
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
