"""Runs of levels become validity bits; both tiers agree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.kernels.tiers import Tier, force_tier

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.values.rle import RunLength
from glaive.errors import CorruptFileError
from glaive.kernels.levels import unpack_run_bits
from glaive.types import Where

HERE = Where("test.lance")
TIERS: list[Tier] = ["numpy", "numba"]
RLE = RunLength(16)


def encode(
    levels: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[pa.Buffer, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    block = FixedWidth(pa.py_buffer(levels.astype("<u2").tobytes()), 16, len(levels))
    encoded = RLE.encode_blocks(block, counts)
    data = pa.py_buffer(encoded.data.tobytes())
    starts = np.cumsum(encoded.sizes) - encoded.sizes
    return data, RLE.block_runs(data, starts, encoded.sizes, HERE)


@given(st.integers(0, 2**32), st.lists(st.integers(1, 900), min_size=1, max_size=5))
def test_runs_become_the_bits_of_their_levels(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    counts = np.array(sizes)
    levels = np.repeat(rng.integers(0, 2, 40), rng.integers(1, 300, 40))[: counts.sum()]
    levels = np.append(levels, rng.integers(0, 2, counts.sum() - len(levels)))
    data, runs = encode(levels, counts)
    for tier in TIERS:
        with force_tier(tier):
            result = unpack_run_bits(data, *runs, counts, HERE)
        assert result is not None
        bitmap, nulls = result
        bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")[: len(levels)]
        np.testing.assert_array_equal(bits, 1 - levels)
        assert nulls == levels.sum()


@pytest.mark.parametrize("tier", TIERS)
def test_higher_levels_are_left_to_others(tier: Tier) -> None:
    counts = np.array([100])
    data, runs = encode(np.repeat([0, 2], 50), counts)
    with force_tier(tier):
        assert unpack_run_bits(data, *runs, counts, HERE) is None


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("count", [99, 101, 10**9])
def test_runs_that_do_not_add_up_are_refused(tier: Tier, count: int) -> None:
    data, runs = encode(np.repeat([0, 1], 50), np.array([100]))
    with force_tier(tier), pytest.raises(CorruptFileError, match="run lengths"):
        unpack_run_bits(data, *runs, np.array([count]), HERE)


@pytest.mark.parametrize("tier", TIERS)
def test_runs_outside_the_data_are_refused(tier: Tier) -> None:
    data, (values, lengths, runs) = encode(np.repeat([0, 1], 50), np.array([100]))
    with force_tier(tier), pytest.raises(CorruptFileError, match="pairs of a run-length chunk"):
        unpack_run_bits(data, values, lengths + 1000, runs, np.array([100]), HERE)
