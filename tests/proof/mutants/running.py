"""Tests run in processes that begin with pytest and Arrow loaded: most of them end at once."""

from __future__ import annotations

import os
import resource
import signal
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest

WAITING = 10
"""Seconds that tests may take for each second of a processor: others work on this machine, too."""

_OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
_OPTIONS += ["--whole", "--hypothesis-seed=0", "-W", "ignore::pytest.PytestAssertRewriteWarning"]

_CONTEXT = get_context("forkserver")
# Without pylance, whose threads do not survive a fork, and without the library, which changes.
_CONTEXT.set_forkserver_preload(["pytest", "_pytest.doctest", "hypothesis", "pyarrow.compute"])


class _FirstFailure:
    """Writes the id of the first test that fails."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.path.exists():
            self.path.write_text(report.nodeid, "utf-8")


def run_tests(folder: Path, tests: list[str], seconds: float) -> tuple[int | None, str]:
    """Run tests with the package in a folder, until one fails.

    Parameters
    ----------
    folder
        Has ``src``; gets the output.
    tests
        Their ids.
    seconds
        Of a processor; and ten times as many of the clock.

    Returns
    -------
    tuple
        The exit status of pytest, None if it used all of its time; and the test that failed.

    Raises
    ------
    RuntimeError
        The process failed beside its tests.
    """
    failure = folder / "failure.txt"
    failure.unlink(missing_ok=True)
    process = _CONTEXT.Process(target=_run, args=(folder, tests, int(seconds)))
    process.start()
    process.join(seconds * WAITING)
    if process.exitcode is None:
        os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        return None, ""
    status: int | None = process.exitcode
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        status = None
    failed = failure.read_text("utf-8") if failure.exists() else ""
    if status == 1 and not failed:
        raise RuntimeError(f"no test failed, and yet: {(folder / 'output.txt').read_text('utf-8')}")
    return status, failed


def _run(folder: Path, tests: list[str], seconds: int) -> None:
    """What the process does."""
    os.setsid()
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    source = str(folder / "src")
    sys.path.insert(0, source)
    # Bytecode of a change would pass for that of the next one, where both are of one second.
    sys.dont_write_bytecode = True
    os.environ.update(PYTHONPATH=source, PYTHONDONTWRITEBYTECODE="1")
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    status = pytest.main([*_OPTIONS, *tests], plugins=[_FirstFailure(folder / "failure.txt")])
    sys.stdout.flush()
    os._exit(int(status))  # threads of a mutant may never end
