"""Names come back from paths and expressions, whatever letters they have."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from glaive.format.field import joined_path, quoted_name, split_path

NAMES = st.text("ab`. ", min_size=1, max_size=5)


@given(st.lists(NAMES, min_size=2, max_size=4))
def test_names_come_back_from_a_path(names: list[str]) -> None:
    assert split_path(joined_path(names)) == names


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_quoted_names_come_back_from_a_path(names: list[str]) -> None:
    assert split_path(".".join(map(quoted_name, names))) == names


@given(NAMES)
def test_the_path_of_a_column_is_its_name(name: str) -> None:
    assert joined_path([name]) == name


def test_a_quoted_name_is_one_name_to_an_expression() -> None:
    assert quoted_name("x` + `y") == "`x`` + ``y`"
