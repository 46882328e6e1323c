"""Lists as one array of values, and the range of each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from glaive.arrow.chunked import decode_dictionary
from glaive.dataclass import dataclass
from glaive.expr.compare import compare, same
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import repeat
from glaive.expr.sizes import check_list_items


@dataclass(frozen=True, slots=True)
class ListParts:
    """The values of all rows, and the range of each row.

    Parameters
    ----------
    values
        Values of the rows that are not null, one row after the other; no dictionaries.
    begin, sizes
        Start and number of values of each row; a null row has none. Shape ``(rows,)``.
    rows
        The row of each value. Shape ``(values,)``.
    """

    values: Any
    begin: Any
    sizes: Any
    rows: Any

    @classmethod
    def of(cls, lists: Any) -> ListParts:
        """Split an array of lists or maps.

        Raises
        ------
        CapacityError
            They have many items: process fewer rows at a time.
        FilterError
            One row has too many.
        """
        sizes = sizes_of(lists)
        check_list_items(int(sizes.sum()), len(lists))
        values = lists.keys if pa.types.is_map(lists.type) else lists.flatten()
        if pa.types.is_dictionary(values.type):  # as single values are
            values = decode_dictionary(values)
        begin = np.cumsum(sizes) - sizes
        return cls(values, begin, sizes, np.repeat(np.arange(len(lists)), sizes))

    def compare(self, wanted: Any) -> Any:
        """Return which values equal a constant, or the value of their row in an array."""
        constant = isinstance(wanted, pa.Scalar)
        if constant and not pa.types.is_nested(self.values.type):
            return compare("=", self.values, wanted)
        rows = np.zeros_like(self.rows) if constant else self.rows
        return pa.array(same(self.values, repeat(wanted, 1) if constant else wanted, rows))

    def any_of(self, chosen: Any) -> Any:
        """Return which rows have a value for which the mask ``chosen`` is true."""
        mask = pc.fill_null(chosen, False).to_numpy(zero_copy_only=False)
        return np.bincount(self.rows[mask], minlength=len(self.sizes)) > 0


def sizes_of(lists: Any) -> Any:
    """The number of values of each list or map; a null row has none. Shape ``(rows,)``."""
    sizes = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    sizes[lists.is_null().to_numpy(zero_copy_only=False)] = 0
    return sizes


def bracketed(texts: Any, sizes: Any, separator: str) -> Any:
    """The texts of each row (``sizes`` of them) in brackets, as ``large_string``."""
    signs = (separator, "[", "]", "")
    between, begin, end, nothing = (pa.scalar(sign, pa.large_string()) for sign in signs)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64())
    lists = pa.LargeListArray.from_arrays(offsets, texts.cast(pa.large_string()))
    return pc.binary_join_element_wise(begin, pc.binary_join(lists, between), end, nothing)


def lists_of(items: Any, offsets: Any, kind: Any) -> Any:
    """Build an array of a list or large list type from its items and offsets."""
    large = pa.types.is_large_list(kind)
    array_class = pa.LargeListArray if large else pa.ListArray
    return array_class.from_arrays(
        pa.array(offsets, pa.int64() if large else pa.int32()), items, type=kind
    )
