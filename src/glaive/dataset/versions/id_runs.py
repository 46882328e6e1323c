"""Runs of stable row ids and highest row versions: what a few bytes say of many rows, as they do.

Specification: "Row ids" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glaive.arrow.buffers import ascending
from glaive.format.rowids import RowValues, check_at_once
from glaive.named_tuple import NamedTuple
from glaive.scan.deletions import LiveRows
from glaive.types import UInt64s

__all__ = ["IdRuns", "highest_number", "runs_of_ids"]

_WINDOW = 1 << 18
"""Rows whose numbers are decoded at a time."""


class IdRuns(NamedTuple):
    """The lowest and the highest id of each run of ids that ascend by one."""

    low: UInt64s
    high: UInt64s

    @classmethod
    def joined(cls, runs: list[IdRuns]) -> IdRuns:
        """All of them, by the lowest id."""
        empty = np.empty(0, np.uint64)
        low = np.concatenate([empty, *(one.low for one in runs)])
        high = np.concatenate([empty, *(one.high for one in runs)])
        order = np.argsort(low, kind="stable")
        return cls(low[order], high[order])

    def repeated(self) -> int | None:
        """An id that is in several of the runs, which are in order; None if there is none."""
        twice = np.flatnonzero(self.low[1:] <= np.maximum.accumulate(self.high)[:-1])
        return int(self.low[1:][twice[0]]) if len(twice) else None


def runs_of_ids(ids: RowValues, live: LiveRows, where: object) -> IdRuns:
    """The ids of the live rows of a fragment.

    Raises
    ------
    UnsupportedFeatureError
        As for :func:`glaive.format.rowids.check_at_once`, of ids that are no ranges.
    """
    runs = [_live_runs(ids, live)]
    for first, stop in ids.listed_rows():
        check_at_once(stop - first, where)
        runs += _listed(ids, live, first, stop)
    return IdRuns.joined(runs)


def _live_runs(ids: RowValues, live: LiveRows) -> IdRuns:
    """Those of ids that are ranges, between the deleted rows."""
    first, stop, number = ids.runs()
    edges = ascending(np.concatenate((first, stop, *live.deleted_runs(0, live.rows))))
    begin, end = edges[:-1], edges[1:]
    at = np.searchsorted(first, begin, side="right") - 1
    some = np.flatnonzero(at >= 0)
    some = some[(begin[some] < stop[at[some]]) & ~live.is_deleted(begin[some])]
    at = at[some]
    low = number[at] + (begin[some] - first[at]).astype(np.uint64)
    return IdRuns(low, low + (end[some] - begin[some] - 1).astype(np.uint64))


def _listed(ids: RowValues, live: LiveRows, first: int, stop: int) -> Iterator[IdRuns]:
    """Those of ids that are no range; they end with one that is there twice, which says enough."""
    for begin in range(first, stop, _WINDOW):
        end = min(stop, begin + _WINDOW)
        part = np.delete(ids.between(begin, end), live.deleted_between(begin, end) - begin)
        if len(part):
            edges = np.flatnonzero(part[1:] - part[:-1] != 1)
            lows, highs = np.append(0, edges + 1), np.append(edges, len(part) - 1)
            runs = IdRuns.joined([IdRuns(part[lows], part[highs])])
            twice = runs.repeated()
            if twice is not None:
                one = np.full(2, twice, np.uint64)
                yield IdRuns(one, one)
                return
            yield runs


def highest_number(values: RowValues, where: object) -> int:
    """The highest number of all rows; 0 without rows. Errors as for :func:`runs_of_ids`."""
    highest = int(values.runs()[2].max(initial=0))
    for first, stop in values.listed_rows():
        check_at_once(stop - first, where)
        for begin in range(first, stop, _WINDOW):
            highest = max(highest, int(values.between(begin, min(stop, begin + _WINDOW)).max()))
    return highest
