"""Live rows of a fragment, against a plain list."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.format.deletions import DeletedRuns
from glaive.scan.snapshot import LiveRows


@st.composite
def fragments(draw: st.DrawFn) -> tuple[LiveRows, list[int]]:
    """Live rows, and the physical offsets of them as a list."""
    rows = draw(st.integers(1, 200))
    runs = draw(st.lists(st.tuples(st.integers(0, rows - 1), st.integers(1, 70)), max_size=5))
    gone = sorted({row for start, size in runs for row in range(start, min(rows, start + size))})
    left = [row for row in range(rows) if row not in set(gone)]
    deleted = np.array(gone, np.uint32)
    return LiveRows(deleted if draw(st.booleans()) else DeletedRuns.of(deleted), rows), left


@given(fragments())
def test_counts(fragment: tuple[LiveRows, list[int]]) -> None:
    live, left = fragment
    assert live.count == len(left)
    gone = set(range(live.rows)) - set(left)
    runs = sum(row - 1 not in gone for row in gone)
    assert 24 * runs <= live.nbytes <= 24 * len(gone) + live.rows  # a bit for each row


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
    live = LiveRows(DeletedRuns.of(np.arange(90, 100, dtype=np.uint32)), 100)
    column = pa.array(np.arange(100))
    (kept,) = live.keep(0, 100, [column])
    assert np.shares_memory(kept.to_numpy(), column.to_numpy())
    assert len(kept) == 90


KINDS: list[pa.DataType] = [
    pa.bool_(), pa.int8(), pa.int16(), pa.float32(), pa.int64(), pa.timestamp("us", "UTC"),
    pa.decimal128(20, 2), pa.binary(3), pa.binary(0), pa.string(), pa.large_binary(), pa.null(),
    pa.month_day_nano_interval(), pa.uuid(), pa.list_(pa.int8()), pa.list_(pa.int8(), 2),
    pa.list_(pa.string()), pa.large_list(pa.bool_()), pa.list_(pa.list_(pa.int8())),
    pa.map_(pa.string(), pa.int64()), pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())])),
    pa.struct([("a", pa.int8()), ("b", pa.string())]),
    pa.dictionary(pa.int16(), pa.string()),
]  # fmt: skip


def nested(kind: Any, at: int) -> Any:
    """A value of a nested type."""
    if pa.types.is_fixed_size_list(kind):
        return [at % 50, 1]
    if pa.types.is_map(kind):
        return [(f"{at}{item}", item) for item in range(at % 4)]
    if pa.types.is_struct(kind):
        return {"a": at % 100, "b": str(at % 91) * (at % 4)}
    return [example(kind.value_type, at + item) for item in range(at % 5)]


def example(kind: Any, at: int) -> Any:
    """A value of a type, another one for each number."""
    text = str(at % 91) * (at % 4)
    if pa.types.is_boolean(kind):
        return at % 3 == 0
    if pa.types.is_nested(kind):
        return nested(kind, at)
    if pa.types.is_decimal(kind):
        return Decimal(at)
    if kind == pa.uuid():
        return at.to_bytes(16, "big")
    if pa.types.is_fixed_size_binary(kind):
        return at.to_bytes(3, "big")[: kind.byte_width]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return text.encode()
    if pa.types.is_string(kind) or pa.types.is_dictionary(kind):
        return text
    if kind == pa.month_day_nano_interval():
        return (at, 1, 2)
    return None if pa.types.is_null(kind) else at % 100


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data())
def test_rows_of_all_types_are_dropped(kind: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(st.sampled_from([3, 63, 64, 65, 200, 700]))
    seed = np.random.default_rng(data.draw(st.integers(0, 99)))
    share = data.draw(st.sampled_from([0.02, 0.5, 0.99]))
    gone = np.flatnonzero(seed.random(rows) < share).astype(np.uint32)
    nulls = seed.random(rows) < data.draw(st.sampled_from([0.0, 0.3]))
    storage = pa.binary(16) if kind == pa.uuid() else kind
    values = [None if nulls[at] else example(kind, at) for at in range(rows)]
    array: Any = pa.array(values, storage)
    if kind == pa.uuid():
        array = pa.ExtensionArray.from_storage(kind, array)
    live = LiveRows(DeletedRuns.of(gone), rows)
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    left = np.setdiff1d(np.arange(start, stop), gone)
    (kept,) = live.keep(start, stop, [array.slice(start, stop - start)])
    kept.validate(full=True)
    assert kept.equals(array.take(pa.array(left)))


@given(fragments(), st.data())
def test_deleted_rows_are_known_by_their_numbers(
    fragment: tuple[LiveRows, list[int]], data: st.DataObject
) -> None:
    live, left = fragment
    gone = sorted(set(range(live.rows)) - set(left))
    start = data.draw(st.integers(0, live.rows))
    stop = data.draw(st.integers(start, live.rows))
    assert live.deleted_between(start, stop).tolist() == [at for at in gone if start <= at < stop]
    asked = np.array(data.draw(st.lists(st.integers(0, live.rows), max_size=20)), np.int64)
    assert live.is_deleted(asked).tolist() == [at in gone for at in asked.tolist()]
    before = [sum(other < at for other in gone) for at in asked.tolist()]
    assert live.deleted_before(asked).tolist() == before
    begins, ends = live.deleted_runs(start, stop)
    assert (begins < ends).all()
    assert (ends[:-1] < begins[1:]).all()


@pytest.mark.spec("rel-24")
def test_runs_of_deleted_rows_take_no_memory_for_each_row() -> None:
    """A file of 30 KB with runs of 2^27 rows took 3.6 GB, and as much for each other fragment."""
    rows = 1 << 22
    live = LiveRows(DeletedRuns.of(np.arange(5, rows - 5, dtype=np.uint32)), rows)
    assert live.count == 10
    assert live.nbytes <= rows // 8 + 100
