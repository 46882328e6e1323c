"""Find the rows of a fragment that pass a filter.

Terms are evaluated in turn, each on the rows that passed the previous terms. Statistics come
first, then columns that find values themselves (``BoundColumn.find``), then all other terms.
Their columns are decoded in windows that stay in the processor's cache. Once few rows remain,
only these rows are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import flag_array, flags_of, number_array, pack_flags
from glaive.arrow.chunked import in_parts
from glaive.dataclass import dataclass
from glaive.encodings.protocol import and_then, join
from glaive.errors import CapacityError, FilterError
from glaive.file.protocol import run_fetch
from glaive.kernels.compact import DeletionMask
from glaive.kernels.match import count_rows, list_rows
from glaive.scan.bound import BoundFragment
from glaive.scan.options import Meter
from glaive.scan.projection import Computed, LazyColumns, Output
from glaive.scan.run.scheduler import ALIGNED_ROWS, ScanRun, whole_chunks
from glaive.scan.snapshot import LiveRows, without_deleted
from glaive.types import Flags, Int64s, RowRange, as_buffer

if TYPE_CHECKING:
    from glaive.arrow.conditions import Condition
    from glaive.expr.filters import Filter, Term
    from glaive.scan.indexed import IndexAnswer


# --- Selected rows of a range: as bits, as flags, or as their numbers -------------------


class RowSelection:
    """Selected rows among ``start`` to ``stop``; by default all of them.

    Parameters
    ----------
    bits
        A bitmap with one bit per row; bits after the last row are 0.
    flags
        One boolean per row.
    rows
        The physical rows, ascending.
    """

    def __init__(
        self,
        start: int,
        stop: int,
        *,
        bits: Any = None,
        flags: NDArray[np.bool_] | None = None,
        rows: Int64s | None = None,
    ) -> None:
        self.start, self.stop = start, stop
        self._bits, self._flags = bits, flags
        if rows is not None:
            self.rows = rows

    @property
    def span(self) -> int:
        """Rows of the range."""
        return self.stop - self.start

    @cached_property
    def count(self) -> int:
        """Selected rows."""
        if "rows" in self.__dict__:
            return len(self.rows)
        if self._flags is not None:
            return int(np.count_nonzero(self._flags))
        return self.span if self._bits is None else count_rows(self._bits, 0, self.span)

    @cached_property
    def rows(self) -> Int64s:
        """The physical rows, ascending."""
        return self.offsets + self.start if self.start else self.offsets

    def numbered(self, positions: Int64s) -> Int64s:
        """Return the physical rows at these positions among the selected ones."""
        if self.count == self.span:
            return positions + self.start
        return self.rows[positions]

    @cached_property
    def offsets(self) -> Int64s:
        """The rows, counted from the start of the range, ascending."""
        if "rows" in self.__dict__:
            return self.rows - self.start if self.start else self.rows
        if self._flags is not None:
            return self._flags.nonzero()[0]
        if self._bits is not None:
            return list_rows(self._bits, 0, self.span, 0)
        return np.arange(self.span, dtype=np.int64)

    @property
    def bits(self) -> Any:
        """The bitmap; ``None`` if the selection is a list of rows."""
        if self._bits is None and "rows" not in self.__dict__:
            flags = np.ones(self.span, np.bool_) if self._flags is None else self._flags
            self._bits = pack_flags(flags)
        return self._bits

    @cached_property
    def left_out(self) -> DeletionMask:
        """The unselected rows; the selection must have bits."""
        return DeletionMask.of_live(self.bits, self.span, self.count)

    def is_few(self, share: float) -> bool:
        """Return whether at most this share of the range is selected."""
        return self.count <= share * self.span

    def pick(self, array: Any) -> Any:
        """Return the selected rows of an array of the whole range.

        Arrow's ``filter`` takes several times as long.
        """
        import pyarrow.compute as pc

        if self.count == self.span:
            return array
        quick = _are_words(array.type) and not array.null_count
        if self.bits is not None and not self.is_few(_MAX_GATHERED[quick]):
            return without_deleted(array, self.left_out)
        offsets = number_array(self.offsets)
        return pc.call_function("take", [array, offsets], pc.TakeOptions(boundscheck=False))

    def cut(self, skip: int, stop: int) -> RowSelection:
        """Return the selected rows numbered ``skip`` to ``stop``, as a range of their own."""
        if skip == 0 and stop == self.count:
            return self
        rows = self.rows[skip:stop]
        first, end = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (self.start, self.start)
        return RowSelection(first, end, rows=rows)

    def intersect(self, other: RowSelection) -> RowSelection:
        """Return the rows that are also selected in another selection of the range."""
        if self.bits is None and other.bits is not None:
            return other.intersect(self)
        if self.bits is None:
            few, many = (self, other) if self.count <= other.count else (other, self)
            if few.count == 0:
                return few
            at = np.minimum(many.rows.searchsorted(few.rows), many.count - 1)
            kept = np.compress(many.rows[at] == few.rows, few.rows)
            return RowSelection(self.start, self.stop, rows=kept)
        mine = np.frombuffer(self.bits, np.uint8)
        if other.bits is not None:
            both = mine & np.frombuffer(other.bits, np.uint8)
            return RowSelection(self.start, self.stop, bits=as_buffer(both))
        at = other.offsets
        common = (mine[at >> 3] >> (at & 7).astype(np.uint8)) & 1
        return RowSelection(self.start, self.stop, rows=np.compress(common, other.rows))

    def without_deleted(self, live: LiveRows) -> RowSelection:
        """Return the live rows."""
        deleted = live.deleted_between(self.start, self.stop)
        if len(deleted) == 0:
            return self
        if self.bits is not None:
            flags = np.ones(self.span, np.bool_)
            flags[deleted - self.start] = False
            return self.intersect(RowSelection(self.start, self.stop, flags=flags))
        at = np.minimum(deleted.searchsorted(self.rows), len(deleted) - 1)
        rows = np.compress(deleted[at] != self.rows, self.rows)
        return RowSelection(self.start, self.stop, rows=rows)


# --- Rows that passed a filter, and their columns ---------------------------------------
# Columns are made in the way that is cheaper for so many rows: single rows taken, or whole ranges
# decoded and cut down.

Chunk = list[Any]
"""One array per column."""

Late = bool | frozenset[int] | None
"""Fields that are taken row by row: all, some, or (``None``) where that is cheaper."""

_MAX_GATHERED = {True: 0.1, False: 0.6}
"""Share of rows up to which values of an array are taken by row number, else compacted: of words
without nulls, and of other values."""


class Selection(Protocol):
    """Rows of a part of a plan that passed a filter."""

    @property
    def count(self) -> int:
        """Number of rows."""

    def chunks(self, outputs: Sequence[Output | Computed], *, late: Late) -> Iterable[Chunk]:
        """Make columns of the rows, cut where one array would be too large."""

    def row_ranges(self) -> Iterator[tuple[int, Int64s]]:
        """Yield the id of each fragment, and its selected rows: physical, ascending."""


@dataclass(frozen=True, eq=False, slots=True)
class FragmentSelection:
    """Selected rows of one fragment (a :class:`Selection`).

    Parameters
    ----------
    decoded
        Columns of the whole range that were decoded to find the rows.
    deleted
        Whether deleted rows may be among them.
    """

    bound: BoundFragment
    selected: RowSelection
    decoded: LazyColumns | None = None
    deleted: bool = False

    @property
    def count(self) -> int:
        """Selected rows."""
        return self.selected.count

    @property
    def rows(self) -> Int64s:
        """The physical rows, ascending."""
        return self.selected.rows

    def row_ranges(self) -> Iterator[tuple[int, Int64s]]:
        """Yield the id of the fragment, and the rows."""
        yield self.bound.fragment.id, self.rows

    def cut(self, skip: int, stop: int) -> FragmentSelection:
        """Return the selected rows numbered ``skip`` to ``stop``."""
        if skip == 0 and stop == self.count:
            return self
        return replace(self, selected=self.selected.cut(skip, stop), decoded=None)

    def chunks(self, outputs: Sequence[Output | Computed], *, late: Late) -> Iterable[Chunk]:
        """Make columns of the rows, cut where one array would be too large; see :meth:`columns`."""

        def work(start: int, stop: int) -> Chunk:
            return self.cut(start, stop).columns(outputs, late=late)

        return in_parts(work, 0, self.count)

    def columns(self, outputs: Sequence[Output | Computed], *, late: Late = None) -> Chunk:
        """Make columns of the rows.

        Raises
        ------
        CapacityError
            A column is too large for one array.
        """
        bound, selected, decoded = self.bound, self.selected, self.decoded
        start, stop = selected.start, selected.stop
        missing = [at for at in fields_of(outputs) if decoded is None or not decoded.has(at)]
        taken = [at for at in missing if self._is_taken(at, late)]
        cut_down = [at for at in missing if at not in taken]
        checked = bound.in_proportion(self.count, len(missing))

        def read(at: int) -> Any:
            array = checked(values(at))
            bound.projection.row_sizes.measure(at, array)
            return array

        def values(at: int) -> Any:
            if decoded is not None and decoded.has(at):
                return selected.pick(decoded.field(at))
            if at in taken:
                return bound.stored[at].take(self.rows)
            return selected.pick(bound.stored[at].read(start, stop))

        def system(name: str) -> Any:
            return bound.system(name, self.rows, deleted=self.deleted)

        columns = LazyColumns(self.count, read, system, bound.logical)

        def plan_take(column: Any) -> Any:
            return and_then(column.plan_take(self.rows), checked)

        def plan_read(column: Any) -> Any:
            return and_then(column.plan_read(start, stop), checked)

        read_in_one_request(bound, taken, columns, plan_take)
        read_in_one_request(bound, cut_down, columns, plan_read, selected.pick)
        return [columns.output(output) for output in outputs]

    def _is_taken(self, at: int, late: Late) -> bool:
        """Return whether rows of a field are taken one by one."""
        if self.count == self.selected.span:
            return False
        if late is None:
            return self.selected.is_few(self.bound.stored[at].taken_share)
        return late if isinstance(late, bool) else at in late


def _are_words(kind: Any) -> bool:
    """Return whether values are words of 8 to 64 bits."""
    return bool(pa.types.is_primitive(kind)) and kind.bit_width in (8, 16, 32, 64)


def fields_of(outputs: Sequence[Output | Computed]) -> list[int]:
    """Return the numbers of the fields that columns are made of, ascending."""
    fields: set[int] = set()
    for output in outputs:
        inputs = output.inputs.values() if isinstance(output, Computed) else [output]
        fields.update(source.at for source in inputs if source.system is None)
    return sorted(fields)


def read_in_one_request(
    bound: BoundFragment,
    fields: Sequence[int],
    columns: LazyColumns,
    plan: Callable[[Any], Any],
    then: Callable[[Any], Any] | None = None,
) -> None:
    """Read several fields of a file that must be fetched with joined requests.

    ``plan`` makes the step of a column, such as ``column.plan_read(start, stop)``. Fields of mapped
    files are read later, when they are needed.
    """
    if bound.mapped or len(bound.readers) != 1 or len(fields) < 2:
        return
    steps = [plan(bound.stored[at]) for at in fields]
    for at, array in zip(fields, run_fetch(bound.readers[0], join(steps, list)), strict=True):
        columns.put(at, array if then is None else then(array))


# --- Which of some rows pass terms of a filter, by their values -------------------------


def rows_passing(
    terms: Sequence[Term], batch: Callable[[Term], pa.RecordBatch], rows: int
) -> Flags:
    """Return which rows pass all terms; ``batch`` returns the columns of a term for all rows."""
    passing: Flags | None = None
    for term in terms:
        columns = batch(term)
        try:
            passed = _flags(term.mask(columns))
        except FilterError:
            # Perhaps a previous term excludes the row of the error: an overflow, a division by 0.
            if passing is None:
                raise
            passed = np.zeros(rows, np.bool_)
            passed[passing] = _flags(term.mask(columns.filter(flag_array(passing))))
        passing = passed if passing is None else passing & passed
    return np.ones(rows, np.bool_) if passing is None else passing


def _flags(mask: Any) -> Flags:
    return flags_of(mask.buffers()[1], len(mask), mask.offset)


_SPARSE_SHARE = 0.05
"""Share of rows up to which terms are evaluated on single rows instead of ranges."""

_WINDOW_BYTES = 1024 * 1024
"""Bytes decoded at a time to test them: they stay in the second-level cache."""

_FETCH_BYTES = 16 * 1024 * 1024
"""The same for fetched files: fewer, larger requests."""

_MAX_WINDOW_ROWS = 128 * 1024
"""Maximum rows of a window, whatever their size; a multiple of ``ALIGNED_ROWS``."""


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """The terms of a filter, and the run of the scan whose rows they test.

    Parameters
    ----------
    terms
        Tests that must all pass, fast tests first.
    never
        Whether all rows fail.
    answers
        Rows that indices found, by number of the term.
    """

    run: ScanRun
    terms: Sequence[Term] = ()
    never: bool = False
    answers: Mapping[int, IndexAnswer] = field(default_factory=dict)

    @classmethod
    def of(cls, run: ScanRun, condition: Filter | None) -> Search:
        """Make a search by a filter; sort its terms by cost."""
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
        """Counts of the work done so far."""
        return self.run.meter

    @property
    def is_direct(self) -> bool:
        """Whether all terms are conditions, which columns may answer themselves."""
        return bool(self.terms) and all(term.condition is not None for term in self.terms)

    def has_few_indexed(self, bound: BoundFragment, start: int, stop: int) -> bool:
        """Return whether an index says that only few rows of a range can pass."""
        fragment = bound.fragment.id
        counts = [
            answer.count_in(fragment, start, stop)
            for answer in self.answers.values()
            if fragment in answer.fragments
        ]
        return bool(counts) and min(counts) <= _MAX_WINDOW_ROWS

    def passing(self, columns: LazyColumns) -> NDArray[np.bool_]:
        """Return which rows pass, one flag each."""
        if self.never:
            return np.zeros(columns.count, np.bool_)
        return self._flags(self.terms, columns)

    def find(self, bound: BoundFragment, start: int, stop: int) -> Iterator[FragmentSelection]:
        """Yield the rows among ``start`` to ``stop`` that pass, in order, in selections."""
        if start >= stop or self.never:
            return
        self.meter.count("rows_scanned", stop - start)
        for part in self._prune(bound, RowRange(start, stop)):
            rest: list[Term] = []
            remaining, open_terms = self._found_by_indices(bound, part)
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

    def _found_by_indices(
        self, bound: BoundFragment, part: RowRange
    ) -> tuple[RowSelection | None, Sequence[Term]]:
        """Return rows that indices found, or ``None`` if unsearched; and the terms left to test."""
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
        """Remove the parts of a range that statistics exclude."""
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
        """Return the condition of a term on a whole field, and the number of the field."""
        if term.condition is None:
            return None
        path, condition = term.condition
        source = self.inputs[path]
        return None if source.system is not None or source.path else (condition, source.at)

    def _find_encoded(
        self, bound: BoundFragment, term: Term, part: RowRange
    ) -> RowSelection | None:
        """Return rows that pass a term, or ``None`` if its column cannot find them."""
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
            except FilterError as error:  # perhaps of a value of excluded rows only
                self.meter.fallback("search of encoded pages", "an error in a value", error)
                return None
            return None if rows is None else RowSelection(*part, rows=rows)

    def _find_entries(self, bound: BoundFragment, term: Term, part: RowRange) -> Int64s | None:
        """Return the same for terms on system columns, and on values of dictionaries."""
        if len(term.columns) != 1:
            return None
        path = term.columns[0]
        source = self.inputs[path]
        if source.system is not None:
            if term.condition is None or self.deleted:  # deleted rows lack ids
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
        """Yield the rows that pass the terms, among few rows."""

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
        """Test all rows of a range, or only ``rows`` in it, in windows."""
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
        """Test rows ``start`` to ``stop``, or only ``rows`` among them."""
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
                bound.projection.row_sizes.measure(at, columns.field(at))
        with self.meter.step("filter"):
            try:
                flags = self._flags(terms, columns)
            except FilterError:
                # Perhaps of an excluded row: an overflow, a division by 0.
                if remaining is None:
                    raise
                tested = remaining.nonzero()[0]
                flags = np.zeros(stop - start, np.bool_)
                flags[tested] = self._flags(terms, self._take(bound, tested + start))
            if remaining is not None:
                flags = flags & remaining
        return self._selection(bound, RowSelection(start, stop, flags=flags), columns)

    def _remaining(
        self, bound: BoundFragment, rows: Int64s | None, start: int, stop: int
    ) -> NDArray[np.bool_] | None:
        """Return which rows of a window are to be tested; ``None`` for all."""
        if rows is not None:
            first, last = rows.searchsorted((start, stop)).tolist()
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
        self, bound: BoundFragment, start: int, stop: int, checked: Callable[[pa.Array], pa.Array]
    ) -> LazyColumns:
        """Return columns of a range, including deleted rows."""

        def system(name: str) -> Any:
            rows = np.arange(start, stop, dtype=np.int64)
            return bound.system(name, rows, deleted=self.deleted)

        def read(at: int) -> Any:
            return checked(bound.stored[at].read(start, stop))

        return LazyColumns(stop - start, read, system, bound.logical)

    def _take(self, bound: BoundFragment, rows: Int64s) -> LazyColumns:
        """Take rows at physical positions."""
        return bound.lazy_columns(
            rows, lambda at: bound.stored[at].take(rows), deleted=self.deleted
        )

    def _flags(self, terms: Sequence[Term], columns: LazyColumns) -> NDArray[np.bool_]:
        """Return which rows pass the terms."""

        def batch(term: Term) -> pa.RecordBatch:
            return columns.batch({path: self.inputs[path] for path in term.columns})

        return rows_passing(terms, batch, columns.count)


def answers_of(run: ScanRun, terms: Sequence[Term]) -> Mapping[int, IndexAnswer]:
    """Search indices for the terms, where that is faster than testing the rows."""
    snapshot = run.source.snapshot
    if snapshot.manifest.index_section is None:
        return {}
    from glaive.scan.indexed import answer_terms, choose

    with run.meter.step("index", snapshot.store.counters):
        chosen = choose(snapshot, run.options, terms, run.meter)
        return answer_terms(snapshot, chosen, run.meter)


def _cut(bound: BoundFragment, part: RowRange, fields: Sequence[int]) -> Iterator[RowRange]:
    """Divide a range into windows for decoding these fields."""
    sizes = bound.projection.row_sizes
    width = sum(max(bound.stored[at].value_bytes, sizes.seen_of(at)) for at in fields)
    rows = (_WINDOW_BYTES if bound.mapped else _FETCH_BYTES) // max(1, width)
    max_rows = _MAX_WINDOW_ROWS if bound.mapped else part.stop - part.start
    rows = whole_chunks(min(rows, max_rows) + ALIGNED_ROWS - 1, width)
    start = part.start
    while start < part.stop:
        stop = min(part.stop, (start // rows + 1) * rows)
        yield RowRange(start, stop)
        start = stop
