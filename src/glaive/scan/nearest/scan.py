"""A scan that returns the rows whose vectors are nearest to a query.

Rows are searched first, then filtered (unless the filter came first), then put into an order,
and cut by limit and offset; columns are taken of those that remain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.scan.found_columns import FoundColumns
from glaive.scan.indexed.steps import PlanStep, read_step
from glaive.scan.indices import FragmentIds, SnapshotIndices
from glaive.scan.metrics import Meter
from glaive.scan.nearest.allowed import AllowedRows
from glaive.scan.nearest.choice import ChosenIndex, ClosedIndex, choose_index
from glaive.scan.nearest.effort import effort_of
from glaive.scan.nearest.indexed import IndexSearch
from glaive.scan.nearest.options import NearestOptions
from glaive.scan.nearest.rescore import rescore
from glaive.scan.nearest.result import added_columns
from glaive.scan.nearest.top import Found
from glaive.scan.nearest.vector_query import VectorQuery
from glaive.scan.nearest.vectors import VectorType, vector_type
from glaive.scan.options import ScanOptions
from glaive.scan.plan import plan_searched
from glaive.scan.ranked import RankedScan, filters_of
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import ROW_ID
from glaive.scan.take import take_physical
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.scan.filter.scan import FilteredScan
    from glaive.scan.nearest.exact import ExactSearch

__all__ = ["NearestScan"]

_FEW_ALLOWED: Final = 1000
"""Rows that pass a filter up to which comparing their vectors is quicker than an index."""

_CANDIDATES_OF_SEVERAL: Final = 4
"""Rows that an index is asked for by each vector of a query, for each that is wanted."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NearestScan(RankedScan):
    """A search for vectors that is ready to run, once or several times.

    Parameters
    ----------
    nearest
        Of the search.
    query
        What is searched for.
    index
        What is searched with; None: every vector is compared.
    rest
        A scan of the fragments that the index does not cover; None: there are none.
    """

    nearest: NearestOptions
    query: VectorQuery
    index: ChosenIndex | None
    rest: ScanOptions | None

    @classmethod
    def of(cls, views: Views, options: ScanOptions, nearest: NearestOptions) -> NearestScan:
        """Work out the column, the query, the columns of the result and the filter.

        Raises
        ------
        OptionError
            The column has no vectors, or the query does not fit them.
        ColumnNotFoundError, FilterError
            A column does not exist, or the filter cannot be understood.
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

    def without_index(self) -> NearestScan:
        """The same for :meth:`asked_again`: it keeps no opened index."""
        return replace(self, index=None)

    def asked_again(self, vectors: NDArray[Any], closed: ClosedIndex | None) -> NearestScan:
        """The same for other query vectors, as many or, for one query, another.

        Parameters
        ----------
        closed
            The index that it was made with.

        Raises
        ------
        OptionError
            They have another dimension.
        """
        before, index = self.query, None
        if closed is not None:
            index = closed.opened()
            if index is None:
                asked = cast("NearestOptions", self.options.nearest)
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
        """What is going to be done, the last step first."""
        query, snapshot = self.query, self.views.snapshot
        several = f", for each of {query.answers} queries" if query.answers > 1 else ""
        order = "[_distance@0 ASC NULLS LAST, _rowid@1 ASC NULLS LAST]"
        said = f"TopK(fetch={query.count}), expr={order}, preserve_partitioning=[false]{several}"
        steps = [*self._result_steps(), PlanStep("SortExec", said)]
        options: ScanOptions | None = self.options
        if self.index is not None:
            options = self.rest
            if self._rescores:
                said = (
                    f"metric={query.metric}, true distances: {self._candidates} rows of the index"
                )
                steps.append(PlanStep("KNNVectorDistance", said, "search"))
            metric = "L2" if query.metric == "l2" else query.metric.capitalize()
            deltas = len(self.index.segments)
            said = f"name={self.index.name}, k={self._candidates}, deltas={deltas}, metric={metric}"
            steps.append(PlanStep("ANNSubIndex", said, "search"))
            for segment, opened in self.index.segments:
                count = len(opened.partitions)
                effort = effort_of(self.nearest, self.query.count, None, opened.metric, count)
                said = (
                    f"uuid={UUID(bytes=segment.entry.uuid.uuid)}, minimum_nprobes={effort.first}, "
                )
                said += f"maximum_nprobes=Some({effort.most}), deltas={deltas}, "
                said += f"{count} partitions of {opened.num_rows} rows by index {self.index.name}"
                steps.append(PlanStep("ANNIvfPartition", said, "search"))
        if options is not None and not (self.index is None and options.fast_search):
            ranges = plan_searched(snapshot, options)
            rows, column = sum(stop - start for _, start, stop in ranges), self.nearest.column
            said = f"metric={query.metric}, exact search: {rows} rows of {len(ranges)} fragments"
            steps.append(PlanStep("KNNVectorDistance", said, "search"))
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
        if allowed is not None and allowed.count <= max(_FEW_ALLOWED, self.query.count):
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
            applies_range=not several,
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
        """Rows that an index is asked for, for each query vector."""
        wanted = self.query.count * (self.nearest.refine_factor or 1)
        return wanted * _CANDIDATES_OF_SEVERAL if self.query.kind.several else wanted

    @property
    def _rescores(self) -> bool:
        """Whether true distances of the index's rows are wanted: to compare them with others."""
        wanted = self.nearest.refine_factor is not None or self.query.kind.several
        return wanted or self.rest is not None

    @property
    def _by_codes(self) -> VectorQuery:
        """The query as an index compares it: where it has codes, with twice the cosine distance."""
        query, segments = self.query, () if self.index is None else self.index.segments
        exact = {one.opened.codes.are_vectors for one in segments}
        if not self._rescores or exact == {True}:
            return query
        # What codes take for too far may be near enough: only what is too near is left out.
        low = query.low
        if low is not None and query.metric == "cosine":
            low = None if True in exact else 2 * low
        return replace(query, low=low, high=None)

    def _allowed(self, meter: Meter) -> AllowedRows | None:
        """The rows of indexed fragments that are searched; None: all."""
        options = self.options
        restricted = options.fragments is not None or options.range_before is not None
        if self.index is None or not (self.prefilter is not None or restricted):
            return None
        ids = self.views.snapshot.manifest.fragment_ids.tolist()
        wanted = ids if options.fragments is None else options.fragments
        covered = tuple(one for one in wanted if one in self.index.fragments)
        position = self.views.snapshot.manifest.position_of
        with meter.step("prefilter"):
            passed = self._passing(replace(options, fragments=covered), meter).row_ranges()
            return AllowedRows((position(fragment), rows) for fragment, rows in passed)

    def _all_of(self, allowed: AllowedRows) -> Found:
        """All rows that are allowed, for each query."""
        fragment, row = allowed.pairs()
        source = self.views.scan((), with_row_id=True)
        key = take_physical(source, fragment, row).column(0).to_numpy().astype(np.uint64)
        times = self.query.answers
        query = np.repeat(np.arange(times, dtype=np.int32), len(row))
        far = np.zeros(len(query), np.float32)
        return Found(query, far, np.tile(key, times), np.tile(fragment, times), np.tile(row, times))

    def _exact(self, options: ScanOptions, meter: Meter) -> ExactSearch:
        """The search that looks at all vectors of some fragments."""
        from glaive.scan.nearest.exact import ExactSearch

        column = self.nearest.column
        scan = self._passing(options, meter, column, ROW_ID)
        return ExactSearch(scan, scan.run.source.projection.inputs[column], self.query)

    def _passing(self, options: ScanOptions, meter: Meter, *columns: str) -> FilteredScan:
        """The rows of some fragments that pass the filter, if it comes first."""
        from glaive.scan.filter.scan import FilteredScan
        from glaive.scan.filter.search import Search
        from glaive.scan.run.scheduler import ScanRun

        inputs = () if self.prefilter is None else self.prefilter.columns
        source = self.views.scan((), inputs=tuple(dict.fromkeys((*inputs, *columns))))
        rows = replace(options, limit=None, offset=0, order_by=(), late_materialization=None)
        return FilteredScan.of(Search.of(ScanRun(source, rows, meter), self.prefilter))


def _rest(
    snapshot: Snapshot, options: ScanOptions, index: ChosenIndex | None
) -> ScanOptions | None:
    """A scan of the fragments that an index does not cover; None: there are none."""
    if index is None or options.fast_search:
        return None
    if options.fragments is not None:
        rest = tuple(one for one in options.fragments if one not in index.fragments)
    else:
        rest = _not_covered(snapshot, index.fragments)
    return replace(options, fragments=rest) if rest else None


def _not_covered(snapshot: Snapshot, covered: FragmentIds) -> tuple[int, ...]:
    """Ids of the other fragments of a version; worked out once."""
    key = "fragments beside", covered
    known: tuple[int, ...] | None = snapshot.memo.get(key)
    if known is None:
        ids = snapshot.manifest.fragment_ids.tolist()
        known = snapshot.memo[key] = tuple(one for one in ids if one not in covered)
    return known


def _column(snapshot: Snapshot, name: str) -> tuple[int, VectorType]:
    """The id of a field, and the type of its vectors; worked out once for a version.

    Raises
    ------
    OptionError, ColumnNotFoundError
        It has no vectors, or does not exist.
    """
    key = "vectors of", name
    known: tuple[int, VectorType] | None = snapshot.memo.get(key)
    if known is None:
        field = snapshot.manifest.schema.find(name)[-1]
        known = snapshot.memo[key] = field.id, vector_type(field.to_arrow(), name)
    return known
