"""Scans in an order of their own: the first rows of an order, or all rows sorted.

With a limit, key columns alone are read; a threshold, the last key that can still be among
the first, leaves few rows of each piece, and the other columns are taken for the rows that
are returned. Without one, the whole result is read and sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import flags_of, number_array
from glaive.arrow.capacity import in_parts
from glaive.arrow.chunked import join_large, take_rows
from glaive.scan.bound import BoundFragment
from glaive.scan.filter.hits import Hits
from glaive.scan.filter.scan import Picked
from glaive.scan.run.compare import ColumnOrdering, rank, sorted_rows
from glaive.scan.take import take_physical
from glaive.types import RowRange

__all__ = ["ordered_table"]

Int64s = NDArray[np.int64]

_SETTLE_ROWS = 64 * 1024
"""Candidates that may wait before they are cut down to those that are wanted."""

_FEW = 16 * 1024
"""Rows up to which all pieces may keep their best at the same time."""


def ordered_table(picked: Picked) -> pa.Table:
    """The rows of a scan in the order its options ask for; equal rows as in the dataset.

    Memory: the rows of the result, and key columns of as many more.
    """
    options = picked.options
    if options.limit is None:
        return _sorted(picked)
    best = _Best(picked, options.offset + options.limit)
    found = best.find() if options.limit else None
    if found is None:
        return picked.view.empty()
    rows, fragments = found.rows[options.offset :], found.fragments[options.offset :]
    view = picked.view
    if not picked.outputs:
        return view.rows_alone(len(rows))
    with picked.meter.step("columns"):
        return take_physical(view, fragments, rows, deleted=picked.search.deleted)


def _sorted(picked: Picked) -> pa.Table:
    """The whole result, sorted."""
    view, count = picked.view, len(picked.outputs)
    inputs = view.projection.inputs
    keys = [inputs[one.column_name] for one in picked.options.order_by]
    plain = replace(picked.options, offset=0)
    everything = replace(picked, outputs=[*picked.outputs, *keys], options=plain)
    chunks = list(everything.chunks())
    if not chunks:
        return view.empty()
    with picked.meter.step("sort"):
        columns = [
            join_large([chunk[at] for chunk in chunks]) for at in range(count, count + len(keys))
        ]
        order = sorted_rows(columns, picked.options.order_by)[picked.options.offset :]
    if not count:
        return view.rows_alone(len(order))
    made: list[Any] = [
        pa.chunked_array([chunk[at] for chunk in chunks], one.type)
        for at, one in enumerate(view.schema)
    ]
    table = pa.Table.from_arrays(made, schema=view.schema)
    return take_rows(table, order, distinct=True)


@dataclass(eq=False, slots=True)
class _Candidates:
    """Rows that may be among the first, in the order of the dataset, with their key columns."""

    fragments: Int64s
    rows: Int64s
    keys: list[Any]

    def cut(self, wanted: Int64s) -> _Candidates:
        """Some of them, in this order."""
        if len(wanted) == len(self.rows) and bool((np.diff(wanted) > 0).all()):
            return self
        places = number_array(wanted)
        keys = [key.take(places) for key in self.keys]
        return _Candidates(self.fragments[wanted], self.rows[wanted], keys)


@dataclass(eq=False, slots=True)
class _Best:
    """The search for the first ``count`` rows of an order."""

    picked: Picked
    count: int
    _thresholds: dict[str, Any] = field(default_factory=dict)

    @property
    def _order(self) -> tuple[ColumnOrdering, ...]:
        return self.picked.options.order_by

    def find(self) -> _Candidates | None:
        """The rows, first in order first; None when there are none."""
        waiting: list[_Candidates] = []
        rows = 0
        for some in self.picked.map(self._piece, stream=self.count > _FEW):
            for one in some:
                waiting.append(one)
                rows += len(one.rows)
            if rows > max(_SETTLE_ROWS, 4 * self.count):
                settled = self._settled(_joined(waiting))
                waiting, rows = [settled], len(settled.rows)
        if not waiting:
            return None
        whole = _joined(waiting)
        with self.picked.meter.step("sort"):
            return whole.cut(self._sorted(whole)[: self.count])

    def _piece(self, job: tuple[BoundFragment, RowRange]) -> list[_Candidates]:
        bound, (start, stop) = job
        found = []
        for hits in self.picked.search.find(bound, start, stop):

            def part(first: int, last: int, hits: Hits = hits) -> _Candidates:
                return self._candidates(hits.cut(first, last))

            found += [some for some in in_parts(part, 0, hits.count) if len(some.rows)]
        return found

    def _candidates(self, hits: Hits) -> _Candidates:
        picked = self.picked
        inputs = picked.view.projection.inputs
        outputs = [inputs[one.column_name] for one in self._order]
        with picked.meter.step("decode"):
            keys = hits.columns(outputs, late=picked.late, deleted=picked.search.deleted)
        position = picked.view.snapshot.manifest.position_of(hits.bound.fragment.id)
        with picked.meter.step("sort"):
            kept = self._promising(keys[0])
            rows = hits.rows if kept is None else hits.rows[kept]
            if kept is not None:
                places = number_array(kept)
                keys = [key.take(places) for key in keys]
            some = _Candidates(np.full(len(rows), position, np.int64), rows, keys)
            return self._settled(some) if len(rows) > 4 * self.count else some

    def _promising(self, array: Any) -> Int64s | None:
        """Rows whose first key can still be among the first; None for all."""
        ranks = rank(array, self._order[0])
        if ranks is None:
            return self._promising_values(array)
        count = self.count
        # Threads may overwrite each other's threshold: each is right, some are only less sharp.
        known = self._thresholds.get(ranks.dtype.str)
        if known is not None:
            kept: Int64s = np.flatnonzero(ranks <= known)
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
            ties = np.flatnonzero(ranks == last)[: count - int(np.count_nonzero(below))]
            below[ties] = True
            return np.compress(below, kept)
        return np.compress(ranks <= last, kept)

    def _promising_values(self, array: Any) -> Int64s | None:
        """The same for types that are no numbers, where Arrow compares them."""
        import pyarrow.compute as pc

        how, count, kind = self._order[0], self.count, array.type
        if not (pa.types.is_large_unicode(kind) or pa.types.is_unicode(kind)):
            return None
        known = self._thresholds.get("text")
        if known is None:
            values = array.drop_null() if array.null_count else array
            if len(values) <= count or (how.nulls_first and array.null_count):
                return None
            way: Any = [("", "ascending" if how.ascending else "descending")]
            first: Any = pc.select_k_unstable(values, k=count, sort_keys=way)
            known = self._thresholds["text"] = values[first[-1].as_py()]
        within = (pc.less_equal if how.ascending else pc.greater_equal)(array, known)
        mask = pc.fill_null(within, how.nulls_first)
        kept = np.flatnonzero(flags_of(mask.buffers()[1], len(mask), mask.offset))
        if len(kept) > 4 * count and len(self._order) == 1 and not how.nulls_first:
            chosen = array.take(number_array(kept))
            ties = flags_of(pc.equal(chosen, known).buffers()[1], len(kept))
            kept = np.compress(~ties | (np.cumsum(ties) <= count), kept)
        return kept

    def _settled(self, some: _Candidates) -> _Candidates:
        """Those that can be among the first, in the order of the dataset."""
        if len(some.rows) <= self.count:
            return some
        return some.cut(np.sort(self._sorted(some)[: self.count]))

    def _sorted(self, some: _Candidates) -> Int64s:
        return sorted_rows(some.keys, self._order)


def _joined(parts: Sequence[_Candidates]) -> _Candidates:
    if len(parts) == 1:
        return parts[0]
    keys = [join_large([one.keys[at] for one in parts]) for at in range(len(parts[0].keys))]
    return _Candidates(
        np.concatenate([one.fragments for one in parts]),
        np.concatenate([one.rows for one in parts]),
        keys,
    )
