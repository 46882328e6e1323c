"""ZONEMAP, searched: zones whose bounds cannot pass are left out.

Specification: "ZONEMAP" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import as_numpy
from glaive.arrow.conditions import HasText, InRange, IsNull, IsOneOf
from glaive.index.protocol import Candidates, ScalarIndex
from glaive.index.queries import IndexQuery
from glaive.index.row_set import RowSet
from glaive.index.scalar.ordering import SortKeys, key_of, prefix_range, sort_keys
from glaive.index.scalar.zones import StoredZones
from glaive.types import Flags, UInt32s

__all__ = ["OpenedZoneMap"]


class OpenedZoneMap(ScalarIndex):
    """The bounds of all zones.

    Parameters
    ----------
    zones
        Where they are.
    low, high
        Smallest and largest value of each, without nulls and NaN; null if they are not known.
    nulls
        Rows of each that are null.
    has_nan
        Whether it has NaN. The bounds of such a zone are not relied on.
    """

    def __init__(
        self, zones: StoredZones, low: Any, high: Any, nulls: UInt32s, has_nan: Flags
    ) -> None:
        self._zones, self._kind = zones, low.type
        self._low, self._high = sort_keys(low), sort_keys(high)
        self._has_null = nulls > 0
        self._bounded = as_numpy(low.is_valid()) & as_numpy(high.is_valid()) & ~has_nan
        # Of some types pylance writes no bounds, so that their absence says nothing.
        self._any = ~self._bounded & (nulls < zones.stops - zones.starts)
        self._own_bytes = int(low.nbytes + high.nbytes) * 4 + 3 * len(nulls)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self._zones.nbytes + self._own_bytes

    def answers(self, query: IndexQuery) -> bool:
        """Whether it is a condition on values of this type; of texts, on how they begin."""
        if isinstance(query, IsNull):
            return True
        if isinstance(query, IsOneOf):
            return bool(query.values.type == self._kind)
        if isinstance(query, InRange):
            return all(one is None or one.type == self._kind for one in (query.low, query.high))
        is_text = pa.types.is_string(self._kind) or pa.types.is_large_string(self._kind)
        return isinstance(query, HasText) and query.begins and is_text

    def estimate(self, query: IndexQuery) -> int:
        """Rows of the zones that may pass."""
        if isinstance(query, IsNull) and not query.negated and self._zones.nulls is not None:
            return self._zones.nulls.count
        return self._zones.count(self._select(query))

    def compared(self, query: IndexQuery) -> int:
        """All zones."""
        return len(self._low)

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find zones whose rows may pass; nulls are known exactly. Reads nothing."""
        if isinstance(query, IsNull) and self._zones.nulls is not None:
            return Candidates(self._null_rows(query), _NO_ROWS if nulls else None, exact=True)
        rows = self._zones.rows(self._select(query))
        return Candidates(rows, self._zones.nulls or _NO_ROWS if nulls else None, exact=False)

    def _null_rows(self, query: IsNull) -> RowSet:
        known = self._zones.nulls or _NO_ROWS
        return self._zones.rows(self._zones.every).difference(known) if query.negated else known

    def _select(self, query: Any) -> Flags:
        """Zones in which rows may pass."""
        if isinstance(query, IsNull):
            return self._zones.every if query.negated else self._has_null
        if isinstance(query, IsOneOf):
            found = self._one_of(query)
        elif isinstance(query, InRange):
            low, high = (None if one is None else key_of(one) for one in (query.low, query.high))
            found = self._within(low, high, (query.low_included, query.high_included))
        else:
            found = self._within(*prefix_range(query.word), (True, False))
        flags: Flags = self._any | (found & self._bounded)
        return flags

    def _within(self, low: SortKeys | None, high: SortKeys | None, included: _Ends) -> Flags:
        found = np.ones(len(self._low), np.bool_)
        # Compared with arrays of one: NumPy cuts zero bytes off the end of single byte strings.
        if low is not None:
            found &= self._high >= low if included[0] else self._high > low
        if high is not None:
            found &= self._low <= high if included[1] else self._low < high
        return found

    def _one_of(self, query: IsOneOf) -> Flags:
        values: Any = query.values
        if query.negated and values.null_count:
            return np.zeros(len(self._low), np.bool_)
        wanted = np.sort(sort_keys(values.drop_null()))
        if not len(wanted):
            return np.full(len(self._low), query.negated)
        at = np.searchsorted(wanted, self._low)
        nearest = wanted[np.minimum(at, len(wanted) - 1)]
        inside = (at < len(wanted)) & (nearest <= self._high)
        flags: Flags = ~(inside & (self._low == self._high)) if query.negated else inside
        return flags


_Ends: TypeAlias = tuple[bool, bool]

_NO_ROWS = RowSet(np.empty(0, np.uint64), np.empty(0, np.uint64))
