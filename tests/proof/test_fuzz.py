"""Damaged files and datasets by the hundred; ``make nightly`` runs many thousands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def fuzz(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit status and report of ``tests.proof.fuzz``, whose temporary files go to ``folder``."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.proof.fuzz", *options],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout, result.stderr
    return result.returncode, json.loads(result.stdout)


@pytest.mark.spec("rel-23", "rel-24", "rel-42", "sec-1")
@pytest.mark.slow
@pytest.mark.interop
def test_damage_ends_in_an_error_of_ours_or_in_data(tmp_path: Path) -> None:
    status, report = fuzz(tmp_path, "--trials", "15", "--seed", "7", "--workers", "1")
    assert report["found"] == []
    assert status == 0
    assert report["trials"] == 15


@pytest.mark.slow
@pytest.mark.interop
def test_a_trial_that_takes_too_long_is_reported_and_the_next_ones_run(tmp_path: Path) -> None:
    status, report = fuzz(tmp_path, "--trials", "3", "--workers", "1", "--seconds", "0.001")
    assert status == 1
    assert report["found"] == [
        f"trial {i}: more than 0.001 seconds of processor time" for i in range(3)
    ]
    assert list(tmp_path.iterdir()) == []  # nor do killed workers leave files
