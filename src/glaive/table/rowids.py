"""Find rows by stable row id: their fragments and offsets.

Ids are looked up in the segments of the fragments' sequences. Ranges, the most common segments, are
stored as bounds in arrays. Other segments are decoded only if an id is within their bounds. So the
work is independent of the number of rows. If all segments are ranges, it is also independent of the
number of fragments.

The old, deleted copy of an updated row has the same id as the new copy.

Specification: "Row ids" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.file.open import open_reader
from glaive.file.protocol import BoundColumn
from glaive.format.field import Field
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest
from glaive.format.rowids import FIRST_VERSION, RowSegments, RowValues, read_segments
from glaive.io.store import ObjectStore
from glaive.table.root import locate_data_file
from glaive.types import Flags, Int64s, UInt64s


class RowIdIndex:
    """Row addresses of one version by row id. Safe to share between threads.

    Parameters
    ----------
    manifest
        A version with stable row ids.
    column
        Function that reads the row ids of the fragment at a position from the hidden column of its
        files.
    """

    def __init__(
        self, manifest: Manifest, column: Callable[[int], NDArray[np.uint64]] | None = None
    ) -> None:
        self._manifest = manifest
        self._column = column

    @cached_property
    def segments(self) -> RowSegments:
        """Bounds of all segments."""
        return read_segments(self._manifest.columns, self._manifest.where, self._column)

    def candidates(self, ids: NDArray[np.uint64]) -> tuple[Int64s, Int64s, Int64s]:
        """Find all physical rows with these ids, including deleted rows.

        Parameters
        ----------
        ids
            Ascending and unique.

        Returns
        -------
        tuple
            Positions in ``ids``, positions of the fragments in the list, and physical rows in the
            fragments, unordered. Unknown ids are omitted.
        """
        return self.segments.find(ids)

    def locate(
        self,
        ids: NDArray[np.uint64],
        is_deleted: Callable[[int, Int64s], Flags | None],
        *,
        keep_deleted: bool = False,
    ) -> tuple[Int64s, Int64s]:
        """Find the live row of each id. Ids may repeat.

        Parameters
        ----------
        ids
            In any order. Shape ``(n,)``.
        is_deleted
            Function that says which rows of the fragment at a position are deleted. It is called
            only for fragments that have a deletion file and one of the ids.
        keep_deleted
            Whether to return a deleted row if no live row has the id.

        Returns
        -------
        tuple
            Position of the fragment in the list, or -1 if no row has the id; and physical row in
            the fragment. Shape ``(n,)`` each.
        """
        wanted, back = np.unique(ids, return_inverse=True)
        fragments = np.full(len(wanted), -1, np.int64)
        rows = np.zeros(len(wanted), np.int64)
        found = np.zeros(len(wanted), np.bool_)
        for which, fragment, row in self.segments.find_parts(wanted):
            live = self._are_live(fragment, row, is_deleted)
            if keep_deleted:  # only until a live one is found
                deleted = ~live & ~found[which]
                fragments[which[deleted]], rows[which[deleted]] = fragment[deleted], row[deleted]
            fragments[which[live]], rows[which[live]] = fragment[live], row[live]
            found[which[live]] = True
        return fragments[back], rows[back]

    def _are_live(
        self, fragment: Int64s, row: Int64s, is_deleted: Callable[[int, Int64s], Flags | None]
    ) -> Flags:
        """Return which of some physical rows are live."""
        live = np.ones(len(row), np.bool_)
        with_file = np.flatnonzero(self._manifest.deleted_rows[fragment] != 0)
        for position, at in _by_fragment(fragment[with_file]):
            in_fragment = with_file[at]
            deleted = is_deleted(position, row[in_fragment])
            if deleted is not None:
                live[in_fragment] = ~deleted
        return live


def created_at(
    manifest: Manifest,
    lineage: Mapping[int, tuple[NDArray[np.uint64], NDArray[np.uint64]]],
    ids: NDArray[np.uint64],
) -> NDArray[np.uint64]:
    """Return the versions that created the rows with these ids.

    Parameters
    ----------
    lineage
        Row ids and creation versions by fragment id, for fragments with hidden columns.

    Raises
    ------
    CorruptFileError
        A row id is missing in this version.
    """
    wanted, back = np.unique(ids, return_inverse=True)
    known = manifest.fragment_ids.tolist()

    def column(position: int) -> NDArray[np.uint64]:
        hidden = lineage.get(known[position])
        return np.empty(0, np.uint64) if hidden is None else hidden[0]

    versions = np.zeros(len(wanted), np.uint64)
    missing = np.ones(len(wanted), np.bool_)
    for which, fragment, row in RowIdIndex(manifest, column).segments.find_parts(wanted):
        for position, in_fragment in _by_fragment(fragment):
            hidden = lineage.get(known[position])
            listed = None if hidden is None else RowValues.listed(hidden[1])
            created = _created(manifest, position) if listed is None else listed
            if created is not None:
                versions[which[in_fragment]] = created.at(row[in_fragment])
                missing[which[in_fragment]] = False
    if missing.any():
        raise CorruptFileError(
            "row ids of updated rows",
            expected="ids of existing rows",
            found=f"{wanted[missing][0]}",
            where=manifest.where,
        )
    return versions[back]


def _by_fragment(fragment: Int64s) -> Iterator[tuple[int, Int64s]]:
    """Yield each fragment, ascending, with the indices of its entries. Cost: one sort."""
    order = np.argsort(fragment, kind="stable")
    edges = np.flatnonzero(np.diff(fragment[order])) + 1
    for at in np.split(order, edges):
        if len(at):
            yield int(fragment[at[0]]), at


def _created(manifest: Manifest, position: int) -> RowValues | None:
    """Return creation versions; ``None`` if they are in the files and unneeded."""
    fragment = manifest.fragment_wire(position)
    if fragment.HasField("column_created_at_versions"):
        return None
    data = fragment.inline_created_at_versions
    if not data:  # older releases lacked row versions
        return RowValues.constant(1, fragment.physical_rows)
    where = f"{manifest.where}, fragment {fragment.id}"
    return RowValues.of_versions(data, fragment.physical_rows, where=where)


# --- Load the row lineage of a fragment: row ids and row versions -----------------------
# It is usually stored in the manifest. Large fragments may store it in hidden columns of their
# data files, without nulls: fields -3 (row ids), -4 (created at) and -5 (last updated at).
#
# Specification: "Row ids" in ``docs/format``.

Lineage = Literal["row_ids", "created_at", "updated_at"]

_FIELDS: Final[dict[Lineage, Field]] = {
    "row_ids": Field(id=-3, name="_rowid", logical_type="uint64", nullable=False),
    "created_at": Field(
        id=-4, name="_row_created_at_version", logical_type="uint64", nullable=False
    ),
    "updated_at": Field(
        id=-5, name="_row_last_updated_at_version", logical_type="uint64", nullable=False
    ),
}


def load_lineage(
    store: ObjectStore, manifest: Manifest, fragment: Fragment, kind: Lineage
) -> RowValues:
    """Load one value per physical row, from the manifest or else from hidden columns.

    Raises
    ------
    CorruptFileError
        The values are missing, or their number is wrong.
    """
    where = f"{manifest.where}, fragment {fragment.id}"
    rows = fragment.physical_rows
    if _in_column(fragment, kind):
        return _from_column(store, manifest, fragment, _FIELDS[kind], where)
    if kind == "row_ids":
        return RowValues.of_row_ids(fragment.row_ids or b"", rows, where=where)
    data = fragment.created_at if kind == "created_at" else fragment.updated_at
    if data is None:
        return RowValues.constant(FIRST_VERSION, rows)
    return RowValues.of_versions(data, rows, where=where)


def _in_column(fragment: Fragment, kind: Lineage) -> bool:
    if kind == "row_ids":
        return fragment.row_ids_in_column
    return fragment.created_at_in_column if kind == "created_at" else fragment.updated_at_in_column


def _from_column(
    store: ObjectStore, manifest: Manifest, fragment: Fragment, field: Field, where: str
) -> RowValues:
    for entry in fragment.files:
        column = entry.column_of(field.id)
        if column is None:
            continue
        file_store, path = locate_data_file(store, manifest, entry)
        file = open_reader(file_store, path, size=entry.size)
        bound = file.bind([field], {field.id: column}, fragment.physical_rows)
        return RowValues.of_part(_HiddenColumn(bound.columns[0], where), fragment.physical_rows)
    raise CorruptFileError(
        f"column {field.name}",
        expected=f"field {field.id} in a data file, as the manifest says",
        found="none",
        where=where,
    )


class _HiddenColumn:
    """Numbers of a hidden column, decoded on access, because a few bytes may encode all of them."""

    __slots__ = ("_column", "_where")

    def __init__(self, column: BoundColumn, where: str) -> None:
        self._column, self._where = column, where

    def at(self, positions: Int64s) -> UInt64s:
        """Return the numbers at some positions."""
        return self._checked(self._column.take(positions))

    def between(self, first: int, stop: int) -> UInt64s:
        """Return the numbers from position ``first`` to before ``stop``."""
        return self._checked(self._column.read(first, stop))

    def _checked(self, values: pa.Array) -> UInt64s:
        if values.null_count:
            raise CorruptFileError(
                f"column {self._column.field.name}",
                expected="no nulls",
                found=f"{values.null_count}",
                where=self._where,
            )
        return np.asarray(values)
