"""Suffixes are sorted as slices of the text are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import SchemaError
from glaive.kernels.wavelet import MAX_TEXT_BYTES, sort_suffixes

TIERS = ("numpy", "numba")


@pytest.mark.parametrize("tier", TIERS)
@given(st.lists(st.sampled_from([0, 1, 2, 255]), max_size=80).map(bytes))
def test_suffixes_are_in_the_order_of_their_bytes(tier: Any, text: bytes) -> None:
    with force_tier(tier):
        order = sort_suffixes(np.frombuffer(text, np.uint8))
    assert order.tolist() == sorted(range(len(text)), key=lambda at: text[at:])


@pytest.mark.parametrize("text", [b"ab" * 300, b"a" * 500, b"abcab" * 90 + b"abc", b"ba" * 200])
def test_texts_that_repeat_themselves_are_sorted_level_by_level(text: bytes) -> None:
    order = sort_suffixes(np.frombuffer(text, np.uint8))
    assert order.tolist() == sorted(range(len(text)), key=lambda at: text[at:])


def test_a_text_that_is_too_long_is_refused_before_memory_is_taken() -> None:
    text = np.broadcast_to(np.uint8(1), (MAX_TEXT_BYTES + 1,))
    with pytest.raises(SchemaError, match="a text of"):
        sort_suffixes(text)
