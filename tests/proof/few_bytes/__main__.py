"""Files of few bytes, each read in many ways: ``python -m tests.proof.few_bytes --trials 1000``.

Each trial makes a file from the grammar of the messages: one that agrees with itself, and stands
for as many values as its numbers say. Reading some of its rows may end in rows or in a
``GlaiveError``. What may not come of it: a signal, another exception, more than ``--seconds`` of
processor time for one read, or memory beyond some times the limit of a page and the rows. Trials
run in a worker process; if it ends, this is reported with the trial, and a new one goes on behind
it. ``--first N --trials 1`` repeats a trial.

With ``--tables`` the manifests, transactions and deletion files of a table are made so, and some of
what may be done with a table is done. With ``--indices`` one file of an index has many rows that
equal each other instead, or long ones, or dense sets of rows; all is searched, measured, verified,
merged and rebuilt.

Prints a report as JSON. Exit status 1: something was found.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from tests.proof.few_bytes.draws import Draws, Impossible
from tests.proof.few_bytes.files import few_bytes
from tests.proof.few_bytes.reads import Way, measured, ways

from glaive.config import USUAL_RATIO, settings
from glaive.kernels.native import warm_up

LIMITS = 16
"""Times the limit of a page that a read may take, besides what it takes for its rows."""

LIMITS_OF_INDICES = 8
"""The same for what is done with an index."""

PER_BYTE = 8
"""Bytes for each byte of the rows."""

STILL = 120
"""Seconds of the clock in which a trial ends."""


class Given(NamedTuple):
    """What the command line says."""

    seed: int
    first: int
    trials: int
    seconds: float
    verbose: bool
    indices: bool
    tables: bool


def of_a_file(given: Given, at: int, folder: Path) -> tuple[str, int, Iterator[Way]]:
    """The file of a trial: what it is, bytes that it may well take memory for, and its reads."""
    made = few_bytes(given.seed, at)
    story = f"{len(made.raw)} bytes, {made.rows} rows: {made.story}"
    return story, 0, ways(folder, made, Draws(given.seed, at, 1))


def of_an_index(given: Given, at: int, folder: Path) -> tuple[str, int, Iterator[Way]]:
    """The same of an index, whose file may have some megabytes."""
    from tests.proof.few_bytes.indices import index_ways

    return index_ways(folder, Draws(given.seed, at))


def of_a_table(given: Given, at: int, folder: Path) -> tuple[str, int, Iterator[Way]]:
    """The same of a table: its manifests, transactions and deletion files."""
    from tests.proof.few_bytes.table_ways import table_ways

    return table_ways(folder, Draws(given.seed, at, 2))


def trial(given: Given, at: int, folder: Path) -> tuple[str, list[str], Counter[str]]:
    """Read the file of a trial; returns what it is, what was found, and what came of each read."""
    found: list[str] = []
    outcomes: Counter[str] = Counter()
    try:
        way_of = of_an_index if given.indices else of_a_table if given.tables else of_a_file
        made = way_of(given, at, folder)
    except Impossible:
        return "", found, outcomes
    story, size, reads = f"trial {at}: {made[0]}", made[1], made[2]
    if given.verbose:
        print(story[:300])
    for name, way in reads:
        pa.default_memory_pool().release_unused()
        taken = measured(way)
        outcomes[taken.outcome.split(":")[0]] += 1
        limits = LIMITS_OF_INDICES if given.indices else LIMITS
        most = limits * settings.max_decoded_bytes_per_page + PER_BYTE * taken.held
        most += USUAL_RATIO * size
        line = f"{name}: {taken.memory >> 20} MiB for {taken.held >> 20} MiB of rows, "
        line += f"{taken.seconds:.1f} s, {taken.outcome}"
        if given.verbose:
            print("   ", line)
        if taken.memory > most or taken.seconds > given.seconds or taken.foreign:
            found.append(line)
            break
    return story, found, outcomes


def _space() -> int:
    pages = Path("/proc/self/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


def work(given: Given, put: Any) -> None:
    """Trials, one after the other."""
    room = _space() + (3 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    for at in range(given.first, given.first + given.trials):
        signal.alarm(STILL)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            pickle.dump((at, *trial(given, at, Path(folder))), put)
            put.flush()


def run(given: Given) -> dict[str, Any]:
    """All trials; the report."""
    outcomes: Counter[str] = Counter()
    found: list[str] = []
    end = given.first + given.trials
    while given.first < end:
        got, put = os.pipe()
        child = os.fork()
        if not child:
            status = 1
            try:
                os.close(got)
                with os.fdopen(put, "wb") as out:
                    work(given, out)
                status = 0
            finally:
                os._exit(status)
        os.close(put)
        at = given.first - 1
        with os.fdopen(got, "rb") as results:
            while True:
                try:
                    at, story, some, came = pickle.load(results)
                except (EOFError, pickle.UnpicklingError):
                    break
                outcomes += came
                if some:
                    found.append("\n    ".join([story[:1200], *some]))
                    print(found[-1], file=sys.stderr, flush=True)
                if at % 100 == 0:
                    print("...", at, file=sys.stderr, flush=True)
        _, status = os.waitpid(child, 0)
        if status:
            at += 1
            found.append(f"trial {at}: the process ended with status {status}")
            print(found[-1], file=sys.stderr, flush=True)
        given = given._replace(first=at + 1, trials=end - at - 1)
    return {"outcomes": dict(outcomes.most_common()), "found": found}


def main() -> int:
    """Run the trials that the command line asks for."""
    warm_up()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--indices", action="store_true")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    report = run(Given(**vars(options)))
    print(json.dumps(report, indent=1))
    return bool(report["found"])


if __name__ == "__main__":
    sys.exit(main())
