"""Vectors of some rows of a fragment, and which rows they are of."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.kernels.distances import ELEMENTS
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

_PIECE_BYTES: Final = 1 << 20
"""Bytes of vectors, about, from which on pages are read one by one."""


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
) -> Iterator[LoadedVectors]:
    """Read the vectors of selected rows: of the whole range, if most are selected.

    Without a copy where files are mapped and vectors lie plain in them: page by page.
    """
    selected, bound = selection.selected, selection.bound
    column = bound.stored[output.at]
    if selected.is_few(_TAKEN_SHARE):
        vectors = _vectors_of(column.take(selected.rows), output, kind)
        yield LoadedVectors(bound, position, vectors, selected.rows)
        return
    offsets = None if selected.count == selected.span else selected.offsets
    pages = column.cuts() if bound.mapped else np.empty(0, np.int64)
    for start, stop in pairwise(_pieces(pages, selected.start, selected.stop, kind)):
        kept: Int64s | None = None
        if offsets is not None:
            before = start - selected.start
            first, end = np.searchsorted(offsets, (before, stop - selected.start)).tolist()
            kept = offsets[first:end] - before
            if first == end:
                continue
        vectors = _vectors_of(column.read(start, stop), output, kind)
        yield LoadedVectors(bound, position, vectors, start, kept)


def _pieces(pages: Int64s, start: int, stop: int, kind: VectorType) -> list[int]:
    """Where to divide a range: at beginnings of pages, those of many small ones left out."""
    inner = pages[(pages > start) & (pages < stop)]
    rows = max(1, _PIECE_BYTES // (kind.dimension * ELEMENTS[kind.element].itemsize))
    _, firsts = np.unique((inner - start) // rows, return_index=True)
    return [start, *inner[firsts].tolist(), stop]


def _vectors_of(array: Any, output: Output, kind: VectorType) -> RowVectors:
    for name in output.path:
        array = array.flatten()[array.type.get_field_index(name)]
    return row_vectors(array, kind)
