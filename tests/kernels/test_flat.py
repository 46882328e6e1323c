"""Plain values in chunks: both tiers agree, and values outside of a chunk are reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import CorruptFileError
from glaive.kernels.flat import join_bits, take_flat

TIERS = ("numpy", "numba")
RANDOM = np.random.default_rng(3).integers(0, 256, 4000, np.uint8)


@given(counts=st.lists(st.integers(0, 200), max_size=8), gap=st.integers(0, 3))
def test_bits_of_chunks_are_joined_without_gaps(counts: list[int], gap: int) -> None:
    each = np.array(counts, np.int64)
    sizes = (each + 7) // 8 + gap
    starts = np.cumsum(sizes) - sizes
    bits = np.unpackbits(RANDOM, bitorder="little")
    expected = [bits[8 * at : 8 * at + n] for at, n in zip(starts, each, strict=True)]
    joined = np.packbits(np.concatenate([*expected, np.empty(0, np.uint8)]), bitorder="little")
    # Ends where the last chunk ends: reading whole words must not go beyond.
    data = pa.py_buffer(RANDOM[: int(sizes.sum()) - gap * bool(counts)].tobytes())
    for tier in TIERS:
        with force_tier(tier):
            assert join_bits(data, starts, each, "test").to_pybytes() == joined.tobytes()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("start", "count"), [(0, 17), (2, 1), (-1, 1), (0, -1)])
def test_bits_outside_of_the_page_are_reported(tier: Any, start: int, count: int) -> None:
    with force_tier(tier), pytest.raises(CorruptFileError, match="within 2 bytes"):
        join_bits(pa.py_buffer(b"\0\0"), np.array([start]), np.array([count]), "a.lance")


@given(
    bits=st.sampled_from([1, 8, 16, 24, 32, 64, 128, 256]),
    wanted=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=30),
)
def test_values_are_taken_in_any_order(bits: int, wanted: list[tuple[int, int]]) -> None:
    size = (10 * bits + 7) // 8
    starts, sizes = np.array([5, 1000, 2001]), np.full(3, size)
    chunk, index = np.array(wanted, np.int64).reshape(-1, 2).T
    if bits == 1:
        flags = [RANDOM[starts[c] + i // 8] >> (i % 8) & 1 for c, i in wanted]
        expected = np.packbits(np.array(flags, np.uint8), bitorder="little").tobytes()
    else:
        item = bits // 8
        at = [int(starts[c]) + i * item for c, i in wanted]
        expected = b"".join(RANDOM[n : n + item].tobytes() for n in at)
    for tier in TIERS:
        with force_tier(tier):
            taken = take_flat(pa.py_buffer(RANDOM), starts, sizes, chunk, index, bits, "test")
        assert taken.to_pybytes() == expected


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("bits", [1, 32])
@pytest.mark.parametrize(
    ("start", "chunk", "index"),
    [(0, 0, 64), (0, 1, 0), (0, -1, 0), (0, 0, -1), (9, 0, 0), (-1, 0, 0)],
)
def test_values_outside_of_a_chunk_are_reported(
    tier: Any, bits: int, start: int, chunk: int, index: int
) -> None:
    position = (np.array([start]), np.array([8]), np.array([chunk]), np.array([index]))
    with force_tier(tier), pytest.raises(CorruptFileError, match="plain values"):
        take_flat(pa.py_buffer(bytes(16)), *position, bits, "a.lance")


def test_widths_that_are_neither_bits_nor_bytes_are_refused() -> None:
    zero = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="values of 12 bits"):
        take_flat(pa.py_buffer(b"\0"), zero, zero, zero, zero, 12, "test")
