"""Exact search: the distance of every row that passes, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from glaive.dataclass import dataclass
from glaive.scan.filter.scan import FilteredScan
from glaive.scan.filter.selection import FragmentSelection
from glaive.scan.nearest.batch import BatchSearch
from glaive.scan.nearest.loaded import LoadedVectors, load_vectors
from glaive.scan.nearest.top import TopRows, nearest_of
from glaive.scan.nearest.vector_query import VectorQuery
from glaive.scan.projection import Output

__all__ = ["ExactSearch"]

_BATCH_QUERIES: Final = 4
"""Queries from which on a matrix product is quicker than one query after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class ExactSearch:
    """A search that looks at every vector.

    Parameters
    ----------
    scan
        Which rows are looked at; its projection has the row id.
    output
        The column with the vectors, within the projection.
    query
        What is searched for.
    """

    scan: FilteredScan
    output: Output
    query: VectorQuery

    def find(self, top: TopRows) -> None:
        """Add the nearest rows. Memory: windows of vectors of files that must be fetched."""
        query = self.query
        if query.answers >= _BATCH_QUERIES and BatchSearch.is_possible(query):
            batch = BatchSearch(query, top, self.scan.run.meter)
            deque(self.scan.map(lambda rows: self._each(rows, batch.search), stream=False), 0)
        else:
            one = partial(self._search, top)
            deque(self.scan.map(lambda rows: self._each(rows, one), stream=False), 0)

    def _each(self, selection: FragmentSelection, search: Callable[[LoadedVectors], None]) -> None:
        """Search the vectors of some rows, part by part."""
        position = selection.bound.position
        for loaded in load_vectors(selection, self.output, self.query.kind, position):
            search(loaded)
        self.scan.run.meter.count("vectors_compared", selection.count * self.query.answers)

    def _search(self, top: TopRows, loaded: LoadedVectors) -> None:
        for query in range(self.query.answers):
            distances = self.query.distances(loaded.vectors, query)
            if loaded.kept is not None:
                distances = distances[loaded.kept]
            near = nearest_of(distances, self.query.count, float(top.limits[query]))
            if len(near):
                numbers = near if loaded.kept is None else loaded.kept[near]
                number = np.full(len(near), query, np.int32)
                top.add(loaded.found(number, numbers, distances[near]))
