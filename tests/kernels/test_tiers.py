"""The NumPy reference of every kernel does what the compiled one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest
from tests.kernels.tiers import references

Report = dict[str, dict[str, Any]]

OTHERWISE = {
    # Pairs in any order.
    "products.select_near"
}


@pytest.fixture(scope="module")
def report() -> Report:
    """What happened when recorded calls were repeated in both tiers."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compare"],
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
def test_every_reference_was_compared(report: Report) -> None:
    named = [name for name, (kernel, _) in references().items() if isfunction(kernel)]
    public = [name for name in named if "._" not in name and name[0] != "_"]
    assert len(public) > 70
    compared = {name for name, found in report.items() if found["counted"].get("compared")}
    assert [name for name in public if name not in compared] == []
