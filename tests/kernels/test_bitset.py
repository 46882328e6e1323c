"""Sets of many words: bitmaps where words are near each other on the circle of all words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.kernels.match import IntegerRanges, bitset_of, list_rows, match_plain, words_of
from glaive.types import as_buffer


@given(
    bits=st.sampled_from([32, 64]),
    start=st.integers(-500, 500) | st.integers(0, 2**64 - 1),
    steps=st.lists(st.integers(2, 200), min_size=1, max_size=60),
    spans=st.sampled_from([0, 1, 50]),
    listed=st.booleans(),
)
def test_words_on_both_sides_of_zero_are_one_bitmap(
    bits: int, start: int, steps: list[int], spans: int, listed: bool
) -> None:
    ends = np.cumsum([0, *steps]).tolist()
    sizes = [min(spans, step - 2) for step in steps] + [spans]
    lows = [(start + at) % (1 << bits) for at in ends]
    words = [
        (low + more) % (1 << bits)
        for low, size in zip(lows, sizes, strict=True)
        for more in range(size + 1)
    ]
    order = np.argsort(np.array(lows, np.uint64))
    ranges = np.array(lows, np.uint64)[order], np.array(sizes, np.uint64)[order]
    marks = bitset_of(bits, *ranges, words_of(bits, *ranges) if listed else None)
    assert marks is not None
    flags = np.unpackbits(marks.bits, bitorder="little")
    positions = np.flatnonzero(flags).tolist()
    assert [(marks.base + position) % (1 << bits) for position in positions] == words
    assert not flags[marks.top]


def test_words_that_are_far_apart_have_no_bitmap() -> None:
    none = np.zeros(2, np.uint64)
    assert bitset_of(64, np.array([0, 1 << 62], np.uint64), none, None) is None
    assert bitset_of(64, np.array([5, 5 + (1 << 25)], np.uint64), none, None) is None
    wide = np.array([1 << 40, 0], np.uint64)
    assert bitset_of(64, np.array([0, 1 << 41], np.uint64), wide, None) is None


def test_ranges_of_many_words_are_not_spelled_out() -> None:
    lows = np.array([0, 1 << 40], np.uint64)
    for size in (1 << 20, (1 << 39) - 1, 2**64 - 1 - (1 << 40)):
        assert words_of(64, lows, np.array([3, size], np.uint64)) is None
    words = words_of(32, np.array([1, 2**32 - 1], np.uint64), np.array([1, 1], np.uint64))
    assert words is not None
    assert words.tolist() == [1, 2, 2**32 - 1, 0]


@pytest.mark.parametrize("tier", ["numpy", "numba"])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("shift", [0, 2, 20, 40])
def test_all_words_that_pass_are_found_and_no_others(tier: str, bits: int, shift: int) -> None:
    rng = np.random.default_rng(shift)
    words = rng.integers(-3000, 3000, 5000) << min(shift, bits - 14)
    words = words.astype(f"<i{bits // 8}").view(f"<u{bits // 8}")
    wanted = np.unique(rng.choice(words, 900)).astype(np.uint64)
    ends = np.flatnonzero(np.diff(wanted) != 1)
    lows, highs = wanted[np.append(0, ends + 1)], wanted[np.append(ends, len(wanted) - 1)]
    test = IntegerRanges.of(bits, lows, highs - lows)
    assert (test.bitset is None) == (shift >= 20)
    assert (test.hashed is None) == (shift < 20)
    with force_tier(tier):  # type: ignore[arg-type]  # a tier
        whole = np.zeros(1, np.int64), np.array([len(words)], np.int64)
        rows = list_rows(match_plain(as_buffer(words), *whole, test, "test"), 0, len(words), 0)
    assert rows.tolist() == np.flatnonzero(np.isin(words, wanted)).tolist()
