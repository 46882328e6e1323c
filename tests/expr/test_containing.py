"""Texts with a word in them: as Arrow says it, nulls and slices included."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.errors import FilterError
from glaive.expr.compare import containing, like, prefiltered

KINDS: list[Any] = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(
    texts=st.lists(st.none() | st.text("abä", max_size=6), max_size=80),
    word=st.text("abä", max_size=3),
    start=st.integers(0, 9),
)
def test_strings_that_contain_a_word(
    kind: Any, texts: list[str | None], word: str, start: int
) -> None:
    array: Any = pa.array(texts, pa.string()).cast(kind).slice(start)
    expected = [None if string is None else word in string for string in texts[start:]]
    result = containing(array, word)
    result.validate(full=True)
    assert result.to_pylist() == expected


@given(texts=st.lists(st.none() | st.text("ab", max_size=9), max_size=60))
def test_only_strings_with_the_word_are_tested(texts: list[str | None]) -> None:
    array: Any = pa.array(texts, pa.string())
    tested: list[int] = []

    def ends_with_word(some: Any) -> Any:
        tested.append(len(some))
        return pc.ends_with(some, "aab")

    result = prefiltered(array, "aab", ends_with_word)
    assert result.to_pylist() == [
        None if string is None else string.endswith("aab") for string in texts
    ]
    holding = sum(string is not None and "aab" in string for string in texts)
    if holding * 4 <= len(texts):
        assert tested in ([], [holding])


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize("part", ["a%", "_%", "%b_"])
def test_patterns_of_too_many_parts_are_refused_as_each_takes_time_for_each_character(
    part: str,
) -> None:
    array: Any = pa.array(["ab", None])
    allowed, refused = (pa.scalar(part * count) for count in (300, 40_000))
    assert like(array, allowed, "!", ignore_case=False).to_pylist() == [False, None]
    with pytest.raises(FilterError, match=r"0 parts: .* at most 1000 are supported") as error:
        like(array, refused, "!", ignore_case=True)
    assert len(str(error.value)) < 300
