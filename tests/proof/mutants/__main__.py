"""Small changes of the source that tests should notice: ``python -m tests.proof.mutants``.

The sample is always the same: the mutants of lowest hash in ``table/``, ``format/`` and
``kernels/``, equally many of each. For each, a copy of the package with that one change is tested
with the tests that run the changed line (``make coverage`` says which), until one fails. Those
known to be equivalent are in ``equivalent.json``, with the reason, and are not counted.

Prints a report as JSON. Exit status 1: fewer than ``--share`` of them were killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

from tests.proof.figures import keep, kept
from tests.proof.mutants.covering import CoveringTests
from tests.proof.mutants.sites import Mutant, sample

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "glaive"
FOLDERS = ("table", "format", "kernels")
EQUIVALENT: dict[str, str] = json.loads((Path(__file__).parent / "equivalent.json").read_text())

PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
PYTEST += ["--hypothesis-seed=0"]

Fate = Literal["killed", "survived", "endless", "not covered"]


class Copy:
    """A copy of the package in a folder of its own, for one mutant at a time."""

    def __init__(self, folder: Path, limit: float) -> None:
        self.folder, self.limit = folder, limit
        shutil.copytree(PACKAGE.parent, folder / "src")

    def fate(self, mutant: Mutant, tests: list[str]) -> Fate:
        """What tests say of a mutant.

        Raises
        ------
        RuntimeError
            The tests cannot be run without the change either.
        """
        if not tests:
            return "not covered"
        path = self.folder / "src" / "glaive" / mutant.path
        source = path.read_text("utf-8")
        path.write_text(mutant.applied(source), "utf-8")
        try:
            status = self.status(tests)
        finally:
            path.write_text(source, "utf-8")
        if status is None:
            return "endless"
        # 4: pytest could not begin, because of the change or of a test that is no longer there.
        if status in (4, 5) and self.status(tests) != 0:
            raise RuntimeError(f"run `make coverage` again: these tests fail unchanged: {tests}")
        return "survived" if status == 0 else "killed"

    def status(self, tests: list[str]) -> int | None:
        """Exit status of pytest; None if it did not end in time."""
        chosen = self.folder / "tests.txt"
        chosen.write_text("\n".join(tests), "utf-8")
        process = subprocess.Popen(
            [*PYTEST, f"@{chosen}"],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(self.folder / "src"),
                "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "hypothesis"),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(self.limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=500, help="mutants in the sample")
    parser.add_argument("--first", type=int, default=0, help="first one of the sample")
    parser.add_argument("--count", type=int, help="so many of the sample")
    parser.add_argument("--only", default="", help="mutants whose key has this in it")
    parser.add_argument("--coverage", type=Path, default=ROOT / ".cache" / "coverage")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0, help="for the tests of one mutant")
    parser.add_argument("--share", type=float, default=0.9, help="that must be killed")
    parser.add_argument("--keep", action="store_true", help="figures, for `make figures`")
    parser.add_argument(
        "--resume", action="store_true", help="go on where the kept figures end, and add to them"
    )
    options = parser.parse_args()
    before = kept("mutants") if options.resume else {}
    options.first = before.get("tried", options.first)
    last = None if options.count is None else options.first + options.count
    chosen = sample(PACKAGE, FOLDERS, options.size)[options.first : last]
    tried = options.first + len(chosen)
    chosen = [one for one in chosen if options.only in one.key and one.key not in EQUIVALENT]
    covering = CoveringTests(options.coverage, PACKAGE)
    fates: dict[str, Fate] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(options.workers):
            copies.put(Copy(Path(folder) / str(number), options.seconds))

        def run(mutant: Mutant, tests: list[str]) -> None:
            copy = copies.get()
            try:
                fates[mutant.key] = copy.fate(mutant, tests)
            finally:
                copies.put(copy)
            print(f"{fates[mutant.key]}: {mutant.key}, line {mutant.line}", file=sys.stderr)

        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(run, chosen, [covering.of(one) for one in chosen]))
    counts = Counter(fates.values())
    killed = counts["killed"] + counts["endless"] + before.get("killed", 0)
    mutants = len(chosen) + before.get("mutants", 0)
    left = {key: fate for key, fate in fates.items() if fate in ("survived", "not covered")}
    report = {
        "sample": options.size,
        "tried": tried,
        "mutants": mutants,
        "killed": killed,
        "endless": counts["endless"] + before.get("endless", 0),
        "share": round(killed / max(1, mutants), 3),
        "equivalent": len(EQUIVALENT),
        "left": {**before.get("left", {}), **left},
        "notes": before.get("notes", []),
    }
    if options.keep:
        keep("mutants", report)
    print(json.dumps(report, indent=1))
    return 0 if killed >= options.share * mutants else 1


if __name__ == "__main__":
    raise SystemExit(main())
