"""Tokens of documents sorted by token: known answers, and the same in both tiers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import SchemaError
from glaive.kernels.hashing import invert_tokens

TIERS = ("numpy", "numba")


@pytest.mark.parametrize("tier", TIERS)
@given(documents=st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=8))
def test_each_token_has_its_documents(tier: Any, documents: list[list[int]]) -> None:
    expected: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for document, tokens in enumerate(documents):
        for position, token in enumerate(tokens):
            expected[token][document].append(3 * position)
    numbers = np.array([token for tokens in documents for token in tokens], np.uint32)
    counts = np.array([len(tokens) for tokens in documents], np.int64)
    places = [3 * position for tokens in documents for position in range(len(tokens))]
    with force_tier(tier):
        found = invert_tokens(numbers, counts, 11, np.array(places, np.uint32))
        assert invert_tokens(numbers, counts, 11).positions is None
    lists = [expected[token] for token in range(11)]
    assert found.starts.tolist() == np.cumsum([0, *map(len, lists)]).tolist()
    assert found.documents.tolist() == [document for one in lists for document in one]
    occurrences = [places for one in lists for places in one.values()]
    assert found.frequencies.tolist() == list(map(len, occurrences))
    assert found.positions is not None
    assert found.positions.tolist() == [place for places in occurrences for place in places]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("counts", "distinct", "positions"),
    [([2], 2, 3), ([4], 2, 3), ([-1, 4], 2, 3), ([3], 1, 3), ([3], 0, 3), ([3], 2, 2)],
)
def test_numbers_that_do_not_fit_are_refused(
    tier: Any, counts: list[int], distinct: int, positions: int
) -> None:
    numbers = np.array([0, 1, 0], np.uint32)
    with force_tier(tier), pytest.raises(SchemaError, match="tokens"):
        invert_tokens(numbers, np.array(counts), distinct, np.zeros(positions, np.uint32))


def test_no_tokens_at_all() -> None:
    found = invert_tokens(np.zeros(0, np.uint32), np.zeros(0, np.int64), 0)
    assert found.starts.tolist() == [0]
