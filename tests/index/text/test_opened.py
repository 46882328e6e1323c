"""Opened full-text indices: tokens are looked up, lists are read when a search needs them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glaive
from glaive.errors import CorruptFileError
from glaive.format.pb import table_pb2
from glaive.index.protocol import HasTokens
from glaive.index.segment import Segment
from glaive.index.text.inverted import Inverted
from glaive.index.text.opened import TextStatistics, length_shares, weights_of
from glaive.index.text.tokens import Fst, near_tokens, write_fst
from glaive.io.access import open_store

words = st.lists(st.binary(min_size=0, max_size=6), unique=True, max_size=60)


def fst_of(tokens: list[bytes]) -> tuple[Any, list[bytes]]:
    ascending = sorted(tokens)
    strings = pa.array(ascending, pa.large_binary())
    data = write_fst(strings, np.arange(len(ascending), dtype=np.int64))
    return pa.py_buffer(data), ascending


@pytest.mark.spec("text-20", "text-21", "text-22", "text-23")
@given(tokens=words, others=words)
def test_tokens_are_found_by_their_letters(tokens: list[bytes], others: list[bytes]) -> None:
    data, ascending = fst_of(tokens)
    fst = Fst(data, "t.lance")
    assert fst.count == len(ascending)
    for number, token in enumerate(ascending):
        assert fst.find(token) == number
    for token in set(others) - set(tokens):
        assert fst.find(token) is None


@given(tokens=words, place=st.integers(0, 1 << 20), byte=st.integers(0, 255))
def test_damaged_nodes_end_in_an_answer_or_an_error(
    tokens: list[bytes], place: int, byte: int
) -> None:
    data, ascending = fst_of(tokens)
    damaged = bytearray(data.to_pybytes())
    damaged[place % len(damaged)] = byte
    try:
        fst = Fst(pa.py_buffer(bytes(damaged)), "t.lance")
        found = [fst.find(token) for token in ascending]
    except CorruptFileError as error:
        found = []
        # The error is what this test is about: it names the file.
        if error.where != "t.lance":
            raise
    assert all(number is None or number >= 0 for number in found)


def distance(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for number, letter in enumerate(first, 1):
        before, row = row, [number]
        for at, other in enumerate(second):
            row.append(min(before[at + 1] + 1, row[at] + 1, before[at] + (letter != other)))
    return row[-1]


@given(
    tokens=st.lists(st.text("abé", max_size=6), unique=True, max_size=30),
    wanted=st.text("abé", max_size=6),
    edits=st.integers(1, 3),
    prefix=st.integers(0, 3),
    most=st.integers(1, 8),
)
def test_near_tokens_are_the_first_that_few_edits_lead_to(
    tokens: list[str], wanted: str, edits: int, prefix: int, most: int
) -> None:
    ascending = sorted(tokens, key=str.encode)
    places = near_tokens(pa.array(ascending, pa.large_string()), wanted, edits, prefix, most)
    expected = [
        token
        for token in ascending
        if distance(wanted, token) <= edits and token.startswith(wanted[:prefix])
    ]
    assert [ascending[place] for place in places.tolist()] == expected[:most]


@pytest.fixture
def segment() -> Segment:
    """An index over 3,000 rows in memory, of which every read is a request."""
    uri = "memory://opened-texts"
    texts = [f"every w{number % 7} n{number}" for number in range(3000)]
    dataset = glaive.write_dataset(pa.table({"text": texts}), uri, mode="overwrite")
    dataset.create_scalar_index("text", "INVERTED", stem=False, remove_stop_words=False)
    store = open_store(uri)
    newest = max(store.walk("_indices"), key=lambda file: file.path)
    entry = table_pb2.IndexMetadata(name="text_idx")
    entry.uuid.uuid = UUID(newest.path.split("/")[1]).bytes
    kept: dict[Hashable, Any] = {}

    def keep(key: Hashable, load: Callable[[], tuple[Any, int]]) -> Any:
        if key not in kept:
            kept[key] = load()[0]
        return kept[key]

    return Segment(store, entry, keep)


def test_a_posting_list_is_one_request_and_then_none(segment: Segment) -> None:
    (partition,) = Inverted().open(segment).partitions
    mean = partition.statistics.mean_length
    assert partition.statistics == TextStatistics(3000, 9000)
    assert len(partition.weighted("w0", mean).documents) == 429
    counters = segment.store.counters
    for token, documents in (("every", 3000), ("w3", 429), ("n77", 1)):
        before = counters.snapshot().read_iops
        assert len(partition.weighted(token, mean).documents) == documents
        assert counters.snapshot().read_iops - before == 1
        assert len(partition.weighted(token, mean).documents) == documents
        assert counters.snapshot().read_iops - before == 1


def test_tokens_that_are_not_there_have_no_documents(segment: Segment) -> None:
    (partition,) = Inverted().open(segment).partitions
    assert partition.count("nothing") == 0
    assert len(partition.weighted("nothing", 3.0).documents) == 0
    assert partition.count("w1") == 429


def test_rows_with_all_words_of_a_text_are_candidates(segment: Segment) -> None:
    opened = Inverted().open(segment)
    query = HasTokens("W1 every")
    assert opened.answers(query)
    found = opened.search(query)
    assert found.rows.count == 429
    assert not found.exact
    assert not opened.answers(HasTokens("?!"))


def test_documents_of_any_length_have_weights_where_there_are_said_to_be_no_tokens() -> None:
    mean = TextStatistics(documents=3, tokens=0).mean_length
    with np.errstate(all="raise"):
        shares = length_shares(np.array([0, 1, 2**32 - 1], np.uint32), mean)
        weights = weights_of(np.ones(3, np.uint32), shares)
    assert bool(np.isfinite(shares).all())
    assert weights[0] > 1
    assert weights[1:].tolist() == pytest.approx([0, 0], abs=1e-6)
