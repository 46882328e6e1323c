"""Which rows of a fragment pass a filter.

Terms are evaluated in turn, each on the rows that passed the ones before: first statistics,
then columns that find values themselves (``BoundColumn.find``), then all others, whose
columns are decoded in windows that stay in the processor's cache, or, once few rows remain,
for these rows only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.capacity import in_parts
from glaive.dataclass import dataclass
from glaive.errors import CapacityError, FilterError
from glaive.file.run_fetch import and_then
from glaive.scan.bound import BoundFragment
from glaive.scan.filter.columns import LazyColumns
from glaive.scan.filter.rows import RowSelection
from glaive.scan.filter.selection import FragmentSelection, read_in_one_request
from glaive.scan.filter.terms import rows_passing
from glaive.scan.metrics import Meter
from glaive.scan.projection import Output
from glaive.scan.run.scheduler import ALIGNED_ROWS, ScanRun, whole_chunks
from glaive.types import Int64s, RowRange

if TYPE_CHECKING:
    from glaive.arrow.conditions import Condition
    from glaive.expr.filters import Filter, Term
    from glaive.scan.indexed.answers import IndexAnswer

__all__ = ["Search", "answers_of"]

_SPARSE_SHARE = 0.05
"""Share of rows up to which terms are evaluated on single rows, and no more on ranges."""

_WINDOW_BYTES = 1024 * 1024
"""Bytes decoded at a time to test them: they stay in the second-level cache."""

_FETCH_BYTES = 16 * 1024 * 1024
"""The same of files that must be fetched: fewer, larger requests."""

_MAX_WINDOW_ROWS = 128 * 1024
"""Rows of a window, whatever their size; at least, and in multiples of, ``ALIGNED_ROWS``."""


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """The terms of a filter, and the run of the scan whose rows they test.

    Parameters
    ----------
    terms
        Tests that must all pass, the quick ones first.
    never
        Whether no row can pass.
    answers
        What indices found, by number of the term.
    """

    run: ScanRun
    terms: Sequence[Term] = ()
    never: bool = False
    answers: Mapping[int, IndexAnswer] = field(default_factory=dict)

    @classmethod
    def of(cls, run: ScanRun, condition: Filter | None) -> Search:
        """A search by a filter, its terms in the order of what they cost."""
        inputs = run.source.projection.inputs

        def cost(term: Term) -> int:
            if term.condition is None:
                return 2
            return 1 if inputs[term.condition[0]].system is None else 0

        if condition is None:
            return cls(run)
        terms = condition.terms
        if len(terms) > 1:
            terms = tuple(sorted(terms, key=cost))
        answers = {} if condition.never else answers_of(run, terms)
        return cls(run, terms, condition.never, answers)

    @property
    def inputs(self) -> Mapping[str, Output]:
        """Where the columns of the terms are, by path."""
        return self.run.source.projection.inputs

    @property
    def deleted(self) -> bool:
        """Whether deleted rows may pass."""
        return self.run.options.include_deleted_rows

    @property
    def meter(self) -> Meter:
        """What was done so far."""
        return self.run.meter

    @property
    def is_direct(self) -> bool:
        """Whether all terms are conditions, which columns may answer themselves."""
        return bool(self.terms) and all(term.condition is not None for term in self.terms)

    def has_few_indexed(self, bound: BoundFragment, start: int, stop: int) -> bool:
        """Whether an index says that only few rows of a range can pass."""
        fragment = bound.fragment.id
        counts = [
            answer.count_in(fragment, start, stop)
            for answer in self.answers.values()
            if fragment in answer.fragments
        ]
        return bool(counts) and min(counts) <= _MAX_WINDOW_ROWS

    def passing(self, columns: LazyColumns) -> NDArray[np.bool_]:
        """Which rows pass, one flag each."""
        if self.never:
            return np.zeros(columns.count, np.bool_)
        return self._flags(self.terms, columns)

    def find(self, bound: BoundFragment, start: int, stop: int) -> Iterator[FragmentSelection]:
        """The rows among ``start`` to ``stop`` that pass, in order, in one or more selections."""
        if start >= stop or self.never:
            return
        self.meter.count("rows_scanned", stop - start)
        for part in self._prune(bound, RowRange(start, stop)):
            rest: list[Term] = []
            remaining, open_terms = self._answered(bound, part)
            for term in open_terms:
                passed = None
                if remaining is None or not remaining.is_few(_SPARSE_SHARE):
                    passed = self._find_encoded(bound, term, part)
                if passed is None:
                    rest.append(term)
                else:
                    remaining = passed if remaining is None else remaining.intersect(passed)
                    if not remaining.count:
                        break
            if remaining is None:
                yield from self._windows(bound, rest, None, part)
                continue
            if bound.live is not None and not self.deleted:
                remaining = remaining.without_deleted(bound.live)
            if not remaining.count:
                continue
            if not rest:
                yield self._selection(bound, remaining)
            elif remaining.is_few(_SPARSE_SHARE):
                yield from self._single_rows(bound, rest, remaining.rows, part)
            else:
                yield from self._windows(bound, rest, remaining.rows, part)

    # ------------------------------------------------------------------ steps

    def _answered(
        self, bound: BoundFragment, part: RowRange
    ) -> tuple[RowSelection | None, Sequence[Term]]:
        """Rows that indices found, None where none was searched; and the terms left to test."""
        remaining: RowSelection | None = None
        passed: set[int] = set()
        for number, answer in self.answers.items():
            if bound.fragment.id in answer.fragments:
                rows = answer.rows_in(bound.fragment.id, part.start, part.stop)
                known = RowSelection(*part, rows=rows)
                remaining = known if remaining is None else remaining.intersect(known)
                if answer.exact:
                    passed.add(number)
        if not passed:
            return remaining, self.terms
        return remaining, [term for at, term in enumerate(self.terms) if at not in passed]

    def _selection(
        self, bound: BoundFragment, rows: RowSelection, decoded: LazyColumns | None = None
    ) -> FragmentSelection:
        return FragmentSelection(bound, rows, decoded, self.deleted)

    def _prune(self, bound: BoundFragment, whole: RowRange) -> list[RowRange]:
        """The parts of a range that statistics do not rule out."""
        parts = [whole]
        if not self.run.options.use_stats:
            return parts
        for term in self.terms:
            known = self._condition(term)
            if known is not None:
                condition, at = known
                prune = bound.stored[at].prune
                parts = [kept for part in parts for kept in prune(condition, part.start, part.stop)]
        kept_rows = sum(part.stop - part.start for part in parts)
        if kept_rows < whole.stop - whole.start:
            self.meter.count("rows_pruned", whole.stop - whole.start - kept_rows)
        return parts

    def _condition(self, term: Term) -> tuple[Condition, int] | None:
        """The condition of a term on a whole field, and which field that is."""
        if term.condition is None:
            return None
        path, condition = term.condition
        source = self.inputs[path]
        return None if source.system is not None or source.path else (condition, source.at)

    def _find_encoded(
        self, bound: BoundFragment, term: Term, part: RowRange
    ) -> RowSelection | None:
        """The rows of a range that pass a term, where its column finds them; else None."""
        known = self._condition(term)
        with self.meter.step("find"):
            try:
                if known is not None:
                    bits = bound.stored[known[1]].match(known[0], part.start, part.stop)
                    if bits is not None:
                        return RowSelection(*part, bits=bits)
                    rows = bound.stored[known[1]].find(known[0], part.start, part.stop)
                else:
                    rows = self._find_entries(bound, term, part)
            except CapacityError as error:  # of a page that is decoded for this
                self.meter.fallback("search of encoded pages", "values beyond one array", error)
                return None
            except FilterError as error:  # perhaps of a value that no row to be tested has
                self.meter.fallback("search of encoded pages", "an error in a value", error)
                return None
            return None if rows is None else RowSelection(*part, rows=rows)

    def _find_entries(self, bound: BoundFragment, term: Term, part: RowRange) -> Int64s | None:
        """The same for terms on system columns, and on values of dictionaries."""
        if len(term.columns) != 1:
            return None
        path = term.columns[0]
        source = self.inputs[path]
        if source.system is not None:
            if term.condition is None or self.deleted:  # deleted rows have no ids
                return None
            columns = bound.system_columns
            return columns.find(source.system, term.condition[1], part.start, part.stop)
        if source.path or not term.is_by_value:
            return None

        def passing(entries: pa.Array) -> pa.BooleanArray:
            return term.mask(pa.RecordBatch.from_arrays([entries], [path]))

        return bound.stored[source.at].find_entries(passing, part.start, part.stop)

    def _single_rows(
        self, bound: BoundFragment, terms: Sequence[Term], rows: Int64s, part: RowRange
    ) -> Iterator[FragmentSelection]:
        """Those of a few rows that pass the terms."""

        def passing(first: int, last: int) -> Int64s:
            tested = rows[first:last]
            with self.meter.step("filter"):
                return tested[self._flags(terms, self._take(bound, tested))]

        for passed in in_parts(passing, 0, len(rows)):
            if len(passed):
                yield self._selection(bound, RowSelection(*part, rows=passed))

    def _windows(
        self, bound: BoundFragment, terms: Sequence[Term], rows: Int64s | None, part: RowRange
    ) -> Iterator[FragmentSelection]:
        """Test all rows of a range, or those of them that are among ``rows``, in windows."""
        if not terms:
            flags = self._remaining(bound, None, part.start, part.stop)
            selected = RowSelection(*part, flags=flags)
            if selected.count:
                yield self._selection(bound, selected)
            return
        needed = sorted({self.inputs[path].at for term in terms for path in term.columns} - {-1})
        window = partial(self._window, bound, terms, needed, rows)
        for start, stop in _cut(bound, part, needed):
            for selection in in_parts(window, start, stop):
                if selection is not None and selection.count:
                    yield selection

    def _window(
        self,
        bound: BoundFragment,
        terms: Sequence[Term],
        needed: Sequence[int],
        rows: Int64s | None,
        start: int,
        stop: int,
    ) -> FragmentSelection | None:
        """Test rows ``start`` to ``stop``, or those of them that are among ``rows``."""
        remaining = self._remaining(bound, rows, start, stop)
        if remaining is not None and not remaining.any():
            return None
        checked = bound.in_proportion(stop - start, len(needed))

        def plan(column: Any) -> Any:
            return and_then(column.plan_read(start, stop), checked)

        columns = self._read(bound, start, stop, checked)
        with self.meter.step("decode"):
            read_in_one_request(bound, needed, columns, plan)
            for at in needed:
                bound.projection.row_sizes.see(at, columns.field(at))
        with self.meter.step("filter"):
            try:
                flags = self._flags(terms, columns)
            except FilterError:
                # Perhaps of a row that need not be tested: an overflow, a division by 0.
                if remaining is None:
                    raise
                tested = np.flatnonzero(remaining)
                flags = np.zeros(stop - start, np.bool_)
                flags[tested] = self._flags(terms, self._take(bound, tested + start))
            if remaining is not None:
                flags = flags & remaining
        return self._selection(bound, RowSelection(start, stop, flags=flags), columns)

    def _remaining(
        self, bound: BoundFragment, rows: Int64s | None, start: int, stop: int
    ) -> NDArray[np.bool_] | None:
        """Which rows of a window are to be tested; None for all."""
        if rows is not None:
            first, last = np.searchsorted(rows, (start, stop)).tolist()
            flags = np.zeros(stop - start, np.bool_)
            flags[rows[first:last] - start] = True
            return flags
        if self.deleted or bound.live is None:
            return None
        deleted = bound.live.deleted_between(start, stop)
        if len(deleted) == 0:
            return None
        flags = np.ones(stop - start, np.bool_)
        flags[deleted - start] = False
        return flags

    def _read(
        self,
        bound: BoundFragment,
        start: int,
        stop: int,
        checked: Callable[[pa.Array], pa.Array],
    ) -> LazyColumns:
        """The rows of a range, deleted ones included."""

        def system(name: str) -> Any:
            rows = np.arange(start, stop, dtype=np.int64)
            return bound.system(name, rows, deleted=self.deleted)

        def read(at: int) -> Any:
            return checked(bound.stored[at].read(start, stop))

        return LazyColumns(stop - start, read, system, bound.logical)

    def _take(self, bound: BoundFragment, rows: Int64s) -> LazyColumns:
        """Rows at physical positions."""
        return bound.lazy_columns(
            rows, lambda at: bound.stored[at].take(rows), deleted=self.deleted
        )

    def _flags(self, terms: Sequence[Term], columns: LazyColumns) -> NDArray[np.bool_]:
        """Which rows pass the terms."""

        def batch(term: Term) -> pa.RecordBatch:
            return columns.batch({path: self.inputs[path] for path in term.columns})

        return rows_passing(terms, batch, columns.count)


def answers_of(run: ScanRun, terms: Sequence[Term]) -> Mapping[int, IndexAnswer]:
    """What indices find of the terms, where that is quicker than looking at the rows."""
    snapshot = run.source.snapshot
    if snapshot.manifest.index_section is None:
        return {}
    from glaive.scan.indexed.choice import answer_terms, choose

    with run.meter.step("index", snapshot.store.counters):
        chosen = choose(snapshot, run.options, terms, run.meter)
        return answer_terms(snapshot, chosen, run.meter)


def _cut(bound: BoundFragment, part: RowRange, fields: Sequence[int]) -> Iterator[RowRange]:
    """Windows of a range in which these fields are decoded."""
    sizes = bound.projection.row_sizes
    width = sum(max(bound.stored[at].value_bytes, sizes.seen_of(at)) for at in fields)
    rows = (_WINDOW_BYTES if bound.mapped else _FETCH_BYTES) // max(1, width)
    most = _MAX_WINDOW_ROWS if bound.mapped else part.stop - part.start
    rows = whole_chunks(min(rows, most) + ALIGNED_ROWS - 1, width)
    start = part.start
    while start < part.stop:
        stop = min(part.stop, (start // rows + 1) * rows)
        yield RowRange(start, stop)
        start = stop
