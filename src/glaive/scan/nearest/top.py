"""The nearest rows found so far, for one query or many."""

from __future__ import annotations

from sys import maxsize
from threading import Lock
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import number_array
from glaive.named_tuple import NamedTuple
from glaive.scan.nearest.result import DISTANCE
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import ROW_ID
from glaive.types import Flags, Float32s, Int64s, UInt64s

__all__ = ["Found", "TopRows", "nearest_of"]

Int32s = NDArray[np.int32]


class Found(NamedTuple):
    """Rows with their distances from queries.

    Parameters
    ----------
    query
        ``int32``: number of the query.
    distance
        ``float32``, never NaN.
    key
        ``uint64``: row id, which decides between equal distances.
    fragment, row
        ``int64``: position of the fragment in the list, and physical row.
    """

    query: Int32s
    distance: Float32s
    key: UInt64s
    fragment: Int64s
    row: Int64s

    @classmethod
    def none(cls) -> Self:
        """No rows."""
        number = np.empty(0, np.int64)
        return cls(
            number.astype(np.int32), np.empty(0, np.float32), np.empty(0, np.uint64), number, number
        )

    @classmethod
    def joined(cls, parts: list[Found]) -> Found:
        """All rows of several."""
        if len(parts) == 1:
            return parts[0]
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    @property
    def size(self) -> int:
        """Number of rows, counted for each query."""
        return len(self.query)

    def places(self, _snapshot: Snapshot) -> tuple[Int64s, Int64s]:
        """Position of the fragment in the list, and physical row, of each."""
        return self.fragment, self.row

    def added(self, name: str) -> pa.Array:
        """A column that the search adds."""
        if name == DISTANCE:
            return number_array(self.distance, pa.float32())
        return number_array(self.query, pa.int32())

    def stored(self, name: str, _snapshot: Snapshot) -> pa.Array | None:
        """Row ids are known."""
        return number_array(self.key, pa.uint64()) if name == ROW_ID else None

    def without_repeats(self) -> Found:
        """Each row once, as found by the first query."""
        order = np.lexsort((self.row, self.fragment))
        same = np.diff(self.fragment[order]) == 0
        same &= np.diff(self.row[order]) == 0
        kept = self.take(order[np.concatenate(([True], ~same))] if len(order) else order)
        return kept._replace(query=np.zeros(kept.size, np.int32))

    def take(self, chosen: Int64s | Flags) -> Found:
        """Some of the rows, in this order."""
        query, distance, key, fragment, row = self
        return Found(query[chosen], distance[chosen], key[chosen], fragment[chosen], row[chosen])


def nearest_of(distances: Float32s, count: int, limit: float) -> Int64s:
    """Numbers of the distances that may be among the ``count`` least, none above a limit.

    Without NaN; those that equal the last of them are all there.
    """
    chosen: Int64s = np.flatnonzero(distances <= limit)
    if len(chosen) <= count:
        return chosen
    near = distances[chosen]
    last = np.partition(near, count - 1)[count - 1]
    kept: Int64s = chosen[near <= last]
    return kept


def _ranks(query: Int32s, distance: Float32s) -> Int64s:
    """Numbers in the order of queries and, for each, of distances."""
    # The bits of floats are in the order of floats, those of negative ones the other way round;
    # adding 0 makes one zero of both.
    bits = (distance + np.float32(0)).view(np.int32)
    bits = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)
    ranks: Int64s = (query.astype(np.int64) << 32) + bits
    return ranks


class TopRows:
    """Collects rows of each query, and lets go of all but the nearest. Threads may share one.

    Parameters
    ----------
    count
        Rows wanted for each query.
    limits
        ``float32``: for each query the distance that rows must not exceed to be of interest.
        Lowered as rows are found.
    """

    __slots__ = ("_in_order", "_lock", "_parts", "_waiting", "count", "limits")

    def __init__(self, count: int, limits: Float32s) -> None:
        # Positions of rows are compared with it: no version has more rows than such numbers.
        self.count, self.limits = min(count, maxsize), limits
        self._parts: list[Found] = []
        self._waiting = 0
        self._in_order = False
        self._lock = Lock()

    def add(self, found: Found, *, in_order: bool = False) -> None:
        """Add rows; each row of a query once.

        Parameters
        ----------
        in_order
            They are of one query, by distance, then row id, and not too many.
        """
        if not found.size:
            return
        with self._lock:
            if in_order and len(self.limits) == 1 and found.size == self.count:
                self.limits[0] = min(self.limits.item(0), found.distance.item(-1))
            self._in_order = in_order and not self._parts
            self._parts.append(found)
            self._waiting += found.size
            if self._waiting > self.count * len(self.limits):
                self._reduce()

    def result(self) -> Found:
        """The nearest rows: query by query, by distance, then row id."""
        with self._lock:
            if not self._parts:
                return Found.none()
            if not self._in_order:
                self._reduce()
            return self._parts[0]

    def _reduce(self) -> None:
        found = self._parts[0] if len(self._parts) == 1 else Found.joined(self._parts)
        self._in_order = True
        if len(self.limits) == 1:
            self._reduce_one(found)
            return
        order = np.lexsort((found.key, _ranks(found.query, found.distance)))
        query = found.query[order]
        starts = np.searchsorted(query, np.arange(len(self.limits) + 1))
        rank = np.arange(len(query)) - starts[query]
        kept = found.take(order[rank < self.count])
        self._parts, self._waiting = [kept], 0
        full = np.flatnonzero(np.diff(starts) >= self.count)
        last = found.distance[order[starts[full] + self.count - 1]]
        self.limits[full] = np.minimum(self.limits[full], last)

    def _reduce_one(self, found: Found) -> None:
        """Keep the nearest rows of the only query."""
        kept = found.take(np.lexsort((found.key, found.distance))[: self.count])
        self._parts, self._waiting = [kept], 0
        if kept.size == self.count:
            self.limits[0] = min(self.limits[0], kept.distance[-1])
