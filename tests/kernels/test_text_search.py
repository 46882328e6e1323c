"""Searches for the best documents: what is skipped could not have been among them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.kernels.text_search import (
    Found,
    PhraseTerm,
    Search,
    WeightedList,
    top_all,
    top_any,
    weighted,
)

TIERS = ("numpy", "numba")


def lists_of(random: Any, count: int, limit: int, share: float = 1.0) -> list[WeightedList]:
    """Lists of random documents; few different weights, so that many scores are equal.

    A list has a ``share`` of the documents, at most.
    """
    lists = []
    most = int(limit * share)
    for _ in range(count):
        documents = np.sort(random.choice(limit, random.integers(0, most + 1), replace=False))
        weights = random.integers(1, 7, len(documents)) / 4
        lists.append(weighted(documents.astype(np.uint32), weights.astype(np.float32)))
    return lists


def phrase_of(random: Any, lists: list[WeightedList]) -> list[PhraseTerm]:
    """Random positions of each list, in some order of the terms, one of them twice."""
    terms = []
    order = [*random.permutation(len(lists)).tolist(), 0]
    for offset, at in enumerate(order):
        counts = random.integers(1, 4, len(lists[at].documents))
        positions = [np.sort(random.choice(9, count, replace=False)) for count in counts]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        together = np.concatenate([*positions, np.zeros(0, int)]).astype(np.uint32)
        terms.append(PhraseTerm(at, starts, together, offset, 3))
    return terms


def plain(found: Found) -> Any:
    return found.documents.tolist(), found.scores.tolist()


searches = given(
    seed=st.integers(0, 1 << 30),
    terms=st.integers(1, 5),
    limit=st.integers(1, 5000),
    most=st.integers(0, 30),
    floor=st.sampled_from([0.0, 1.0, 2.75]),
    masked=st.booleans(),
    share=st.sampled_from([1.0, 0.1, 0.02]),
)


@searches
def test_both_tiers_find_the_same_documents(
    seed: int, terms: int, limit: int, most: int, floor: float, share: float, *, masked: bool
) -> None:
    random = np.random.default_rng(seed)
    lists = lists_of(random, terms, limit, share)
    factors = (random.integers(1, 5, terms) / 2).astype(np.float32)
    allowed = random.integers(0, 2, limit).astype(np.uint8) if masked else None
    search = Search(limit, most, allowed, floor)
    found = []
    for tier in TIERS:
        with force_tier(tier):
            found.append(
                (plain(top_any(lists, factors, search)), plain(top_all(lists, factors, search)))
            )
    assert found[0] == found[1]


@searches
def test_both_tiers_find_the_same_phrases(
    seed: int, terms: int, limit: int, most: int, floor: float, share: float, *, masked: bool
) -> None:
    random = np.random.default_rng(seed)
    limit = min(limit, 300)
    lists = lists_of(random, terms, limit, share)
    phrase, slop = phrase_of(random, lists), seed % 3
    factors = np.ones(terms, np.float32)
    allowed = random.integers(0, 2, limit).astype(np.uint8) if masked else None
    search = Search(limit, most, allowed, floor)
    found = []
    for tier in TIERS:
        with force_tier(tier):
            found.append(plain(top_all(lists, factors, search, phrase, slop)))
    assert found[0] == found[1]


@pytest.mark.parametrize("tier", TIERS)
def test_of_equal_scores_the_lower_documents_are_found(tier: Any) -> None:
    one = weighted(np.arange(1000, dtype=np.uint32), np.ones(1000, np.float32))
    with force_tier(tier):
        found = top_any([one, one], np.ones(2, np.float32), Search(1000, 3))
        assert plain(found) == ([0, 1, 2], [2.0, 2.0, 2.0])
        assert plain(top_all([one], np.ones(1, np.float32), Search(1000, 2))) == ([0, 1], [1, 1])


@pytest.mark.parametrize("tier", TIERS)
def test_documents_of_a_short_list_are_found_far_along_a_long_one(tier: Any) -> None:
    few = weighted(np.array([10, 2000, 4500], np.uint32), np.ones(3, np.float32))
    many = weighted(np.arange(5000, dtype=np.uint32), np.ones(5000, np.float32))
    with force_tier(tier):
        for find in (top_any, top_all):
            found = find([few, many], np.ones(2, np.float32), Search(5000, 3))
            assert plain(found) == ([10, 2000, 4500], [2.0, 2.0, 2.0])


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("heavy", range(4))
def test_no_block_is_passed_over_for_which_one_of_several_terms_has_a_high_weight(
    tier: Any, heavy: int
) -> None:
    documents = np.arange(200, dtype=np.uint32)
    weights = np.ones((4, 200), np.float32)
    weights[heavy, 150] = 10
    lists = [weighted(documents, own) for own in weights]
    with force_tier(tier):
        for find in (top_any, top_all):
            found = find(lists, np.ones(4, np.float32), Search(200, 1))
            assert plain(found) == ([150], [13.0])


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("slop", "expected"), [(0, [0]), (1, [0, 1]), (2, [0, 1, 2])])
def test_terms_of_a_phrase_may_be_as_far_apart_as_the_slop(
    tier: Any, slop: int, expected: list[int]
) -> None:
    documents = np.arange(4, dtype=np.uint32)
    one = weighted(documents, np.ones(4, np.float32))
    starts = np.arange(5, dtype=np.int64)
    first = PhraseTerm(0, starts, np.array([5, 5, 5, 5], np.uint32), 0, 1)
    second = PhraseTerm(1, starts, np.array([6, 7, 8, 4], np.uint32), 1, 1)
    with force_tier(tier):
        found = top_all([one, one], np.ones(2, np.float32), Search(4, 4), [first, second], slop)
    assert found.documents.tolist() == expected


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("tier", TIERS)
def test_terms_that_are_often_in_one_document_are_not_compared_each_with_each(tier: Any) -> None:
    """Two words 60,000 times each, which no phrase has, took eight minutes without kernels."""
    count = 60_000
    one = weighted(np.zeros(1, np.uint32), np.ones(1, np.float32))
    starts = np.array([0, count], np.int64)
    places = np.arange(0, 4 * count, 4, dtype=np.uint32)
    terms = [PhraseTerm(at, starts, places + 2 * at, at, count) for at in range(2)]
    search, factors = Search(1, 1), np.ones(2, np.float32)
    begun = time.process_time()
    with force_tier(tier):
        assert not len(top_all([one, one], factors, search, terms).documents)
        assert plain(top_all([one, one], factors, search, terms, 1)) == ([0], [2.0])
    assert time.process_time() - begun < 30


@pytest.mark.parametrize("tier", TIERS)
def test_documents_beyond_the_partition_are_not_found(tier: Any) -> None:
    one = weighted(np.array([1, 7, 9000], np.uint32), np.ones(3, np.float32))
    with force_tier(tier):
        for find in (top_any, top_all):
            found = find([one], np.ones(1, np.float32), Search(8, 9))
            assert found.documents.tolist() == [1, 7]


def test_lists_whose_parts_do_not_match_are_refused() -> None:
    one = weighted(np.array([1, 2], np.uint32), np.ones(2, np.float32))
    factor = np.ones(1, np.float32)
    for wrong in (
        one._replace(weights=one.weights[:1]),
        one._replace(lasts=one.lasts[:0]),
        one._replace(bests=one.bests[:0]),
    ):
        with pytest.raises(ValueError, match=r"documents|blocks"):
            top_any([wrong], factor, Search(8, 9))
    with pytest.raises(ValueError, match="flags"):
        top_any([one], factor, Search(8, 9, np.ones(3, np.uint8)))
    term = PhraseTerm(0, np.zeros(2, np.int64), np.zeros(0, np.uint32), 0, 1)
    with pytest.raises(ValueError, match="positions"):
        top_all([one], factor, Search(8, 9), [term])
    with pytest.raises(ValueError, match="phrase"):
        top_all([one], factor, Search(8, 9), [term._replace(of=3)])


@pytest.mark.parametrize("bits", [0x7F80_0001, 0x7F80_0000, 0x7F7F_FFFF], ids=hex)
@pytest.mark.parametrize("search", [top_any, top_all])
def test_weights_that_are_no_numbers_are_searched_without_a_warning(bits: int, search: Any) -> None:
    weights = np.array([bits, 0x3F80_0000], np.uint32).view(np.float32)
    damaged = weighted(np.arange(2, dtype=np.uint32), weights)
    factors = np.full(2, np.finfo(np.float32).max)
    found = search([damaged, damaged], factors, Search(2, 2))
    assert set(found.documents.tolist()) <= {0, 1}
