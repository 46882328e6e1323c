"""Few rows that indices found: taken at once, whatever fragments they are in.

Specification: "Searching" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import distinct
from glaive.dataclass import dataclass
from glaive.index.row_set import FEW_ROWS, RowSet
from glaive.scan.filter.terms import rows_passing
from glaive.scan.plan import FragmentRows, plan_all, row_bytes
from glaive.scan.run.parts import FragmentWindows
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection
from glaive.types import Flags, Int64s

if TYPE_CHECKING:
    from glaive.expr.filters import Term
    from glaive.scan.filter.search import Search
    from glaive.scan.filter.selection import Chunk, Late
    from glaive.scan.projection import Computed, Output

__all__ = ["FoundRows", "found_parts"]

R = TypeVar("R")

_FEW_ROWS: Final = 256
_FEW_SHARE: Final = 0.005
"""Rows, and share of all rows, up to which they are taken: of more, windows are decoded."""

_TAKEN_BYTES: Final = 64 * 1024 * 1024
"""Bytes of rows that are taken at a time, about."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundRows:
    """Rows that pass a filter, all of them live (a part of a plan, and a selection).

    Parameters
    ----------
    run
        Of the scan; takes the columns of its projection.
    positions
        Of the fragment of each row, ascending.
    rows
        Physical rows, ascending in each fragment.
    untested
        Terms of the filter that indices do not answer, or not for sure: the rows that pass are
        to be found by their values.
    """

    run: ScanRun
    positions: Int64s
    rows: Int64s
    untested: Sequence[Term] = ()

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.rows)

    def filter(
        self,
        search: Search,
        work: Callable[[FoundRows], R],
        *,
        stream: bool = False,
        window_rows: int | None = None,
    ) -> Iterator[R]:
        """See :class:`~glaive.scan.run.parts.SearchedPart`: few selections, each of some rows."""
        for passed in self._passing():
            search.run.meter.count("rows_taken_by_index", len(passed.rows))
            if len(passed.rows):
                yield work(passed)

    def table(self) -> pa.Table:
        """The columns of the projection, in one table."""
        run, parts = self.run, list(self._passing())
        positions, rows = self.positions[:0], self.rows[:0]
        if len(parts) == 1:
            positions, rows = parts[0].positions, parts[0].rows
        elif parts:
            positions = np.concatenate([part.positions for part in parts])
            rows = np.concatenate([part.rows for part in parts])
        run.meter.count("rows_taken_by_index", len(rows))
        with run.meter.step("columns"):
            return take_physical(run.source.without_inputs(), positions, rows, meter=run.meter)

    def chunks(self, outputs: Sequence[Output | Computed], *, late: Late) -> Iterable[Chunk]:
        """See :class:`~glaive.scan.filter.selection.Selection`: columns of the projection."""
        source, meter = self.run.source.without_inputs(), self.run.meter
        for part in self._portions(source):
            table = take_physical(source, part.positions, part.rows, meter=meter)
            yield from _chunks(table)

    def cut(self, skip: int, stop: int) -> FoundRows:
        """The rows numbered ``skip`` to ``stop``."""
        if skip == 0 and stop >= len(self.rows):
            return self
        return replace(self, positions=self.positions[skip:stop], rows=self.rows[skip:stop])

    def _portions(self, source: BoundProjection) -> Iterator[FoundRows]:
        """The rows, as many at a time as are taken at once."""
        if len(self.rows):
            width = row_bytes(source.fragment(self.positions.item(0)))
            step = max(1, _TAKEN_BYTES // max(1, width))
            for start in range(0, len(self.rows), step):
                yield self.cut(start, start + step)

    def _passing(self) -> Iterator[FoundRows]:
        """The rows that pass all terms, in order."""
        if not self.untested:
            yield self
            return
        from glaive.scan.found_columns import stored_columns

        meter = self.run.meter
        paths = tuple(dict.fromkeys(path for term in self.untested for path in term.columns))
        source = self.run.source.of_inputs(paths)
        for part in self._portions(source):
            positions, rows = part.positions, part.rows
            meter.count("rows_scanned", len(rows))
            with meter.step("filter"):
                columns = stored_columns(source, paths, positions, rows, meter)
                flags = rows_passing(self.untested, partial(_batch, columns, len(rows)), len(rows))
            yield FoundRows(self.run, positions[flags], rows[flags])

    def row_ranges(self) -> Iterator[tuple[int, Int64s]]:
        """Id of each fragment with rows, and these."""
        cuts = np.flatnonzero(np.diff(self.positions)) + 1
        ids = self.run.source.snapshot.manifest.fragment_ids
        for first, last in pairwise([0, *cuts.tolist(), len(self.rows)]):
            yield int(ids[self.positions[first]]), self.rows[first:last]


def _batch(columns: Mapping[str, Any], rows: int, term: Term) -> pa.RecordBatch:
    """Columns for a term; one without columns still needs the number of rows."""
    if not term.columns:
        return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["rows"])
    return pa.RecordBatch.from_arrays([columns[path] for path in term.columns], list(term.columns))


def _chunks(table: Any) -> Iterable[Chunk]:
    columns = table.columns
    if all(column.num_chunks == 1 for column in columns):
        return [[column.chunk(0) for column in columns]]
    return [batch.columns for batch in table.to_batches()]


def found_parts(search: Search) -> Sequence[FoundRows | FragmentWindows] | None:
    """The plan of a filtered scan of all rows, where indices answer a term and found few.

    Fragments that no index answers for stay parts to be searched. None where indices found many
    rows, or answer terms for different fragments.
    """
    answers, run = list(search.answers.values()), search.run
    if not answers:
        return None
    fragments = answers[0].fragments
    if any(answer.fragments != fragments for answer in answers):
        return None
    options, snapshot = run.options, run.source.snapshot
    whole = options.fragments is None and options.range_before is None
    if not whole or options.late_materialization not in (None, True):
        return None
    rows = answers[0].rows
    if len(answers) > 1:
        rows = RowSet.intersection([answer.rows for answer in answers])
    manifest = snapshot.manifest
    count = rows.count
    many = min(FEW_ROWS, max(_FEW_ROWS, _FEW_SHARE * int(manifest.physical_rows.sum())))
    if count > many:
        return None
    found = _live(run, *snapshot.places_of(rows.rows()))
    sure = [number for number, answer in search.answers.items() if answer.exact]
    if len(sure) < len(search.terms):
        untested = [term for number, term in enumerate(search.terms) if number not in sure]
        found = replace(found, untested=untested)
    if options.fast_search or len(fragments) == manifest.num_fragments:
        return [found]
    covered = np.isin(manifest.fragment_ids, list(fragments))
    return list(_cut(found, covered, plan_all(snapshot, None)))


def _live(run: ScanRun, positions: Int64s, rows: Int64s) -> FoundRows:
    """Those of the rows that are not deleted, in the order of the fragments."""
    snapshot = run.source.snapshot
    if len(positions) == 1 and not snapshot.manifest.deleted_rows.item(positions.item()):
        return FoundRows(run, positions, rows)
    if len(positions) > 1 and bool((positions[1:] < positions[:-1]).any()):
        order = np.argsort(positions, kind="stable")
        positions, rows = positions[order], rows[order]
    touched = positions if len(positions) == 1 else distinct(positions)
    with_deletions = touched[snapshot.manifest.deleted_rows[touched] != 0]
    kept: Flags | None = None
    for position in with_deletions.tolist():
        live = snapshot.live_rows(snapshot.manifest.fragment(position))
        if live is not None:
            first, last = np.searchsorted(positions, (position, position + 1)).tolist()
            kept = np.ones(len(rows), np.bool_) if kept is None else kept
            kept[first:last] = ~live.is_deleted(rows[first:last])
    if kept is not None:
        positions, rows = positions[kept], rows[kept]
    return FoundRows(run, positions, rows)


def _cut(
    found: FoundRows, covered: Flags, ranges: Sequence[FragmentRows]
) -> Iterator[FoundRows | FragmentWindows]:
    """Rows found, and ranges to be searched between them, in the order of the fragments."""
    edges = [0, *(np.flatnonzero(np.diff(covered)) + 1).tolist(), len(covered)]
    for first, last in pairwise(edges):
        if covered[first]:
            cuts = np.searchsorted(found.positions, (first, last)).tolist()
            yield found.cut(*cuts)
        else:
            yield FragmentWindows([rows for rows in ranges if first <= rows.position < last])
