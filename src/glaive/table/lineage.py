"""Load the row lineage of a fragment: row ids and row versions.

It is usually stored in the manifest. Large fragments may store it in hidden columns of their data
files, without nulls: fields -3 (row ids), -4 (created at) and -5 (last updated at).

Specification: "Row ids" in ``docs/format``.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.file.open import open_reader
from glaive.file.protocol import BoundColumn
from glaive.format.field import Field
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest
from glaive.format.rowids import RowValues
from glaive.io.store import ObjectStore
from glaive.table.bases import locate_data_file
from glaive.types import Int64s, UInt64s

__all__ = ["Lineage", "load_lineage"]

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
_FIRST_VERSION: Final = 1
"""Version of rows that were written by releases without row versions."""


def load_lineage(
    store: ObjectStore, manifest: Manifest, fragment: Fragment, kind: Lineage
) -> RowValues:
    """One value per physical row. No request if they are in the manifest.

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
        return RowValues.constant(_FIRST_VERSION, rows)
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
    """The numbers of a hidden column, decoded when they are asked for: a few bytes can stand for
    all of them.
    """

    __slots__ = ("_column", "_where")

    def __init__(self, column: BoundColumn, where: str) -> None:
        self._column, self._where = column, where

    def at(self, positions: Int64s) -> UInt64s:
        """Those at some positions."""
        return self._checked(self._column.take(positions))

    def between(self, first: int, stop: int) -> UInt64s:
        """Those from one position up to before another."""
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
