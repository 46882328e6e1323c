"""Sets of rows hold what was added, however many rows there are."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.dataset.rows import RelocatedIds, RowsByFragment
from glaive.format.rowids import decode_row_ids


def addresses(seed: int, rows: int, fragments: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    rng = np.random.default_rng(seed)
    numbers = rng.choice(fragments * 40_000, rows, replace=False).astype(np.uint64)
    return (numbers // 40_000 << np.uint64(32)) + numbers % 40_000


@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.sampled_from([0, 1, 100, 20_000, 90_000]), max_size=4),
)
def test_a_set_has_the_rows_that_were_added(seed: int, sizes: list[int]) -> None:
    rows = RowsByFragment()
    expected: set[int] = set()
    for at, size in enumerate(sizes):
        some = addresses(seed + at, size, 3)
        if at % 2 and size:  # of one fragment, in order
            some = np.sort(some[some >> np.uint64(32) == 1])
            rows.add_offsets(1, some.astype(np.uint32))
        else:
            rows.add(some)
        expected |= set(some.tolist())
    found = {fragment << 32 | offset for fragment, part in rows.items() for offset in part.tolist()}
    assert found == expected
    assert rows.count == len(expected)
    assert list(rows) == sorted({address >> 32 for address in expected})
    assert [rows.count_of(at) for at in rows] == [len(rows[at]) for at in rows]
    assert all((np.diff(rows[at].astype(np.int64)) > 0).all() for at in rows)
    asked = addresses(seed + 9, 5_000, 4)
    assert rows.overlap(asked).tolist() == [one in expected for one in asked.tolist()]


def test_many_rows_take_few_bytes() -> None:
    tracemalloc = pytest.importorskip("tracemalloc")
    rows = RowsByFragment()
    tracemalloc.start()
    for start in range(0, 10_000_000, 100_000):
        rows.add(np.arange(start, start + 100_000, dtype=np.uint64))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows.count == 10_000_000
    assert held < 10_000_000  # a byte per row; numbers would take eight


@given(
    parts=st.lists(st.integers(0, 50), max_size=6),
    cuts=st.lists(st.integers(0, 300), max_size=4).map(sorted),
)
def test_ids_come_back_by_ranges_of_rows(parts: list[int], cuts: list[int]) -> None:
    ids = RelocatedIds(kept=True)
    everything = np.random.default_rng(sum(parts)).permutation(sum(parts)).astype(np.uint64)
    start = 0
    for size in parts:
        ids.add(everything[start : start + size])
        start += size
    for first, last in zip([0, *cuts], [*cuts, 400], strict=True):
        wanted = everything[first:last]
        encoded = ids.encoded(first, last)
        if not len(wanted):
            assert encoded is None
        else:
            assert encoded is not None
            assert decode_row_ids(encoded, len(wanted), where="t").tolist() == wanted.tolist()


def test_ids_are_not_kept_where_rows_have_none() -> None:
    ids = RelocatedIds(kept=False)
    ids.add(np.arange(3, dtype=np.uint64))
    assert ids.encoded(0, 3) is None


def test_rows_that_come_several_times_are_there_once() -> None:
    rows = RowsByFragment()
    rows.add(np.array([7, 3, 7, (2 << 32) + 1, 3], np.uint64))
    rows.add(np.array([3], np.uint64))
    assert {at: part.tolist() for at, part in rows.items()} == {0: [3, 7], 2: [1]}


def test_sets_name_a_row_that_both_have() -> None:
    first, second, third = RowsByFragment(), RowsByFragment(), RowsByFragment()
    first.add(np.array([1, 4, (3 << 32) + 5], np.uint64))
    second.add(np.array([2, (3 << 32) + 5, (3 << 32) + 6], np.uint64))
    third.add(np.array([2, (3 << 32) + 6, 5 << 32], np.uint64))
    assert first.first_common(second) == (3 << 32) + 5
    assert first.first_common(third) is None


def test_many_rows_are_sent_as_the_set_that_they_are() -> None:
    rows = RowsByFragment()
    rows.add(np.random.default_rng(1).permutation(100_000).astype(np.uint64))
    sent = pickle.dumps(rows)
    assert len(sent) < 1_000
    assert pickle.loads(sent)[0].tolist() == list(range(100_000))
