"""Texts with a word in them: as Arrow says it, nulls and slices included."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.expr.containing import containing, prefiltered
from glaive.testing import force_tier

KINDS: list[Any] = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(
    texts=st.lists(st.none() | st.text("abä", max_size=6), max_size=80),
    word=st.text("abä", max_size=3),
    start=st.integers(0, 9),
)
def test_texts_with_a_word(kind: Any, texts: list[str | None], word: str, start: int) -> None:
    array: Any = pa.array(texts, pa.string()).cast(kind).slice(start)
    expected = [None if one is None else word in one for one in texts[start:]]
    for tier in ("numpy", "numba"):
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            found = containing(array, word)
            found.validate(full=True)
            assert found.to_pylist() == expected


@given(texts=st.lists(st.none() | st.text("ab", max_size=9), max_size=60))
def test_a_test_is_made_of_the_texts_with_the_word(texts: list[str | None]) -> None:
    array: Any = pa.array(texts, pa.string())
    asked: list[int] = []

    def ends_with_word(some: Any) -> Any:
        asked.append(len(some))
        return pc.ends_with(some, "aab")

    found = prefiltered(array, "aab", ends_with_word)
    assert found.to_pylist() == [None if one is None else one.endswith("aab") for one in texts]
    holding = sum(one is not None and "aab" in one for one in texts)
    if holding * 4 <= len(texts):
        assert asked in ([], [holding])
