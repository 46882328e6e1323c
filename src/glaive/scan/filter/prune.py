"""Which parts of which fragments can have rows that pass: by row ids in the filter, by indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.conditions import Condition, InRange, IsOneOf
from glaive.format.flags import Feature
from glaive.scan.filter.search import Search
from glaive.scan.plan import FragmentRows
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID, bounds, numbers

if TYPE_CHECKING:
    from glaive.scan.indexed.answers import IndexAnswer

__all__ = ["prune_ranges"]


def prune_ranges(search: Search, ranges: Sequence[FragmentRows]) -> Sequence[FragmentRows]:
    """The ranges, cut down to rows that may pass, as far as that is known without a data file.

    So a filter on row ids, or on a column with an index, opens no fragment but those that have
    such rows.
    """
    snapshot = search.run.source.snapshot
    stable = snapshot.manifest.uses(Feature.STABLE_ROW_IDS)
    for term in search.terms:
        if term.condition is None:
            continue
        path, condition = term.condition
        system = search.inputs[path].system
        if system == ROW_ADDRESS or (system == ROW_ID and not stable):
            ranges = _by_address(snapshot, condition, ranges)
        elif system == ROW_ID and isinstance(condition, IsOneOf) and not condition.negated:
            wanted = numbers(condition)
            _, fragment, row = snapshot.row_id_index.candidates(wanted)
            ranges = _around(fragment, row, ranges)
    alone = search.run.options.fast_search
    for answer in search.answers.values():
        ranges = _answered(snapshot, answer, ranges, alone=alone)
    return ranges


def _answered(
    snapshot: Snapshot, answer: IndexAnswer, ranges: Sequence[FragmentRows], *, alone: bool
) -> Sequence[FragmentRows]:
    """The ranges around what an index found, and those of fragments that it does not know.

    Not the latter if it is ``alone`` to decide.
    """
    found = answer.rows
    rows = np.concatenate((found.starts, found.stops - np.uint64(1)))
    fragment_ids = (rows >> np.uint64(32)).astype(np.int64)
    row = (rows & np.uint64(0xFFFFFFFF)).astype(np.int64)
    distinct, which = np.unique(fragment_ids, return_inverse=True)
    position = np.array(snapshot.positions_of(distinct.tolist()), np.int64)[which]
    ids = snapshot.manifest.fragment_ids
    near = {rows.position: rows for rows in _around(position, row, ranges)}
    return [
        near.get(rows.position, rows)
        for rows in ranges
        if rows.position in near or (not alone and int(ids[rows.position]) not in answer.fragments)
    ]


def _by_address(
    snapshot: Snapshot, condition: Condition, ranges: Sequence[FragmentRows]
) -> Sequence[FragmentRows]:
    ids = snapshot.manifest.fragment_ids
    if not len(ids):
        return ranges
    if isinstance(condition, IsOneOf) and not condition.negated:
        wanted = numbers(condition)
        order = np.argsort(ids)
        owner = (wanted >> np.uint64(32)).astype(np.int64)
        at = np.minimum(np.searchsorted(ids, owner, sorter=order), len(ids) - 1)
        position = order[at]
        known = ids[position] == owner
        row = (wanted & np.uint64(0xFFFFFFFF)).astype(np.int64)
        return _around(position[known], row[known], ranges)
    if not isinstance(condition, InRange):
        return ranges
    low, high = bounds(condition)
    pruned = []
    for rows in ranges:
        first = int(ids[rows.position]) << 32
        start, stop = max(rows.start, low - first), min(rows.stop, high - first + 1)
        if start < stop:
            pruned.append(FragmentRows(rows.position, start, stop))
    return pruned


def _around(
    position: NDArray[np.int64], row: NDArray[np.int64], ranges: Sequence[FragmentRows]
) -> Sequence[FragmentRows]:
    """The ranges as far as they lie between the first and the last of these rows in a fragment."""
    order = np.lexsort((row, position))
    position, row = position[order], row[order]
    fragments, first = np.unique(position, return_index=True)
    last = np.append(first[1:], len(row)) - 1
    lowest, highest = row[first].tolist(), row[last].tolist() if len(row) else []
    bounds_of = dict(zip(fragments.tolist(), zip(lowest, highest, strict=True), strict=True))
    pruned = []
    for rows in ranges:
        if rows.position in bounds_of:
            low, high = bounds_of[rows.position]
            start, stop = max(rows.start, low), min(rows.stop, high + 1)
            if start < stop:
                pruned.append(FragmentRows(rows.position, start, stop))
    return pruned
