"""Commit the results of compaction tasks as one version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.compaction.remap_tasks import remapped_indices
from glaive.dataset.compaction.result import CompactionMetrics, RewriteResult
from glaive.dataset.compaction.rewrite import live_addresses
from glaive.dataset.tasks import LOCAL, Job
from glaive.errors import CommitConflictError, CommitContentionError, OptionError
from glaive.format.flags import Feature
from glaive.format.fragment_list import ids_of
from glaive.format.manifest import Manifest
from glaive.index.remap import MovedRows
from glaive.table.operations.reserve_fragments import ReserveFragments
from glaive.table.operations.rewrite import Rewrite, RewriteGroup
from glaive.table.relocated_rows import reuse_entry

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["commit_rewrites"]


def commit_rewrites(
    dataset: OpenedVersion,
    rewrites: Sequence[RewriteResult],
    *,
    defer_index_remap: bool = False,
    job: Job = LOCAL,
    earlier: CompactionMetrics | None = None,
) -> tuple[Manifest, CompactionMetrics]:
    """Commit the results of tasks as two versions: one reserves fragment ids, one rewrites.

    Indices that store addresses of the rows are rebuilt, in tasks, unless that is deferred, and
    there are no more rows than a remapping table may have. The commit records what was done, and
    what ``earlier`` commits of the same job did.

    Raises
    ------
    CommitConflictError
        Another writer changed one of the fragments since; plan again.
    OptionError
        The results are for different versions, for the same fragments, or of another dataset.
    CorruptFileError, NotLanceError, UnsupportedFeatureError
        An index cannot be read; nothing was changed.
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
    if defer_index_remap and not base.manifest.uses(Feature.STABLE_ROW_IDS):
        moved = [(live or live_addresses(base, old), old, new) for live, old, new in moved]
        entry = reuse_entry(dataset.store, reserved.manifest, moved)
        if entry is not None:
            operation = Rewrite(groups=tuple(groups), reuse_index=entry)
            return commit_operation(base, operation, **recorded), total
    # Results without addresses are of tasks that found no segment to need them.
    needed = [MovedRows.of(live, old, new) for live, old, new in moved if live]
    indices = remapped_indices(base, needed, job.runner)
    operation = Rewrite(
        groups=tuple(groups),
        rewritten_indices=indices.rewritten,
        coverage=indices.coverage,
    )
    try:
        return commit_operation(base, operation, **recorded), total
    except (CommitConflictError, CommitContentionError):
        indices.discard(dataset.store)
        raise


def _check_origin(manifest: Manifest, rewrites: Sequence[RewriteResult]) -> None:
    """Check that tasks read their fragments in this dataset: the names of files are random."""
    known = dict(zip(manifest.fragment_ids.tolist(), range(manifest.num_fragments), strict=True))
    for result in rewrites:
        first = next(iter(result.old), None)
        position = None if first is None else known.get(first.id)
        if first is None or position is None or manifest.fragment(position).files != first.files:
            raise OptionError(
                f"rewrites: {manifest.where} does not have the fragments that were rewritten. "
                "Commit them to the dataset that they were planned for"
            )
