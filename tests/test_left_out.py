"""A run that lacks what some test files need says how many it left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import not_drawn

ROOT = Path(__file__).parent.parent
FILES = ["tests/table/test_interop.py", "tests/interop/test_scans.py", "tests/interop/test_refs.py"]

PROCESSES = ["0", pytest.param("2", marks=pytest.mark.nightly(reason="starts two more processes"))]

SAMPLED = "tests/io/test_exclusive.py"


@pytest.fixture
def summary(tmp_path: Path) -> Callable[..., str]:
    """What a run prints where there is no pylance."""
    (tmp_path / "lance.py").write_text("raise ModuleNotFoundError(name='lance')")
    paths = os.pathsep.join([str(tmp_path), *sys.path])

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        command += ["--basetemp", str(tmp_path / "base")]  # else it removes those of earlier runs
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, "HYPOTHESIS_PROFILE": "fast"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 5), done.stdout + done.stderr  # 5: no test was left
        return done.stdout

    return run


@pytest.mark.parametrize("processes", PROCESSES)
def test_files_left_out_without_pylance_are_counted(
    summary: Callable[..., str], processes: str
) -> None:
    line = "3 test files were left out as a whole: install the 'interop' group"
    assert line in summary("-n", processes, *FILES).splitlines()


def test_one_file_is_counted_as_one(summary: Callable[..., str]) -> None:
    assert "1 test file was left out as a whole" in summary(FILES[0])


def test_a_run_that_leaves_nothing_out_says_nothing(summary: Callable[..., str]) -> None:
    assert "left out" not in summary("tests/test_import.py", "--collect-only")


@pytest.mark.parametrize("processes", PROCESSES)
def test_cases_that_are_not_in_the_samples_are_counted(
    summary: Callable[..., str], processes: str
) -> None:
    found = summary("-n", processes, SAMPLED, "-k", "nothing")
    assert re.search("[1-9][0-9]* cases are not in the samples: make nightly runs all", found)


@pytest.mark.parametrize("count", [1, 3, 4, 150])
def test_a_sample_has_its_share_and_never_nothing(count: int) -> None:
    names = [f"test_x[{number}]" for number in range(count)]
    left_out = not_drawn(names, 4)
    assert len(names) - len(left_out) == -(-count // 4)
    assert left_out < set(names)
    assert not_drawn(names[::-1], 4) == left_out  # whatever their order
