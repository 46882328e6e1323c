"""Lists as one array of values with the bounds of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from glaive.expr.compare import distinct
from glaive.expr.functions.untyped import pa, pc

__all__ = ["ListParts", "bracketed"]


@dataclass(frozen=True, slots=True)
class ListParts:
    """The values of all rows, and where each row's begin.

    Parameters
    ----------
    values
        Of the rows that are not null, one after the other.
    begin, sizes
        Of each row; a null row has none. Shape ``(rows,)``.
    rows
        The row of each value. Shape ``(values,)``.
    """

    values: Any
    begin: Any
    sizes: Any
    rows: Any

    @classmethod
    def of(cls, lists: Any) -> ListParts:
        """Take an array of lists or of maps apart."""
        sizes = lists.offsets.to_numpy()
        sizes = np.diff(sizes).astype(np.int64)
        sizes[lists.is_null().to_numpy(zero_copy_only=False)] = 0
        values = lists.keys if pa.types.is_map(lists.type) else lists.flatten()
        begin = np.cumsum(sizes) - sizes
        return cls(values, begin, sizes, np.repeat(np.arange(len(lists)), sizes))

    def compare(self, wanted: Any) -> Any:
        """Return which values equal a constant, or the value of their row."""
        if not isinstance(wanted, pa.Scalar):
            wanted = wanted.take(pa.array(self.rows))
        if pa.types.is_nested(self.values.type):
            return pc.invert(distinct(self.values, wanted))
        return pc.equal(self.values, wanted)

    def any_of(self, chosen: Any) -> Any:
        """Return which rows have a value that is chosen; null counts as not."""
        mask = pc.fill_null(chosen, False).to_numpy(zero_copy_only=False)
        return np.bincount(self.rows[mask], minlength=len(self.sizes)) > 0


def bracketed(texts: Any, sizes: Any, separator: str) -> Any:
    """Texts between brackets, of which each row has ``sizes``; as ``large_string``."""
    signs = (separator, "[", "]", "")
    between, begin, end, nothing = (pa.scalar(sign, pa.large_string()) for sign in signs)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64())
    lists = pa.LargeListArray.from_arrays(offsets, texts.cast(pa.large_string()))
    return pc.binary_join_element_wise(begin, pc.binary_join(lists, between), end, nothing)
