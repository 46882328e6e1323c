"""Searches whose rows come by distance or score.

The found rows are filtered (unless the filter came first), sorted, and cut by limit and offset. The
scan takes columns of the remaining rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import as_numpy
from glaive.arrow.conditions import HasText, InRange, IsNull, IsOneOf, python_values
from glaive.dataclass import NamedTuple, dataclass
from glaive.index.protocol import HasLabels, HasTokens, IndexQuery, MatchesPattern
from glaive.index.row_sets import RowSet
from glaive.process import anyone_listens
from glaive.scan.found_columns import AddedColumns, FoundColumns, FoundRows, FoundValues
from glaive.scan.options import UNREAD_METER, Meter, Reading, ScanOptions, report
from glaive.scan.run.compare import sorted_rows
from glaive.scan.run.stream import rebatch
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import Views
from glaive.types import Flags, Int64s

if TYPE_CHECKING:
    from glaive.expr.filters import Filter
    from glaive.scan.filter_scan import FilteredScan
    from glaive.scan.indexed import Leaf, Predicate, Searched


# --- Steps of plans, and their text about the indices that answer a filter --------------

_ALTERNATIVES = 3
"""Maximum values of a set that is written as comparisons, as by DataFusion."""


class PlanStep(NamedTuple):
    """A line of a plan. It begins like pylance's: programs look for its words.

    Parameters
    ----------
    name
        Name of pylance's step.
    details
        Its details, pylance's details first.
    part
        The steps of a meter that measure it; empty for the figures of the result.
    """

    name: str
    details: str = ""
    part: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.details}" if self.details else self.name


def listed(names: Iterable[object]) -> str:
    """Write names in brackets."""
    return f"[{', '.join(map(str, names))}]"


def read_step(
    snapshot: Snapshot,
    names: Iterable[str],
    details: str = "source=stream(_rowid)",
    part: str = "columns",
) -> PlanStep:
    """Make a step that reads columns, by default of the found rows."""
    place = snapshot.store.full("data").removeprefix("/")
    return PlanStep("LanceRead", f"uri={place}, projection={listed(names)}, {details}", part)


def projection_step(options: ScanOptions) -> list[PlanStep]:
    """Make the step that computes columns; an empty list if all are stored."""
    named = [one for one in options.columns or () if not isinstance(one, str)]
    details = listed(f"{expression} as {name}" for name, expression in named)
    return [PlanStep("ProjectionExec", f"expr={details}")] if named else []


def filter_text(snapshot: Snapshot, options: ScanOptions, condition: Filter | None) -> str:
    """Write the filter of a reading step, and its terms that indices leave open."""
    if condition is None:
        return "full_filter=--, refine_filter=--"
    from glaive.expr.parse import render
    from glaive.scan.indexed import choose

    used = {term.number for term in choose(snapshot, options, condition.terms, Meter())}
    left = [term for at, term in enumerate(condition.terms) if at not in used]
    refine = " AND ".join(render(term.expression) for term in left)
    whole = len(left) == len(condition.terms)
    return (
        f"full_filter={condition.text}, refine_filter={condition.text if whole else refine or '--'}"
    )


def index_steps(snapshot: Snapshot, options: ScanOptions, condition: Filter) -> list[PlanStep]:
    """Make the step of the indices of a filter; it says which are searched, and why."""
    if condition.never or snapshot.manifest.index_section is None:
        return []
    from glaive.scan.indexed import choose, searchable_terms

    searchable = list(searchable_terms(snapshot, options, condition.terms, Meter()))
    if not searchable:
        return []
    used = {term.number: term for term in choose(snapshot, options, condition.terms, Meter())}
    rest = "left out" if options.fast_search else "scanned"
    details = []
    for term in searchable:
        searched = used.get(term.number)
        known = replace(term, indices=term.all[1]) if searched is None else searched
        names = ", ".join(known.names)
        covered = len(term.fragments)
        found = f"index {names}: about {term.estimate} rows of {covered} fragments"
        if searched is None:
            details.append(f"not used: {found}, looking at the values is quicker")
        else:
            scanned = snapshot.manifest.num_fragments - covered
            details.append(f"by {found}; {scanned} fragments {rest}")
    question = reduce(
        lambda left, right: f"AND({left},{right})", (_render_query(*one.all) for one in searchable)
    )
    return [PlanStep("ScalarIndexQuery", f"query={question}, {'; '.join(details)}", "index")]


def _render_query(predicate: Predicate, indices: Mapping[Leaf, Searched]) -> str:
    """Write a query like pylance: ``AND([a = 7]@a_idx(BTree),[b > 2]@b_idx(Bitmap))``."""
    from glaive.scan.indexed import AllOf, AnyOf, Leaf, Negated

    match predicate:
        case Leaf(path, query):
            index = indices[predicate]
            kind = index.segments[0].segment.entry.index_details.type_url.rpartition(".")[2]
            by = f"@{index.name}({kind.removesuffix('IndexDetails')})"
            tests = [f"[{test}]{by}" for test in _tests(path, query)]
            known = reduce(lambda left, right: f"OR({left},{right})", tests)
            return f"NOT({known})" if getattr(query, "negated", False) else known
        case Negated(operand):
            return f"NOT({_render_query(operand, indices)})"
        case AllOf(operands) | AnyOf(operands):
            word = "AND" if isinstance(predicate, AllOf) else "OR"
            parts = [_render_query(operand, indices) for operand in operands]
            return reduce(lambda left, right: f"{word}({left},{right})", parts)


def _tests(path: str, query: IndexQuery) -> list[str]:
    """Write the alternative tests of a column in a query."""
    match query:
        case InRange(low=low, high=high):
            if low is not None and low == high:
                return [f"{path} = {_value(low)}"]
            bounds = ((low, ">", query.low_included), (high, "<", query.high_included))
            tests = [
                f"{path} {sign}{'=' * included} {_value(bound)}"
                for bound, sign, included in bounds
                if bound is not None
            ]
            return [" && ".join(tests)]
        case IsOneOf(values):
            texts = [_value(value) for value in values]
            if len(texts) > _ALTERNATIVES:
                return [f"{path} IN [{','.join(texts)}]"]
            return [f"{path} = {text}" for text in texts]
        case IsNull():
            return [f"{path} IS NULL"]
        case HasText(word=word, begins=begins, ends=ends):
            like = f"{path} LIKE '{word}%'" if begins else f'ends_with({path}, Utf8("{word}"))'
            return [like if begins or ends else f'contains({path}, Utf8("{word}"))']
        case HasLabels(values, every):
            name = "array_has_all" if every else "array_has_any"
            return [f"{name}({path}, List({listed(map(_value, values))}))"]
        case HasTokens(text):
            return [f'contains_tokens({path}, Utf8("{text}"))']
        case MatchesPattern(pattern):
            return [f'regexp_like({path}, Utf8("{pattern}"))']
    return [f"{path} meets {query}"]


def _value(scalar: Any) -> str:
    """Write a value like pylance."""
    value = python_values(pa.array([scalar]))[0]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.removesuffix(".0") if isinstance(value, float) else text


class RankedRows(FoundRows, Protocol):
    """Rows that a search found, the best first."""

    def take(self, chosen: Int64s | Flags) -> Self:
        """Return chosen rows, in this order."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RankedScan(ABC):
    """A search that is ready to run, once or several times.

    Parameters
    ----------
    views
        The version that is searched.
    options
        Options of the scan.
    columns
        Columns of the result.
    prefilter, postfilter
        Filters before and after the search.
    """

    views: Views
    options: ScanOptions
    columns: FoundColumns
    prefilter: Filter | None
    postfilter: Filter | None

    @abstractmethod
    def steps(self) -> list[PlanStep]:
        """Return the steps of the search, the last step first."""

    @abstractmethod
    def _search(self, meter: Meter) -> RankedRows:
        """Return the best rows, in their order."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result."""
        return self.columns.schema

    def table(self, meter: Meter | None = None) -> pa.Table:
        """Return the found rows."""
        reported = self.options.scan_stats_callback is not None or anyone_listens()
        if meter is None and not reported:
            return self.columns.table(self._found(UNREAD_METER), UNREAD_METER)
        snapshot, meter = self.views.snapshot, meter or Meter()
        before = Reading.of(snapshot)
        found = self._found(meter)
        with meter.step("columns"):
            table = self.columns.table(found, meter)
        if reported:
            report(snapshot, self.options, meter, before, table.num_rows)
        return table

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the found rows, in batches; all are searched before the first."""
        from glaive.arrow.chunked import join_batches

        yield from rebatch(join_batches(self.table()), self.options)

    def count(self, meter: Meter | None = None) -> int:
        """Count the rows of the result."""
        return self._found(meter or UNREAD_METER).size

    def _result_steps(self) -> list[PlanStep]:
        """Return the steps after the search, the last step first."""
        options, steps = self.options, projection_step(self.options)
        names = [
            path for path in self.columns.plain if path and path not in self.columns.added.types
        ]
        steps.append(read_step(self.views.snapshot, names))
        if options.limit is not None or options.offset:
            fetch = "None" if options.limit is None else options.limit
            steps.append(PlanStep("GlobalLimitExec", f"skip={options.offset}, fetch={fetch}"))
        if options.order_by:
            keys = listed(order.column_name for order in options.order_by)
            steps.append(PlanStep("SortExec", f"expr={keys}, preserve_partitioning=[false]"))
        if self.postfilter is not None:
            steps.append(PlanStep("FilterExec", self.postfilter.text))
        return steps

    def _prefilter_steps(self) -> list[PlanStep]:
        """Return the steps that filter rows before the search."""
        if self.prefilter is None:
            return []
        steps = index_steps(self.views.snapshot, self.options, self.prefilter)
        return [PlanStep("FilterExec", self.prefilter.text, "search"), *steps]

    def _found(self, meter: Meter) -> RankedRows:
        """Return the rows of the result, in its order."""
        options = self.options
        if meter is UNREAD_METER:
            found = self._search(meter)
        else:
            with meter.step("search", self.views.snapshot.store.counters):
                found = self._search(meter)
            meter.count("rows_found", found.size)
        if self.postfilter is not None and found.size:
            with meter.step("filter"):
                values = FoundValues.of(self.views, self.postfilter.columns, self.columns.added)
                mask = self.postfilter.mask(values.batch(found, meter))
                found = found.take(as_numpy(mask))
        if options.order_by and found.size:
            with meter.step("sort"):
                names = [order.column_name for order in options.order_by]
                values = FoundValues.of(self.views, names, self.columns.added)
                batch = values.batch(found, meter)
                columns = [batch.column(name) for name in names]
                found = found.take(sorted_rows(columns, options.order_by))
        stop = None if options.limit is None else options.offset + options.limit
        if options.offset or (stop is not None and stop < found.size):
            found = found.take(np.arange(found.size)[options.offset : stop])
        return found


def filters_of(
    views: Views, options: ScanOptions, added: AddedColumns
) -> tuple[Filter | None, Filter | None]:
    """Return the filters before and after the search.

    Raises
    ------
    ColumnNotFoundError, FilterError
        A column of the filter or of the order is missing, or the filter is invalid.
    """
    for order in options.order_by:
        if order.column_name not in added.types:
            views.snapshot.manifest.schema.find(order.column_name)
    if options.filter is None:
        return None, None
    if options.prefilter:
        return views.filter(options.filter), None
    from glaive.expr.filters import bind_filter

    source, schema = options.filter, views.snapshot.manifest.schema
    return None, bind_filter(source, schema, system=added.types)  # type: ignore[arg-type]  # it checks


def parted(
    snapshot: Snapshot, options: ScanOptions, covered: frozenset[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """List the ids of fragments that an index covers, and of fragments that are read.

    For whole versions this is computed once.
    """
    key = "parted", covered, options.fast_search
    known: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    if options.fragments is None:
        known = snapshot.memo.get(key)
    if known is None:
        wanted = options.fragments
        ids = snapshot.manifest.fragment_ids.tolist() if wanted is None else wanted
        rest = () if options.fast_search else tuple(one for one in ids if one not in covered)
        known = tuple(one for one in ids if one in covered), rest
        if wanted is None:
            snapshot.memo[key] = known
    return known


def passing_rows(  # of a search
    views: Views,
    options: ScanOptions,
    condition: Filter | None,
    meter: Meter,
    columns: tuple[str, ...] = (),
    inputs: tuple[str, ...] = (),
) -> FilteredScan:
    """Return the rows of the fragments of a search that pass a filter.

    Parameters
    ----------
    options
        Options of the search; options of its result are ignored.
    columns
        Columns of the rows, if any, and then the addresses.
    inputs
        Other columns to be read.
    """
    from glaive.scan.filter_scan import FilteredScan
    from glaive.scan.filter_search import Search
    from glaive.scan.run.scheduler import ScanRun

    tested = () if condition is None else tuple(condition.columns)
    source = views.scan(
        columns, with_row_address=bool(columns), inputs=tuple(dict.fromkeys((*tested, *inputs)))
    )
    rows = replace(
        options, columns=None, limit=None, offset=0, order_by=(), late_materialization=None,
        nearest=None, full_text_query=None,
    )  # fmt: skip
    return FilteredScan.of(Search.of(ScanRun(source, rows, meter), condition))


def addresses_of(scan: FilteredScan) -> RowSet:
    """Return the addresses of the rows of a scan."""
    found = [np.zeros(0, np.uint64)]
    for fragment, rows in scan.row_ranges():
        found.append(np.uint64(fragment << 32) | rows.astype(np.uint64))
    return RowSet.of(np.concatenate(found))
