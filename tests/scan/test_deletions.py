"""Live rows of a fragment, against a plain list."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from glaive.scan.deletions import LiveRows


@st.composite
def fragments(draw: st.DrawFn) -> tuple[LiveRows, list[int]]:
    """Live rows, and the physical offsets of them as a list."""
    rows = draw(st.integers(1, 200))
    runs = draw(st.lists(st.tuples(st.integers(0, rows - 1), st.integers(1, 70)), max_size=5))
    gone = sorted({row for start, size in runs for row in range(start, min(rows, start + size))})
    left = [row for row in range(rows) if row not in set(gone)]
    return LiveRows(np.array(gone, np.uint32), rows), left


@given(fragments())
def test_counts(fragment: tuple[LiveRows, list[int]]) -> None:
    live, left = fragment
    assert live.count == len(left)
    assert live.nbytes >= 0


@given(fragments())
def test_live_numbers_lead_to_physical_rows(fragment: tuple[LiveRows, list[int]]) -> None:
    live, left = fragment
    assert live.physical(np.arange(len(left))).tolist() == left


@given(fragments(), st.data())
def test_ranges(fragment: tuple[LiveRows, list[int]], data: st.DataObject) -> None:
    live, left = fragment
    start = data.draw(st.integers(0, len(left)))
    stop = data.draw(st.integers(start, len(left)))
    first, last = live.physical_range(start, stop)
    assert [row for row in left if first <= row < last] == left[start:stop]
    assert live.count_between(first, last) == stop - start


@given(fragments(), st.data())
def test_deleted_rows_are_dropped(
    fragment: tuple[LiveRows, list[int]], data: st.DataObject
) -> None:
    live, left = fragment
    start = data.draw(st.integers(0, live.rows))
    stop = data.draw(st.integers(start, live.rows))
    numbers, texts = (
        pa.array(range(start, stop), pa.int64()),
        pa.array(map(str, range(start, stop)), pa.string()),
    )
    kept = live.keep(start, stop, [numbers, texts])
    expected = [row for row in left if start <= row < stop]
    assert kept[0].to_pylist() == expected
    assert kept[1].to_pylist() == [str(row) for row in expected]


def test_rows_gone_at_one_end_cost_no_copy() -> None:
    live = LiveRows(np.arange(90, 100, dtype=np.uint32), 100)
    column = pa.array(np.arange(100))
    (kept,) = live.keep(0, 100, [column])
    assert np.shares_memory(kept.to_numpy(), column.to_numpy())
    assert len(kept) == 90
