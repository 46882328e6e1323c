"""The NumPy reference of every kernel does what the compiled one does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import glaive.kernels

Report = dict[str, dict[str, Any]]

OTHERWISE = {
    # Asked whether compiled kernels are worth it.
    # Pairs in any order.
    "products.select_near"
}


@pytest.fixture(scope="module")
def report() -> Report:
    """What happened when recorded calls were repeated in both tiers."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.kernels.tiers"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "HYPOTHESIS_PROFILE": "few"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout, result.stderr
    report: Report = json.loads(result.stdout)
    return report


@pytest.mark.nightly(reason="repeats recorded calls of every kernel")
def test_both_tiers_give_equal_answers_that_are_laid_out_alike(report: Report) -> None:
    differing = {name: found["differing"] for name, found in report.items() if found["differing"]}
    assert {name: found for name, found in differing.items() if name not in OTHERWISE} == {}


@pytest.mark.nightly(reason="repeats recorded calls of every kernel")
def test_the_reference_neither_warns_nor_fails_where_the_kernel_answers(report: Report) -> None:
    assert {name: found["foreign"] for name, found in report.items() if found["foreign"]} == {}


@pytest.mark.nightly(reason="repeats recorded calls of every kernel")
def test_every_function_that_chooses_a_tier_was_compared(report: Report) -> None:
    choosing = []
    for path in Path(glaive.kernels.__path__[0]).glob("[a-z]*.py"):
        for function in re.split(r"^def ", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            name = function.split("(")[0]
            if "use_compiled(" in function and not name.startswith("_"):
                choosing.append(f"{path.stem}.{name}")
    assert len(choosing) > 80
    compared = {name for name, found in report.items() if found["counted"].get("compared")}
    assert [name for name in choosing if name not in compared] == []
