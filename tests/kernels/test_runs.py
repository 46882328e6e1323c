"""Run lengths: both tiers agree, collapsing and expanding are inverse, damage is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.kernels.tiers import force_tier

from glaive.errors import CorruptFileError
from glaive.kernels.runs import collapse_runs, count_pairs, expand_runs, plan_runs, take_runs

TIERS = ("numpy", "numba")
WORDS = (8, 16, 32, 64)
NO_LIMIT = 1 << 50


def runs(count: int, word_bits: int, mean: float, seed: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 250, count + 1).astype(f"<u{word_bits // 8}")
    return np.repeat(values, rng.geometric(1 / mean, count + 1))[:count]


def buffer(array: NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(array))


def test_an_example() -> None:
    values = np.repeat(np.array([7, 9], "<u4"), [300, 200])
    for tier in TIERS:
        with force_tier(tier):
            pairs = count_pairs(buffer(values), np.array([500]), 32)
            run_values, lengths = collapse_runs(buffer(values), np.array([500]), pairs, 32)
        assert pairs.tolist() == [3]
        assert run_values.view("<u4").tolist() == [7, 7, 9]
        assert lengths.tolist() == [255, 45, 200]


@pytest.mark.parametrize("tier", TIERS)
def test_a_chunk_is_filled_to_its_last_byte(tier: Any) -> None:
    most = 8186 // 9  # pairs of a value of eight bytes and a length
    for more, counts in ((0, [most]), (1, [512, most - 511])):
        values = buffer(np.arange(most + more, dtype="<u8"))
        with force_tier(tier):
            plan = plan_runs(values, most + more, 64, NO_LIMIT)
        assert plan is not None
        assert plan.counts.tolist() == counts


@pytest.mark.spec("rle-1", "rle-2", "rle-3")
@given(
    word_bits=st.sampled_from(WORDS),
    count=st.one_of(st.integers(0, 200), st.sampled_from([1023, 1024, 1025, 4096, 4097, 20_000])),
    mean=st.sampled_from([1, 1.2, 4, 60, 3000]),
)
def test_runs_come_back_and_both_tiers_agree(word_bits: int, count: int, mean: float) -> None:
    values = runs(count, word_bits, mean, seed=count)
    rows = np.random.default_rng(0).integers(0, max(count, 1), 20 if count else 0)
    seen = []
    for tier in TIERS:
        with force_tier(tier):
            plan = plan_runs(buffer(values), count, word_bits, NO_LIMIT)
            assert plan is not None
            assert count_pairs(buffer(values), plan.counts, word_bits).tolist() == list(plan.pairs)
            run_values, lengths = collapse_runs(buffer(values), plan.counts, plan.pairs, word_bits)
            data = buffer(np.concatenate([run_values, lengths]))
            first = np.cumsum(plan.pairs) - plan.pairs
            at = (first * (word_bits // 8), first + len(run_values), plan.pairs)
            back = expand_runs(data, *at, plan.counts, word_bits, "test")
            begins = np.cumsum(plan.counts) - plan.counts
            chunk = np.searchsorted(begins, rows, side="right") - 1
            taken = take_runs(data, *at, chunk, rows - begins[chunk], word_bits, "test")
        assert back.to_pybytes() == values.tobytes()
        assert taken.to_pybytes() == values[rows].tobytes()
        seen.append([part.tolist() for part in (*plan, run_values, lengths)])
    assert seen[0] == seen[1]
    counts, pairs = seen[0][:2]
    assert all(n & (n - 1) == 0 and 2 <= n <= 4096 for n in counts[:-1])
    assert all(n * (word_bits // 8 + 1) <= 8186 for n in pairs)


@pytest.mark.parametrize("tier", TIERS)
def test_planning_stops_when_runs_need_too_much(tier: Any) -> None:
    values = buffer(np.arange(5000, dtype="<u4"))
    with force_tier(tier):
        assert plan_runs(values, 5000, 32, 24_999) is None
        assert plan_runs(values, 5000, 32, 25_000) is not None


@pytest.mark.parametrize("tier", TIERS)
def test_distinct_values_are_cut_to_what_fits_a_chunk(tier: Any) -> None:
    with force_tier(tier):
        plan = plan_runs(buffer(np.arange(3000, dtype="<u8")), 3000, 64, NO_LIMIT)
    assert plan is not None
    assert plan.counts.tolist() == [512] * 5 + [440]
    assert plan.bytes_of(64) == 3000 * 9


@pytest.mark.spec("rle-3")
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("count", [299, 301, 1, 511, -1])
def test_lengths_that_do_not_add_up_are_reported(tier: Any, count: int) -> None:
    data = buffer(np.array([1, 2, 200, 100], "<u1"))
    at = (np.array([0]), np.array([2]), np.array([2]))
    with (
        force_tier(tier),
        pytest.raises(CorruptFileError, match=f"expected a sum of {count} values, found 300"),
    ):
        expand_runs(data, *at, np.array([count]), 8, "a.lance")


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("values", "lengths", "pairs"), [(-1, 8, 2), (0, 9, 2), (1, 8, 2), (0, -1, 2), (0, 8, -1)]
)
def test_pairs_outside_of_the_page_are_reported(
    tier: Any, values: int, lengths: int, pairs: int
) -> None:
    data = pa.py_buffer(bytes(8))
    at = (np.array([values + 1]), np.array([lengths - 1]), np.array([pairs]))
    with force_tier(tier), pytest.raises(CorruptFileError, match="within 8 bytes"):
        expand_runs(data, *at, np.array([2]), 32, "a.lance")


@pytest.mark.parametrize("tier", TIERS)
def test_a_position_beyond_the_runs_is_reported(tier: Any) -> None:
    data = buffer(np.array([*[1] * 10, *[30] * 10], "<u1"))
    at = (np.array([0]), np.array([10]), np.array([10]))
    with force_tier(tier):
        last = take_runs(data, *at, np.array([0]), np.array([299]), 8, "a.lance")
        assert last.to_pybytes() == b"\1"
        with pytest.raises(CorruptFileError, match="expected a sum above 300, found 300"):
            take_runs(data, *at, np.array([0]), np.array([300]), 8, "a.lance")


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("counts", [[-(2**63), -(2**63), 300], [2**62] * 4 + [300], [-1, 301]])
def test_chunks_whose_sum_wraps_are_refused(tier: Any, counts: list[int]) -> None:
    values, pairs = buffer(np.arange(300)), np.ones(len(counts), np.int64)
    with force_tier(tier):
        with pytest.raises(ValueError, match="chunks of"):
            count_pairs(values, np.array(counts), 64)
        with pytest.raises(ValueError, match="chunks of"):
            collapse_runs(values, np.array(counts), pairs, 64)
