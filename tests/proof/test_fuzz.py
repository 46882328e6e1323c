"""Damaged files and datasets by the hundred; ``make nightly`` runs many thousands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def fuzz(*options: str) -> tuple[int, dict[str, Any]]:
    """Exit status and report of ``tests.proof.fuzz``."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.proof.fuzz", *options],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout, result.stderr
    return result.returncode, json.loads(result.stdout)


@pytest.mark.spec("rel-23", "rel-24")
@pytest.mark.slow
@pytest.mark.interop
def test_damage_ends_in_an_error_of_ours_or_in_data() -> None:
    status, report = fuzz("--trials", "120", "--seed", "7", "--workers", "1")
    assert report["found"] == []
    assert status == 0
    assert report["trials"] == 120


@pytest.mark.slow
@pytest.mark.interop
def test_a_trial_that_takes_too_long_is_reported_and_the_next_ones_run() -> None:
    status, report = fuzz("--trials", "3", "--workers", "1", "--seconds", "0.001")
    assert status == 1
    assert report["found"] == [
        f"trial {i}: more than 0.001 seconds of processor time" for i in range(3)
    ]
