"""Vectors of some rows of a fragment, and which rows they are of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.scan.bound import BoundFragment
from glaive.scan.filter.selection import FragmentSelection
from glaive.scan.nearest.top import Found
from glaive.scan.nearest.vectors import RowVectors, VectorType, row_vectors
from glaive.scan.projection import Output
from glaive.scan.system_columns import ROW_ID
from glaive.types import Float32s, Int64s

__all__ = ["LoadedVectors", "load_vectors"]

_TAKEN_SHARE: Final = 0.12
"""Share of the rows of a range up to which their vectors are taken one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedVectors:
    """Vectors of a fragment.

    Parameters
    ----------
    position
        Of the fragment in the list.
    rows
        Physical row of each vector; or that of the first, where one follows the other.
    kept
        Numbers of the vectors that are searched, ascending; None: all.
    """

    bound: BoundFragment
    position: int
    vectors: RowVectors
    rows: Int64s | int
    kept: Int64s | None = None

    def found(self, query: NDArray[np.int32], numbers: Int64s, distances: Float32s) -> Found:
        """Vectors by their numbers, as rows that were found."""
        rows = self.rows + numbers if isinstance(self.rows, int) else self.rows[numbers]
        keys = self.bound.system_columns.of(ROW_ID, rows)
        return Found(query, distances, keys, np.full(len(rows), self.position, np.int64), rows)


def load_vectors(
    selection: FragmentSelection, output: Output, kind: VectorType, position: int
) -> LoadedVectors:
    """Read the vectors of selected rows: of the whole range, if most are selected.

    Without a copy where files are mapped and vectors lie plain in them.
    """
    selected = selection.selected
    column = selection.bound.stored[output.at]
    rows: Int64s | int = selected.start
    kept: Int64s | None = None
    array: Any
    if selected.is_few(_TAKEN_SHARE):
        rows = selected.rows
        array = column.take(rows)
    else:
        array = column.read(selected.start, selected.stop)
        kept = None if selected.count == selected.span else selected.offsets
    for name in output.path:
        array = array.flatten()[array.type.get_field_index(name)]
    return LoadedVectors(selection.bound, position, row_vectors(array, kind), rows, kept)
