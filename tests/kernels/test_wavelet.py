"""Words are found in a text by its transform, whichever tier searches."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.kernels.wavelet import (
    SuffixSamples,
    WaveletTree,
    find_pattern,
    locate_rows,
    read_text,
    sort_suffixes,
)

TIERS = ("numpy", "numba")


class Indexed(NamedTuple):
    """A text with its tree and samples."""

    text: bytes
    tree: WaveletTree
    samples: SuffixSamples


def tree_of(transform: np.ndarray) -> WaveletTree:
    """A tree that is as deep as the number of bytes is large: each node splits one off."""
    counts = np.zeros(257, np.int64)
    np.cumsum(np.bincount(transform, minlength=256), out=counts[1:])
    symbols = np.unique(transform).tolist()
    words, children = [], []
    for node, symbol in enumerate(symbols[:-1]):
        flags = transform != symbol
        packed = np.zeros((len(flags) + 63) // 64 * 8, np.uint8)
        bits = np.packbits(flags, bitorder="little")
        packed[: len(bits)] = bits
        words.append(packed.view(np.uint64))
        last = node == len(symbols) - 2
        children.append([~symbol, ~symbols[-1] if last else node + 1])
        transform = transform[flags]
    return WaveletTree(np.concatenate(words), np.array(children, np.int64), counts)


def indexed(text: bytes, shift: int) -> Indexed:
    text += b"\xff\0"
    data = np.frombuffer(text, np.uint8)
    order = sort_suffixes(data)
    positions = order[:: 1 << shift].astype(np.int64)
    return Indexed(text, tree_of(data[order - 1]), SuffixSamples(positions, shift, len(text)))


def places(text: bytes, word: bytes) -> list[int]:
    return [at for at in range(len(text)) if text.startswith(word, at)]


@pytest.mark.parametrize("tier", TIERS)
@given(
    st.text("abc ", max_size=700).map(str.encode),
    st.text("abcd", min_size=1, max_size=4).map(str.encode),
    st.integers(0, 6),
)
def test_all_places_of_a_word_are_found(tier: Any, text: bytes, word: bytes, shift: int) -> None:
    one = indexed(text, shift)
    with force_tier(tier):
        first, stop = find_pattern(one.tree, word)
        found = locate_rows(one.tree, one.samples, first, stop)
        assert found is not None
        assert sorted(found.tolist()) == places(one.text, word)
        text_of = read_text(one.tree)
        assert text_of.tobytes() == one.text[:-1]
        assert text_of.flags.c_contiguous


@pytest.mark.parametrize("tier", TIERS)
def test_steps_that_lead_to_no_sample_are_given_up(tier: Any) -> None:
    one = indexed(b"ab" * 40, 2)
    beyond = SuffixSamples(np.full(len(one.samples.positions), len(one.text) - 1), 2, len(one.text))
    with force_tier(tier):
        assert locate_rows(one.tree, beyond, 0, 80) is not None
        # All rows of a text without order lead from one to the next.
        words = np.zeros(2048, np.uint64)
        words[-1] = 1 << 63
        counts = np.repeat([0, 131_071, 131_072], (98, 1, 158)).astype(np.int64)
        tree = WaveletTree(words, np.array([[~97, ~98]]), counts)
        samples = SuffixSamples(np.zeros(1, np.int64), 17, 131_072)
        assert locate_rows(tree, samples, 1, 400) is None


def test_the_transform_is_in_the_tree() -> None:
    one = indexed(b"abracadabra", 0)
    order = sort_suffixes(np.frombuffer(one.text, np.uint8))
    assert one.tree.transform().tolist() == [one.text[at - 1] for at in order]
    assert one.tree.nbytes > 0


WORDS = np.array([0b01], np.uint64)
CHILDREN = np.array([[~97, ~98]], np.int64)
COUNTS = np.repeat([0, 1, 2], (98, 1, 158)).astype(np.int64)


@pytest.mark.parametrize(
    ("words", "children", "counts", "message"),
    [
        (WORDS, CHILDREN, COUNTS[:-1], "counts"),
        (WORDS, CHILDREN, COUNTS[::-1].copy(), "counts"),
        (WORDS, CHILDREN[:, :1], COUNTS, "children of shape"),
        (WORDS, np.array([[~97, 0]]), COUNTS, "child 0 of node 0"),
        (WORDS, np.array([[~97, 1]]), COUNTS, "child 1 of node 0"),
        (WORDS, np.array([[~97, ~97]]), COUNTS, "child -98 of node 0"),
        (WORDS, np.array([[~97, -300]]), COUNTS, "child -300 of node 0"),
        (WORDS, np.array([[~97, ~98], [~1, ~2]]), COUNTS, "no parent"),
        (WORDS, np.array([[~97, ~99]]), COUNTS, "leaves"),
        (np.zeros(2, np.uint64), CHILDREN, COUNTS, "2 words"),
        (np.array([0b11], np.uint64), CHILDREN, COUNTS, "2 bits that are 1 in node 0, not 1"),
    ],
)
def test_a_tree_that_contradicts_itself_is_refused(
    words: Any, children: Any, counts: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        WaveletTree(words, children, counts)


def test_samples_and_rows_that_are_not_those_of_the_text_are_refused() -> None:
    tree = WaveletTree(WORDS, CHILDREN, COUNTS)
    for positions, shift, rows in (([0], 0, 2), ([2, 0], 0, 2), ([-1, 0], 0, 2), ([0], 21, 2)):
        with pytest.raises(ValueError, match="samples"):
            SuffixSamples(np.array(positions), shift, rows)
    samples = SuffixSamples(np.array([1]), 1, 2)
    for first, stop in ((-1, 1), (1, 3), (2, 1)):
        with pytest.raises(ValueError, match="rows"):
            locate_rows(tree, samples, first, stop)
