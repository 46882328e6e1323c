"""Ordered scans: find the first rows of an order, or sort all rows.

With a limit, the scan reads only key columns. A threshold, the last key that can still be among
the first, drops most rows of each window. The scan then takes the other columns of the rows that
it returns. Otherwise the scan reads the whole result and sorts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import flags_of, number_array
from glaive.arrow.chunked import in_parts, join_large, take_rows
from glaive.arrow.conditions import filled
from glaive.dataclass import dataclass
from glaive.scan.filter_scan import FilteredScan
from glaive.scan.filter_search import FragmentSelection
from glaive.scan.run.compare import ColumnOrdering, rank, sorted_rows
from glaive.scan.take import take_physical
from glaive.types import Int64s

_MAX_CANDIDATES = 64 * 1024
"""Candidates collected before they are reduced to the number requested."""

_PARALLEL_ROWS = 16 * 1024
"""Maximum limit for which all windows may keep their first rows at the same time."""

_RANKED_ROWS = 128 * 1024
"""Rows whose keys are ranked at a time, so that they fit the CPU cache. Large limits use more."""


def ordered_table(scan: FilteredScan) -> pa.Table:
    """Return the rows of a scan in the order of its options; equal rows keep their order.

    Memory holds the rows of the result, and key columns of the same number of rows.
    """
    source, options, meter = scan.run.source, scan.run.options, scan.run.meter
    if options.limit is None:
        return _sorted(scan)
    first = _TopRows(scan, options.offset + options.limit)
    candidates = first.find() if options.limit else None
    if candidates is None:
        return source.empty()
    rows = candidates.rows[options.offset :]
    fragments = candidates.fragments[options.offset :]
    if not scan.outputs:
        return source.rows_alone(len(rows))
    with meter.step("columns"):
        return take_physical(source, fragments, rows, deleted=scan.search.deleted, meter=meter)


def _sorted(scan: FilteredScan) -> pa.Table:
    """Read the whole result and sort it."""
    source, options, count = scan.run.source, scan.run.options, len(scan.outputs)
    keys = [source.projection.inputs[order.column_name] for order in options.order_by]
    search = replace(scan.search, run=replace(scan.run, options=replace(options, offset=0)))
    chunks = list(FilteredScan(search, [*scan.outputs, *keys], scan.late).chunks())
    if not chunks:
        return source.empty()
    with scan.run.meter.step("sort"):
        columns = [
            join_large([chunk[at] for chunk in chunks]) for at in range(count, count + len(keys))
        ]
        order = sorted_rows(columns, options.order_by)
    scan.run.meter.count("rows_sorted", len(order))
    order = order[options.offset :]
    if not count:
        return source.rows_alone(len(order))
    unsorted: list[Any] = [
        pa.chunked_array([chunk[at] for chunk in chunks], field.type)
        for at, field in enumerate(source.schema)
    ]
    table = pa.Table.from_arrays(unsorted, schema=source.schema)
    return take_rows(table, order, distinct=True)


@dataclass(eq=False, slots=True)
class _Candidates:
    """Rows that may be among the first, in the order of the dataset, with their key columns."""

    fragments: Int64s
    rows: Int64s
    keys: list[Any]

    def cut(self, wanted: Int64s) -> _Candidates:
        """Return some candidates, in the order given."""
        if len(wanted) == len(self.rows) and bool((np.diff(wanted) > 0).all()):
            return self
        numbers = number_array(wanted)
        keys = [key.take(numbers) for key in self.keys]
        return _Candidates(self.fragments[wanted], self.rows[wanted], keys)


@dataclass(eq=False, slots=True)
class _TopRows:
    """The search for the first ``count`` rows of an order."""

    scan: FilteredScan
    count: int
    _thresholds: dict[str, Any] = field(default_factory=dict)

    @property
    def _order(self) -> tuple[ColumnOrdering, ...]:
        return self.scan.run.options.order_by

    def find(self) -> _Candidates | None:
        """Return the rows in order; ``None`` if the result is empty."""
        waiting: list[_Candidates] = []
        rows = 0
        few = self.count <= _RANKED_ROWS // 16
        for parts in self.scan.map(
            self._in_parts,
            stream=self.count > _PARALLEL_ROWS,
            window_rows=_RANKED_ROWS if few else None,
        ):
            for candidates in parts:
                waiting.append(candidates)
                rows += len(candidates.rows)
            if rows > max(_MAX_CANDIDATES, 4 * self.count):
                reduced = self._reduced(_joined(waiting))
                waiting, rows = [reduced], len(reduced.rows)
        if not waiting:
            return None
        whole = _joined(waiting)
        with self.scan.run.meter.step("sort"):
            return whole.cut(self._sorted(whole)[: self.count])

    def _in_parts(self, selection: FragmentSelection) -> list[_Candidates]:
        """Return the candidates of a selection, split where keys would overflow one array."""

        def part(first: int, last: int) -> _Candidates:
            return self._candidates(selection.cut(first, last))

        parts = in_parts(part, 0, selection.count)
        return [candidates for candidates in parts if len(candidates.rows)]

    def _candidates(self, selection: FragmentSelection) -> _Candidates:
        source, meter = self.scan.run.source, self.scan.run.meter
        meter.count("rows_sorted", selection.count)
        outputs = [source.projection.inputs[order.column_name] for order in self._order]
        with meter.step("decode"):
            keys = selection.columns(outputs, late=self.scan.late)
        position = selection.bound.position
        with meter.step("sort"):
            kept = self._candidate_rows(keys[0])
            rows = selection.rows if kept is None else selection.selected.numbered(kept)
            if kept is not None:
                numbers = number_array(kept)
                keys = [key.take(numbers) for key in keys]
            candidates = _Candidates(np.full(len(rows), position, np.int64), rows, keys)
            return self._reduced(candidates) if len(rows) > 4 * self.count else candidates

    def _candidate_rows(self, array: Any) -> Int64s | None:
        """Return rows whose first key can still be among the first; ``None`` for all."""
        ranks = rank(array, self._order[0])
        if ranks is None:
            return self._candidate_strings(array)
        count = self.count
        # Threads may overwrite each other's threshold: all are correct, some drop fewer rows.
        known = self._thresholds.get(ranks.dtype.str)
        if known is not None:
            kept: Int64s = (ranks <= known).nonzero()[0]
            if len(kept) <= count:
                return kept
            ranks = ranks[kept]
        elif len(ranks) <= count:
            return None
        else:
            kept = np.arange(len(ranks), dtype=np.int64)
        last = np.partition(ranks, count - 1)[count - 1]
        if known is None or last < known:
            self._thresholds[ranks.dtype.str] = last
        below = ranks < last
        if len(self._order) == 1 and not array.null_count:
            ties = (ranks == last).nonzero()[0][: count - int(np.count_nonzero(below))]
            below[ties] = True
            return np.compress(below, kept)
        return np.compress(ranks <= last, kept)

    def _candidate_strings(self, array: Any) -> Int64s | None:
        """Return the rows of :meth:`_candidate_rows` for strings, which Arrow compares."""
        import pyarrow.compute as pc

        how, count, kind = self._order[0], self.count, array.type
        if not (pa.types.is_large_unicode(kind) or pa.types.is_unicode(kind)):
            return None
        known = self._thresholds.get("text")
        if known is None:
            values = array.drop_null() if array.null_count else array
            if len(values) <= count or (how.nulls_first and array.null_count):
                return None
            keys: Any = [("", "ascending" if how.ascending else "descending")]
            first: Any = pc.select_k_unstable(values, k=count, sort_keys=keys)
            known = self._thresholds["text"] = values[first[-1].as_py()]
        within = (pc.less_equal if how.ascending else pc.greater_equal)(array, known)
        mask = filled(within, how.nulls_first)
        kept = flags_of(mask.buffers()[1], len(mask), mask.offset).nonzero()[0]
        if len(kept) > 4 * count and len(self._order) == 1 and not how.nulls_first:
            chosen = array.take(number_array(kept))
            ties = flags_of(pc.equal(chosen, known).buffers()[1], len(kept))
            kept = np.compress(~ties | (ties.cumsum() <= count), kept)
        return kept

    def _reduced(self, candidates: _Candidates) -> _Candidates:
        """Return the candidates that can be among the first, in the order of the dataset."""
        if len(candidates.rows) <= self.count:
            return candidates
        return candidates.cut(np.sort(self._sorted(candidates)[: self.count]))

    def _sorted(self, candidates: _Candidates) -> Int64s:
        return sorted_rows(candidates.keys, self._order)


def _joined(parts: Sequence[_Candidates]) -> _Candidates:
    if len(parts) == 1:
        return parts[0]
    keys = [join_large([part.keys[at] for part in parts]) for at in range(len(parts[0].keys))]
    return _Candidates(
        np.concatenate([part.fragments for part in parts]),
        np.concatenate([part.rows for part in parts]),
        keys,
    )
