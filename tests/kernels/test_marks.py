"""Sets of many words: bitmaps where words are near each other on the circle of all words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.kernels._tier import as_buffer, force_tier
from glaive.kernels.marks import marks_of
from glaive.kernels.match import WordTest, list_rows, match_pieces


@given(
    bits=st.sampled_from([32, 64]),
    start=st.integers(-500, 500) | st.integers(0, 2**64 - 1),
    steps=st.lists(st.integers(1, 200), min_size=1, max_size=60),
)
def test_words_on_both_sides_of_zero_are_one_bitmap(
    bits: int, start: int, steps: list[int]
) -> None:
    words = [(start + at) % (1 << bits) for at in np.cumsum([0, *steps]).tolist()]
    marks = marks_of(bits, np.array(sorted(words), np.uint64))
    assert marks is not None
    flags = np.unpackbits(marks.bits, bitorder="little")
    places = np.flatnonzero(flags).tolist()
    assert [(marks.base + one) % (1 << bits) for one in places] == words
    assert not flags[marks.top]


def test_words_that_are_far_apart_have_no_bitmap() -> None:
    assert marks_of(64, np.array([0, 1 << 31, 1 << 62], np.uint64)) is None
    assert marks_of(64, np.array([5, 5 + (1 << 25)], np.uint64)) is None


@pytest.mark.parametrize("tier", ["numpy", "numba"])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("shift", [0, 2, 20, 40])
def test_all_words_that_pass_are_found_and_no_others(tier: str, bits: int, shift: int) -> None:
    rng = np.random.default_rng(shift)
    words = rng.integers(-3000, 3000, 5000) << min(shift, bits - 14)
    words = words.astype(f"<i{bits // 8}").view(f"<u{bits // 8}")
    asked = np.unique(rng.choice(words, 900)).astype(np.uint64)
    test = WordTest.of(bits, asked, np.zeros(len(asked), np.uint64))
    assert (test.marks is None) == (shift >= 20)
    assert (test.hashed is None) == (shift < 20)
    with force_tier(tier):  # type: ignore[arg-type]  # a tier
        whole = np.zeros(1, np.int64), np.array([len(words)], np.int64)
        found = list_rows(match_pieces(as_buffer(words), *whole, test, "test"), 0, len(words), 0)
    assert found.tolist() == np.flatnonzero(np.isin(words, asked)).tolist()
