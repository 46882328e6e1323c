"""Upkeep after an append: bounded work that properties of the table ask for.

It is a commit of its own, after the append. If it fails, glaive logs the failure, and the appended
rows stay. A later append tries again.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from glaive.dataset.clustering import cluster_keys, rewrite_useful
from glaive.dataset.compact import commit_rewrites, compaction_groups, rewrite_groups
from glaive.dataset.compaction_tasks import CompactionOptions
from glaive.dataset.tasks import LOCAL
from glaive.errors import CommitConflictError, CommitContentionError
from glaive.format.paths import data_file_path
from glaive.options import Kind, integer, number
from glaive.table.configuration import AUTO_COMPACT, AUTO_INDEX

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest

_logger = logging.getLogger(__name__)

_MAX_BYTES: Final = 128 << 20
"""Maximum bytes of the files that a commit merges."""

_MAX_ROWS: Final = 1 << 20
"""Maximum new rows that a commit adds to an index."""


_PROPERTIES: Final[dict[str, tuple[Kind, float]]] = {
    AUTO_COMPACT: (integer(2), 16),
    AUTO_INDEX: (number(0, 1), 0.1),
}
"""The kind of each property's threshold, and the threshold of ``true``."""


def keep_up(opened: OpenedVersion) -> Manifest:
    """Run the upkeep of a version that has appended rows; return the newest version made."""
    for key, work in ((AUTO_COMPACT, _compact), (AUTO_INDEX, _update_indices)):
        try:
            threshold = _threshold(opened, key)
            if threshold is not None:
                opened = opened.at(work(opened, threshold))
        except (CommitConflictError, CommitContentionError) as error:
            _logger.info(
                "%s of %s: a later append tries again: %s", key, opened.store.public_uri, error
            )
        except Exception as error:
            # The rows are committed: an error would make the caller append them again.
            _logger.warning("%s of %s failed: %s", key, opened.store.public_uri, error)
    return opened.manifest


def _threshold(opened: OpenedVersion, key: str) -> float | None:
    """Return the threshold that a property gives; ``None`` if it is off."""
    text = opened.manifest.config.get(key, "").strip().lower()
    kind, usual = _PROPERTIES[key]
    if text in ("", "false"):
        return None
    return usual if text == "true" else float(kind.parse(key, text))


def _compact(opened: OpenedVersion, min_fragments: float, *, all_small: bool = False) -> Manifest:
    """Merge small fragments at the end, or cluster new ones, if many or if they fill a fragment."""
    options = CompactionOptions.of({}, dict(opened.manifest.config))
    if cluster_keys(opened.manifest):
        options = replace(options, max_source_bytes=_MAX_BYTES)
        results = rewrite_useful(opened, options, LOCAL.runner, int(min_fragments))
    else:
        run = _newest_small(opened, options, all_small=all_small)
        rows = int(opened.snapshot.live_counts[run.start : run.stop].sum())
        if len(run) < 2 or (len(run) < min_fragments and rows < options.target_rows_per_fragment):
            return opened.manifest
        results = rewrite_groups(opened, [run], options, LOCAL.runner)
    try:
        return commit_rewrites(opened, results)[0]
    except (CommitConflictError, CommitContentionError):
        new = [file for result in results for fragment in result.new for file in fragment.files]
        opened.store.discard([data_file_path(file.path) for file in new], own=True)
        raise


def _newest_small(opened: OpenedVersion, options: CompactionOptions, *, all_small: bool) -> range:
    """Return the most small fragments at the end of the table that a commit should merge.

    Unless ``all_small``, none of them has more than half of their rows. Then each merge at least
    doubles the fragment of a row, so a row is rewritten a few times while the table grows.
    """
    manifest, groups = opened.manifest, compaction_groups(opened, options)
    if not groups or groups[-1].stop != manifest.num_fragments:
        return range(0)
    newest = slice(groups[-1].start, groups[-1].stop)
    rows = manifest.physical_rows[newest][::-1].astype(np.float64)
    fits = manifest.columns.data_bytes[newest][::-1].cumsum() <= _MAX_BYTES
    if not all_small:
        fits &= 2 * np.maximum.accumulate(rows) <= rows.cumsum()
    count = int((np.flatnonzero(fits) + 1).max(initial=0))
    return range(newest.stop - count, newest.stop)


def _update_indices(opened: OpenedVersion, max_share: float) -> Manifest:
    """Add the new rows to indices that lack more than a share of the rows."""
    from glaive.dataset.indexing.optimize import optimize_indices

    bound = _MAX_ROWS / max(1, opened.snapshot.num_rows)
    names = [name for name, share in unindexed_shares(opened).items() if max_share < share <= bound]
    if not names:
        return opened.manifest
    if _threshold(opened, AUTO_COMPACT) is not None:
        # Compaction keeps indexed fragments apart from others: merge the new ones before.
        opened = opened.at(_compact(opened, 2, all_small=True))
    return optimize_indices(opened, index_names=names) or opened.manifest


def unindexed_shares(opened: OpenedVersion) -> dict[str, float]:
    """Return the share of the rows that each index lacks, by its name."""
    from glaive.dataset.indexing.optimize import index_segments

    rows = opened.snapshot.num_rows
    if not rows or not opened.manifest.indices:
        return {}
    segments = index_segments(opened)
    return {name: int(one.missing_rows.sum()) / rows for name, one in segments.items()}
