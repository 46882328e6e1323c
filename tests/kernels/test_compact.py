"""Values without some rows: both tiers agree with numpy, and wrong rows are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.kernels.tiers import force_tier

from glaive.kernels.compact import DeletionMask, compact_bits, compact_fixed
from glaive.types import as_buffer

TIERS = ("numpy", "numba")


@st.composite
def gone_rows(draw: st.DrawFn) -> tuple[NDArray[np.bool_], DeletionMask]:
    """Which rows live, and the same as the wrappers take it."""
    rows = draw(st.sampled_from([1, 63, 64, 65, 128, 700]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    live = random.random(rows) >= draw(st.sampled_from([0.0, 0.02, 0.5, 1.0]))
    base = draw(st.integers(0, 70))
    numbers = np.flatnonzero(~live) + base
    bits = np.append(
        np.packbits(np.append(np.ones(base, np.bool_), live), bitorder="little"),
        np.zeros(16, np.uint8),
    )
    return live, DeletionMask(numbers, base, rows, bits if draw(st.booleans()) else None)


@given(case=gone_rows(), width=st.sampled_from([1, 3, 8]))
def test_rows_to_leave_out_may_be_known_by_the_bits_of_the_others(
    case: tuple[NDArray[np.bool_], DeletionMask], width: int
) -> None:
    live, _ = case
    kept = as_buffer(np.packbits(live, bitorder="little"))
    raw = np.random.default_rng(1).integers(0, 256, len(live) * width).astype(np.uint8)
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            deleted = DeletionMask.of_live(kept, len(live), int(live.sum()))
            values = compact_fixed(as_buffer(raw), width, deleted)
            assert values.to_pybytes() == raw.reshape(-1, width)[live].tobytes()
            assert deleted.numbers.tolist() == np.flatnonzero(~live).tolist()


@given(case=gone_rows(), width=st.sampled_from([1, 2, 3, 4, 8, 16, 100]))
def test_values_that_stay(case: tuple[NDArray[np.bool_], DeletionMask], width: int) -> None:
    live, deleted = case
    values = np.random.default_rng(1).integers(0, 256, len(live) * width).astype(np.uint8)
    expected = values.reshape(-1, width)[live].tobytes()
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            assert compact_fixed(as_buffer(values), width, deleted).to_pybytes() == expected


@given(case=gone_rows(), begin=st.integers(0, 20))
def test_bits_that_stay(case: tuple[NDArray[np.bool_], DeletionMask], begin: int) -> None:
    live, deleted = case
    flags = np.random.default_rng(2).random(begin + len(live)) < 0.5
    expected = flags[begin:][live]
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            live_bits = compact_bits(
                as_buffer(np.packbits(flags, bitorder="little")), begin, deleted
            )
        bits = np.frombuffer(live_bits.to_pybytes(), np.uint8)
        kept = np.unpackbits(bits, count=len(expected), bitorder="little")
        assert kept.tolist() == expected.tolist()


def test_bits_that_end_too_early_are_refused() -> None:
    with pytest.raises(ValueError, match="18 bytes for the bits 0 to 20"):
        DeletionMask(np.array([3]), 0, 20, np.zeros(18, np.uint8))


@pytest.mark.parametrize("tier", ["numpy", "numba"])
@pytest.mark.parametrize("numbers", [[3, 2], [2, 2], [-1], [9], [0, 1, 2, 3, 4, 5]])
def test_row_numbers_that_do_not_ascend_are_refused(tier: Any, numbers: list[int]) -> None:
    deleted = DeletionMask(np.array(numbers), 0, 5)
    with force_tier(tier):
        with pytest.raises(ValueError, match="row numbers"):
            compact_fixed(pa.py_buffer(bytes(20)), 4, deleted)
        with pytest.raises(ValueError, match="row numbers"):
            compact_bits(pa.py_buffer(bytes(1)), 0, deleted)
