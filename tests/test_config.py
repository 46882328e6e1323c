"""Settings are read from the environment, and values without a meaning are refused by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def said(variable: str, text: str) -> str:
    """What a process prints of a setting; of an error, its last line."""
    name = variable.removeprefix("GLAIVE_").lower()
    script = f"from glaive.config import settings; print(settings.{name})"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, variable: text},
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout or done.stderr).strip().splitlines()[-1]


@pytest.mark.parametrize("variable", ["GLAIVE_THREADS", "GLAIVE_IO_CONCURRENCY"])
def test_threads_and_requests_have_a_limit(variable: str) -> None:
    texts = ["1024", "007", "000"]
    assert [said(variable, text) for text in texts] == ["1024", "7", "0"]
    for text in ("1025", str(2**31), "9" * 5000, "-1", "NaN", ""):
        assert f"OptionError: {variable}: expected an integer from 0 to 1024, found" in said(
            variable, text
        )


def test_the_folder_of_kernels_does_not_depend_on_the_working_directory() -> None:
    """A process in the folder of somebody else would run what is called as a kernel there."""
    here = str(Path("kernels").absolute())
    assert said("GLAIVE_KERNEL_CACHE", here) == here
    for text in ("kernels", "~/kernels", "."):
        assert "OptionError: GLAIVE_KERNEL_CACHE: expected an absolute path, found" in said(
            "GLAIVE_KERNEL_CACHE", text
        )
