"""Which rows of a fragment changed, and how."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glaive.dataset.changes.task import ChangeTask, RewrittenRows
from glaive.format.bitmaps import offsets_of
from glaive.format.flags import Feature
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import ROW_ID, UPDATED_AT, SystemColumns
from glaive.types import Int64s

__all__ = ["changed_rows"]

Flags = NDArray[np.bool_]


def changed_rows(task: ChangeTask, here: Snapshot, there: Snapshot | None) -> tuple[Int64s, Flags]:
    """The rows that a task has to read.

    Parameters
    ----------
    here, there
        The version that has the rows, and the one on the other side of the commit.

    Returns
    -------
    tuple
        Physical rows, ascending, and which of them were updated: the others were deleted or
        inserted.

    Notes
    -----
    A row that is on both sides with one id has moved; if it was last updated in the same version on
    both, it has not changed. Without stable row ids a row that moves counts as deleted and
    inserted.
    """
    (position,) = here.positions_of((task.fragment_id,))
    rows = _live(here, position, task.start, task.stop)
    if there is None:
        return rows, np.zeros(len(rows), np.bool_)
    kept = np.zeros(len(rows), np.bool_)
    other = -1
    if task.shared:
        (other,) = there.positions_of((task.fragment_id,))
        kept = np.isin(rows, _live(there, other, task.start, task.stop), assume_unique=True)
    changed, updated = ~kept, np.zeros(len(rows), np.bool_)
    if here.manifest.uses(Feature.STABLE_ROW_IDS) and there.manifest.uses(Feature.STABLE_ROW_IDS):
        moved, same = _moved(here, there, position, rows[changed])
        where = np.flatnonzero(changed)
        updated[where[moved & ~same]] = True
        changed[where[moved & same]] = False
    if task.rewritten is not None:
        rewritten = np.zeros(len(rows), np.bool_)
        rewritten[kept] = _rewritten(task.rewritten, here, there, (position, other), rows[kept])
        changed |= rewritten
        updated |= rewritten
    return rows[changed], updated[changed]


def _live(snapshot: Snapshot, position: int, start: int, stop: int) -> Int64s:
    """Live rows of a fragment from ``start`` to ``stop``."""
    fragment = snapshot.manifest.fragment(position)
    live = snapshot.live_rows(fragment)
    if live is None:
        snapshot.check_rows(fragment)
        return np.arange(start, stop, dtype=np.int64)
    return live.among(start, stop).astype(np.int64, copy=False)


def _moved(here: Snapshot, there: Snapshot, position: int, rows: Int64s) -> tuple[Flags, Flags]:
    """Rows that the other version has elsewhere, and those that are unchanged there."""
    ids = SystemColumns(here, position).of(ROW_ID, rows)
    versions = SystemColumns(here, position).of(UPDATED_AT, rows)

    def is_deleted(at: int, rows: Int64s) -> Flags | None:
        live = there.live_rows(there.manifest.fragment(at))
        return None if live is None else live.is_deleted(rows)

    fragments, offsets = there.row_id_index.locate(ids, is_deleted)
    same = np.zeros(len(rows), np.bool_)
    for at in np.unique(fragments[fragments >= 0]).tolist():
        in_fragment = fragments == at
        theirs = SystemColumns(there, at).of(UPDATED_AT, offsets[in_fragment])
        same[in_fragment] = theirs == versions[in_fragment]
    return fragments >= 0, same


def _rewritten(
    rewritten: RewrittenRows,
    here: Snapshot,
    there: Snapshot,
    positions: tuple[int, int],
    rows: Int64s,
) -> Flags:
    """Which of these rows have rewritten values."""
    if rewritten.by_version:
        mine = SystemColumns(here, positions[0]).of(UPDATED_AT, rows)
        flags: Flags = mine != SystemColumns(there, positions[1]).of(UPDATED_AT, rows)
        return flags
    if rewritten.offsets is None:
        return np.ones(len(rows), np.bool_)
    return np.isin(rows, offsets_of(rewritten.offsets, here.manifest.where))
