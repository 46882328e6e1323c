"""What all tests share: the hypothesis profiles, the order of files, a line on those left out."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings
from tests.spark.home import home_without_zip

# No deadline: the first example of a test may compile a kernel.
with suppress(ImportError):  # its types have to be registered first: it fails where others are
    import_module("lance.arrow")

settings.register_profile("fast", max_examples=10, deadline=None)
settings.register_profile("few", max_examples=5, deadline=None)
settings.register_profile("nightly", max_examples=800, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

# Of every session that tests, examples and commands start.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark" / "conf"))
if "SPARK_HOME" not in os.environ and (SPARK_HOME := home_without_zip()) is not None:
    os.environ["SPARK_HOME"] = SPARK_HOME.name  # workers of pytest-xdist inherit it


LEFT_OUT = pytest.StashKey[int]()
"""How many cases are not in the samples."""

FORKING = (
    "proof/test_unfinished.py",
    "proof/test_crashes.py",
    "proof/test_faults_with_indices.py",
    "io/test_exclusive.py",
    "ingestion/test_jobs.py",
    "ingestion/test_merges_in_tasks.py",
    "ingestion/test_export.py",
)
"""Files that fork for each step that may fail: begun while the process is small, which a fork
copies the page tables of."""

LONGEST = (
    "proof/test_simulation.py",
    "spark/test_environment.py",
    *FORKING,
    "cli/test_ingest.py",
    "interop/test_v2_3.py",
    "test_left_out.py",
    "interop/test_scalar_indices.py",
    "interop/test_both_ways.py",
    "file/test_damage.py",
    "interop/test_scans.py",
    "proof/test_walk.py",
    "proof/test_faults.py",
    "spark/test_round_trip.py",
    "interop/test_more_types.py",
    "kernels/test_native.py",
    "test_house_rules.py",
)
"""Files that take the longest: begun first, so that no worker ends with one alone."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--whole``: every combination of the tests of which a change needs to pass a sample."""
    parser.addoption("--whole", action="store_true", help="all of what is sampled")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest files first, all others in order; leave long trials to ``make nightly``."""
    nightly = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
    for item in items:
        if not nightly and (mark := item.get_closest_marker("nightly")):
            reason = f"{mark.kwargs['reason']}; make nightly runs it"
            item.add_marker(pytest.mark.skip(reason=reason))
    if not nightly and not config.getoption("whole"):
        names = out_of_samples(items)
        left_out = [item for item in items if item.nodeid in names]
        items[:] = [item for item in items if item.nodeid not in names]
        config.hook.pytest_deselected(items=left_out)
        config.stash[LEFT_OUT] = len(left_out)

    def place(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((at for at, name in enumerate(LONGEST) if path.endswith(name)), len(LONGEST))

    items.sort(key=place)


def out_of_samples(items: list[pytest.Item]) -> set[str]:
    """Ids of what is not in the samples: those of a function that were asked for are its whole."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = set[str]()
    for cases in functions.values():
        every = next(cases[0].iter_markers("sampled")).kwargs["every"]
        left_out |= not_drawn([item.nodeid for item in cases], every)
    return left_out


def not_drawn(names: list[str], every: int) -> set[str]:
    """All names but one of so many, at least one: the same each time, and of all parameters."""
    drawn = -(-len(names) // every)
    return set(sorted(names, key=lambda name: crc32(name.encode()))[drawn:])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run each file in one process, and all of Spark in one: a second Java would warm up, too."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "spark" if file.startswith("tests/spark/") else file

    return Scheduling(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse names with an address: workers that run beside each other name tests alike."""
    if " at 0x" in item.nodeid:
        raise pytest.UsageError(f"{item.nodeid}: the name changes from run to run; give ids")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while tests are collected: there is little, and a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Keep what was collected from the garbage collector: it would look at all of it each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)  # less often: a tenth of the time went there


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that started this one how many cases are not in the samples."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every process has left out the same cases; one that died does not say."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[LEFT_OUT] = output.get("left out", node.config.stash.get(LEFT_OUT, 0))


def pytest_unconfigure() -> None:
    """Give all back to the garbage collector, which looks at it once more at the end."""
    gc.unfreeze()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how many cases and files were left out: ``-ra`` folds each file into one skip."""
    if left_out := config.stash.get(LEFT_OUT, 0):
        line = f"{left_out:,} cases are not in the samples: make nightly runs all"
        terminalreporter.write_line(line, yellow=True)
    reasons = {  # several workers report the same file
        report.nodeid: report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report, pytest.CollectReport) and isinstance(report.longrepr, tuple)
    }
    for reason, count in Counter(reasons.values()).most_common():
        files = "1 test file was" if count == 1 else f"{count} test files were"
        terminalreporter.write_line(f"{files} left out as a whole: {reason}", yellow=True)
