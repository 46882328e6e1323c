"""Rows of the dataset that no row of the source matches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.rows.selected_rows import rows_where
from glaive.format.rowids import check_at_once

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["unmatched_rows"]


def unmatched_rows(
    dataset: OpenedVersion, condition: str | None, matched: RowsByFragment, *, into: RowsByFragment
) -> tuple[int, list[int]]:
    """Add the unmatched rows for which the condition holds, or all, to a set.

    Returns
    -------
    tuple
        The number of these rows; and ids of fragments in which all rows are unmatched, which are
        not in the set.
    """
    if condition is not None:
        selected = rows_where(dataset, condition)
        count = 0
        for fragment_id, offsets in selected.items():
            known = matched[fragment_id] if fragment_id in matched else offsets[:0]
            rest = np.setdiff1d(offsets, known, assume_unique=True)
            if len(rest):
                into.add_offsets(fragment_id, rest)
            count += len(rest)
        return count, []
    snapshot, emptied, count = dataset.snapshot, [], 0
    for position, fragment_id in enumerate(dataset.manifest.fragment_ids.tolist()):
        live_count = int(snapshot.live_counts[position])
        unmatched = live_count - matched.count_of(fragment_id)
        count += unmatched
        if unmatched == live_count:
            emptied += [fragment_id] if live_count else []
        elif unmatched:
            fragment = dataset.manifest.fragment(position)
            check_at_once(fragment.physical_rows, dataset.manifest.where)
            live = snapshot.live_rows(fragment)
            is_unmatched = np.ones(fragment.physical_rows, np.bool_)
            is_unmatched[matched[fragment_id]] = False
            if live is not None:
                is_unmatched[live.deleted_between(0, live.rows)] = False
            into.add_offsets(fragment_id, np.flatnonzero(is_unmatched).astype(np.uint32))
    return count, emptied
