"""Posting lists: both tiers decode what the encoder wrote, and find the same damage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import CorruptFileError
from glaive.index.text.postings import (
    Postings,
    blocks_of,
    encode_positions,
    encode_postings,
    occurrences,
)
from glaive.index.text.text_format import PostingLayout
from glaive.kernels.text_search import decode_lists, decode_positions

TIERS = ("numpy", "numba")
LAYOUTS = [
    PostingLayout(128, fixed_tail=True),
    PostingLayout(128, fixed_tail=False),
    PostingLayout(256, fixed_tail=False),
]
LIMIT = 1 << 20


def list_of(seed: int, length: int, layout: PostingLayout) -> tuple[Any, Any, Postings, Any]:
    """Blocks of a list of random documents, with the positions of their tokens."""
    random = np.random.default_rng(seed)
    documents = np.sort(random.choice(LIMIT, length, replace=False)).astype(np.int64)
    frequencies = random.zipf(1.5, length).clip(1, 400)
    starts = np.array([0, length])
    postings = Postings(starts, documents, frequencies)
    blocks = blocks_of(starts, layout.block)
    best = np.ones(len(blocks.sizes), np.float32)
    steps = random.integers(1, 90, int(frequencies.sum()))
    positions = encode_positions(steps, occurrences(blocks, frequencies))
    return encode_postings(postings, best, layout), positions, postings, steps


def decoded(tier: Any, data: Any, offsets: Any, length: int, layout: PostingLayout) -> Any:
    with force_tier(tier):
        return decode_lists(
            data, offsets, np.array([0, length]), block=layout.block,
            fixed_tail=layout.fixed_tail, limit=LIMIT, where="t.lance",
        )  # fmt: skip


@pytest.mark.sampled(every=2)
@pytest.mark.spec("text-8", "text-9", "text-10")
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("length", [1, 127, 128, 129, 256, 257, 1000])
@pytest.mark.parametrize("tier", TIERS)
def test_documents_and_frequencies_are_what_was_encoded(
    tier: Any, length: int, layout: PostingLayout
) -> None:
    blocks, _, postings, _ = list_of(length, length, layout)
    documents, frequencies = decoded(tier, blocks.data, blocks.offsets, length, layout)
    assert documents.tolist() == postings.documents.tolist()
    assert frequencies.tolist() == postings.frequencies.tolist()


@pytest.mark.spec("text-17")
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("length", [1, 128, 700])
@pytest.mark.parametrize("tier", TIERS)
def test_positions_are_sums_of_steps_within_each_document(
    tier: Any, length: int, layout: PostingLayout
) -> None:
    blocks, encoded, _, steps = list_of(length, length, layout)
    _, frequencies = decoded(tier, blocks.data, blocks.offsets, length, layout)
    with force_tier(tier):
        starts, positions = decode_positions(
            encoded.data,
            encoded.offsets,
            np.array([0, length]),
            frequencies,
            block=layout.block,
            where="t.lance",
        )
    for document in range(length):
        here = slice(int(starts[document]), int(starts[document + 1]))
        assert positions[here].tolist() == np.cumsum(steps[here]).tolist()


def outcome(tier: Any, data: Any, offsets: Any, length: int, layout: PostingLayout) -> Any:
    try:
        documents, frequencies = decoded(tier, data, offsets, length, layout)
    except CorruptFileError as error:
        return error.where
    return documents.tolist(), frequencies.tolist()


@given(
    seed=st.integers(0, 50),
    length=st.integers(1, 300),
    layout=st.sampled_from(LAYOUTS),
    place=st.integers(0, 1 << 20),
    byte=st.integers(0, 255),
)
def test_both_tiers_agree_on_damaged_blocks(
    seed: int, length: int, layout: PostingLayout, place: int, byte: int
) -> None:
    blocks, *_ = list_of(seed, length, layout)
    data = blocks.data.copy()
    data[place % len(data)] = byte
    first, second = (outcome(tier, data, blocks.offsets, length, layout) for tier in TIERS)
    assert first == second


@given(
    length=st.integers(1, 300),
    layout=st.sampled_from(LAYOUTS),
    place=st.integers(0, 1 << 20),
    byte=st.integers(0, 255),
)
def test_both_tiers_agree_on_damaged_positions(
    length: int, layout: PostingLayout, place: int, byte: int
) -> None:
    _, encoded, postings, _ = list_of(length, length, layout)
    data = encoded.data.copy()
    data[place % len(data)] = byte
    frequencies = postings.frequencies.astype(np.uint32)

    def read(tier: Any) -> Any:
        try:
            with force_tier(tier):
                starts, positions = decode_positions(
                    data,
                    encoded.offsets,
                    np.array([0, length]),
                    frequencies,
                    block=layout.block,
                    where="t.lance",
                )
        except CorruptFileError:
            return "damaged"
        return starts.tolist(), positions.tolist()

    assert read("numpy") == read("numba")


@pytest.mark.parametrize("tier", TIERS)
def test_lengths_that_do_not_fit_the_blocks_are_damage(tier: Any) -> None:
    layout = LAYOUTS[1]
    blocks, encoded, postings, _ = list_of(1, 200, layout)
    for length in (0, 128, 199, 201, 257, -1, 1 << 40):
        with pytest.raises(CorruptFileError):
            decoded(tier, blocks.data, blocks.offsets, length, layout)
    huge = np.full(200, 0xFFFF_FFFF, np.uint32)
    with force_tier(tier), pytest.raises(CorruptFileError):
        decode_positions(
            encoded.data,
            encoded.offsets,
            np.array([0, 200]),
            huge,
            block=layout.block,
            where="t.lance",
        )
    with force_tier(tier), pytest.raises(CorruptFileError):
        decode_positions(
            encoded.data, encoded.offsets + len(encoded.data), np.array([0, 100]),
            postings.frequencies[:100],
            block=128, where="t.lance",
        )  # fmt: skip
    with force_tier(tier), pytest.raises(CorruptFileError):
        decode_lists(
            blocks.data, blocks.offsets, np.array([-1, 200]), block=layout.block,
            fixed_tail=False, limit=1000, where="t.lance",
        )  # fmt: skip
