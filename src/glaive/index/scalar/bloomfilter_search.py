"""BLOOMFILTER, searched: zones whose filter has none of the values are left out.

Specification: "BLOOMFILTER" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.conditions import InRange, IsNull, IsOneOf
from glaive.format.split_blocks import BLOCK_BYTES
from glaive.index.protocol import Candidates, ScalarIndex
from glaive.index.queries import IndexQuery
from glaive.index.row_set import RowSet
from glaive.index.scalar.block_filters import hash_values, is_hashed, may_have
from glaive.index.scalar.zones import StoredZones
from glaive.index.segment import IndexFile
from glaive.memory import items_of
from glaive.types import Flags, UInt64s

__all__ = ["OpenedBloomFilter"]

_RESIDENT_BYTES = 1 << 26
"""Filters of files up to this size are read when they are opened."""

_WINDOW_BYTES = 1 << 24
"""Of larger files, so much is read at a time."""

_MAX_VALUES, _MAX_ZONES = 64, 1 << 12
"""Values that are looked for at a time, and in so many zones: 32 bytes for each value and zone."""


class OpenedBloomFilter(ScalarIndex):
    """The zones, and their filters if they are small.

    Parameters
    ----------
    file
        The file of the filters.
    zones
        Where they are.
    """

    def __init__(self, file: IndexFile, zones: StoredZones) -> None:
        self._file, self._zones = file, zones
        self._type: pa.DataType | None = None
        self._is_column = True
        has_null: Any = file.read(["has_null"])["has_null"].combine_chunks()
        file.check_present(has_null)
        self._has_null = np.asarray(has_null)
        self._filters = self._read(0, file.num_rows) if file.size <= _RESIDENT_BYTES else None

    def of_members(self, kind: pa.DataType | None) -> OpenedBloomFilter:
        """Answer for members of documents, which are of this type; None: only for nulls.

        A filter of 7.0 or of '7' does not have 7, though a function reads 7 in all of them.
        """
        self._is_column, self._type = False, kind
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        filters = 0 if self._filters is None else self._filters.nbytes
        return int(self._zones.nbytes + self._has_null.nbytes + self._file.nbytes + filters)

    def answers(self, query: IndexQuery) -> bool:
        """Whether it asks for some values, or for nulls."""
        if isinstance(query, IsNull):
            return not query.negated
        values = _values(query)
        if values is None or not (self._is_column or values.type == self._type):
            return False
        return is_hashed(values.type)

    def estimate(self, query: IndexQuery) -> int:
        """Rows of the zones with nulls; of others, of as many zones as there are values."""
        if isinstance(query, IsNull):
            known = self._zones.nulls
            return self._zones.count(self._has_null) if known is None else known.count
        values = _values(query)
        count = len(self._has_null)
        share = min(1.0, len(values) / max(1, count))
        return int(self._zones.count(self._zones.every) * share)

    def compared(self, query: IndexQuery) -> int:
        """All zones."""
        return len(self._has_null)

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find zones that may have a value; nulls are known exactly."""
        known = self._zones.nulls
        if isinstance(query, IsNull):
            if known is not None:
                return Candidates(known, _NO_ROWS if nulls else None, exact=True)
            rows = self._zones.rows(self._has_null)
            return Candidates(rows, _NO_ROWS if nulls else None, exact=False)
        rows = self._zones.rows(self._select(hash_values(_values(query).drop_null())))
        return Candidates(rows, known or _NO_ROWS if nulls else None, exact=False)

    def _select(self, hashes: UInt64s) -> Flags:
        if self._filters is not None:
            return _any_of(self._filters, hashes)
        per_zone = max(1, self._file.size // max(1, len(self._has_null)))
        zones = max(1, _WINDOW_BYTES // per_zone)
        found = [
            _any_of(self._read(start, start + zones), hashes)
            for start in range(0, self._file.num_rows, zones)
        ]
        return np.concatenate(found)

    def _read(self, start: int, stop: int) -> NDArray[np.uint32]:
        """Words of the filters of some zones, which are all of one size."""
        column = self._file.read(["bloom_filter_data"], start, stop)["bloom_filter_data"]
        self._file.check_present(column)
        data: Any = column.combine_chunks()
        if not len(data):
            return np.empty((0, BLOCK_BYTES // 4), np.uint32)
        sizes = np.unique(np.diff(_offsets_of(data)))
        size = int(sizes[0])
        if len(sizes) > 1 or size < BLOCK_BYTES or size % BLOCK_BYTES:
            expected = f"filters of one size, in blocks of {BLOCK_BYTES} bytes"
            raise self._file.corrupt("filters of an index", expected, f"{sizes[:4]} bytes")
        first = int(_offsets_of(data)[0])
        words = items_of(data.buffers()[2], "<u4", len(data) * size // 4, first)
        return words.reshape(len(data), -1)


def _offsets_of(data: Any) -> NDArray[np.int32]:
    """Where each value of a binary array begins, and the last one ends."""
    return items_of(data.buffers()[1], "<i4", len(data) + 1, 4 * data.offset)


def _any_of(filters: NDArray[np.uint32], hashes: UInt64s) -> Flags:
    found = np.zeros(len(filters), np.bool_)
    for start in range(0, len(hashes), _MAX_VALUES):
        some, rest = hashes[start : start + _MAX_VALUES], np.flatnonzero(~found)
        for first in range(0, len(rest), _MAX_ZONES):
            zones = rest[first : first + _MAX_ZONES]
            found[zones] = may_have(filters[zones], some).any(axis=1)
    return found


def _values(query: Any) -> Any:
    """The values that a query asks for; None if it asks for something else."""
    if isinstance(query, IsOneOf):
        return None if query.negated else query.values
    if isinstance(query, InRange) and query.low is not None and query.low == query.high:
        if not (query.low_included and query.high_included):
            return None
        # Both: -0.0 and 0.0 are equal, and hashed as their bits are.
        low, high = cast("Any", query.low), cast("Any", query.high)
        return pa.concat_arrays([pa.repeat(low, 1), pa.repeat(high, 1)])
    return None


_NO_ROWS = RowSet(np.empty(0, np.uint64), np.empty(0, np.uint64))
