"""Strings that contain a pattern: both tiers find what Python finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import GlaiveError
from glaive.kernels.offsets import contains
from glaive.kernels.strings import Strings
from glaive.types import as_buffer

TIERS = ("numpy", "numba")
TEXTS = st.text("ab", max_size=12) | st.text("abcx", min_size=60, max_size=150)


def found_by(tier: Any, texts: list[bytes], pattern: bytes, bits: int = 32, lead: int = 0) -> Any:
    ends = lead + np.cumsum([0, *map(len, texts)])
    data = pa.py_buffer(b"a" * lead + b"".join(texts))
    strings = Strings(as_buffer(ends.astype(f"<i{bits // 8}")), bits, data)
    with force_tier(tier):
        bitmap = contains(strings, len(texts), pattern)
    return np.unpackbits(
        np.frombuffer(bitmap.to_pybytes(), np.uint8), count=len(texts), bitorder="little"
    ).tolist()


@given(
    texts=st.lists(TEXTS, max_size=40),
    pattern=st.text("ab", max_size=4) | st.text("abcx", max_size=30),
    bits=st.sampled_from([32, 64]),
    lead=st.integers(0, 3),
)
def test_a_piece_is_found_within_a_string(
    texts: list[str], pattern: str, bits: int, lead: int
) -> None:
    expected = [int(pattern in text) for text in texts]
    for tier in TIERS:
        flags = found_by(tier, [text.encode() for text in texts], pattern.encode(), bits, lead)
        assert flags == expected


@given(at=st.integers(0, 200), length=st.integers(1, 70), seed=st.integers(0, 20))
def test_a_pattern_is_found_at_every_position(at: int, length: int, seed: int) -> None:
    letters = np.random.default_rng(seed).integers(97, 99, 300).astype(np.uint8).tobytes()
    pattern = bytes(range(128, 128 + length))
    texts = [letters, letters[:at] + pattern + letters[at:], b"", pattern, pattern[:-1] + b"a"]
    for tier in TIERS:
        assert found_by(tier, texts, pattern) == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("tier", TIERS)
def test_what_two_strings_make_together_is_in_neither(tier: Any) -> None:
    assert found_by(tier, [b"ab", b"cd", b"abcd", b""], b"bc") == [0, 0, 1, 0]
    assert found_by(tier, [b"x" * 100 + b"ab", b"cd" * 100], b"bc") == [0, 0]
    assert found_by(tier, [b"", b"", b"a", b"", b"a"], b"a") == [0, 0, 1, 0, 1]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("ends", [[0, 5], [2, 1], [-1, 1]])
def test_offsets_that_leave_the_data_are_refused(tier: Any, ends: list[int]) -> None:
    strings = Strings(as_buffer(np.array(ends, np.int32)), 32, pa.py_buffer(b"abc"))
    with force_tier(tier), pytest.raises((GlaiveError, ValueError)):
        contains(strings, 1, b"a")
