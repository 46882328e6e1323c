"""Encode many sets of rows at a time, vectorised over sets, fragments, and bitmaps.

Specification: "Sets of rows" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import spread
from glaive.dataclass import NamedTuple
from glaive.errors import CapacityError
from glaive.types import Flags, Int64s, UInt8s, UInt16s, as_buffer

_COOKIE: Final = 12346
RUN_COOKIE: Final = 12347
"""First word of a bitmap: all of it, or its lower half if the bitmap has run containers."""

MIN_OFFSETS: Final = 4
"""Minimum containers of a bitmap with runs that stores container offsets."""

MAX_LISTED: Final = 4096
"""Maximum numbers that a container lists, 16 bits each; larger containers store bits."""

SET_BYTES: Final = 8192
_MAX_BYTES: Final = 2**31 - 1

Rows: TypeAlias = NDArray[np.uint64]


class _Containers(NamedTuple):
    """Rows of one set that differ only in the lower 16 bits.

    Parameters
    ----------
    owner
        Number of the set.
    high
        Upper 48 bits of its rows: the fragment, and the upper half of the number within it.
    starts, counts
        First row among all rows, and number of rows.
    begins
        Flags of rows that begin a run of consecutive rows.
    runs
        Number of runs.
    is_run
        Store the ends of runs, because that is shortest.
    sizes
        Number of bytes.
    """

    owner: Int64s
    high: Int64s
    starts: Int64s
    counts: Int64s
    begins: Flags
    runs: Int64s
    is_run: Flags
    sizes: Int64s

    @classmethod
    def of(cls, rows: Rows, bounds: Int64s) -> Self:
        """Return the containers of the sets between some bounds."""
        begins = np.zeros(len(rows) + 1, np.bool_)
        begins[bounds] = True
        begins = begins[:-1]
        high = (rows >> np.uint64(16)).astype(np.int64)
        begins[1:] |= high[1:] != high[:-1]
        starts = np.flatnonzero(begins)
        begins[1:] |= rows[1:] != rows[:-1] + np.uint64(1)
        counts = np.diff(starts, append=len(rows))
        runs = np.add.reduceat(begins, starts, dtype=np.int64)
        plain = np.where(counts <= MAX_LISTED, 2 * counts, SET_BYTES)
        is_run = 2 + 4 * runs < plain
        owner = np.searchsorted(bounds, starts, side="right") - 1
        sizes = np.where(is_run, 2 + 4 * runs, plain)
        return cls(owner, high[starts], starts, counts, begins, runs, is_run, sizes)

    def put(self, data: UInt8s, at: Int64s, rows: Rows) -> None:
        """Store the rows of each container at its position."""
        low = rows.astype(np.uint16)
        listed = ~self.is_run & (self.counts <= MAX_LISTED)
        if bool(listed.all()):
            _put_pairs(data, at, self.counts, low)
            return
        numbers = low[spread(self.starts[listed], self.counts[listed])]
        _put_pairs(data, at[listed], self.counts[listed], numbers)
        marked = np.flatnonzero(self.is_run)
        first = np.flatnonzero(self.begins)
        last = np.append(first[1:], len(rows)) - 1
        ends = np.stack((low[first], low[last] - low[first]), axis=1)
        _put(data, at[marked], self.runs[marked], 2)
        stored = ends[np.repeat(self.is_run, self.runs)].reshape(-1)
        _put_pairs(data, at[marked] + 2, 2 * self.runs[marked], stored)
        for one in np.flatnonzero(~self.is_run & ~listed).tolist():
            start, count, place = int(self.starts[one]), int(self.counts[one]), int(at[one])
            bits = np.zeros(SET_BYTES * 8, np.bool_)
            bits[low[start : start + count]] = True
            data[place : place + SET_BYTES] = np.packbits(bits, bitorder="little")


def ascending_sets(rows: Rows, bounds: Int64s) -> tuple[Rows, Int64s]:
    """Sort the rows of each set and remove duplicates; return rows and new bounds."""
    same = np.ones(len(rows) + 1, np.bool_)
    same[bounds] = False
    same = same[1:-1]
    if bool((same & (rows[1:] < rows[:-1])).any()):
        owner = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        rows = rows[np.lexsort((rows, owner))]
    repeated = same & (rows[1:] == rows[:-1])
    if bool(repeated.any()):
        bounds = bounds - np.searchsorted(np.flatnonzero(repeated) + 1, bounds)
        rows = rows[np.concatenate(([True], ~repeated))]
    return rows, bounds


def encode_ascending(rows: Rows, bounds: Int64s) -> pa.Array:
    """Encode the sets between some bounds; rows of a set must be ascending and distinct.

    Memory in addition to the result: about 30 bytes per row, and 200 per set.

    Raises
    ------
    CapacityError
        The result exceeds 2 GiB.
    """
    sets = len(bounds) - 1
    if not len(rows):
        return _binary(np.arange(sets + 1) * 4, np.zeros(sets * 4, np.uint8))
    containers = _Containers.of(rows, bounds)
    owner, high, is_run = containers.owner, containers.high, containers.is_run
    fragment = high >> 16
    changes = np.ones(len(owner), np.bool_)
    changes[1:] = (owner[1:] != owner[:-1]) | (fragment[1:] != fragment[:-1])
    # A bitmap per fragment of a set: its first container, and the bitmap of each container.
    firsts, of = np.flatnonzero(changes), np.cumsum(changes) - 1
    number = np.arange(len(owner)) - firsts[of]
    count = np.diff(firsts, append=len(owner))
    # Header: cookie; number of containers, or flags of run containers; key and count of each
    # container. Container offsets follow, except in short bitmaps with runs.
    has_runs = np.logical_or.reduceat(is_run, firsts)
    flags = np.where(has_runs, (count + 7) >> 3, 4)
    has_places = ~has_runs | (count >= MIN_OFFSETS)
    headers = 4 + flags + np.where(has_places, 8, 4) * count
    sizes = headers + np.add.reduceat(containers.sizes, firsts)
    of_set = owner[firsts]
    set_sizes = 4 + np.bincount(of_set, 8 + sizes, sets).astype(np.int64)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(set_sizes)))
    data = np.zeros(_checked(int(offsets[-1])), np.uint8)
    _put(data, offsets[:-1], np.bincount(of_set, minlength=sets), 4)
    entry = np.cumsum(8 + sizes) - (8 + sizes) + 4 * (of_set + 1)
    _put(data, entry, fragment[firsts], 4)
    _put(data, entry + 4, sizes, 4)
    _put(data, entry + 8, np.where(has_runs, RUN_COOKIE | (count - 1) << 16, _COOKIE), 4)
    _put(data, entry[~has_runs] + 12, count[~has_runs], 4)
    marked = np.flatnonzero(is_run)
    bits = (1 << (number[marked] & 7)).astype(np.uint8)
    np.bitwise_or.at(data, entry[of[marked]] + 12 + (number[marked] >> 3), bits)
    described = (entry + 12 + flags)[of] + 4 * number
    _put(data, described, high & 0xFFFF, 2)
    _put(data, described + 2, containers.counts - 1, 2)
    before = np.cumsum(containers.sizes) - containers.sizes
    inside = headers[of] + before - before[firsts][of]
    placed = has_places[of]
    _put(data, (described + 4 * count[of])[placed], inside[placed], 4)
    containers.put(data, entry[of] + 8 + inside, rows)
    return _binary(offsets, data)


def _checked(size: int) -> int:
    if size > _MAX_BYTES:
        raise CapacityError(
            f"sets of rows of {size} bytes do not fit one array: give a smaller memory_limit"
        )
    return size


def _put(data: UInt8s, at: Int64s, numbers: Int64s, width: int) -> None:
    """Store numbers of ``width`` bytes at some positions."""
    stored = numbers.astype(f"<u{width}").view(np.uint8).reshape(-1, width)
    data[at[:, None] + np.arange(width)] = stored


def _put_pairs(data: UInt8s, at: Int64s, counts: Int64s, numbers: UInt16s) -> None:
    """Store numbers of two bytes, ``counts`` from each position on."""
    places = spread(at, 2 * counts)
    data[places] = numbers.astype("<u2").view(np.uint8)


def _binary(offsets: Int64s, data: UInt8s) -> pa.Array:
    ends = as_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, ends, as_buffer(data)])
