"""Search with a vector index: partitions near the query, in each of its segments.

Specification: "Searching partitions" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from math import ceil, isfinite, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.blocks import distinct
from glaive.arrow.chunked import join_large
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import CorruptFileError, OptionError, UnsupportedFeatureError
from glaive.index.row_sets import RowNumbers
from glaive.index.vector.codes import PreparedQuery
from glaive.index.vector.opened import LoadedPartition, OpenedVectorIndex
from glaive.io.cache import ByteCache
from glaive.kernels.distances import ELEMENTS, Metric, PlacedVectors, measure_pairs, rescore_rows
from glaive.kernels.graph_search import (
    AllowedBits,
    CodeQuery,
    PartitionTable,
    RowPlaces,
    ScannedPartition,
    scan_codes,
    scan_table,
)
from glaive.scan.indices import FragmentIds, IndexedSegment, LogicalIndex, SnapshotIndices, union_of
from glaive.scan.nearest.options import NearestOptions
from glaive.scan.nearest.vectors import (
    Found,
    TopRows,
    VectorQuery,
    VectorType,
    nearest_of,
    row_vectors,
)
from glaive.scan.options import Meter
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection
from glaive.types import Flags, Float32s, Int64s

# --- Places of the rows of a segment in a version: fragment and physical row ------------

_SHIFT = np.uint64(32)
_MASK = np.uint64(0xFFFFFFFF)


def locate_rows(
    indices: SnapshotIndices, segment: IndexedSegment, numbers: RowNumbers
) -> RowPlaces:
    """Find rows by their numbers, as the segment stores them, in any order."""
    addresses, there = indices.locate(segment, numbers)
    # For missing rows, any fragment will do.
    found = indices.snapshot.positions_by_id((addresses >> _SHIFT).astype(np.int64))
    fragment = np.maximum(found, 0)
    row = (addresses & _MASK).astype(np.int64)
    key = addresses if indices.holds_addresses(segment) else numbers
    live = None if there.all() else there
    return RowPlaces(fragment, row, np.ascontiguousarray(key), live)


# --- Rows that a search is restricted to, because a filter comes first ------------------

_MAX_BITS = 1 << 31
"""Maximum rows that get a bit each; otherwise allowed rows are looked up."""


class AllowedRows:
    """Rows that passed a filter, by fragment.

    Parameters
    ----------
    passed
        Position of a fragment and physical rows in it, ascending; a fragment may come again with
        later rows.
    """

    def __init__(self, passed: Iterable[tuple[int, Int64s]]) -> None:
        by_fragment: dict[int, list[Int64s]] = {}
        for position, rows in passed:
            if len(rows):
                by_fragment.setdefault(position, []).append(rows)
        self._rows = {position: np.concatenate(rows) for position, rows in by_fragment.items()}
        self.count = sum(map(len, self._rows.values()))

    def pairs(self) -> tuple[Int64s, Int64s]:
        """Return the fragment, by position, and the physical row of each row."""
        if not self._rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        fragments = [np.full(len(rows), position) for position, rows in self._rows.items()]
        return np.concatenate(fragments), np.concatenate(list(self._rows.values()))

    def contains(self, fragment: Int64s, row: Int64s) -> Flags:
        """Return which rows are allowed, one flag each."""
        if self.bits is not None:
            return self.bits.contains(fragment, row)
        allowed = np.zeros(len(row), np.bool_)
        for position, rows in self._rows.items():
            selected = (fragment == position).nonzero()[0]
            at = np.minimum(rows.searchsorted(row[selected]), len(rows) - 1)
            allowed[selected] = rows[at] == row[selected]
        return allowed

    @cached_property
    def bits(self) -> AllowedBits | None:
        """A bit for each row up to the last of its fragment, or ``None`` if there are too many."""
        sizes = np.zeros(max(self._rows, default=0) + 1, np.int64)
        for position, rows in self._rows.items():
            sizes[position] = int(rows[-1]) + 1
        if (sizes > _MAX_BITS).any() or int(sizes.sum()) + 8 * len(sizes) > _MAX_BITS:
            return None
        octets = (sizes + 7) // 8
        starts = octets.cumsum() - octets
        bits = np.zeros(max(1, int(octets.sum())), np.uint8)
        for position, rows in self._rows.items():
            flags = np.zeros(int(sizes[position]), np.bool_)
            flags[rows] = True
            packed = np.packbits(flags, bitorder="little")
            bits[starts[position] : starts[position] + len(packed)] = packed
        return AllowedBits(8 * starts, sizes, bits)


# --- The first partitions of an index to search -----------------------------------------
# Specification: "Searching partitions" in ``docs/format/vector-indices.md``.

NEIGHBOURS: Final = 8
"""Number of nearest centroids that decide whether a query is clear."""

_CLEAR: Final = 1.28
_UNCLEAR: Final = 1.08
"""Bounds of the eighth centroid's distance divided by the first, for clear and unclear queries."""

_UNCLEAR_FACTOR: Final = 3.6
"""Partitions of an unclear query for each partition of a clear query."""


class Effort(NamedTuple):
    """Partitions to search first, and at most, until there are enough rows.

    ``is_fixed``: distances of the centroids are ignored.
    """

    first: int
    max_partitions: int
    is_fixed: bool = False


def effort_of(
    options: NearestOptions,
    count: int,
    ranked: Sequence[float] | None,
    metric: Metric,
    partitions: int,
) -> Effort:
    """Return the partitions to search.

    Parameters
    ----------
    count
        Rows wanted.
    ranked
        Distances of the query from the nearest centroids, ascending: at least :data:`NEIGHBOURS` if
        there are as many. ``None`` if still unknown.
    partitions
        Number of partitions of the index.
    """
    max_partitions = partitions
    if options.maximum_nprobes is not None:
        max_partitions = min(max_partitions, options.maximum_nprobes)
    min_partitions = min(max_partitions, options.minimum_nprobes or 1)
    fixed = options.minimum_nprobes is not None
    if partitions == 1 or (fixed and options.minimum_nprobes == options.maximum_nprobes):
        return Effort(min_partitions, max_partitions, is_fixed=True)
    usual = _usual(count, ranked, metric, partitions)
    effort = 0.5 if options.search_effort is None else options.search_effort
    if effort <= 0.5:
        first = usual ** (2 * effort)
    else:
        first = usual * (partitions / usual) ** (2 * effort - 1)
    # Rounding must not add a partition to an exact number.
    return Effort(min(max_partitions, max(min_partitions, ceil(first - 1e-9))), max_partitions)


def _usual(count: int, ranked: Sequence[float] | None, metric: Metric, partitions: int) -> int:
    """Return the partitions of medium effort: more if many centroids are about equally near.

    The number grows with the root of the wanted rows. In pylance it grows with the index.
    """
    clear = 4 + 0.8 * sqrt(count)
    unclear = 0.5
    if ranked is not None and len(ranked) >= NEIGHBOURS and metric in ("l2", "cosine"):
        nearest, other = ranked[0], ranked[NEIGHBOURS - 1]
        ratio = other / nearest if nearest > 0 else _CLEAR
        if isfinite(ratio):
            unclear = min(1.0, max(0.0, (_CLEAR - ratio) / (_CLEAR - _UNCLEAR)))
    return max(1, min(partitions, ceil(clear * (1 + (_UNCLEAR_FACTOR - 1) * unclear))))


_SAMPLE_ROWS: Final = 256
"""Approximate rows of a partition that estimate how many pass a filter."""

_MIN_CAPACITY: Final = 24
"""Minimum rows that searches in graphs keep: fewer find too little."""


def damaged(error: CorruptFileError) -> CorruptFileError:
    """Add remedies of searches to the error."""
    where = f"{error.where}; drop the index, or search with use_index=False"
    return CorruptFileError(error.what, expected=error.expected, found=error.found, where=where)


_TABLE_SHARE: Final = 4
"""Share of the cache of indices that tables of partitions may take: partitions count twice."""

_MAX_QUERIES: Final = 64
_MAX_FOUND: Final = 1 << 20
"""Maximum queries that are compared together, and maximum rows that several may find."""

_FIRST: Final = np.zeros(1024, np.int32)
_FIRST.flags.writeable = False


class SearchedSegment(NamedTuple):
    """A segment and its opened index."""

    segment: IndexedSegment
    opened: OpenedVectorIndex


@dataclass(frozen=True, slots=True, eq=False)
class IndexSearch:
    """A search in the segments of an index.

    Parameters
    ----------
    indices
        The indices of the version.
    segments
        The segments to search.
    query
        The query.
    options
        The number of partitions to search, and the way.
    candidates
        Rows wanted for each query.
    allowed
        The rows to search; ``None`` for all.
    """

    indices: SnapshotIndices
    segments: tuple[SearchedSegment, ...]
    query: VectorQuery
    options: NearestOptions
    candidates: int
    allowed: AllowedRows | None
    meter: Meter

    def find(self) -> Found:
        """Return the nearest rows of all segments, with distances by codes."""
        matrix = self.query.queries.matrix
        top = TopRows(self.candidates, self.query.limits(len(matrix)))
        several = max(1, min(_MAX_QUERIES, _MAX_FOUND // self.candidates))
        for searched in self.segments:
            for first in range(0, len(matrix), several):
                self._search(searched, matrix[first : first + several], first, top)
        return top.result()

    def _search(
        self, searched: SearchedSegment, matrix: NDArray[Any], first: int, top: TopRows
    ) -> None:
        """Add the nearest rows of a segment for some queries; ``first`` is their first number."""
        opened, count = searched.opened, self.query.count
        partitions = len(opened.centroids)
        effort = effort_of(self.options, count, None, opened.metric, partitions)
        queries = opened.queries(matrix)
        wanted = effort.first if effort.is_fixed else max(effort.first, NEIGHBOURS)
        numbers, distances = opened.ranked(queries, wanted)
        efforts = [effort] * len(queries)
        if not effort.is_fixed:
            efforts = [
                effort_of(self.options, count, near, opened.metric, partitions)
                for near in distances.tolist()
            ]
            most = max([each.first for each in efforts])
            if numbers.shape[1] < most:
                numbers, distances = opened.ranked(queries, most)
        found, has_graphs = None, opened.has_graphs
        if not has_graphs:
            counts = [min(each.first, numbers.shape[1]) for each in efforts]
            prepared = opened.codes.prepare(queries)
            found = self._scan(searched, prepared, numbers, distances, counts, first, top)
        for at, effort in enumerate(efforts):
            done, rows = (0, 0) if found is None else (counts[at], found[at])
            one: PreparedQuery | None = None
            while done < effort.max_partitions and (done < effort.first or rows < self.candidates):
                if one is None:
                    here = slice(at, at + 1)
                    query, near, far = queries[here], numbers[here], distances[here]
                    one = opened.codes.prepare(query)
                stop = max(effort.first, done + 1)
                if near.shape[1] < stop:
                    # Few queries need more than the first partitions.
                    near, far = opened.ranked(query, effort.max_partitions if done else stop)
                chosen, away = near[:, done:stop], far[:, done:stop]
                if not chosen.size:
                    break
                some = None
                if not has_graphs:
                    some = self._scan(searched, one, chosen, away, [chosen.size], first + at, top)
                if some is None:
                    loaded = self._partitions(searched, chosen[0].tolist())
                    some = [self._compare_all(searched, one, loaded, away, first + at, top)]
                rows += some[0]
                done += chosen.size
            self.meter.count("partitions_searched", done)
            self.meter.count("rows_compared", rows)

    def _scan(
        self,
        searched: SearchedSegment,
        prepared: PreparedQuery,
        numbers: Int64s,
        centroid_distances: Float32s,
        counts: list[int],
        first: int,
        top: TopRows,
    ) -> list[int] | None:
        """Add the nearest rows of partitions in the table; return how many were compared.

        ``None`` if partitions are missing in the table.

        Parameters
        ----------
        numbers, centroid_distances
            Numbers of partitions, and distances of their centroids, for each query.
        counts
            The number of partitions of each query, the first of its line.
        first
            Number of the first query.
        """
        segment, opened = searched
        allowed = None if self.allowed is None else self.allowed.bits
        if allowed is None and self.allowed is not None:
            return None
        table: PartitionTable | None
        table = self.indices.snapshot.session.index_cache.get(self._table_key(segment))
        codes = opened.codes
        code_query = None if table is None else codes.code_query(prepared)
        if table is None or code_query is None:
            return None
        near = scan_table(
            table, numbers, codes.starts(prepared, centroid_distances),
            codes.weights(centroid_distances), counts, code_query, self.candidates,
            low=self.query.low, high=top.limits[first : first + len(counts)].tolist(),
            allowed=allowed,
        )  # fmt: skip
        if near is None:
            return None
        if len(counts) == 1:
            query = _all(first, len(near.key))
        else:
            query = np.arange(first, first + len(counts), dtype=np.int32).repeat(near.sizes)
        top.add(Found(query, *near[:4]), in_order=True)
        return near.compared

    def _table_key(self, segment: IndexedSegment) -> Hashable:
        return self.indices.version, segment.stated, "table"

    def _keep_in_table(
        self, searched: SearchedSegment, pairs: list[tuple[LoadedPartition, RowPlaces]]
    ) -> None:
        """Add partitions to the table of the segment, if all of them fit a part of the cache."""
        cache, key = self.indices.snapshot.session.index_cache, self._table_key(searched.segment)
        table: PartitionTable | None = cache.get(key)
        if table is None:
            table = PartitionTable.of(len(searched.opened.partitions))
        added = {
            loaded.number: (loaded.scanned, places)
            for loaded, places in pairs
            if loaded.scanned is not None and loaded.number not in table.parts
        }
        nbytes = sum([one.nbytes + places.nbytes for one, places in pairs if one.number in added])
        if added and table.nbytes + nbytes <= cache.budget // _TABLE_SHARE:
            table = table.joined(added, nbytes)
            cache.put(key, table, table.nbytes)

    def _compare_all(
        self,
        searched: SearchedSegment,
        prepared: PreparedQuery,
        partitions: list[tuple[LoadedPartition, RowPlaces]],
        centroid_distances: Float32s,
        number: int,
        top: TopRows,
    ) -> int:
        """Add the nearest rows of some partitions; return the number of compared rows."""
        opened = searched.opened
        codes = opened.codes
        code_query = codes.code_query(prepared)
        (starts,) = codes.starts(prepared, centroid_distances).tolist()
        allowed = None if self.allowed is None else self.allowed.bits
        others: dict[int, ScannedPartition] = {}
        parts: list[Found] = []
        count = 0
        for at, (loaded, places) in enumerate(partitions):
            reached, start = None, starts[at]
            if loaded.graph is not None and code_query is not None:
                reached = self._reached(opened, code_query, loaded, start, places, number, top)
            if reached is not None:
                count += reached
            elif code_query is not None and loaded.scanned is not None:
                searchable = places
                if allowed is None and self.allowed is not None:
                    kept = self._kept(places)
                    searchable = RowPlaces(places.fragment, places.row, places.key, kept)
                others[at] = ScannedPartition(loaded.scanned, searchable, start)
            else:
                kept = self._kept(places)
                count += len(places) if kept is None else int(np.count_nonzero(kept))
                distances = self._searched(opened.distances(prepared, loaded), kept)
                parts.append(self._nearest(places, distances, number, top))
        if parts:
            top.add(Found.joined(parts))
        if others and code_query is not None:
            (weights,) = codes.weights(centroid_distances).tolist()
            scanned = [other._replace(weight=weights[at]) for at, other in others.items()]
            near = scan_codes(
                scanned, code_query.first(), self.candidates, low=self.query.low,
                high=top.limits.item(number), allowed=allowed,
            )  # fmt: skip
            query = _all(number, len(near.key))
            top.add(Found(query, *near[:4]), in_order=True)
            count += near.compared[0]
        return count

    def _reached(
        self,
        opened: OpenedVectorIndex,
        query: CodeQuery,
        loaded: LoadedPartition,
        start: float,
        located: RowPlaces,
        number: int,
        top: TopRows,
    ) -> int | None:
        """Add the nearest rows that the graph of a partition finds, unless they are too few.

        Return the number of searched rows; ``None`` without a graph, or if rows are too few.
        """
        share, candidates, count = 1.0, self.candidates, located.count
        restricted = self.allowed is not None or located.live is not None
        if restricted:
            some = np.arange(0, count, max(1, count // _SAMPLE_ROWS))
            kept = self._kept(located, some)
            share = 1.0 if kept is None else float(np.count_nonzero(kept)) / len(some)
            if not share:
                return None
        # The graph also finds rows outside the search, so find more.
        wanted = max(self.options.ef or candidates + candidates // 2, candidates, _MIN_CAPACITY)
        found = opened.nearest(query, loaded, start, ceil(wanted / share), located, candidates)
        if found is None:
            return None
        nodes, distances, placed = found
        kept = self._kept(located, nodes) if restricted else None
        if kept is not None:
            if np.count_nonzero(kept) < min(candidates, len(nodes)):
                return None
            distances, placed = self._searched(distances, kept), None
        elif self.query.low is not None:
            distances, placed = self.query.in_range(distances), None
        size = 0 if placed is None else placed.shape[1]
        if placed is None or not size or not distances.item(size - 1) <= top.limits.item(number):
            top.add(self._nearest(located, distances, number, top, nodes))
        else:
            fragments, rows, keys = placed
            near = fragments.view(np.int64), rows.view(np.int64)
            top.add(Found(_all(number, size), distances[:size], keys, *near), in_order=True)
        return int(share * count)

    def _kept(
        self, located: RowPlaces, rows: NDArray[np.signedinteger] | None = None
    ) -> Flags | None:
        """Return which rows may be searched; ``None`` for all."""
        live = located.live if rows is None or located.live is None else located.live[rows]
        if self.allowed is None:
            return live
        fragment, row = located.fragment, located.row
        if rows is not None:
            fragment, row = fragment[rows], row[rows]
        allowed = self.allowed.contains(fragment, row)
        return allowed if live is None else live & allowed

    def _searched(self, distances: Float32s, kept: Flags | None) -> Float32s:
        """Return the distances of searched rows in range, and NaN for other rows."""
        if kept is not None:
            distances[~kept] = np.nan
        return self.query.in_range(distances)

    def _partitions(
        self, searched: SearchedSegment, numbers: list[int]
    ) -> list[tuple[LoadedPartition, RowPlaces]]:
        """Return partitions and the places of their rows, cached for this version."""
        segment, opened = searched
        known = self.indices.partition_keys(segment)
        for number in numbers:
            if number not in known:
                name, version = self.indices.name_of(segment), self.indices.version
                known[number] = (*name, opened.key(number)), (version, segment.stated, number)
        keys: Iterator[Hashable] = chain.from_iterable(map(known.__getitem__, numbers))
        found: list[Any] = self.indices.snapshot.session.index_cache.get_all(keys)
        pairs = []
        for number, one, places in zip(numbers, found[::2], found[1::2], strict=True):
            loaded = _load(opened, number) if one is None else one
            pairs.append((loaded, self._located(segment, loaded) if places is None else places))
        if not opened.has_graphs:
            self._keep_in_table(searched, pairs)
        return pairs

    def _located(self, segment: IndexedSegment, loaded: LoadedPartition) -> RowPlaces:
        """Return the places of the rows of a partition."""
        located = locate_rows(self.indices, segment, loaded.rows)
        key = (self.indices.version, segment.stated, loaded.number)
        self.indices.snapshot.session.index_cache.put(key, located, located.nbytes)
        return located

    def _nearest(
        self,
        places: RowPlaces,
        distances: Float32s,
        number: int,
        top: TopRows,
        rows: NDArray[np.signedinteger] | None = None,
    ) -> Found:
        """Return the nearest of all rows of a partition, or of some; skip rows at NaN."""
        near = nearest_of(distances, self.candidates, top.limits.item(number))
        at, query = near if rows is None else rows[near], np.full(len(near), number, np.int32)
        return Found(query, distances[near], places.key[at], places.fragment[at], places.row[at])


def _all(number: int, count: int) -> NDArray[np.int32]:
    """Return the number of a query for each of ``count`` rows."""
    if not number and count <= len(_FIRST):
        return _FIRST[:count]
    return np.full(count, number, np.int32)


def _load(opened: OpenedVectorIndex, partition: int) -> LoadedPartition:
    try:
        return opened.load(partition)
    except CorruptFileError as error:
        raise damaged(error) from error


# --- Choose the vector index of a search ------------------------------------------------


class ChosenIndex(NamedTuple):
    """An index whose segments are searched.

    Parameters
    ----------
    name
        Name of the index.
    segments
        Its segments to search.
    fragments
        Ids of the fragments that these segments cover.
    metric
        Kind of distance of all of them.
    """

    name: str
    segments: tuple[SearchedSegment, ...]
    fragments: FragmentIds
    metric: Metric

    def closed(self, indices: SnapshotIndices) -> ClosedIndex:
        """Return a reference to the index for later searches; opened segments may go."""
        segments = tuple(one.segment for one in self.segments)
        keys = tuple(map(indices.name_of, segments))
        cache = indices.snapshot.session.index_cache
        return ClosedIndex(self.name, segments, self.fragments, self.metric, keys, cache)

    def with_defaults(self, options: NearestOptions) -> NearestOptions:
        """Return options with the defaults of the index for options that the query omits."""
        known = [one.opened.defaults for one in self.segments if one.opened.defaults is not None]
        if not known:
            return options
        chosen = max(one.nprobes for one in known), max(one.refine_factor or 0 for one in known)
        return options.with_defaults(chosen[0], chosen[1] or None)


class ClosedIndex(NamedTuple):
    """An index that was chosen before, for the same search with another query.

    Parameters
    ----------
    name, segments, fragments, metric
        As of :class:`ChosenIndex`.
    keys, cache
        The cache of its opened segments, and their keys.
    """

    name: str
    segments: tuple[IndexedSegment, ...]
    fragments: FragmentIds
    metric: Metric
    keys: tuple[Hashable, ...]
    cache: ByteCache[Hashable, Any]

    def opened(self) -> ChosenIndex | None:
        """Return the same index, if the session still has all its (immutable) segments."""
        name, segments, fragments, metric, keys, cache = self
        found: list[Any] = cache.get_all(keys)
        if None in found:
            return None
        opened = tuple(map(SearchedSegment, segments, found))
        return ChosenIndex(name, opened, fragments, metric)


def choose_index(
    snapshot: Snapshot, field_id: int, kind: VectorType, options: NearestOptions
) -> ChosenIndex | None:
    """Return the first usable index on a field with the requested metric.

    Raises
    ------
    OptionError
        ``ef`` is below the number of wanted rows, and the index has graphs.
    CorruptFileError, DataFileMissingError, NotLanceError
        A file of an index is damaged or absent.
    """
    if not options.use_index or snapshot.manifest.index_section is None:
        return None
    indices = SnapshotIndices.of(snapshot)
    for index in indices.on(field_id):
        if index.kind.name == "vector":
            chosen = _chosen(indices, index, kind, options)
            if chosen is not None:
                return chosen
    return None


def _chosen(
    indices: SnapshotIndices, index: LogicalIndex, kind: VectorType, options: NearestOptions
) -> ChosenIndex | None:
    """Choose segments with the wanted metric; fragments of unknown segments are scanned."""
    opened = searched_segments(indices, index.segments, kind, options.metric)
    if not opened:
        return None
    _check_graphs(opened, options)
    fragments = index.fragments
    if len(opened) < len(index.segments):
        fragments = union_of(one.segment for one in opened)
    return ChosenIndex(index.name, opened, fragments, opened[0].opened.metric)


def searched_segments(
    indices: SnapshotIndices,
    segments: Iterable[IndexedSegment],
    kind: VectorType,
    metric: Metric | None = None,
) -> tuple[SearchedSegment, ...]:
    """Open the segments that compare vectors of a type by a metric.

    Parameters
    ----------
    metric
        Kind of distance; by default the metric of the first segment.

    Raises
    ------
    CorruptFileError, DataFileMissingError, NotLanceError
        A file of a segment is damaged or absent.
    """
    opened: list[SearchedSegment] = []
    for segment in segments:
        try:
            found = indices.open(segment)
        except UnsupportedFeatureError:
            continue
        except CorruptFileError as error:
            raise damaged(error) from error
        if not isinstance(found, OpenedVectorIndex) or found.dimension != kind.dimension:
            continue
        if (found.metric == "hamming") != (kind.element == "uint8"):
            continue
        metric = metric or found.metric
        if found.metric == metric:
            opened.append(SearchedSegment(segment, found))
    return tuple(opened)


def _check_graphs(opened: Iterable[SearchedSegment], options: NearestOptions) -> None:
    if options.ef is None or not any(one.opened.has_graphs for one in opened):
        return
    wanted = (options.k or 1) * (options.refine_factor or 1)
    if options.ef < wanted:
        raise OptionError(
            f"nearest: ef: expected at least {wanted}, the rows wanted of a graph, found "
            f"{options.ef}"
        )


# --- True distances of rows that an index found -----------------------------------------

_GREATEST: Final = float(np.finfo(np.float32).max)


def rescore(
    source: BoundProjection,
    query: VectorQuery,
    found: Found,
    top: TopRows,
    meter: Meter,
    *,
    finite: bool = False,
) -> None:
    """Add rows with their true distances; reads their vectors.

    Parameters
    ----------
    source
        Only the column with the vectors.
    found
        Rows to rescore, query by query.
    finite
        Drop rows whose distance is infinite or NaN: indices omit their vectors.
    """
    if not found.size:
        return
    meter.count("vectors_compared", found.size)
    placed = None if query.kind.several else _in_place(source, found.fragment, found.row)
    if placed is not None:
        near = _nearest_in_place(placed, query, found, top, finite=finite)
        if near is not None:
            top.add(near, in_order=query.answers == 1)
            return
    distances = _measured(source, query, found, meter)
    if finite and not query.kind.several:
        distances[~np.isfinite(distances)] = np.nan
    near_enough = distances <= top.limits[found.query]
    rescored = found._replace(distance=distances)
    top.add(rescored if near_enough.all() else rescored.take(near_enough))


def _measured(source: BoundProjection, query: VectorQuery, found: Found, meter: Meter) -> Float32s:
    """Take the vectors of rows and return their true distances."""
    table = take_physical(source, found.fragment, found.row, meter=meter)
    array: Any = join_large(table.column(0).chunks)
    vectors = row_vectors(array, query.kind)
    if query.answers == 1:
        return query.distances(vectors, 0)
    rows = np.arange(found.size)
    distances = measure_pairs(vectors.block, query.queries, query.metric, rows, found.query)
    if vectors.valid is not None:
        distances[~vectors.valid] = np.nan
    return query.in_range(distances)


def _in_place(source: BoundProjection, fragment: Int64s, row: Int64s) -> PlacedVectors | None:
    """Return the places of plain vectors in mapped files, where they are measured.

    Return ``None`` for other vectors, or before takes have joined the fragments. A single fragment
    is joined here.
    """
    joined = source.joined_before()
    if joined is None:
        positions = distinct(fragment)
        joined = source.joined(positions) if len(positions) == 1 else None
    if joined is None or joined.places is None or not joined.holds(fragment):
        return None
    if not joined.is_resident():
        numbers = joined.numbers(fragment, row)
        if numbers is None or not joined.prepare(numbers):
            return None
    return joined.places


def _nearest_in_place(
    placed: PlacedVectors, query: VectorQuery, found: Found, top: TopRows, *, finite: bool
) -> Found | None:
    """Return the nearest rows by true distances; ``None`` after an error, which a take reports."""
    element, queries = query.kind.element, query.queries
    if placed.width != query.kind.dimension * ELEMENTS[element].itemsize:
        return None  # validity bits precede the numbers
    limits, low = top.limits, -np.inf if query.low is None else query.low
    if finite:
        limits = np.minimum(limits, _GREATEST)
        low = max(low, -_GREATEST)
    near = rescore_rows(placed, element, found, queries, query.metric, limits, top.count, low=low)
    return None if near is None else Found(*near)
