"""Simulated writers and readers of one table: ``python -m tests.proof.simulate --schedules 10000``.

Each seed is a schedule: actors, what they do, how long every request takes, which fault it meets.
A history that should not be is reported with its seed; ``--seed N`` runs that one again, the same
way. ``--careless`` makes the store overwrite what is there, which must be found.

Prints a report as JSON; schedules ``outside`` of what ``docs/reliability.md`` assumes are counted,
and say nothing: a version was cleaned up while a writer was about to make one of that number.
Exit status 1: something was found.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import logging
import os
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from functools import partial
from itertools import count
from typing import Any

from tests.kit.simulation import Actor, Faults, Killed, Simulation
from tests.proof.figures import keep
from tests.proof.simulated.changes import (
    CHANGES,
    Change,
    append,
    branch,
    clean_up,
    compact,
    job,
    overwrite,
    restore,
)
from tests.proof.simulated.clones import clone, source
from tests.proof.simulated.columns import COLUMN_CHANGES
from tests.proof.simulated.history import History, OutsideOfAssumptionsError
from tests.proof.simulated.indices import INDEX_CHANGES, drop_map, index, optimize
from tests.proof.simulated.merges import MERGES
from tests.proof.simulated.spark_jobs import named_job, spark_job, stream
from tests.proof.simulated.tables import drawn_table

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.version import OpenedVersion
from glaive.errors import CommitConflictError, CommitContentionError, GlaiveError
from glaive.scan.snapshot import Session
from glaive.table.load import open_latest

FIXED = {"PYTHONHASHSEED": "0", "GLAIVE_THREADS": "1", "GLAIVE_IO_CONCURRENCY": "1"}
"""Settings under which a seed determines everything."""

COMMAND = [sys.executable, "-m", "tests.proof.simulate"]
REPEAT = "python -m tests.proof.simulate --"
_TRIES = 6
_SPARK = [(2, spark_job), (1, named_job), (2, stream)]
_CHANGES = [*CHANGES, *COLUMN_CHANGES, *INDEX_CHANGES, *MERGES, *_SPARK, (0.5, clone)]
_SEQUENCES = [
    (append, restore, append),
    (branch, overwrite, clean_up),
    (index, compact, append, optimize, drop_map),
]
"""Changes that matter one after the other, by one actor."""


def faults_of(rng: random.Random) -> Faults:
    """A mixture of faults; a third of all schedules has none but delays."""
    wait = rng.choice([0.1, 0.3, 1.0])
    if rng.random() < 0.33:
        return Faults(wait=wait)
    some = rng.choice([0.003, 0.01, 0.03])
    return Faults(
        fail=rng.choice([0, some]),
        lose=rng.choice([0, some]),
        late=rng.choice([0, some]),
        repeat=rng.choice([0, some]),
        kill=rng.choice([0, some]),
        stale=rng.choice([0, 0.3]),
        stale_seconds=10.0,
        wait=wait,
        skew=rng.choice([0, 3600.0, 3 * 86400.0]),
    )


class Schedule:
    """A simulation of one seed."""

    def __init__(self, seed: int, *, careless: bool = False) -> None:
        rng = self.rng = random.Random(f"schedule {seed}")
        self.kind, source_table = drawn_table(rng)
        self.place = source_table.copied(f"memory://simulated/{seed}", careless=careless)
        self.simulation = Simulation(seed, self.place.bucket, faults_of(rng))
        store = self.place.copied().observed()  # a look at it may finish a version
        self.first = OpenedVersion.of(store, open_latest(store))
        self.changes: list[Change] = []
        self.sessions: dict[Actor, Session] = {}
        """What each process has read; one that was killed has read nothing."""
        numbers = count(1)
        with_jobs = rng.random() < 0.15
        for name in range(rng.choice([2, 2, 2, 3])):
            own = [self._draw(next(numbers)) for _ in range(rng.choice([1, 1, 2]))]
            if name == 0 and self.rng.random() < 0.15:
                own = [make(next(numbers), self.rng) for make in self.rng.choice(_SEQUENCES)]
            if with_jobs:
                own.insert(0, job(next(numbers), self.first, rng))
            self.changes += own
            self.simulation.add(f"actor {name}", partial(self.act, own))
        if self.kind == "clone":
            own = [source(next(numbers), rng)]
            self.changes += own
            self.simulation.add("source", partial(self.act, own))
        for change in self.changes:
            change.oldest = self.place.oldest

    def _draw(self, number: int) -> Change:
        weights = [weight for weight, _ in _CHANGES]
        (make,) = self.rng.choices([make for _, make in _CHANGES], weights)
        return make(number, self.rng)

    def act(self, changes: list[Change], actor: Actor) -> None:
        """One process after the other does the changes of an actor."""
        for change in changes:
            actor.doing = change
            for _ in range(_TRIES if change.retried else 1):
                self.attempt(actor, change)
                if change.outcome == "done":
                    break

    def attempt(self, actor: Actor, change: Change) -> None:
        """Open the newest version and make a change; note what came of it."""
        change.began, change.error = self.simulation.time, None
        change.first_began = change.first_began or change.began
        at = None
        try:
            store = self.place.store(actor, change.folder)
            session = self.sessions.setdefault(actor, Session())
            at = LanceDataset.holding(OpenedVersion.of(store, open_latest(store), session=session))
            change.since = change.since or at.version
            if change.job is not None:
                change.since = self.first.manifest.version
            change.run(at, change)
            change.outcome, change.version = "done", at.version
        except Killed:
            actor.restart()
            del self.sessions[actor]
        except (CommitConflictError, CommitContentionError) as error:
            change.outcome = "unknown" if change.retried else "refused"
            change.error = error
        except GlaiveError as error:
            change.error = error
        finally:
            change.ended = self.simulation.time

    def run(self) -> History:
        """Run, and check what became of it; raises what was found."""
        self.simulation.run()
        first, faults = self.first.manifest.version, self.simulation.faults
        history = History(self.place, self.changes, first, faults)
        history.check()
        return history


def digest(schedule: Schedule) -> str:
    """What happened, in few characters: equal for equal runs."""
    happened = [
        schedule.place.bucket.summary(),
        schedule.simulation.steps,
        schedule.simulation.time,
    ]
    happened += [(c.number, c.outcome, c.version, str(c.error)) for c in schedule.changes]
    return hashlib.blake2b(repr(happened).encode(), digest_size=8).hexdigest()


def run(
    seeds: range, most_found: int, *, careless: bool, only: str | None = None
) -> dict[str, Any]:
    """Run schedules one after the other, and report."""
    started, steps, versions, outside = time.process_time(), 0, 0, 0
    found: list[str] = []
    digests: list[str] = []
    outcomes: Counter[str] = Counter()
    tables: Counter[str] = Counter()
    gc.freeze()
    gc.disable()  # cycles are few, and are let go of now and then
    seed = seeds.start - 1
    for seed in seeds:
        if seed % 200 == 0:
            gc.collect()
        schedule = Schedule(seed, careless=careless)
        if only not in (None, schedule.kind):
            continue
        tables[schedule.kind] += 1
        try:
            versions += schedule.run().newest - schedule.first.manifest.version
        except OutsideOfAssumptionsError:
            outside += 1
        except Exception as error:  # any failure is a finding
            print(f"{REPEAT}seed {seed}:", file=sys.stderr)
            traceback.print_exc()
            found.append(f"seed {seed}: {type(error).__name__}: {str(error)[:500]}")
            if len(found) == most_found:
                break
        steps += schedule.simulation.steps
        outcomes.update(f"{change.kind}: {change.outcome}" for change in schedule.changes)
        if seed - seeds.start < 20:
            digests.append(digest(schedule))
    return {
        "schedules": sum(tables.values()),
        "requests": steps,
        "versions": versions,
        "outside": outside,
        "tables": dict(sorted(tables.items())),
        "outcomes": dict(sorted(outcomes.items())),
        "cpu_seconds": time.process_time() - started,
        "digests": digests,
        "found": found,
    }


def run_in_processes(seeds: range, workers: int, arguments: list[str]) -> dict[str, Any]:
    """Share the seeds among processes, and add up their reports."""
    size = -(-len(seeds) // workers)
    processes = [
        subprocess.Popen(
            [*COMMAND, "--first", str(part[0]), "--schedules", str(len(part)), *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        for at in range(workers)
        if (part := seeds[at * size : (at + 1) * size])
    ]
    total: dict[str, Any] = {}
    for process in processes:
        output, _ = process.communicate()
        report = json.loads(output)
        for key, value in report.items():
            if key in ("schedules", "requests", "versions", "outside", "cpu_seconds"):
                total[key] = total.get(key, 0) + value
            elif isinstance(value, list):
                total.setdefault(key, []).extend(value)
        for key in ("tables", "outcomes"):
            total[key] = Counter(total.get(key, {})) + Counter(report[key])
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first schedule")
    parser.add_argument("--seed", type=int, help="run only this one")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--most-found", type=int, default=5)
    parser.add_argument(
        "--careless", action="store_true", help="the store overwrites what is there"
    )
    parser.add_argument(
        "--only", help="plain, clone, texts, vectors, keys, bases, 'manifest store'"
    )
    parser.add_argument("--keep", action="store_true", help="figures, for `make figures`")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in FIXED.items()):
        os.execve(sys.executable, [*COMMAND, *sys.argv[1:]], {**os.environ, **FIXED})
    logging.getLogger("glaive").setLevel(logging.CRITICAL)
    seeds = range(options.first, options.first + options.schedules)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    if options.workers > 1:
        careless = ["--careless"] if options.careless else []
        only = [] if options.only is None else ["--only", options.only]
        arguments = ["--most-found", str(options.most_found), *careless, *only]
        report = run_in_processes(seeds, options.workers, arguments)
    else:
        report = run(seeds, options.most_found, careless=options.careless, only=options.only)
    report["schedules_per_cpu_second"] = round(report["schedules"] / report["cpu_seconds"], 1)
    report["repeat"] = [f"{REPEAT}{text.split(':')[0]}" for text in report["found"]]
    if options.keep:
        names = ("schedules", "requests", "versions", "found")
        keep("simulation", {name: report[name] for name in names})
    print(json.dumps(report, indent=1))
    return 1 if report["found"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
