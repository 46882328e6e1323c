"""Plan the clustering of a table, run its tasks, and commit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from glaive.dataset.compaction.commit import commit_rewrites
from glaive.dataset.compaction.result import CompactionMetrics, RewriteResult
from glaive.dataset.sampling import sample_positions
from glaive.dataset.tasks import cut_evenly
from glaive.errors import OptionError
from glaive.format.fragment_list import FragmentList, unpacked_fragments
from glaive.scan.addresses import find_rows
from glaive.scan.take import take_physical
from glaive.spark.jobs.cluster_rows import PARTS_DDL, CutRows, Cuts, WritePart
from glaive.spark.jobs.curves import Curve, CurveKind
from glaive.spark.jobs.runner import parts_for
from glaive.spark.versions import partitioned_by_id
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest

__all__ = ["cluster_rows"]

_SAMPLE = 1 << 16
"""Rows whose values say where parts begin."""


def cluster_rows(
    opened: OpenedVersion,
    columns: Sequence[str],
    kind: CurveKind,
    max_rows: int,
    positions: Int64s,
    job: Job,
) -> tuple[Manifest, None]:
    """Commit all rows of some fragments in the order of columns.

    Parameters
    ----------
    positions
        Of the fragments, ascending.
    """
    manifest = opened.manifest
    for name in columns:
        manifest.schema.find(name)
    if not columns or any("." in name for name in columns):
        raise OptionError(f"columns: expected names of top-level columns, found {list(columns)}")
    if not len(positions):
        return manifest, None
    # The same rows for the same version, so that a job that runs again makes the same parts.
    rows = opened.snapshot.num_rows
    chosen = sample_positions(rows, min(rows, _SAMPLE), randomize_order=False, seed=rows)
    found = find_rows(opened.snapshot, "indices", chosen)
    view = opened.views.take(tuple(columns))
    sample = take_physical(view, found.fragment, found.row)
    curve = Curve.of(sample, kind)
    runner: Any = job.runner  # that of a session
    sizes = manifest.physical_rows[positions]
    share = int(sizes.sum()) / max(1, int(manifest.physical_rows.sum()))
    count = parts_for(int(opened.snapshot.file_bytes() * share), runner.parallelism)
    along = np.sort(curve.numbers(sample))
    cuts = along[len(along) * np.arange(1, count) // count] if len(along) else along
    bounds = cut_evenly(sizes, count)
    ids = manifest.fragment_ids[positions]
    version = manifest.version
    tasks = [CutRows(version, tuple(ids[a:b].tolist())) for a, b in pairwise(bounds)]
    shared = Cuts(curve, np.unique(cuts))
    cut = runner.rows_of(opened, tasks, PARTS_DDL, shared)
    moved = partitioned_by_id(cut, count, "part")
    results = runner.run_on_rows(opened, moved, WritePart(version, curve, max_rows))
    new = FragmentList.joined(part for _, part in sorted(results, key=itemgetter(0)))
    listed = manifest.complete_wire.fragments
    old = unpacked_fragments((listed[at] for at in positions.tolist()), manifest.where)
    metrics = CompactionMetrics(
        fragments_removed=len(old),
        fragments_added=len(new),
        files_removed=old.file_count,
        files_added=len(new),
    )
    result = RewriteResult(version, metrics, old, new)
    made, _ = commit_rewrites(opened, [result], job=job)
    return made, None
