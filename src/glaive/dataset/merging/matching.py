"""Match rows by keys: for each row, the row of the source with the same key.

Keys have one or more columns. A key with a null in one of its columns matches nothing; a null
within a struct or a list is a value like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataset.merging.key_values import Combined, key_values

__all__ = ["SourceKeys"]

Int64s = NDArray[np.int64]


class SourceKeys:
    """The keys of a source, ready to be looked up.

    Parameters
    ----------
    names
        Names of the key columns, for messages.
    columns
        The key columns, one array each, of equal length.

    Raises
    ------
    SchemaError
        The values of a column cannot be compared.
    """

    def __init__(self, names: Sequence[str], columns: Sequence[pa.Array]) -> None:
        self.names = tuple(names)
        self.columns = tuple(columns)
        self.rows = len(columns[0])
        self.values = [
            key_values(name, column) for name, column in zip(names, columns, strict=True)
        ]
        self._combined = Combined([(value.codes, value.size) for value in self.values])

    @cached_property
    def first_rows(self) -> Int64s:
        """For each source row the first one with the same key; -1 if the key has a null."""
        return self._without_nulls(self._combined.codes, [value.codes for value in self.values])

    @cached_property
    def repeated(self) -> NDArray[np.bool_]:
        """Which source rows share their key with another one."""
        first = self.first_rows
        known = first >= 0
        counts = np.bincount(first[known], minlength=len(first))
        repeated = np.zeros(len(first), np.bool_)
        repeated[known] = counts[first[known]] > 1
        return repeated

    def find(self, columns: Sequence[Any]) -> Int64s:
        """The first source row with the key of each row; -1 for none."""
        parts = [values.find(column) for values, column in zip(self.values, columns, strict=True)]
        return self._without_nulls(self._combined.find(parts), parts)

    def text(self, row: int) -> str:
        """The key of a source row, for messages."""
        columns = zip(self.names, self.columns, strict=True)
        return ", ".join(f"{name} = {column[row].as_py()!r}" for name, column in columns)

    def _without_nulls(self, rows: Int64s, parts: Sequence[Int64s]) -> Int64s:
        rows = rows.copy()
        for values, codes in zip(self.values, parts, strict=True):
            rows[codes == values.size - 1] = -1
        return rows
