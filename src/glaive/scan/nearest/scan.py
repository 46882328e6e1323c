"""A scan that returns the rows whose vectors are nearest to a query.

Rows are searched first, then filtered (unless the filter came first), sorted, and cut by limit and
offset. The scan takes columns of the remaining rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.chunked import as_numpy, join_large
from glaive.dataclass import dataclass
from glaive.index.vector.storage import normalized
from glaive.kernels.distances import (
    ELEMENTS,
    MAX_LENGTH,
    MIN_LENGTH,
    Metric,
    VectorBlock,
    measure_pairs,
    squared_norms,
)
from glaive.kernels.products import CHUNK, QueryTable, select_near
from glaive.scan.bound import BoundFragment
from glaive.scan.filter_scan import FilteredScan
from glaive.scan.filter_search import FragmentSelection
from glaive.scan.found_columns import FoundColumns
from glaive.scan.indices import SnapshotIndices
from glaive.scan.nearest.indexed import (
    AllowedRows,
    ChosenIndex,
    ClosedIndex,
    IndexSearch,
    choose_index,
    effort_of,
    rescore,
)
from glaive.scan.nearest.options import NearestOptions, query_vectors
from glaive.scan.nearest.vectors import (
    QUERY,
    Found,
    RowVectors,
    TopRows,
    VectorQuery,
    VectorType,
    added_columns,
    nearest_of,
    row_vectors,
    vector_type,
)
from glaive.scan.options import Meter, ScanOptions
from glaive.scan.plan import plan_searched
from glaive.scan.projection import ROW_ID, Output, refuse_reserved_names
from glaive.scan.ranked import PlanStep, RankedScan, filters_of, parted, passing_rows, read_step
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take_physical
from glaive.scan.views import Views
from glaive.types import Flags, Float32s, Int64s, UInt64s

# --- Exact search: the distance of every row that passes, in bounded memory -------------

# --- Vectors of some rows of a fragment, and their rows ---------------------------------

_PIECE_BYTES: Final = 1 << 20
"""Approximate minimum bytes of vectors that are read page by page."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedVectors:
    """Vectors of a fragment.

    Parameters
    ----------
    position
        Position of the fragment in the list.
    rows
        Physical row of each vector, or of the first vector if the rows are consecutive.
    kept
        Numbers of the vectors to search, ascending; ``None`` for all.
    """

    bound: BoundFragment
    position: int
    vectors: RowVectors
    rows: Int64s | int
    kept: Int64s | None = None

    def found(self, query: NDArray[np.int32], numbers: Int64s, distances: Float32s) -> Found:
        """Return vectors by their numbers, as found rows."""
        rows = self.rows + numbers if isinstance(self.rows, int) else self.rows[numbers]
        keys = self.bound.system_columns.of(ROW_ID, rows)
        return Found(query, distances, keys, np.full(len(rows), self.position, np.int64), rows)


def load_vectors(
    selection: FragmentSelection, output: Output, kind: VectorType, position: int
) -> Iterator[LoadedVectors]:
    """Read the vectors of selected rows: of the whole range, if most are selected.

    Plain vectors in mapped files are views, page by page.
    """
    selected, bound = selection.selected, selection.bound
    column = bound.stored[output.at]
    if selected.is_few(column.taken_share):
        vectors = _vectors_of(column.take(selected.rows), output, kind)
        yield LoadedVectors(bound, position, vectors, selected.rows)
        return
    offsets = None if selected.count == selected.span else selected.offsets
    pages = column.cuts() if bound.mapped else np.empty(0, np.int64)
    for start, stop in pairwise(_pieces(pages, selected.start, selected.stop, kind)):
        kept: Int64s | None = None
        if offsets is not None:
            before = start - selected.start
            first, end = offsets.searchsorted((before, stop - selected.start)).tolist()
            kept = offsets[first:end] - before
            if first == end:
                continue
        vectors = _vectors_of(column.read(start, stop), output, kind)
        yield LoadedVectors(bound, position, vectors, start, kept)


def _pieces(pages: Int64s, start: int, stop: int, kind: VectorType) -> list[int]:
    """Return where to divide a range: at beginnings of pages; small pages stay together."""
    inner = pages[(pages > start) & (pages < stop)]
    rows = max(1, _PIECE_BYTES // (kind.dimension * ELEMENTS[kind.element].itemsize))
    _, firsts = np.unique((inner - start) // rows, return_index=True)
    return [start, *inner[firsts].tolist(), stop]


def _vectors_of(array: Any, output: Output, kind: VectorType) -> RowVectors:
    for name in output.path:
        array = array.flatten()[array.type.get_field_index(name)]
    return row_vectors(array, kind)


# --- Exact search for many queries at once, by matrix products --------------------------
# A product of single precision is too inexact to decide which rows are nearest: distances of near
# vectors are small differences of large numbers. So it selects candidates by a bound of its error,
# and their distances are computed one by one. Products of bytes take a quarter of the time, unless
# they select too many.

_FIRST_BLOCK_ROWS: Final = 512
_MAX_BLOCK_ROWS: Final = 1 << 14
"""Vectors of the first block, and of later blocks: each block lowers the limits."""

_MIN_PAIRS: Final = 1 << 16
"""Minimum pairs of a query and a row whose distances are computed at a time."""


class BatchSearch:
    """Finds the nearest rows of many queries, block by block. Threads may share it."""

    def __init__(self, query: VectorQuery, top: TopRows) -> None:
        self._query, self._top = query, top
        queries = query.queries
        with np.errstate(all="ignore"):
            matrix = queries.matrix
            if query.metric == "cosine":
                matrix = np.nan_to_num(normalized(matrix))
            self._matrix = matrix.astype(np.float32)
            self._squares = np.square(queries.norms)
        self._table = QueryTable(self._matrix)
        self._capacity = max(_MIN_PAIRS, CHUNK * len(self._matrix))
        # Error of sums of so many products, in units of the sum of both squared lengths.
        self._error = np.float32(2 * (query.kind.dimension + 16) * np.finfo(np.float32).eps)

    @classmethod
    def is_possible(cls, query: VectorQuery) -> bool:
        """Return whether products select few rows for this query."""
        few = query.count * 2 <= _MAX_BLOCK_ROWS
        return few and not query.kind.several and query.metric != "hamming"

    def search(self, loaded: LoadedVectors) -> None:
        """Add the nearest rows of some vectors."""
        vectors = loaded.vectors
        searched: Flags | None = vectors.valid
        if loaded.kept is not None:
            searched = np.zeros(vectors.block.count, np.bool_)
            searched[loaded.kept] = True
            if vectors.valid is not None:
                searched &= vectors.valid
        dimension = self._query.kind.dimension
        start, size = 0, _MAX_BLOCK_ROWS
        if np.isinf(self._top.limits).any():
            size = max(_FIRST_BLOCK_ROWS, 2 * self._query.count)
        while start < vectors.block.count:
            stop = min(vectors.block.count, start + size)
            values = vectors.block.values[start * dimension : stop * dimension]
            block = replace(vectors.block, values=values)
            part = None if searched is None else searched[start:stop]
            if np.isinf(self._top.limits).any() and self._query.low is None:
                self._first_limits(block, part)
            self._block(loaded, start, block, part)
            start, size = stop, min(2 * size, _MAX_BLOCK_ROWS)

    def _block(
        self, loaded: LoadedVectors, start: int, block: VectorBlock, searched: Flags | None
    ) -> None:
        stored = wide = block.widened()
        with np.errstate(all="ignore"):
            if wide.element != "float32":
                wide = VectorBlock(wide.values.astype(np.float32), wide.dimension, "float32")
            offsets, factors = self._bounds(stored, squared_norms(wide))
            if searched is not None:
                offsets[~searched], factors[~searched] = np.inf, 0
        end = 0
        while end < wide.count:
            numbers = (offsets, factors, self._limits(), end, self._capacity)
            query_of, row_of, end = select_near(wide.matrix, self._table, *numbers)
            self._add(loaded, start, block, query_of, row_of.astype(np.int64), searched)

    def _bounds(self, stored: VectorBlock, squares: Float32s) -> tuple[Float32s, Float32s]:
        """Return the offset and the factor of the products of each row.

        Offset plus scaled product, less the error in :meth:`_limits`, is at most the distance.
        """
        count = len(squares)
        if self._query.metric == "l2":
            return squares - self._error * squares, np.full(count, -2, np.float32)
        if self._query.metric == "dot":
            return -self._error * squares, np.full(count, -1, np.float32)
        lengths = np.sqrt(squares)
        factors = (-1 / lengths).astype(np.float32)
        offsets = np.zeros(count, np.float32)
        odd = (~((lengths > MIN_LENGTH) & (lengths < MAX_LENGTH))).nonzero()[0]
        if len(odd):
            # Vectors of length 0 lack a cosine. Products of other vectors may be inexact: they are
            # within all limits, like NaN.
            none = np.isnan(squares[odd]) | ~stored.matrix[odd].any(axis=1)
            offsets[odd], factors[odd] = np.where(none, np.inf, np.nan), 0
        return offsets, factors

    def _limits(self) -> Float32s:
        """Return the upper limit of offset plus product, for each query."""
        limits, metric = self._top.limits, self._query.metric
        made: NDArray[Any]
        with np.errstate(all="ignore"):
            if metric == "l2":
                made = limits - self._squares + 2 * self._error * (self._squares + limits)
            else:
                made = limits + np.abs(limits) * self._error - 1 + self._error
                if metric == "dot":
                    made = made + self._error * self._squares
            return made.astype(np.float32)

    def _first_limits(self, block: VectorBlock, searched: Flags | None) -> None:
        """Lower the limits to the distances of the nearest rows of a part of a block."""
        count, query = self._query.count, self._query
        rows = np.arange(block.count) if searched is None else searched.nonzero()[0]
        rows = rows[: max(_FIRST_BLOCK_ROWS, count)]
        if len(rows) < count:
            return
        queries = np.arange(query.queries.count, dtype=np.int32).repeat(len(rows))
        distances = measure_pairs(
            block, query.queries, query.metric, np.tile(rows, query.queries.count), queries
        ).reshape(-1, len(rows))
        last = np.partition(distances, count - 1, axis=1)[:, count - 1]  # NaN come last
        better = last < self._top.limits
        self._top.limits[better] = last[better]

    def _add(
        self,
        loaded: LoadedVectors,
        start: int,
        block: VectorBlock,
        query_of: NDArray[np.int32],
        row_of: Int64s,
        searched: Flags | None,
    ) -> None:
        """Compute distances of selected pairs, and keep near rows."""
        query, top = self._query, self._top
        if searched is not None:
            kept = searched[row_of]
            query_of, row_of = query_of[kept], row_of[kept]
        distances = measure_pairs(block, query.queries, query.metric, row_of, query_of)
        distances = query.in_range(distances)
        near = (distances <= top.limits[query_of]).nonzero()[0]
        if len(near):
            top.add(loaded.found(query_of[near], start + row_of[near], distances[near]))


_MIN_BATCH_QUERIES: Final = 4
"""Minimum queries for which a matrix product is faster than one query after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class ExactSearch:
    """A search that compares all vectors.

    Parameters
    ----------
    scan
        The rows to search; its projection has the row id.
    output
        The column with the vectors, within the projection.
    query
        The query.
    """

    scan: FilteredScan
    output: Output
    query: VectorQuery

    def find(self, top: TopRows) -> None:
        """Add the nearest rows. Memory: windows of vectors of fetched files."""
        query = self.query
        if query.answers >= _MIN_BATCH_QUERIES and BatchSearch.is_possible(query):
            batch = BatchSearch(query, top)
            deque(self.scan.map(lambda rows: self._each(rows, batch.search), stream=False), 0)
        else:
            one = partial(self._search, top)
            deque(self.scan.map(lambda rows: self._each(rows, one), stream=False), 0)

    def _each(self, selection: FragmentSelection, search: Callable[[LoadedVectors], None]) -> None:
        """Search the vectors of some rows, part by part."""
        position = selection.bound.position
        for loaded in load_vectors(selection, self.output, self.query.kind, position):
            search(loaded)
        self.scan.run.meter.count("vectors_compared", selection.count * self.query.answers)

    def _search(self, top: TopRows, loaded: LoadedVectors) -> None:
        for query in range(self.query.answers):
            distances = self.query.distances(loaded.vectors, query)
            if loaded.kept is not None:
                distances = distances[loaded.kept]
            near = nearest_of(distances, self.query.count, float(top.limits[query]))
            if len(near):
                numbers = near if loaded.kept is None else loaded.kept[near]
                number = np.full(len(near), query, np.int32)
                top.add(loaded.found(number, numbers, distances[near]))


_MAX_COMPARED_ROWS: Final = 1000
"""Maximum rows that pass a filter whose vectors are compared instead of searching an index."""

_CANDIDATES_OF_SEVERAL: Final = 4
"""Candidates of an index per wanted row, for each vector of a query."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NearestScan(RankedScan):
    """A search for vectors that is ready to run, once or several times.

    Parameters
    ----------
    nearest
        Options of the search.
    query
        The query.
    index
        The index; ``None`` compares all vectors.
    rest
        A scan of unindexed fragments, if any.
    """

    nearest: NearestOptions
    query: VectorQuery
    index: ChosenIndex | None
    rest: ScanOptions | None

    @classmethod
    def of(cls, views: Views, options: ScanOptions, nearest: NearestOptions) -> NearestScan:
        """Resolve the column, the query, the columns of the result and the filter.

        Raises
        ------
        OptionError
            The column lacks vectors, or the query does not fit them.
        ColumnNotFoundError, FilterError
            A column is missing, or the filter is invalid.
        """
        name = nearest.column
        field_id, kind = _column(views.snapshot, name)
        queries = kind.queries(nearest.query, name)
        if nearest.metric is not None:
            kind.check_metric(nearest.metric, name)
        index = choose_index(views.snapshot, field_id, kind, nearest)
        if index is not None:
            nearest = index.with_defaults(nearest)
        metric = nearest.metric or (index.metric if index else kind.default_metric)
        low, high = nearest.distance_range
        query = VectorQuery(kind, queries, metric, nearest.count(options.limit), low, high)
        batch = nearest.query.ndim == 2 and not kind.several
        added = added_columns(views, batch=batch)
        columns = FoundColumns.of(views, options, added)
        prefilter, postfilter = filters_of(views, options, added)
        return cls(
            views=views, options=options, columns=columns, prefilter=prefilter,
            postfilter=postfilter, nearest=nearest, query=query, index=index,
            rest=_rest(views.snapshot, options, index),
        )  # fmt: skip

    def with_query(self, given: object, closed: ClosedIndex | None) -> NearestScan:
        """Return the search for another query, as users write it; this search may lack its index.

        Parameters
        ----------
        closed
            The index of the earlier search.

        Raises
        ------
        OptionError
            The query has other values than numbers, is empty, or has another dimension.
        """
        vectors, before = query_vectors(given), self.query
        asked = cast("NearestOptions", self.options.nearest)
        index = None if closed is None else closed.opened()
        if (closed is not None and index is None) or vectors.ndim != asked.query.ndim:
            return NearestScan.of(self.views, self.options, replace(asked, query=vectors))
        kind = before.kind
        queries = kind.queries(vectors, self.nearest.column)
        query = VectorQuery(kind, queries, before.metric, before.count, before.low, before.high)
        return NearestScan(
            views=self.views, options=self.options, columns=self.columns,
            prefilter=self.prefilter, postfilter=self.postfilter, nearest=self.nearest,
            query=query, index=index, rest=self.rest,
        )  # fmt: skip

    def steps(self) -> list[PlanStep]:
        """Return the steps of the search, the last step first."""
        query, snapshot = self.query, self.views.snapshot
        several = f", for each of {query.answers} queries" if query.answers > 1 else ""
        order = "[_distance@0 ASC NULLS LAST, _rowid@1 ASC NULLS LAST]"
        details = f"TopK(fetch={query.count}), expr={order}, preserve_partitioning=[false]{several}"
        steps = [*self._result_steps(), PlanStep("SortExec", details)]
        options: ScanOptions | None = self.options
        if self.index is not None:
            options = self.rest
            if self._rescores:
                details = (
                    f"metric={query.metric}, true distances: {self._candidates} rows of the index"
                )
                steps.append(PlanStep("KNNVectorDistance", details, "search"))
            metric = "L2" if query.metric == "l2" else query.metric.capitalize()
            deltas = len(self.index.segments)
            details = (
                f"name={self.index.name}, k={self._candidates}, deltas={deltas}, metric={metric}"
            )
            steps.append(PlanStep("ANNSubIndex", details, "search"))
            for segment, opened in self.index.segments:
                count = len(opened.partitions)
                effort = effort_of(self.nearest, self.query.count, None, opened.metric, count)
                details = (
                    f"uuid={UUID(bytes=segment.entry.uuid.uuid)}, minimum_nprobes={effort.first}, "
                )
                details += f"maximum_nprobes=Some({effort.max_partitions}), deltas={deltas}, "
                details += (
                    f"{count} partitions of {opened.num_rows} rows by index {self.index.name}"
                )
                steps.append(PlanStep("ANNIvfPartition", details, "search"))
        if options is not None and not (self.index is None and options.fast_search):
            ranges = plan_searched(snapshot, options)
            rows, column = sum(stop - start for _, start, stop in ranges), self.nearest.column
            details = f"metric={query.metric}, exact search: {rows} rows of {len(ranges)} fragments"
            steps.append(PlanStep("KNNVectorDistance", details, "search"))
            steps.append(read_step(snapshot, (column,), f"num_fragments={len(ranges)}", "search"))
        return steps + self._prefilter_steps()

    def _search(self, meter: Meter) -> Found:
        if self.index is None:
            top = self.query.top()
            if not self.options.fast_search:
                self._exact(self.options, meter).find(top)
            return top.result()
        allowed = self._allowed(meter)
        rest, rescores = self.rest, self._rescores
        if allowed is not None and allowed.count <= max(_MAX_COMPARED_ROWS, self.query.count):
            top, source = self.query.top(), self.views.scan((self.nearest.column,))
            rescore(source, self.query, self._all_of(allowed), top, meter, finite=True)
            if rest is not None:
                self._exact(rest, meter).find(top)
            return top.result()
        several = self.query.kind.several
        search = IndexSearch(
            indices=SnapshotIndices.of(self.views.snapshot),
            segments=self.index.segments,
            query=self._by_codes,
            options=self.nearest,
            candidates=self._candidates,
            allowed=allowed,
            meter=meter,
        )
        found = search.find()
        if several:
            found = found.without_repeats()
        elif rest is None and not rescores:
            return found
        top = self.query.top()
        if rescores:
            source = self.views.scan((self.nearest.column,))
            rescore(source, self.query, found, top, meter)
        else:
            top.add(found)
        if rest is not None:
            self._exact(rest, meter).find(top)
        return top.result()

    @property
    def _candidates(self) -> int:
        """Number of rows to find in an index, for each query vector."""
        wanted = self.query.count * (self.nearest.refine_factor or 1)
        return wanted * _CANDIDATES_OF_SEVERAL if self.query.kind.several else wanted

    @property
    def _rescores(self) -> bool:
        """Whether to compute true distances of the rows that the index finds."""
        wanted = self.nearest.refine_factor is not None or self.query.kind.several
        return wanted or self.rest is not None

    @property
    def _by_codes(self) -> VectorQuery:
        """The query for an index, whose distances are of single vectors.

        An index with codes uses twice the cosine distance.
        """
        query, segments = self.query, () if self.index is None else self.index.segments
        if (query.low is None and query.high is None) or not self._rescores:
            return query
        exact, several = {one.opened.codes.are_vectors for one in segments}, query.kind.several
        if exact == {True} and not several:
            return query
        # Rows that are too far by codes may be near enough: only drop rows that are too near.
        low = None if several else query.low
        if low is not None and query.metric == "cosine":
            low = None if True in exact else 2 * low
        return replace(query, low=low, high=None)

    def _allowed(self, meter: Meter) -> AllowedRows | None:
        """Return the rows to search in indexed fragments; ``None`` for all."""
        options = self.options
        restricted = options.fragments is not None or options.range_before is not None
        if self.index is None or not (self.prefilter is not None or restricted):
            return None
        covered, _ = parted(self.views.snapshot, options, self.index.fragments)
        position = self.views.snapshot.manifest.position_of
        with meter.step("prefilter"):
            passed = self._passing(replace(options, fragments=covered), meter).row_ranges()
            return AllowedRows((position(fragment), rows) for fragment, rows in passed)

    def _all_of(self, allowed: AllowedRows) -> Found:
        """Return all allowed rows, for each query."""
        fragment, row = allowed.pairs()
        source = self.views.scan((), with_row_id=True)
        key = as_numpy(take_physical(source, fragment, row).column(0)).astype(np.uint64)
        times = self.query.answers
        query = np.arange(times, dtype=np.int32).repeat(len(row))
        far = np.zeros(len(query), np.float32)
        return Found(query, far, np.tile(key, times), np.tile(fragment, times), np.tile(row, times))

    def _exact(self, options: ScanOptions, meter: Meter) -> ExactSearch:
        """Return the search that compares all vectors of some fragments."""
        column = self.nearest.column
        scan = self._passing(options, meter, column, ROW_ID)
        return ExactSearch(scan, scan.run.source.projection.inputs[column], self.query)

    def _passing(self, options: ScanOptions, meter: Meter, *columns: str) -> FilteredScan:
        """Return the rows of some fragments that pass a prefilter."""
        return passing_rows(self.views, options, self.prefilter, meter, inputs=columns)


def _rest(
    snapshot: Snapshot, options: ScanOptions, index: ChosenIndex | None
) -> ScanOptions | None:
    """Return a scan of unindexed fragments, if any."""
    rest = () if index is None else parted(snapshot, options, index.fragments)[1]
    return replace(options, fragments=rest) if rest else None


def _column(snapshot: Snapshot, name: str) -> tuple[int, VectorType]:
    """Return the id of a field and the type of its vectors, computed once for a version.

    Raises
    ------
    OptionError, ColumnNotFoundError
        It lacks vectors, or is missing.
    """
    key = "vectors of", name
    known: tuple[int, VectorType] | None = snapshot.memo.get(key)
    if known is None:
        field = snapshot.manifest.schema.find(name)[-1]
        known = snapshot.memo[key] = field.id, vector_type(field.to_arrow(), name)
    return known


# --- Recall of a vector index: the share of the nearest rows that a search with it finds
# It is measured with vectors of the dataset itself; each search drops the row of its query.

_NEIGHBOURS: Final = 10
"""Rows to find in addition to the row of the query."""


@dataclass(frozen=True, slots=True, eq=False)
class RecallSample:
    """Vectors of a column, and the rows that are nearest to each.

    Parameters
    ----------
    views
        The version.
    options
        Options with the fragments to search.
    nearest
        The search: column, metric, queries, and number of wanted rows.
    own
        ``uint64``: row id of each query.
    nearby
        Row ids of the nearest rows of each query.
    """

    views: Views
    options: ScanOptions
    nearest: NearestOptions
    own: UInt64s
    nearby: tuple[frozenset[int], ...]

    @classmethod
    def of(
        cls, views: Views, column: str, metric: Metric, count: int, fragments: Sequence[int]
    ) -> RecallSample | None:
        """Draw ``count`` rows at random, always the same, and search exactly.

        Return ``None`` if all vectors are null. Cost: one pass over the vectors, whatever
        ``count``.

        Parameters
        ----------
        fragments
            Ids of the fragments to search.
        """
        field = views.snapshot.manifest.schema.find(column)[-1].to_arrow()
        kind = vector_type(field, column)
        fragment, row = _random_rows(views, count, fragments)
        if kind.several or not len(row):
            return None
        refuse_reserved_names(views.snapshot.manifest.schema, ROW_ID)
        source = views.scan((column, ROW_ID))
        table = take_physical(source, fragment, row)
        array: Any = join_large(table.column(0).chunks)
        vectors = row_vectors(array, kind)
        wide = vectors.block.widened()
        matrix: NDArray[Any] = wide.values.astype(ELEMENTS[wide.element]).reshape(len(row), -1)
        good: Flags = np.isfinite(matrix).all(axis=1)
        if vectors.valid is not None:
            good &= vectors.valid
        own = as_numpy(table.column(1))[good]
        if not len(own):
            return None
        restricted = len(fragments) < views.snapshot.manifest.num_fragments
        options = ScanOptions(
            columns=(), with_row_id=True, disable_scoring_autoprojection=True,
            fragments=tuple(fragments) if restricted else None,
        )  # fmt: skip
        nearest = NearestOptions(
            column=column, query=matrix[good], k=_NEIGHBOURS + 1, metric=metric, use_index=False
        )
        made = cls(views, options, nearest, own, ())
        return replace(made, nearby=tuple(map(frozenset, made._found(None, nearest))))

    def recall(
        self, index: ChosenIndex, *, nprobes: int | None = None, refine_factor: int | None = None
    ) -> float:
        """Return the share of the nearest rows that a search with an index finds.

        Parameters
        ----------
        nprobes, refine_factor
            As for searches; ``None`` for the default of searches.
        """
        nearest = replace(self.nearest, refine_factor=refine_factor)
        if nprobes is not None:
            nearest = replace(nearest, minimum_nprobes=nprobes, maximum_nprobes=nprobes)
        else:
            nearest = index.with_defaults(nearest)
        found = self._found(index, nearest)
        wanted = sum(map(len, self.nearby))
        hits = sum(len(near & set(ids)) for near, ids in zip(self.nearby, found, strict=True))
        return hits / wanted if wanted else 1.0

    def _found(self, index: ChosenIndex | None, nearest: NearestOptions) -> list[list[int]]:
        """Return the ids of the rows found for each query, except its own."""
        scan = replace(NearestScan.of(self.views, self.options, nearest), index=index)
        table = scan.table()
        query, ids = as_numpy(table[QUERY]), as_numpy(table[ROW_ID])
        other = ids != self.own[query]
        bounds = query[other].searchsorted(np.arange(len(self.own) + 1))
        listed = ids[other].tolist()
        return [
            listed[first : min(last, first + _NEIGHBOURS)]
            for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]


def _random_rows(views: Views, count: int, fragments: Sequence[int]) -> tuple[Int64s, Int64s]:
    """Draw live rows at random; return fragment positions and physical rows, ascending."""
    snapshot = views.snapshot
    positions = np.array(snapshot.positions_of(fragments), np.int64)
    ends = snapshot.live_counts[positions].cumsum()
    total = int(ends[-1]) if len(ends) else 0
    random = np.random.default_rng(total)
    drawn = np.sort(random.choice(total, min(count, total), replace=False))
    part = ends.searchsorted(drawn, side="right")
    row = drawn - (ends - snapshot.live_counts[positions])[part]
    for at in np.unique(part).tolist():
        live = snapshot.live_rows(snapshot.manifest.fragment(int(positions[at])))
        if live is not None:
            selected = part == at
            row[selected] = live.physical(row[selected])
    return positions[part], row
