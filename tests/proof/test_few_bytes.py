"""Files of few bytes, made by the dozen; ``make nightly`` makes thousands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.proof.few_bytes.files import few_bytes


def read_some(*options: str, limit: str = "16MiB") -> tuple[int, dict[str, Any]]:
    """Exit status and report of ``tests.proof.few_bytes``."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.proof.few_bytes", *options],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "GLAIVE_MAX_DECODED_BYTES_PER_PAGE": limit},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout, result.stderr
    return result.returncode, json.loads(result.stdout)


@pytest.mark.spec("rel-23", "rel-24", "rel-25")
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="measures by files of Linux")
def test_files_of_few_bytes_take_little_memory_and_time() -> None:
    status, report = read_some("--trials", "80", "--seed", "5")
    assert report["found"] == []
    assert status == 0
    assert report["outcomes"]["read"] > 250
    assert report["outcomes"]["UnsupportedFeatureError"] > 10  # some are beyond the limits


@pytest.mark.spec("rel-24", "rel-25")
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="measures by files of Linux")
def test_index_files_of_few_bytes_take_little_memory_and_time() -> None:
    pytest.importorskip("lance")  # builds some of them
    options = ("--trials", "4", "--seed", "5", "--seconds", "30")
    status, report = read_some("--indices", *options, limit="64MiB")
    assert report["found"] == []
    assert status == 0
    assert report["outcomes"]["read"] > 10


@pytest.mark.spec("rel-23", "rel-24", "rel-25")
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="measures by files of Linux")
def test_tables_of_few_bytes_take_little_memory_and_time() -> None:
    status, report = read_some("--tables", "--trials", "3", "--seed", "5", "--seconds", "30")
    assert report["found"] == []
    assert status == 0
    assert report["outcomes"]["read"] > 50


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="measures by files of Linux")
def test_a_read_that_takes_too_long_is_reported_and_the_next_ones_run() -> None:
    status, report = read_some("--trials", "3", "--seconds", "0")
    assert status == 1
    assert len(report["found"]) == 3


def test_a_seed_makes_one_file() -> None:
    assert few_bytes(5, 3) == few_bytes(5, 3)
    assert few_bytes(5, 3).raw != few_bytes(5, 4).raw
