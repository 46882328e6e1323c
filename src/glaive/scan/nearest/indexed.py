"""Search with a vector index: partitions near the query, of each of its segments.

Specification: "Searching partitions" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import ceil
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.index.vector.codes import PreparedQuery
from glaive.index.vector.opened import LoadedPartition, OpenedVectorIndex
from glaive.kernels.code_scan import ScannedPartition, scan_codes
from glaive.kernels.graph_search import ReachedNodes, ReachedRows
from glaive.kernels.partition_rows import RowPlaces
from glaive.named_tuple import NamedTuple
from glaive.scan.indices import IndexedSegment, SnapshotIndices
from glaive.scan.metrics import Meter
from glaive.scan.nearest.allowed import AllowedRows
from glaive.scan.nearest.effort import NEIGHBOURS, Effort, effort_of
from glaive.scan.nearest.located import locate_rows
from glaive.scan.nearest.options import NearestOptions
from glaive.scan.nearest.top import Found, TopRows, nearest_of
from glaive.scan.nearest.vector_query import VectorQuery
from glaive.types import Flags, Float32s

__all__ = ["IndexSearch", "SearchedSegment", "damaged"]

_SAMPLED: Final = 256
"""Rows of a partition, about, that show how many pass a filter."""

_MIN_CAPACITY: Final = 24
"""Rows that searches in graphs keep, at least: fewer find too little."""


def damaged(error: CorruptFileError) -> CorruptFileError:
    """The error with what searches can do about it."""
    where = f"{error.where}; drop the index, or search with use_index=False"
    return CorruptFileError(error.what, expected=error.expected, found=error.found, where=where)


_FIRST: Final = np.zeros(1024, np.int32)
_FIRST.flags.writeable = False


class SearchedSegment(NamedTuple):
    """A segment, and what it is searched with."""

    segment: IndexedSegment
    opened: OpenedVectorIndex


class _Asked(NamedTuple):
    """Queries for a segment, and for each the nearest partitions with their distances."""

    searched: SearchedSegment
    queries: NDArray[Any]
    effort: Effort
    numbers: list[list[int]]
    distances: list[list[float]]


class _Compared(NamedTuple):
    """Rows of a partition with their distances from a query; NaN: not searched.

    Parameters
    ----------
    places
        Where the rows of the partition are.
    distances
        Of its rows, or of some of them.
    searched
        How many rows that comes to.
    rows
        Numbers of these rows in the partition; None: all.
    """

    places: RowPlaces
    distances: Float32s
    searched: int
    rows: NDArray[np.signedinteger] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class IndexSearch:
    """A search in the segments of an index.

    Parameters
    ----------
    indices
        Those of the version.
    segments
        What is searched.
    query
        What is searched for.
    options
        How many partitions to search, and how.
    candidates
        Rows wanted for each query.
    allowed
        The only rows that are searched; None: all.
    applies_range
        Rows whose distances by codes are out of range are left out.
    """

    indices: SnapshotIndices
    segments: tuple[SearchedSegment, ...]
    query: VectorQuery
    options: NearestOptions
    candidates: int
    allowed: AllowedRows | None
    applies_range: bool
    meter: Meter

    def find(self) -> Found:
        """The nearest rows of all segments, with distances as far as codes tell them."""
        matrix = self.query.queries.matrix
        limits = np.empty(len(matrix), np.float32)
        limits.fill(self.query.limit if self.applies_range else np.inf)
        top = TopRows(self.candidates, limits)
        asked = [self._asked(searched, matrix) for searched in self.segments]
        for number in range(len(matrix)):
            for one in asked:
                self._search(one, number, top)
        return top.result()

    def _asked(self, searched: SearchedSegment, matrix: NDArray[Any]) -> _Asked:
        """The queries for a segment, and the partitions that are nearest to each."""
        opened = searched.opened
        partitions = len(opened.partitions)
        effort = effort_of(self.options, self.query.count, None, opened.metric, partitions)
        queries = opened.queries(matrix)
        first = max(effort.first, NEIGHBOURS)
        numbers, distances = opened.ranked(queries, effort.first if effort.is_fixed else first)
        return _Asked(searched, queries, effort, numbers.tolist(), distances.tolist())

    def _search(self, asked: _Asked, number: int, top: TopRows) -> None:
        """Add the nearest rows of a segment for one query."""
        searched, queries, effort = asked[:3]
        numbers, distances = asked.numbers[number], asked.distances[number]
        opened, query = searched.opened, queries[number]
        if not effort.is_fixed:
            effort = effort_of(
                self.options, self.query.count, distances, opened.metric, len(opened.partitions)
            )
        prepared = opened.prepare(query)
        done = found = 0
        while done < effort.most and (done < effort.first or found < self.candidates):
            stop = max(effort.first, done + 1)
            if len(numbers) < stop:
                # Few need more than they begin with.
                ranking = opened.ranked(query[None], effort.most if done else stop)
                numbers, distances = ranking.numbers[0].tolist(), ranking.distances[0].tolist()
            near = numbers[done:stop]
            if not near:
                break
            partitions = self._partitions(searched, near)
            found += self._compare_all(
                searched, prepared, partitions, distances[done:stop], number, top
            )
            done += len(near)
        self.meter.count("partitions_searched", done)
        self.meter.count("rows_compared", found)

    def _compare_all(
        self,
        searched: SearchedSegment,
        prepared: PreparedQuery,
        partitions: list[tuple[LoadedPartition, RowPlaces]],
        centroid_distances: list[float],
        number: int,
        top: TopRows,
    ) -> int:
        """Add the nearest rows of some partitions; returns how many rows were compared."""
        opened = searched.opened
        codes = opened.codes
        code_query = codes.code_query(prepared)
        allowed = None if self.allowed is None else self.allowed.bits
        scanned: list[ScannedPartition] = []
        compared: list[_Compared] = []
        is_plain = self.allowed is None or allowed is not None
        start_of = codes.start
        count = 0
        for (loaded, places), distance in zip(partitions, centroid_distances, strict=True):
            reached = None
            if loaded.graph is not None:
                limit = top.limits.item(number)
                reached = self._reached(searched, prepared, loaded, distance, places, number, limit)
            if isinstance(reached, Found):
                count += len(loaded.rows)
                top.add(reached, in_order=True)
            elif reached is not None:
                compared.append(reached)
            elif code_query is not None and loaded.scanned is not None and is_plain:
                offset, weight = start_of(prepared, distance)
                scanned.append(ScannedPartition(loaded.scanned, places, offset, weight))
            else:
                kept = self._kept(places)
                rows = len(places) if kept is None else int(np.count_nonzero(kept))
                distances = opened.distances(prepared, loaded, distance)
                compared.append(_Compared(places, self._searched(distances, kept), rows))
        limit = top.limits.item(number)
        if compared:
            count += sum([part.searched for part in compared])
            first = self._first(compared[0], number, limit) if len(compared) == 1 else None
            if first is None:
                top.add(self._nearest(compared, number, limit))
            else:
                top.add(first, in_order=True)
        if scanned and code_query is not None:
            low = self.query.low if self.applies_range else None
            near = scan_codes(
                scanned, code_query, self.candidates, low=-np.inf if low is None else low,
                high=limit, allowed=allowed,
            )  # fmt: skip
            query = _all(number, len(near.key))
            top.add(Found(query, *near[:4]), in_order=True)
            count += near.compared
        return count

    def _reached(
        self,
        searched: SearchedSegment,
        prepared: PreparedQuery,
        loaded: LoadedPartition,
        centroid_distance: float,
        located: RowPlaces,
        number: int,
        limit: float,
    ) -> _Compared | Found | None:
        """Rows that the graph of a partition leads to; None: too few of them are searched.

        ``Found``: it is certain that these are the nearest of them, none beyond the limit.
        """
        share, places = 1.0, None
        if self.allowed is not None or located.live is not None:
            some = np.arange(0, len(located), max(1, len(located) // _SAMPLED))
            kept = self._kept(located, some)
            share = 1.0 if kept is None else float(np.count_nonzero(kept)) / len(some)
        elif not self.applies_range or self.query.low is None:
            places = located
        if not share:
            return None
        # Of the rows that the graph leads to, only those are of use that are searched.
        capacity = ceil(self._capacity / share)
        found = searched.opened.nearest(
            prepared, loaded, centroid_distance, capacity, places, self.candidates
        )
        if isinstance(found, ReachedRows):
            if found.next_distance <= limit:
                return Found(_all(number, self.candidates), *found[:4])
            found = searched.opened.nearest(prepared, loaded, centroid_distance, capacity)
        if not isinstance(found, ReachedNodes):
            return None
        nodes, distances = found
        kept = self._kept(located, nodes)
        if kept is not None and np.count_nonzero(kept) < min(self.candidates, len(nodes)):
            return None
        count = int(share * len(loaded.rows))
        return _Compared(located, self._searched(distances, kept), count, nodes)

    def _kept(
        self, located: RowPlaces, rows: NDArray[np.signedinteger] | None = None
    ) -> Flags | None:
        """Which rows, or which of some, are searched; None: all of them."""
        live = located.live if rows is None or located.live is None else located.live[rows]
        if self.allowed is None:
            return live
        fragment, row = located.fragment, located.row
        if rows is not None:
            fragment, row = fragment[rows], row[rows]
        allowed = self.allowed.contains(fragment, row)
        return allowed if live is None else live & allowed

    def _searched(self, distances: Float32s, kept: Flags | None) -> Float32s:
        """The distances of rows that are searched and in range, the others as NaN."""
        if kept is not None:
            distances[~kept] = np.nan
        return self.query.in_range(distances) if self.applies_range else distances

    @property
    def _capacity(self) -> int:
        """Rows that searches in graphs keep."""
        least = self.options.ef or self.candidates + self.candidates // 2
        return max(self.candidates, least, _MIN_CAPACITY)

    def _partitions(
        self, searched: SearchedSegment, numbers: list[int]
    ) -> list[tuple[LoadedPartition, RowPlaces]]:
        """Partitions, and where their rows are; kept for this version."""
        segment, opened = searched
        known = self.indices.partition_keys(segment)
        keys: list[Hashable] = []
        for number in numbers:
            pair = known.get(number)
            if pair is None:
                name, version = self.indices.name_of(segment), self.indices.version
                pair = (*name, opened.key(number)), (version, segment.stated, number)
                known[number] = pair
            keys += pair
        found: list[Any] = self.indices.snapshot.session.index_cache.get_all(keys)
        loaded, places = found[::2], found[1::2]
        if None in found:
            loaded = [
                _load(opened, number) if one is None else one
                for number, one in zip(numbers, loaded, strict=True)
            ]
            places = [
                self._located(segment, one) if place is None else place
                for one, place in zip(loaded, places, strict=True)
            ]
        return list(zip(loaded, places, strict=True))

    def _located(self, segment: IndexedSegment, loaded: LoadedPartition) -> RowPlaces:
        """Where the rows of a partition are."""
        located = locate_rows(self.indices, segment, loaded.rows)
        key = (self.indices.version, segment.stated, loaded.number)
        self.indices.snapshot.session.index_cache.put(key, located, located.nbytes)
        return located

    def _first(self, part: _Compared, number: int, limit: float) -> Found | None:
        """The nearest rows of a graph, which come in order; None where two are equally far."""
        rows, count = part.rows, self.candidates
        if rows is None or len(rows) <= count:
            return None
        # One more than wanted, so that the last is known to be nearer than those behind.
        far = part.distances[: count + 1]
        if not bool((far[1:] > far[:-1]).all()) or not far.item(-1) <= limit:
            return None
        rows, place = rows[:count], part.places
        query = _all(number, count)
        return Found(query, far[:-1], place.key[rows], place.fragment[rows], place.row[rows])

    def _nearest(self, compared: list[_Compared], number: int, limit: float) -> Found:
        """The nearest rows of some partitions."""
        parts = []
        for part in compared:
            near = nearest_of(part.distances, self.candidates, limit)
            rows, place = near if part.rows is None else part.rows[near], part.places
            query = np.full(len(near), number, np.int32)
            parts.append(
                Found(
                    query, part.distances[near], place.key[rows], place.fragment[rows],
                    place.row[rows],
                )
            )  # fmt: skip
        return Found.joined(parts)


def _all(number: int, count: int) -> NDArray[np.int32]:
    """The number of a query for so many rows."""
    if not number:
        return _FIRST[:count] if count <= len(_FIRST) else np.zeros(count, np.int32)
    return np.full(count, number, np.int32)


def _load(opened: OpenedVectorIndex, partition: int) -> LoadedPartition:
    try:
        return opened.load(partition)
    except CorruptFileError as error:
        raise damaged(error) from error
