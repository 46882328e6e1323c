"""Lists as one array of values with the bounds of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.expr.functions.coercion import refuse
from glaive.expr.functions.registry import Call

__all__ = ["ListParts", "list_type"]


def list_type(call: Call, number: int) -> Any:
    """Return the list type an argument is cast to; fixed-size lists become lists."""
    kind = call.types[number]
    if pa.types.is_large_list(kind):
        return pa.large_list(pa.field("item", kind.value_type))
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("item", kind.value_type))
    if pa.types.is_null(kind):
        return pa.list_(pa.field("item", pa.null()))
    raise refuse(call, number, "a list")


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
        if pa.types.is_map(lists.type):
            values = lists.keys
        else:
            values = lists.flatten()
        begin = np.cumsum(sizes) - sizes
        return cls(values, begin, sizes, np.repeat(np.arange(len(lists)), sizes))

    def compare(self, wanted: Any) -> Any:
        """Return which values equal a constant, or the value of their row."""
        if not isinstance(wanted, pa.Scalar):
            wanted = wanted.take(pa.array(self.rows))
        if pa.types.is_nested(self.values.type):
            other = wanted.as_py() if isinstance(wanted, pa.Scalar) else None
            others = wanted.to_pylist() if other is None else [other] * len(self.values)
            pairs = zip(self.values.to_pylist(), others, strict=True)
            return pa.array([one == two for one, two in pairs], pa.bool_())
        return pc.equal(self.values, wanted)

    def any_of(self, chosen: Any) -> Any:
        """Return which rows have a value that is chosen; null counts as not."""
        mask = pc.fill_null(chosen, False).to_numpy(zero_copy_only=False)
        return np.bincount(self.rows[mask], minlength=len(self.sizes)) > 0
