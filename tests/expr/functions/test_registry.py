"""The registry of scalar functions finds them by name and names the closest ones."""

from __future__ import annotations

import pytest

from glaive.errors import FilterError
from glaive.expr.functions.registry import find, function, functions


def test_a_function_is_found_in_any_case_of_letters() -> None:
    assert find("UPPER") is find("upper")


def test_an_unknown_function_names_the_closest_ones() -> None:
    with pytest.raises(FilterError, match=r"unknown function 'uper'; did you mean 'upper'"):
        find("uper")


@pytest.mark.parametrize(
    ("text", "says"), [("Year", r"write date_part\('year', …\)"), ("size", "write array_length")]
)
def test_functions_of_other_engines_are_answered_with_ours(text: str, says: str) -> None:
    with pytest.raises(FilterError, match=f"unknown function '{text}'; {says}"):
        find(text)


@pytest.mark.parametrize("name", ["st_simplify", "ST_Buffer"])
def test_a_function_of_geometries_that_is_not_here_names_those_that_are(name: str) -> None:
    with pytest.raises(FilterError, match=rf"'{name}': of the functions .* st_area, st_contains"):
        find(name)


def test_a_name_stands_for_one_function_only() -> None:
    functions()
    with pytest.raises(TypeError, match="two functions claim the name 'upper'"):
        function("upper", takes=find("lower").takes)(find("lower").compute)
