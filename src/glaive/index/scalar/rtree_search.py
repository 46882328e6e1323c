"""RTREE, searched: geometries that are null.

Filters have no functions of geometries, so that nothing else is asked of it.

Specification: "RTREE" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.arrow.conditions import IsNull
from glaive.index.protocol import Candidates, ScalarIndex
from glaive.index.queries import IndexQuery
from glaive.index.row_set import RowSet

__all__ = ["OpenedRTree"]


class OpenedRTree(ScalarIndex):
    """The rows whose geometry is null.

    Parameters
    ----------
    nulls
        These rows.
    """

    def __init__(self, nulls: RowSet) -> None:
        self._nulls = nulls

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self._nulls.nbytes

    def answers(self, query: IndexQuery) -> bool:
        """Whether it asks for nulls."""
        return isinstance(query, IsNull) and not query.negated

    def estimate(self, query: IndexQuery) -> int:
        """How many are null."""
        return self._nulls.count

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """The rows that are null, exactly."""
        return Candidates(self._nulls, _NO_ROWS if nulls else None, exact=True)


_NO_ROWS = RowSet(np.empty(0, np.uint64), np.empty(0, np.uint64))
