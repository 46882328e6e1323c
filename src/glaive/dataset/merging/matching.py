"""Match rows by their keys: for each row, the row of the source with the same key.

Keys are whole rows of one or more columns. A key with a null in one of its columns matches
nothing; a null within a struct or a list is a value like others.
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
        Of the key columns, for messages.
    columns
        The key columns, one array each, of equal length.

    Raises
    ------
    SchemaError
        A column is of a type whose values cannot be compared.
    """

    def __init__(self, names: Sequence[str], columns: Sequence[pa.Array]) -> None:
        self.names = tuple(names)
        self.columns = tuple(columns)
        self.rows = len(columns[0])
        self.values = [key_values(name, one) for name, one in zip(names, columns, strict=True)]
        self._combined = Combined([(value.codes, value.size) for value in self.values])

    @cached_property
    def first_rows(self) -> Int64s:
        """For each source row the first one with its key; -1 where it has a null."""
        return self._without_nulls(self._combined.codes, [value.codes for value in self.values])

    @cached_property
    def repeated(self) -> NDArray[np.bool_]:
        """Which source rows have a key that another one has as well."""
        first = self.first_rows
        known = first >= 0
        counts = np.bincount(first[known], minlength=len(first))
        found = np.zeros(len(first), np.bool_)
        found[known] = counts[first[known]] > 1
        return found

    def find(self, columns: Sequence[Any]) -> Int64s:
        """The first source row with the key of each row; -1 for none."""
        parts = [one.find(column) for one, column in zip(self.values, columns, strict=True)]
        return self._without_nulls(self._combined.find(parts), parts)

    def text(self, row: int) -> str:
        """The key of a source row, for messages."""
        shown = (
            f"{name} = {column[row].as_py()!r}"
            for name, column in zip(self.names, self.columns, strict=True)
        )
        return ", ".join(shown)

    def _without_nulls(self, rows: Int64s, parts: Sequence[Int64s]) -> Int64s:
        found = rows.copy()
        for one, codes in zip(self.values, parts, strict=True):
            found[codes == one.size - 1] = -1
        return found
