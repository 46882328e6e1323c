"""Small changes of the source that tests should notice: ``python -m tests.proof.mutants``.

The sample is always the same: the mutants of lowest hash in ``table/``, ``format/`` and
``kernels/``, equally many of each. For each, a copy of the package with that one change is tested
with the tests that run the changed line (``make coverage`` says which), until one fails. Those
known to be equivalent are in ``equivalent.json``, with the reason, and are not counted.

Contexts of some of the tests will do as well: ``--coverage`` takes files of several runs of pytest
with ``--cov-context test``. A mutant that none of their tests runs is "not reached", which counts
as not killed, and the report names the folders of tests that were there to choose from.

Prints a report as JSON. Exit status 1: fewer than ``--share`` of them were killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

from tests.proof.figures import keep, kept
from tests.proof.mutants.covering import CoveringTests
from tests.proof.mutants.record import Fate, Record
from tests.proof.mutants.running import run_tests
from tests.proof.mutants.sites import Mutant, sample

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "glaive"
FOLDERS = ("table", "format", "kernels")


class Copy:
    """A copy of the package in a folder of its own, for one mutant at a time."""

    def __init__(self, folder: Path, limit: float) -> None:
        self.folder, self.limit = folder, limit
        shutil.copytree(PACKAGE.parent, folder / "src")

    def fate(self, mutant: Mutant, tests: list[str]) -> tuple[Fate, str]:
        """What tests say of a mutant, and which of them.

        Raises
        ------
        RuntimeError
            The tests cannot be run without the change either.
        """
        if not tests:
            return "not reached", ""
        status, failed = self._status(mutant, mutant.applied, tests)
        if status is None:
            without, _ = self._status(mutant, lambda source: f"{source}# Not changed.\n", tests)
            return ("too slow" if without is None else "endless"), ""
        # 4: pytest could not begin, because of the change or of a test that is no longer there.
        if status in (4, 5) and self._status(mutant, str, tests)[0] != 0:
            raise RuntimeError(f"run `make coverage` again: these tests fail unchanged: {tests}")
        return ("survived" if status == 0 else "killed"), failed

    def _status(
        self, mutant: Mutant, change: Callable[[str], str], tests: list[str]
    ) -> tuple[int | None, str]:
        """The status of tests with a change of the file; kernels are compiled for any change."""
        path = self.folder / "src" / "glaive" / mutant.path
        source, before = path.read_text("utf-8"), path.stat()
        path.write_text(change(source), "utf-8")
        try:
            return run_tests(self.folder, tests, self.limit)
        finally:
            path.write_text(source, "utf-8")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # fits the bytecode there


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=500, help="mutants in the sample")
    parser.add_argument("--first", type=int, default=0, help="first one of the sample")
    parser.add_argument("--count", type=int, help="so many of the sample")
    parser.add_argument("--only", default="", help="mutants whose key has this in it")
    parser.add_argument(
        "--coverage", type=Path, nargs="+", default=[ROOT / ".cache" / "coverage"], metavar="FILE"
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0, help="of a processor, for a mutant")
    parser.add_argument("--share", type=float, default=0.9, help="that must be killed")
    parser.add_argument("--keep", action="store_true", help="figures, for `make figures`")
    parser.add_argument(
        "--resume", action="store_true", help="only those that the kept figures know no fate of"
    )
    parser.add_argument("--again", action="store_true", help="those that survived, once more")
    parser.add_argument(
        "--tests",
        nargs="+",
        default=[],
        metavar="ID",
        help="to run first: new ones, without contexts",
    )
    options = parser.parse_args()
    every = sample(PACKAGE, FOLDERS, options.size)
    record = Record(every, kept("mutants") if options.resume else {})
    last = None if options.count is None else options.first + options.count
    chosen = [
        one
        for one in every[options.first : last]
        if options.only in one.key and record.is_open(one, again=options.again)
    ]
    covering = CoveringTests(options.coverage, PACKAGE)
    record.folders |= covering.folders()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(options.workers):
            copies.put(Copy(Path(folder) / str(number), options.seconds))

        writing = Lock()

        def run(mutant: Mutant, tests: list[str]) -> None:
            copy = copies.get()
            try:
                fate, failed = copy.fate(mutant, tests)
            finally:
                copies.put(copy)
            print(f"{fate}: {mutant.key}, line {mutant.line}, {failed}", file=sys.stderr)
            with writing:
                record.fates[mutant.key] = fate
                if options.keep:  # now: a run of hours may be ended at any time
                    keep("mutants", record.report())

        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(run, chosen, [options.tests + covering.of(one) for one in chosen]))
    report = record.report()
    if options.keep:
        keep("mutants", report)
    print(json.dumps({key: value for key, value in report.items() if key != "fates"}, indent=1))
    return 0 if report["killed"] >= options.share * report["mutants"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
