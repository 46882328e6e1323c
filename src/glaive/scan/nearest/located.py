"""Where the rows of a segment are in a version: fragment and physical row of each."""

from __future__ import annotations

import numpy as np

from glaive.index.row_set import RowNumbers
from glaive.kernels.partition_rows import RowPlaces
from glaive.scan.indices import IndexedSegment, SnapshotIndices
from glaive.types import Flags, Int64s, UInt64s

__all__ = ["locate_rows"]

_SHIFT = np.uint64(32)
_MASK = np.uint64(0xFFFFFFFF)


def locate_rows(
    indices: SnapshotIndices, segment: IndexedSegment, numbers: RowNumbers
) -> RowPlaces:
    """Find rows by their numbers, as the segment stores them, in whatever order."""
    snapshot = indices.snapshot
    manifest = snapshot.manifest

    def is_deleted(position: int, rows: Int64s) -> Flags | None:
        live = snapshot.live_rows(manifest.fragment(position))
        return None if live is None else live.is_deleted(rows)

    covered = np.zeros(manifest.num_fragments, np.bool_)
    covered[list(snapshot.positions_of(sorted(segment.fragments)))] = True
    if not indices.holds_addresses(segment):
        fragment, row = snapshot.row_id_index.locate(numbers, is_deleted)
        there = fragment >= 0
        there[there] = covered[fragment[there]]
        return _located(fragment, row, numbers, there)
    addresses, there = indices.moved(numbers)
    ids = manifest.fragment_ids
    order = np.argsort(ids, kind="stable")
    wanted = (addresses >> _SHIFT).astype(np.int64)
    at = np.minimum(np.searchsorted(ids[order], wanted), max(0, len(ids) - 1))
    if not len(ids):
        return _located(wanted, wanted, addresses, np.zeros(len(wanted), np.bool_))
    fragment = order[at]
    row = (addresses & _MASK).astype(np.int64)
    there = there & (ids[fragment] == wanted) & covered[fragment]
    there &= row < manifest.physical_rows[fragment]
    for position in np.flatnonzero(manifest.deleted_rows != 0).tolist():
        here = np.flatnonzero(there & (fragment == position))
        deleted = is_deleted(position, row[here]) if len(here) else None
        if deleted is not None:
            there[here[deleted]] = False
    return _located(fragment, row, addresses, there)


def _located(fragment: Int64s, row: Int64s, key: UInt64s, there: Flags) -> RowPlaces:
    numbers = np.ascontiguousarray(fragment, np.int64), np.ascontiguousarray(row, np.int64)
    return RowPlaces(*numbers, np.ascontiguousarray(key), None if there.all() else there)
