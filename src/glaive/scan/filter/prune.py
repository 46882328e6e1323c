"""Which parts of which fragments can have the row ids that a filter names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.conditions import Condition, InRange, IsOneOf
from glaive.format.flags import Feature
from glaive.scan.filter.search import Search
from glaive.scan.plan import FragmentRows
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID, bounds, numbers

__all__ = ["narrowed"]


def narrowed(
    snapshot: Snapshot, search: Search, ranges: Sequence[FragmentRows]
) -> Sequence[FragmentRows]:
    """The ranges, cut down to rows that may have the ids and addresses asked for.

    So a filter on row ids opens no fragment but those that have them.
    """
    stable = snapshot.manifest.uses(Feature.STABLE_ROW_IDS)
    for term in search.terms:
        if term.condition is None:
            continue
        path, condition = term.condition
        system = search.inputs[path].system
        if system == ROW_ADDRESS or (system == ROW_ID and not stable):
            ranges = _by_address(snapshot, condition, ranges)
        elif system == ROW_ID and isinstance(condition, IsOneOf) and not condition.negated:
            wanted = np.unique(numbers(condition))
            _, fragment, row = snapshot.row_id_index.candidates(wanted)
            ranges = _around(fragment, row, ranges)
    return ranges


def _by_address(
    snapshot: Snapshot, condition: Condition, ranges: Sequence[FragmentRows]
) -> Sequence[FragmentRows]:
    ids = snapshot.manifest.fragment_ids
    if not len(ids):
        return ranges
    if isinstance(condition, IsOneOf) and not condition.negated:
        wanted = np.unique(numbers(condition))
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
    found = []
    for one in ranges:
        first = int(ids[one.position]) << 32
        start, stop = max(one.start, low - first), min(one.stop, high - first + 1)
        if start < stop:
            found.append(FragmentRows(one.position, start, stop))
    return found


def _around(
    position: NDArray[np.int64], row: NDArray[np.int64], ranges: Sequence[FragmentRows]
) -> Sequence[FragmentRows]:
    """The ranges as far as they lie between the first and the last row of their fragment."""
    order = np.lexsort((row, position))
    position, row = position[order], row[order]
    fragments, first = np.unique(position, return_index=True)
    last = np.append(first[1:], len(row)) - 1
    lowest, highest = row[first].tolist(), row[last].tolist() if len(row) else []
    named = dict(zip(fragments.tolist(), zip(lowest, highest, strict=True), strict=True))
    found = []
    for one in ranges:
        if one.position in named:
            low, high = named[one.position]
            start, stop = max(one.start, low), min(one.stop, high + 1)
            if start < stop:
                found.append(FragmentRows(one.position, start, stop))
    return found
