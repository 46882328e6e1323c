"""BITMAP and LABEL_LIST, searched: the sets of the keys that pass are read, and joined.

Specification: "BITMAP" and "LABEL_LIST" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from glaive.arrow.conditions import IsNull, IsOneOf
from glaive.index.protocol import Candidates, ScalarIndex
from glaive.index.queries import HasLabels, IndexQuery
from glaive.index.row_set import RowSet
from glaive.index.scalar.key_sets import KeySets

__all__ = ["OpenedBitmap", "OpenedLabelList"]


class OpenedBitmap(ScalarIndex):
    """All values, and the rows of each.

    Parameters
    ----------
    key_sets
        The values.
    """

    def __init__(self, key_sets: KeySets) -> None:
        self._keys = key_sets

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self._keys.nbytes

    def answers(self, query: IndexQuery) -> bool:
        """Whether it is a condition on values of this type; nulls may be unknown."""
        is_known = self._keys.has_nulls or not isinstance(query, IsNull)
        return is_known and self._keys.accepts(query)

    def estimate(self, query: IndexQuery) -> int:
        """Rows of the keys that pass, by the bytes of their sets."""
        condition: Any = query
        return self._keys.estimate(self._keys.select(condition))

    def compared(self, query: IndexQuery) -> int:
        """Keys whose rows are joined."""
        condition: Any = query
        return len(self._keys.select(condition))

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows, exactly unless nulls are unknown. One read of the sets at most."""
        condition: Any = query
        rows = self._keys.rows(self._keys.select(condition))
        if not nulls:
            return Candidates(rows, None, exact=True)
        return Candidates(rows, self._unknown(condition), exact=self._keys.has_nulls)

    def _unknown(self, condition: Any) -> RowSet:
        """Rows for which a condition is null."""
        if isinstance(condition, IsNull):
            return NO_ROWS
        if isinstance(condition, IsOneOf) and condition.values.null_count:
            # What is not equal to a known value may be equal to the null.
            equal = self._keys.select(IsOneOf(condition.values.drop_null()))
            return self._keys.rows(np.setdiff1d(np.arange(len(self._keys.keys)), equal))
        return self._keys.rows(self._keys.select(IsNull()))


class OpenedLabelList(ScalarIndex):
    """All items of lists, and the rows with a list that has each.

    Parameters
    ----------
    key_sets
        The items.
    null_lists
        Rows whose list is null; None if an old writer did not say.
    """

    def __init__(self, key_sets: KeySets, null_lists: RowSet | None) -> None:
        self._keys, self._null_lists = key_sets, null_lists

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self._keys.nbytes + (0 if self._null_lists is None else self._null_lists.nbytes)

    def answers(self, query: IndexQuery) -> bool:
        """Whether it asks for items of this type, or for lists that are null."""
        if isinstance(query, IsNull):
            return self._null_lists is not None and not query.negated
        if not isinstance(query, HasLabels):
            return False
        values = query.values
        same_type = bool(values.type == self._keys.keys.type)
        return same_type and len(values) > 0 and not values.null_count

    def estimate(self, query: IndexQuery) -> int:
        """Rows of the items that are asked for, by the bytes of their sets."""
        if isinstance(query, HasLabels):
            at = self._keys.select(IsOneOf(query.values))
            rows = self._keys.estimate(at)
            return rows // max(1, len(at)) if query.every else rows
        return 0 if self._null_lists is None else self._null_lists.count

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows, exactly unless it is not known which lists are null."""
        unknown = self._null_lists
        if not isinstance(query, HasLabels):
            return Candidates(unknown or NO_ROWS, NO_ROWS if nulls else None, exact=True)
        at = self._keys.select(IsOneOf(query.values))
        if not query.every:
            rows = self._keys.rows(at)
        elif len(at) < len(query.values.unique()):
            rows = NO_ROWS
        else:
            # Two sets at a time: a query may have any number of items.
            rows = reduce(_in_both, self._keys.rows_of_each(at))
        if not nulls:
            return Candidates(rows, None, exact=True)
        return Candidates(rows, unknown or NO_ROWS, exact=unknown is not None)


def _in_both(first: RowSet, second: RowSet) -> RowSet:
    return RowSet.intersection([first, second])


NO_ROWS = RowSet(np.empty(0, np.uint64), np.empty(0, np.uint64))
