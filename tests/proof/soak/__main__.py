"""Mixed work without a pause: ``python -m tests.proof.soak --minutes 60``.

Writers in threads and in processes append, delete, update, merge and search rows of one table, each
its own, and compare what they find with a model. Meanwhile another thread compacts, builds and
extends scalar, text and vector indices and cleans up, and one reads old versions. What each
process holds (memory, descriptors, maps, threads, temporary files) is measured at intervals, and
must not grow.

Prints a report as JSON. Exit status 1: something was found.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.proof.figures import keep
from tests.proof.soak.owner import SCHEMA, Owner
from tests.proof.soak.resources import Resources, growth
from tests.proof.soak.upkeep import OldVersions, Upkeep

import glaive

COMMAND = [sys.executable, "-m", "tests.proof.soak"]
_SAMPLES = 60
"""Of what a process holds, in a run."""


class Process:
    """The threads of one process, and what they found."""

    def __init__(self, seconds: float, temporary: Path, uri: str) -> None:
        self.ends, self.seconds = time.monotonic() + seconds, seconds
        self.temporary, self.table = temporary, Path(uri)
        self.found: list[str] = []
        self.samples: list[Resources] = []
        self.stopped = threading.Event()

    def repeat(self, act: Callable[[], object]) -> None:
        """Do something until the time is over or something was found."""
        while time.monotonic() < self.ends and not self.stopped.is_set():
            try:
                act()
            except Exception as error:  # any failure is a finding
                traceback.print_exc()
                self.found.append(f"{type(error).__name__}: {str(error)[:1000]}")
                self.stopped.set()

    def run(self, acts: Sequence[Callable[[], object]]) -> None:
        """Do all of it, each in a thread of its own, and measure meanwhile."""
        threads = [threading.Thread(target=self.repeat, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        while time.monotonic() < self.ends and not self.stopped.wait(self.seconds / _SAMPLES):
            gc.collect()
            self.samples.append(Resources.now(self.temporary, self.table))
        for thread in threads:
            thread.join()

    def report(self, owners: Sequence[Owner], counts: Counter[str]) -> dict[str, Any]:
        """What was done and found."""
        if not self.found:
            self.found += growth(self.samples)
        samples = [asdict(one) for one in self.samples]
        return {
            "counts": counts + sum((owner.counts for owner in owners), Counter()),
            "rows": {str(owner.number): sorted(owner.rows) for owner in owners},
            "found": self.found,
            "samples": samples[:: max(1, len(samples) // 12)],
        }


def work(owner: Owner) -> Callable[[], None]:
    def act() -> None:
        owner.change()
        owner.check()

    return act


def child(uri: str, number: int, seed: int, seconds: float) -> dict[str, Any]:
    """One process with one writer."""
    process, owner = Process(seconds, Path(tempfile.gettempdir()), uri), Owner(uri, number, seed)
    process.run([work(owner)])
    return process.report([owner], Counter())


def soak(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All processes, and what became of the table."""
    uri, seconds = str(folder / "t"), 60 * options.minutes
    temporary = folder / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    stable = {"enable_stable_row_ids": options.seed % 2 == 0}
    glaive.write_dataset(pa.Table.from_pylist([], SCHEMA), uri, **stable)
    number_of = range(options.threads, options.threads + options.processes)
    told = ["--seed", str(options.seed), "--minutes", str(options.minutes), "--uri", uri]
    children = [
        subprocess.Popen([*COMMAND, *told, "--owner", str(one)], stdout=subprocess.PIPE)
        for one in number_of
    ]
    process = Process(seconds, temporary, uri)
    owners = [Owner(uri, number, options.seed) for number in range(options.threads)]
    upkeep, old = Upkeep(uri, options.seed), OldVersions(uri, options.seed)
    process.run([*map(work, owners), upkeep.act, old.act])
    reports = [process.report(owners, upkeep.counts + old.counts)]
    reports += [json.loads(one.communicate()[0]) for one in children]
    found = [text for report in reports for text in report["found"]]
    if not found:
        found = _left(
            uri, [key for one in reports for keys in one["rows"].values() for key in keys]
        )
    counts = sum((Counter(report["counts"]) for report in reports), Counter[str]())
    return {
        "minutes": round(options.minutes, 1),
        **counts,
        "versions": glaive.dataset(uri).version,
        "processes": [report["samples"] for report in reports],
        "found": found,
    }


def _left(uri: str, keys: list[int]) -> list[str]:
    """What is wrong with the table at the end: its rows, and its files after a clean-up."""
    dataset = glaive.dataset(uri)
    dataset.validate()
    found = []
    if sorted(dataset.to_table(["key"])["key"].to_pylist()) != sorted(keys):
        found.append("the table has other rows than its writers")
    for tag in dataset.tags.list():
        dataset.tags.delete(tag)
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    there = {path.relative_to(uri).as_posix() for path in Path(uri).rglob("*") if path.is_file()}
    tracked = set(dataset.tracked_files().read_all()["path"].to_pylist())
    more = there - tracked - {"_versions/latest_version_hint.json"}
    return found + [f"{len(more)} files that no version has: {sorted(more)[:5]}"] * bool(more)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="an even one has stable row ids")
    parser.add_argument("--threads", type=int, default=2, help="writers in this process")
    parser.add_argument("--processes", type=int, default=1, help="more writers, a process each")
    parser.add_argument("--uri", help=argparse.SUPPRESS)
    parser.add_argument("--owner", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="figures, for `make figures`")
    options = parser.parse_args()
    if options.owner is not None:
        print(json.dumps(child(options.uri, options.owner, options.seed, 60 * options.minutes)))
        return 0
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        report = soak(Path(folder), options)
    if options.keep:
        names = ("minutes", "changes", "reads", "versions", "found")
        keep("soak", {name: report[name] for name in names})
    print(json.dumps(report, indent=1))
    return 1 if report["found"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
