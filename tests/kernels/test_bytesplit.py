"""Byte streams: both tiers agree, splitting and joining are inverse, damage is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import CorruptFileError
from glaive.kernels.flat import join_bytes, split_bytes

TIERS = ("numpy", "numba")
RANDOM = np.random.default_rng(8).integers(0, 256, 8 * 400, np.uint8)


@pytest.mark.spec("bss-1")
@pytest.mark.parametrize("tier", TIERS)
def test_streams_begin_with_the_lowest_bytes_of_all_values(tier: Any) -> None:
    values = pa.py_buffer(np.array([0x04030201, 0x14131211, 0x24232221], "<u4"))
    with force_tier(tier):
        streams = split_bytes(values, np.array([2, 1]), 32)
    assert streams.tobytes().hex() == "0111021203130414" + "21222324"


@given(
    counts=st.lists(st.integers(0, 60), max_size=6),
    bits=st.sampled_from([32, 64]),
    gap=st.integers(0, 5),
)
def test_splitting_and_joining_are_inverse(counts: list[int], bits: int, gap: int) -> None:
    each, width = np.array(counts, np.int64), bits // 8
    values = pa.py_buffer(RANDOM[: int(each.sum()) * width].tobytes())
    sizes = each * width
    packed = np.cumsum(sizes) - sizes
    starts = packed + gap * np.arange(1, len(each) + 1)
    expected = [
        RANDOM[at : at + size].reshape(-1, width).T.tobytes()
        for at, size in zip(packed, sizes, strict=True)
    ]
    data = pa.py_buffer(b"".join(b"\xff" * gap + part for part in expected))
    for tier in TIERS:
        with force_tier(tier):
            assert split_bytes(values, each, bits).tobytes() == b"".join(expected)
            assert join_bytes(data, starts, each, bits, "test").equals(values)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("start", "count"), [(0, 5), (-1, 1), (13, 1), (0, -1), (2**62, 2**62)])
def test_chunks_outside_of_the_page_are_reported(tier: Any, start: int, count: int) -> None:
    data, starts, counts = pa.py_buffer(bytes(16)), np.array([start]), np.array([count])
    with force_tier(tier), pytest.raises(CorruptFileError, match="4 streams"):
        join_bytes(data, starts, counts, 32, "a.lance")


def test_other_widths_are_refused() -> None:
    ones = np.ones(1, np.int64)
    with pytest.raises(ValueError, match="values of 16 bits"):
        split_bytes(pa.py_buffer(bytes(8)), ones, 16)
    with pytest.raises(ValueError, match="chunks of 1 values out of 0"):
        split_bytes(pa.py_buffer(bytes(3)), ones, 32)
