"""Weight is a cost: each package has a budget of code lines, the tree one of modules."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tools.weight import code_lines, modules, packages

BUDGETS = tomllib.loads((Path(__file__).parent.parent / "tools" / "weight.toml").read_text("utf-8"))


@pytest.mark.parametrize("package", sorted(BUDGETS["packages"]))
def test_a_package_is_within_its_budget(package: str) -> None:
    budget, lines = BUDGETS["packages"][package], packages()[package]
    advice = "delete, or raise the number in tools/weight.toml with a reason in [raised]"
    assert lines <= budget, f"{package} has {lines} code lines: {advice}"
    assert lines > 0.95 * budget, f"lower the budget of {package} in tools/weight.toml"


def test_the_budgets_name_packages_that_are_there() -> None:
    assert BUDGETS["packages"].keys() == packages().keys()
    assert BUDGETS["raised"].keys() <= packages().keys()


def test_there_are_few_modules_and_few_small_ones() -> None:
    sizes = modules().values()
    assert len(sizes) <= BUDGETS["totals"]["modules"]
    assert sum(size < 40 for size in sizes) <= BUDGETS["totals"]["small_modules"]


def test_comments_blank_lines_and_docstrings_do_not_count() -> None:
    source = ['"""What', "", 'it is."""', "# why", "x = (", "    1,", ")", "", "def f():"]
    source += ['    """Do."""', "    return x"]
    assert code_lines("\n".join(source)) == 5
