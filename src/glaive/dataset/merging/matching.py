"""Match rows by their keys: for each target row, the source row with the same key.

Keys are whole rows of one or more columns. A key with a null matches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.errors import SchemaError

__all__ = ["SourceKeys"]

Int64s = NDArray[np.int64]

_DIRECT_SPREAD: Final = 1 << 26
"""Widest range of whole numbers that is looked up in a table by number: 256 MB of memory."""

_DIRECT_SHARE: Final = 512
"""Places of that table per key, at most."""


class SourceKeys:
    """The keys of a source, ready to be looked up.

    Parameters
    ----------
    names
        Of the key columns, for messages.
    columns
        The key columns, one array each, of equal length.
    """

    def __init__(self, names: Sequence[str], columns: Sequence[pa.Array]) -> None:
        self.names = tuple(names)
        self.rows = len(columns[0])
        self._tables = [_Values(name, one) for name, one in zip(names, columns, strict=True)]
        if len(columns) == 1:
            self._codes: Int64s | None = None
            self._last: _Values = self._tables[0]
            return
        self._codes = self._combined([one.codes for one in self._tables])
        valid = pa.array(self._codes >= 0)
        codes = pa.array(self._codes)
        self._last = _Values("keys", pc.if_else(valid, codes, pa.scalar(None, pa.int64())))

    @property
    def repeated(self) -> NDArray[np.bool_]:
        """Which source rows have a key that another one has as well."""
        return self._last.repeated

    def first_rows(self) -> Int64s:
        """For each source row the first one with its key; -1 where it has a null."""
        if self._codes is None:
            return self._last.first_rows(self._last.array)
        found = self._last.first_rows(pa.array(self._codes))
        found[self._codes < 0] = -1
        return found

    def find(self, columns: Sequence[pa.Array]) -> Int64s:
        """Number of the first source row with the key of each row; -1 for none."""
        if self._codes is None:
            return self._last.first_rows(columns[0])
        codes = [one.codes_of(column) for one, column in zip(self._tables, columns, strict=True)]
        together = self._combined(codes)
        found = self._last.first_rows(pa.array(together))
        found[together < 0] = -1
        return found

    def matches(self, columns: Sequence[pa.Array]) -> tuple[Int64s, Int64s]:
        """Which rows have a key of the source, ascending, and the first source row with it.

        Quicker than :meth:`find` where few do.
        """
        if self._codes is None:
            found = self._last.matches(columns[0])
            if found is not None:
                return found
        rows = self.find(columns)
        hits = np.flatnonzero(rows >= 0)
        return hits, rows[hits]

    def text(self, row: int) -> str:
        """The key of a source row, for messages."""
        shown = (
            f"{name} = {table.array[row].as_py()!r}"
            for name, table in zip(self.names, self._tables, strict=True)
        )
        return ", ".join(shown)

    def _combined(self, codes: Sequence[Int64s]) -> Int64s:
        """One number per row from one per column; -1 where any is negative."""
        sizes = [max(1, one.distinct) for one in self._tables]
        if np.prod([float(size) for size in sizes]) >= 2.0**62:
            raise SchemaError(
                f"the keys {', '.join(self.names)} have too many values to be matched together; "
                "match by fewer columns"
            )
        together = np.zeros(len(codes[0]), np.int64)
        missing = np.zeros(len(codes[0]), np.bool_)
        for part, size in zip(codes, sizes, strict=True):
            together = together * size + part
            missing |= part < 0
        together[missing] = -1
        return together


class _Values:
    """The values of one key column of the source."""

    def __init__(self, name: str, array: Any) -> None:
        array = _comparable(array)
        self.name, self.array = name, array
        self._low = 0
        self._direct: NDArray[np.int32] | None = None
        self._there: NDArray[np.bool_] | None = None
        self._distinct: Any = None
        if pa.types.is_integer(array.type) and len(array) > array.null_count:
            self._direct = self._table()

    def _table(self) -> NDArray[np.int32] | None:
        """First row by value, where values lie close enough together."""
        bounds: Any = pc.min_max(self.array).as_py()
        self._low = bounds["min"]
        spread = bounds["max"] - bounds["min"] + 1
        if spread > min(_DIRECT_SPREAD, _DIRECT_SHARE * (len(self.array) + 1024)):
            return None
        table = np.full(spread + 1, -1, np.int32)  # the last place is that of all others
        rows = np.flatnonzero(_valid(self.array))[::-1].astype(np.int32)
        # the first row is written last
        table[_distances(_numbers(self.array)[rows], self._low)] = rows
        return table

    def first_rows(self, values: Any) -> Int64s:
        """First source row with each value; -1 for none."""
        values = _comparable(values)
        if self._direct is not None:
            numbers = _numbers(values)
            low, last = self._low, len(self._direct) - 1
            inside = (numbers >= low) & (numbers < low + last)
            if values.null_count:
                inside &= _valid(values)
            places = np.where(inside, _distances(numbers, low), last)
            return self._direct[places].astype(np.int64)
        return self._indices(values, self.array)

    def matches(self, values: Any) -> tuple[Int64s, Int64s] | None:
        """Which rows have a value, and the first source row with it; None without a table."""
        if self._direct is None:
            return None
        values = _comparable(values)
        numbers = _numbers(values)
        if self._there is None:
            self._there = self._direct >= 0
        last = len(self._direct) - 1
        # Those below the lowest wrap around to a distance beyond the last.
        places = _wrapped(numbers, self._low)
        if last <= np.iinfo(places.dtype).max:
            places = np.minimum(places, places.dtype.type(last))
        # Numbers below 2^63: a view is as good as a copy.
        places = places.view(np.int64) if places.itemsize == 8 else places
        found = self._there[places]
        if values.null_count:
            found &= _valid(values)
        hits = np.flatnonzero(found)
        return hits, self._direct[places[hits]].astype(np.int64)

    def _indices(self, values: Any, among: Any) -> Int64s:
        try:
            found = pc.index_in(values, value_set=among, skip_nulls=True)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SchemaError(
                f"rows cannot be matched by column {self.name!r} of type {self.array.type}: {error}"
            ) from error
        numbers: Int64s = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers

    @property
    def distinct(self) -> int:
        """Values that differ."""
        return len(self._values_once())

    def _values_once(self) -> Any:
        if self._distinct is None:
            self._distinct = pc.unique(self.array)
        return self._distinct

    @property
    def codes(self) -> Int64s:
        """Number of the value of each source row; -1 for null."""
        return self.codes_of(self.array)

    def codes_of(self, values: Any) -> Int64s:
        """Number of each value among those of the source; -1 for null and for others."""
        return self._indices(_comparable(values), self._values_once())

    @property
    def repeated(self) -> NDArray[np.bool_]:
        """Rows whose value stands in another row as well."""
        first = self.first_rows(self.array)
        counts = np.bincount(first[first >= 0], minlength=len(first) or 1)
        found = np.zeros(len(first), np.bool_)
        known = first >= 0
        found[known] = counts[first[known]] > 1
        return found


def _comparable(array: Any) -> Any:
    """The values in a type that can be looked up."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def _distances(numbers: Any, low: int) -> Int64s:
    """How far whole numbers are above ``low``; anything for those below."""
    distances: Int64s = _wrapped(numbers, low).astype(np.int64)
    return distances


def _wrapped(numbers: Any, low: int) -> Any:
    """The same in the unsigned type: the distance of two small integers may not fit their own."""
    unsigned = np.dtype(f"u{numbers.dtype.itemsize}")
    start = np.array(low, numbers.dtype).view(unsigned)
    return numbers.view(unsigned) - start


def _valid(array: Any) -> NDArray[np.bool_]:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    mask: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _numbers(array: Any) -> Any:
    """Whole numbers as numpy has them; anything where they are null."""
    if array.null_count:
        array = pc.fill_null(array, 0)
    return array.to_numpy(zero_copy_only=False)
