"""Which rows of a fragment pass a filter.

Terms are asked in turn, each about the rows that the ones before have left: first statistics,
then columns that find values themselves (``BoundColumn.find``), then all others, whose
columns are decoded in windows that stay in the processor's cache, or, once few rows are left,
for these rows only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import flags_of
from glaive.arrow.capacity import in_parts
from glaive.errors import CapacityError, FilterError
from glaive.file.protocol import BoundColumn
from glaive.scan.bound import BoundFragment
from glaive.scan.filter.columns import Cells
from glaive.scan.filter.hits import Hits, read_together
from glaive.scan.filter.rows import RowSet
from glaive.scan.metrics import Meter
from glaive.scan.plan import value_bytes
from glaive.scan.projection import Output
from glaive.types import RowRange

if TYPE_CHECKING:
    from glaive.arrow.conditions import Condition
    from glaive.expr.filters import Filter, Term

__all__ = ["Search"]

Int64s = NDArray[np.int64]

FEW = 0.05
"""Share of rows up to which terms are asked about single rows, and no more about ranges."""

_WINDOW_BYTES = 1024 * 1024
"""Bytes decoded at a time to test them: they stay in the second-level cache."""

_FETCH_BYTES = 16 * 1024 * 1024
"""The same of files that must be fetched: fewer, larger requests."""

_FEWEST, _MOST = 4 * 1024, 128 * 1024
"""Rows of a window, whatever their size; windows begin on multiples, as chunks do."""


def _read(bound: BoundFragment, start: int, stop: int, *, deleted: bool = False) -> Cells:
    """The rows of a range, deleted ones included."""

    def system(name: str) -> Any:
        rows = np.arange(start, stop, dtype=np.int64)
        return bound.system(name, rows, deleted=deleted)

    def read(at: int) -> Any:
        return bound.stored[at].read(start, stop)

    return Cells(stop - start, read, system, bound.shown)


def _take(bound: BoundFragment, rows: Int64s, *, deleted: bool = False) -> Cells:
    """Rows at physical positions."""
    return bound.cells(rows, lambda at: bound.stored[at].take(rows), deleted=deleted)


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """A filter and how to ask it.

    Parameters
    ----------
    terms
        Tests that must all pass.
    inputs
        Where their columns are, by path.
    never
        Whether no row can pass.
    statistics
        Whether to look at statistics first.
    deleted
        Whether deleted rows may pass.
    """

    terms: Sequence[Term]
    inputs: Mapping[str, Output]
    never: bool = False
    statistics: bool = True
    deleted: bool = False
    meter: Meter = field(default_factory=Meter)

    @classmethod
    def of(
        cls,
        found: Filter | None,
        inputs: Mapping[str, Output],
        *,
        statistics: bool,
        deleted: bool,
        meter: Meter,
    ) -> Search:
        """A search by a filter, its terms in the order of what they cost."""

        def cost(term: Term) -> int:
            if term.condition is None:
                return 2
            return 1 if inputs[term.condition[0]].system is None else 0

        terms = () if found is None else tuple(sorted(found.terms, key=cost))
        never = found is not None and found.never
        return cls(terms, inputs, never, statistics, deleted, meter)

    @property
    def is_direct(self) -> bool:
        """Whether all terms are conditions, which columns may answer themselves."""
        return bool(self.terms) and all(one.condition is not None for one in self.terms)

    def passing(self, cells: Cells) -> NDArray[np.bool_]:
        """Which rows pass, one flag each."""
        if self.never:
            return np.zeros(cells.count, np.bool_)
        return self._flags(self.terms, cells)

    def find(self, bound: BoundFragment, start: int, stop: int) -> Iterator[Hits]:
        """The hits among physical rows ``start`` to ``stop``, in order, in one or more parts."""
        if start >= stop or self.never:
            return
        self.meter.count("rows_scanned", stop - start)
        for part in self._prune(bound, RowRange(start, stop)):
            rest: list[Term] = []
            left: RowSet | None = None
            for term in self.terms:
                found = None
                if left is None or not left.is_few(FEW):
                    found = self._fused(bound, term, part)
                if found is None:
                    rest.append(term)
                else:
                    left = found if left is None else left.among(found)
                    if not left.count:
                        break
            if left is None:
                yield from self._windows(bound, rest, None, part)
                continue
            if bound.live is not None and not self.deleted:
                left = left.live(bound.live)
            if not left.count:
                continue
            if not rest:
                yield Hits(bound, *part, found=left)
            elif left.is_few(FEW):
                yield from self._among(bound, rest, left.rows, part)
            else:
                yield from self._windows(bound, rest, left.rows, part)

    # ------------------------------------------------------------------ steps

    def _prune(self, bound: BoundFragment, whole: RowRange) -> list[RowRange]:
        """The parts of a range that statistics do not rule out."""
        parts = [whole]
        if not self.statistics:
            return parts
        for term in self.terms:
            known = self._condition(term)
            if known is not None:
                condition, at = known
                column = bound.stored[at]
                parts = [
                    one for part in parts for one in column.prune(condition, part.start, part.stop)
                ]
        kept = sum(part.stop - part.start for part in parts)
        if kept < whole.stop - whole.start:
            self.meter.count("rows_pruned", whole.stop - whole.start - kept)
        return parts

    def _condition(self, term: Term) -> tuple[Condition, int] | None:
        """The condition of a term on a whole field, and which field that is."""
        if term.condition is None:
            return None
        path, condition = term.condition
        place = self.inputs[path]
        return None if place.system is not None or place.path else (condition, place.at)

    def _fused(self, bound: BoundFragment, term: Term, part: RowRange) -> RowSet | None:
        """The rows of a range that pass a term, where its column knows; else None."""
        known = self._condition(term)
        with self.meter.step("find"):
            try:
                if known is not None:
                    bits = bound.stored[known[1]].match(known[0], part.start, part.stop)
                    if bits is not None:
                        return RowSet(*part, bits=bits)
                    numbers = bound.stored[known[1]].find(known[0], part.start, part.stop)
                else:
                    numbers = self._numbers(bound, term, part)
            except CapacityError:  # of a page that is decoded for this: windows are smaller
                return None
            return None if numbers is None else RowSet(*part, numbers=numbers)

    def _numbers(self, bound: BoundFragment, term: Term, part: RowRange) -> Int64s | None:
        """The same for terms on system columns, and on values of dictionaries."""
        if len(term.columns) != 1:
            return None
        path = term.columns[0]
        place = self.inputs[path]
        if place.system is not None:
            if term.condition is None or self.deleted:  # deleted rows have no ids
                return None
            columns = bound.system_columns
            return columns.find(place.system, term.condition[1], part.start, part.stop)
        if place.path:
            return None

        def passing(entries: pa.Array) -> pa.BooleanArray:
            return term.mask(pa.RecordBatch.from_arrays([entries], [path]))

        return bound.stored[place.at].find_entries(passing, part.start, part.stop)

    def _among(
        self, bound: BoundFragment, terms: Sequence[Term], rows: Int64s, part: RowRange
    ) -> Iterator[Hits]:
        """Those of a few rows that pass the terms."""

        def passing(first: int, last: int) -> Int64s:
            some = rows[first:last]
            with self.meter.step("filter"):
                return some[self._flags(terms, _take(bound, some, deleted=self.deleted))]

        for found in in_parts(passing, 0, len(rows)):
            if len(found):
                yield Hits(bound, *part, found=RowSet(*part, numbers=found))

    def _windows(
        self, bound: BoundFragment, terms: Sequence[Term], rows: Int64s | None, part: RowRange
    ) -> Iterator[Hits]:
        """Test all rows of a range, in windows."""
        if not terms:
            yield from self._all(bound, part)
            return
        needed = sorted({self.inputs[one].at for term in terms for one in term.columns} - {-1})
        window = partial(self._window, bound, terms, needed, rows)
        for start, stop in _cut(bound, part, needed):
            for hits in in_parts(window, start, stop):
                if hits is not None and hits.count:
                    yield hits

    def _window(
        self,
        bound: BoundFragment,
        terms: Sequence[Term],
        needed: Sequence[int],
        rows: Int64s | None,
        start: int,
        stop: int,
    ) -> Hits | None:
        """Test rows ``start`` to ``stop``, or those of them that are among ``rows``."""
        left = self._left(bound, rows, start, stop)
        if left is not None and not left.any():
            return None
        cells = _read(bound, start, stop, deleted=self.deleted)
        with self.meter.step("decode"):
            read_together(bound, needed, cells, partial(_plan_read, start=start, stop=stop))
            for at in needed:
                cells.field(at)
        with self.meter.step("filter"):
            try:
                flags = self._flags(terms, cells)
            except FilterError:
                # Perhaps of a row that is not asked about: an overflow, a division by 0.
                if left is None:
                    raise
                flags = self._only(bound, terms, left, start)
            if left is not None:
                flags = flags & left
        return Hits(bound, start, stop, flags=flags, cells=cells)

    def _left(
        self, bound: BoundFragment, rows: Int64s | None, start: int, stop: int
    ) -> NDArray[np.bool_] | None:
        """Which rows of a window are asked about; None for all."""
        if rows is not None:
            first, last = np.searchsorted(rows, (start, stop)).tolist()
            flags = np.zeros(stop - start, np.bool_)
            flags[rows[first:last] - start] = True
            return flags
        if self.deleted or bound.live is None:
            return None
        deleted = bound.live.deleted
        first, last = np.searchsorted(deleted, (start, stop)).tolist()
        if first == last:
            return None
        flags = np.ones(stop - start, np.bool_)
        flags[deleted[first:last] - start] = False
        return flags

    def _only(
        self, bound: BoundFragment, terms: Sequence[Term], left: NDArray[np.bool_], start: int
    ) -> NDArray[np.bool_]:
        """Flags of a window, of which some rows only are looked at."""
        rows = np.flatnonzero(left)
        flags = np.zeros(len(left), np.bool_)
        flags[rows] = self._flags(terms, _take(bound, rows + start, deleted=self.deleted))
        return flags

    def _all(self, bound: BoundFragment, part: RowRange) -> Iterator[Hits]:
        """Rows that no term is left for."""
        hits = Hits(bound, *part, flags=self._left(bound, None, part.start, part.stop))
        if hits.count:
            yield hits

    def _flags(self, terms: Sequence[Term], cells: Cells) -> NDArray[np.bool_]:
        """Which rows pass the terms."""
        import pyarrow.compute as pc

        mask: Any = None
        for term in terms:
            inputs = {path: self.inputs[path] for path in term.columns}
            passing = term.mask(cells.batch(inputs))
            mask = passing if mask is None else pc.and_(mask, passing)
        if mask is None:
            return np.ones(cells.count, np.bool_)
        return flags_of(mask.buffers()[1], len(mask), mask.offset)


def _plan_read(column: BoundColumn, *, start: int, stop: int) -> Any:
    return column.plan_read(start, stop)


def _cut(bound: BoundFragment, part: RowRange, fields: Sequence[int]) -> Iterator[RowRange]:
    """Windows of a range in which these fields are decoded."""
    width = sum(value_bytes(bound.stored[at].field.type) for at in fields)
    rows = _WINDOW_BYTES // max(1, width) if bound.mapped else _FETCH_BYTES // max(1, width)
    rows = max(_FEWEST, min(rows, _MOST if bound.mapped else part.stop - part.start))
    rows = -(-rows // _FEWEST) * _FEWEST
    start = part.start
    while start < part.stop:
        stop = min(part.stop, (start // rows + 1) * rows)
        yield RowRange(start, stop)
        start = stop
