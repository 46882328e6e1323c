"""Which encoding levels get."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.miniblock.writer import choose_level_encoding
from glaive.types import Where


@pytest.mark.parametrize(
    ("count", "period", "runs", "name"),
    [
        (4, 2, True, "flat"),
        (1000, 2, True, "inline_bitpacking"),
        (1024, 2, True, "inline_bitpacking"),
        (1025, 2, True, "out_of_line_bitpacking"),
        (5000, 4999, True, "rle"),
        (5000, 4999, False, "out_of_line_bitpacking"),
    ],
)
def test_the_number_of_levels_and_their_changes_decide(
    count: int, period: int, runs: bool, name: str
) -> None:
    levels = (np.arange(count) % period == 0).astype(np.uint16)
    chosen = choose_level_encoding(levels, np.array([count]), runs=runs)
    assert chosen.wire_name == name


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=5),
    st.sampled_from([1, 2, 7, 65535]),
    st.sampled_from([0.0, 0.001, 0.3]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_levels_come_back_and_never_take_more_than_flat_ones(
    counts: list[int], top: int, share: float, runs: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    total = sum(counts)
    chosen = rng.integers(0, top + 1, total)
    levels = np.where(rng.random(total) < share, chosen, 0).astype(np.uint16)
    sizes = np.array(counts)
    codec = choose_level_encoding(levels, sizes, runs=runs)
    block = FixedWidth(pa.py_buffer(levels), 16, total)
    encoded = codec.encode_blocks(block, sizes)
    assert len(encoded.data) <= 2 * total
    starts = np.cumsum(encoded.sizes) - encoded.sizes
    data = pa.py_buffer(encoded.data.tobytes())
    back = codec.decode_blocks(data, starts, encoded.sizes, sizes, Where("test"))
    assert isinstance(back, FixedWidth)
    np.testing.assert_array_equal(np.frombuffer(back.values, np.uint16, total), levels)
