"""Tokens in texts, and numbers of distinct ones: known answers, and the same in both tiers."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import SchemaError
from glaive.kernels.hashing import Vocabulary
from glaive.kernels.strings import Strings
from glaive.kernels.text_search import character_set, find_tokens
from glaive.types import as_buffer

TIERS = ("numpy", "numba")
PARTS = "abcXYZ019_é日𝄞\u0301"
CHARACTERS = character_set(np.array([[ord(part), ord(part) + 1] for part in PARTS]))


def strings_of(texts: list[bytes], bits: int = 32) -> Strings:
    ends = 1 + np.cumsum([0, *map(len, texts)])
    data = pa.py_buffer(b"a" + b"".join(texts) + b"a")
    return Strings(as_buffer(ends.astype(f"<i{bits // 8}")), bits, data)


def tokens_of(texts: list[bytes], bits: int = 32) -> list[list[bytes]]:
    strings = strings_of(texts, bits)
    found = find_tokens(strings, len(texts), CHARACTERS)
    data = strings.data.to_pybytes()
    tokens = iter(
        data[start : start + size]
        for start, size in zip(found.starts.tolist(), found.sizes.tolist(), strict=True)
    )
    return [[next(tokens) for _ in range(count)] for count in found.counts.tolist()]


@pytest.mark.parametrize("tier", TIERS)
@given(
    texts=st.lists(st.text(PARTS + " .ñ語", max_size=30), max_size=8),
    bits=st.sampled_from([32, 64]),
)
def test_tokens_are_runs_of_the_characters(tier: Any, texts: list[str], bits: int) -> None:
    expected = [
        ["".join(run) for is_part, run in groupby(text, PARTS.__contains__) if is_part]
        for text in texts
    ]
    with force_tier(tier):
        found = tokens_of([text.encode() for text in texts], bits)
    assert found == [[token.encode() for token in tokens] for tokens in expected]


@given(texts=st.lists(st.binary(max_size=12), max_size=8))
def test_both_tiers_agree_on_bytes_that_are_no_text(texts: list[bytes]) -> None:
    found = []
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            found.append(tokens_of(texts))
    assert found[0] == found[1]


@pytest.mark.parametrize("tier", TIERS)
def test_offsets_that_descend_are_refused(tier: Any) -> None:
    offsets = as_buffer(np.array([0, 5, 2], np.int32))
    with force_tier(tier), pytest.raises(SchemaError, match="must ascend"):
        find_tokens(Strings(offsets, 32, pa.py_buffer(b"abcdef")), 2, CHARACTERS)
    with pytest.raises(SchemaError, match="bits"):
        find_tokens(strings_of([b"a"]), 1, CHARACTERS[:-1])


def numbered(words: Vocabulary, batches: list[list[bytes]]) -> list[int]:
    numbers: list[int] = []
    for batch in batches:
        ends = np.cumsum([0, *map(len, batch)]).astype(np.int64)
        data = pa.py_buffer(b"".join(batch))
        numbers += words.number(data, ends[:-1], np.diff(ends).astype(np.uint32)).tolist()
    return numbers


@given(batches=st.lists(st.lists(st.binary(max_size=20), max_size=30), min_size=1, max_size=4))
def test_strings_are_numbered_as_they_appear(batches: list[list[bytes]]) -> None:
    words = Vocabulary()
    numbers = numbered(words, batches)
    known: dict[bytes, int] = {}
    expected = [known.setdefault(item, len(known)) for batch in batches for item in batch]
    assert numbers == expected
    assert words.strings().to_pylist() == list(known)
    assert words.strings(len(known) // 2).to_pylist() == list(known)[len(known) // 2 :]


def test_many_and_long_strings() -> None:
    words = Vocabulary()
    batch = [b"%d" % number for number in range(3000)] + [b"x" * 70_000, b""]
    batches = [batch, [b"new", *batch[::-1]], [b"%d" % -number for number in range(3000)]]
    numbers = numbered(words, batches)
    known: dict[bytes, int] = {}
    assert numbers == [known.setdefault(item, len(known)) for some in batches for item in some]
    assert len(words) == len(known)
    assert words.nbytes > 70_000


def test_tokens_outside_of_the_text_are_refused() -> None:
    sizes = np.array([3], np.uint32)
    for start in (-1, 1, 2**62):
        with pytest.raises(SchemaError, match="leave"):
            Vocabulary().number(pa.py_buffer(b"abc"), np.array([start]), sizes)
    with pytest.raises(SchemaError, match="starts"):
        Vocabulary().number(pa.py_buffer(b"abc"), np.array([0, 1]), sizes)
