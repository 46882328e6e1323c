"""From stable row ids to rows: which fragment holds a row, and where in it.

Ids are looked up in the segments of the fragments' sequences. Ranges, which is what most are,
are kept as bounds in arrays; another segment is taken apart only when its bounds say that an
id may be in it. So nothing is done per row, and where all fragments are ranges nothing per
fragment either.

A row that was updated has its old copy, which is deleted, and the new one under one id.

Specification: "Row ids" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.manifest import Manifest
from glaive.format.row_segments import RowSegments, read_segments
from glaive.format.rowids import RowValues

__all__ = ["RowIdIndex", "created_at"]

Int64s = NDArray[np.int64]


class RowIdIndex:
    """Where the rows of one version are, by row id. Safe to share between threads.

    Parameters
    ----------
    manifest
        A version with stable row ids.
    column
        Row ids of the fragment at a position, for fragments that keep them as a hidden
        column of their files.
    """

    def __init__(
        self, manifest: Manifest, column: Callable[[int], NDArray[np.uint64]] | None = None
    ) -> None:
        self._manifest = manifest
        self._column = column

    @cached_property
    def segments(self) -> RowSegments:
        """Bounds of all segments, made when they are first asked for."""
        return read_segments(self._manifest.columns, self._manifest.where, self._column)

    def candidates(self, ids: NDArray[np.uint64]) -> tuple[Int64s, Int64s, Int64s]:
        """All physical rows with these ids, deleted ones included.

        Parameters
        ----------
        ids
            Ascending, each once.

        Returns
        -------
        tuple
            Position in ``ids``, position of the fragment in the list, and physical row in
            it; in no order. An id without a row is not there.
        """
        return self.segments.find(ids)

    def locate(
        self,
        ids: NDArray[np.uint64],
        deleted: Callable[[int], NDArray[np.integer] | None],
        *,
        keep_deleted: bool = False,
    ) -> tuple[Int64s, Int64s]:
        """The live row of each id; repeats allowed.

        Parameters
        ----------
        ids
            In any order. Shape ``(n,)``.
        deleted
            Deleted rows of the fragment at a position, ascending; asked only for fragments
            that have a deletion file and one of the ids.
        keep_deleted
            Find a deleted row where no live one has the id.

        Returns
        -------
        tuple
            Position of the fragment in the list, -1 where no row has the id, and physical
            row in it. Shape ``(n,)`` each.
        """
        wanted, back = np.unique(ids, return_inverse=True)
        which, fragment, row = self.candidates(wanted)
        live = np.ones(len(row), np.bool_)
        with_file = self._manifest.deleted_rows[fragment] != 0
        for position in np.unique(fragment[with_file]).tolist():
            gone = deleted(position)
            if gone is not None and len(gone):
                here = np.flatnonzero(fragment == position)
                live[here] = ~np.isin(row[here], gone)
        fragments = np.full(len(wanted), -1, np.int64)
        rows = np.zeros(len(wanted), np.int64)
        for chosen in (~live, live) if keep_deleted else (live,):  # live ones last: they stay
            fragments[which[chosen]], rows[which[chosen]] = fragment[chosen], row[chosen]
        return fragments[back], rows[back]


def created_at(
    manifest: Manifest,
    lineage: Mapping[int, tuple[NDArray[np.uint64], NDArray[np.uint64]]],
    ids: NDArray[np.uint64],
) -> NDArray[np.uint64]:
    """Versions in which the rows with these ids were created.

    Parameters
    ----------
    lineage
        Row ids and creation by fragment id, for fragments that keep them in their files.

    Raises
    ------
    CorruptFileError
        A row id is not in this version.
    """
    wanted, back = np.unique(ids, return_inverse=True)
    known = manifest.fragment_ids.tolist()
    nothing = np.empty(0, np.uint64)

    def column(position: int) -> NDArray[np.uint64]:
        found = lineage.get(known[position])
        return nothing if found is None else found[0]

    which, fragment, row = RowIdIndex(manifest, column).candidates(wanted)
    versions = np.zeros(len(wanted), np.uint64)
    missing = np.ones(len(wanted), np.bool_)
    for position in np.unique(fragment).tolist():
        here = fragment == position
        hidden = lineage.get(known[position])
        of_fragment = (
            _created(manifest, position) if hidden is None else RowValues.listed(hidden[1])
        )
        if of_fragment is not None:
            versions[which[here]] = of_fragment.at(row[here])
            missing[which[here]] = False
    if missing.any():
        raise CorruptFileError(
            "row ids of updated rows",
            expected="ids of rows there are",
            found=f"{wanted[missing][0]}",
            where=manifest.where,
        )
    return versions[back]


def _created(manifest: Manifest, position: int) -> RowValues | None:
    """Creation of the rows of a fragment; ``None`` if its files tell, and it is not needed."""
    fragment = manifest.fragment_wire(position)
    if fragment.HasField("column_created_at_versions"):
        return None
    data = fragment.inline_created_at_versions
    if not data:  # older releases kept no versions: all rows are as old as the dataset
        return RowValues.constant(1, fragment.physical_rows)
    where = f"{manifest.where}, fragment {fragment.id}"
    return RowValues.of_versions(data, fragment.physical_rows, where=where)
