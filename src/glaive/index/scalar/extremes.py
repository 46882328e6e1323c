"""Smallest and largest values of zones, without nulls and NaN.

Specification: "ZONEMAP" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from glaive.arrow.conditions import float_order
from glaive.index.scalar.ordering import is_number, sort_keys, values_of_keys
from glaive.index.scalar.zones import ZoneBatch
from glaive.types import Flags, Int64s

__all__ = ["Extremes"]


class _Part(NamedTuple):
    """Of each of some zones: number, smallest and largest value, NaN."""

    zones: Int64s
    low: Any
    high: Any
    nans: Int64s


class Extremes:
    """Collects smallest and largest values, batch by batch.

    Parameters
    ----------
    kind
        Type of the values.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._parts: list[_Part] = []

    def add(self, batch: ZoneBatch) -> None:
        """Take the values of a batch into account."""
        values, zones, starts = batch
        nans = np.zeros(len(zones), np.int64)
        if pa.types.is_floating(self._kind):
            flags = _is_nan(values)
            if flags.any():
                nans = np.add.reduceat(flags.astype(np.int64), starts)
                values = _without(values, flags)
        low, high = _reduced(values, values, starts)
        self._parts.append(_Part(zones, low, high, nans))

    def finish(self) -> tuple[pa.Array, pa.Array, Int64s]:
        """Smallest and largest value of each zone, NaN if it has any; and the number of its NaN."""
        if not self._parts:
            none: Any = pa.nulls(0, self._kind)
            return none, none, np.empty(0, np.int64)
        zones = np.concatenate([part.zones for part in self._parts])
        starts = np.flatnonzero(np.diff(zones, prepend=-1))
        nans = np.add.reduceat(np.concatenate([part.nans for part in self._parts]), starts)
        lows = pa.concat_arrays([part.low for part in self._parts])
        highs = pa.concat_arrays([part.high for part in self._parts])
        low, high = _reduced(lows, highs, starts)
        if nans.any():
            import pyarrow.compute as pc

            dtype: Any = self._kind.to_pandas_dtype()
            nan: Any = pa.array(np.array([np.nan], dtype))[0]
            high = pc.if_else(pa.array(nans > 0), nan, high)
        return low, high, nans


def _is_nan(values: Any) -> Flags:
    """Which floats are NaN, nulls not counted."""
    words = float_order(sort_keys(values))
    flags: Flags = np.isnan(words.view(f"<f{words.itemsize}")) & np.asarray(values.is_valid())
    return flags


def _without(values: Any, flags: Any) -> Any:
    """The values with nulls where there are flags."""
    valid = np.asarray(values.is_valid()) & ~flags
    return values_of_keys(sort_keys(values), values.type, ~valid)


def _reduced(lows: Any, highs: Any, starts: Int64s) -> tuple[Any, Any]:
    """The smallest of ``lows`` and the largest of ``highs`` from each start to the next one."""
    if not is_number(lows.type):
        return _reduced_objects(lows, highs, starts)
    low_keys, high_keys = sort_keys(lows), sort_keys(highs)
    limits = np.iinfo(low_keys.dtype)
    absent = np.zeros(len(starts), np.bool_)
    if lows.null_count or highs.null_count:
        valid = np.asarray(lows.is_valid())
        low_keys = np.where(valid, low_keys, limits.max)
        high_keys = np.where(np.asarray(highs.is_valid()), high_keys, limits.min)
        absent = ~np.logical_or.reduceat(valid, starts)
    low = np.minimum.reduceat(low_keys, starts)
    high = np.maximum.reduceat(high_keys, starts)
    return values_of_keys(low, lows.type, absent), values_of_keys(high, lows.type, absent)


def _reduced_objects(lows: Any, highs: Any, starts: Int64s) -> tuple[Any, Any]:
    owner = np.zeros(len(lows), np.int64)
    owner[starts[1:]] = 1
    table = pa.table({"zone": np.cumsum(owner), "low": lows, "high": highs})
    found = table.group_by("zone", use_threads=False).aggregate([("low", "min"), ("high", "max")])
    return _array(found["low_min"]), _array(found["high_max"])


def _array(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
