"""Smallest and largest values of zones, without nulls and NaN.

Specification: "ZONEMAP" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import NUMPY_TYPES
from glaive.arrow.conditions import float_order
from glaive.index.scalar.ordering import is_number, sort_keys, values_of_keys
from glaive.index.scalar.zones import ZoneBatch
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s

__all__ = ["Extremes"]


class _Part(NamedTuple):
    """Of each of some zones: number, smallest and largest value, NaN.

    Numbers are kept by their keys, which become values in the end; ``absent`` says which of them
    are none.
    """

    zones: Int64s
    low: Any
    high: Any
    absent: Flags | None
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
        low, high, absent = values, values, None
        if is_number(self._kind):
            low = high = sort_keys(values)
            absent = np.asarray(values.is_null()) if values.null_count else None
        self._parts.append(_Part(zones, *_reduced(low, high, absent, starts), nans))

    def finish(self) -> tuple[pa.Array, pa.Array, Int64s]:
        """Smallest and largest value of each zone, NaN if it has any; and the number of its NaN."""
        if not self._parts:
            none: Any = pa.nulls(0, self._kind)
            return none, none, np.empty(0, np.int64)
        zones = np.concatenate([part.zones for part in self._parts])
        starts = np.flatnonzero(np.diff(zones, prepend=-1))
        nans = np.add.reduceat(np.concatenate([part.nans for part in self._parts]), starts)
        join: Any = np.concatenate if is_number(self._kind) else pa.concat_arrays
        low, high, absent = _reduced(
            join([part.low for part in self._parts]),
            join([part.high for part in self._parts]),
            _joined_flags([(part.absent, len(part.zones)) for part in self._parts]),
            starts,
        )
        if is_number(self._kind):
            low, high = (values_of_keys(keys, self._kind, absent) for keys in (low, high))
        if nans.any():
            import pyarrow.compute as pc

            nan: Any = pa.array(np.array([np.nan], NUMPY_TYPES[self._kind]))[0]
            high = pc.if_else(pa.array(nans > 0), nan, high)
        return low, high, nans


def _joined_flags(parts: list[tuple[Flags | None, int]]) -> Flags | None:
    """Flags of several parts, where None stands for so many that are not set."""
    if all(flags is None for flags, _ in parts):
        return None
    return np.concatenate(
        [np.zeros(count, np.bool_) if flags is None else flags for flags, count in parts]
    )


def _is_nan(values: Any) -> Flags:
    """Which floats are NaN, nulls not counted."""
    words = float_order(sort_keys(values))
    flags: Flags = np.isnan(words.view(f"<f{words.itemsize}")) & np.asarray(values.is_valid())
    return flags


def _without(values: Any, flags: Any) -> Any:
    """The values with nulls where there are flags."""
    valid = np.asarray(values.is_valid()) & ~flags
    return values_of_keys(sort_keys(values), values.type, ~valid)


def _reduced(
    lows: Any, highs: Any, absent: Flags | None, starts: Int64s
) -> tuple[Any, Any, Flags | None]:
    """The smallest of ``lows`` and the largest of ``highs`` from each start to the next one.

    Parameters
    ----------
    lows, highs
        Keys of numbers, or other values.
    absent
        Which keys are of nulls; None: of none.

    Returns
    -------
    The same, and which of these are of no value.
    """
    if not isinstance(lows, np.ndarray):
        return *_reduced_objects(lows, highs, starts), None
    nowhere: Flags | None = None
    if absent is not None:
        limits = np.iinfo(lows.dtype)
        lows = np.where(absent, limits.max, lows)
        highs = np.where(absent, limits.min, highs)
        nowhere = np.logical_and.reduceat(absent, starts)
    return np.minimum.reduceat(lows, starts), np.maximum.reduceat(highs, starts), nowhere


def _reduced_objects(lows: Any, highs: Any, starts: Int64s) -> tuple[Any, Any]:
    owner = np.zeros(len(lows), np.int64)
    owner[starts[1:]] = 1
    table = pa.table({"zone": np.cumsum(owner), "low": lows, "high": highs})
    found = table.group_by("zone", use_threads=False).aggregate([("low", "min"), ("high", "max")])
    return _array(found["low_min"]), _array(found["high_max"])


def _array(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
