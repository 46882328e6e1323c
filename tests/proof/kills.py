"""Processes killed while they change one table: ``python -m tests.proof.kills --minutes 3``.

Each process appends, deletes, updates and merges rows of its own, and compacts, indexes, cleans up.
It writes to a log what it is about to do and what came of it. Processes are killed (SIGKILL) at
random moments and begin again; each then finds its rows as they were before the change that it
was in the middle of, or as they are after it, and as the log says where there was none.

At the end every version opens, the newest one has the rows of the logs, ``verify`` finds no
damage, and a clean-up leaves no file that no version has. ``--pylance 1`` gives some processes the
other library; ``--auto-cleanup`` has commits clean up.

Prints a report as JSON. Exit status 1: something was found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

import glaive
from glaive.errors import CommitConflictError, CommitContentionError
from glaive.kernels.native import warm_up

SCHEMA = pa.schema([("key", pa.int64()), ("owner", pa.int32()), ("value", pa.int64())])
DELAY = 0.2
"""Seconds between a line in the log of a process and its end, on average."""
AGE = timedelta(seconds=20)
"""What clean-ups keep: no process waits for so long between its last look and its commit."""
MOST_ROWS = 200

Rows = dict[int, int]
"""Values by key, of one process."""


class Log:
    """What a process was about to do, and what came of it: a line each, written at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self.rows: Rows = {}
        """After the last change whose end is known."""
        self.pending: Rows | None = None
        """After the change that the process was in the middle of."""
        self.counts: Counter[str] = Counter()
        lines = path.read_bytes()
        # A process that is killed may have written some pages of a line: the change has not begun.
        whole = lines.rfind(b"\n") + 1
        os.truncate(path, whole)
        for text in lines[:whole].splitlines():
            self._follow(json.loads(text))

    def write(self, **entry: Any) -> None:
        os.write(self._file, json.dumps(entry).encode() + b"\n")
        self._follow(entry)

    def _follow(self, entry: dict[str, Any]) -> None:
        if "begin" in entry:
            self.pending = {int(key): value for key, value in entry["after"].items()}
            return
        self.counts[entry["end"]] += 1
        if entry["end"] in ("done", "killed, and done") and self.pending is not None:
            self.rows = self.pending
        self.pending = None


class Worker:
    """One process: its library, its rows, its log."""

    def __init__(self, uri: str, number: int, library: Any, log: Log, rng: random.Random) -> None:
        self.uri, self.number, self.library = uri, number, library
        self.log, self.rng = log, rng

    def new_keys(self, count: int) -> list[int]:
        """Keys that no row of this process had, also of changes that failed."""
        return [self.number + 100 * (time.time_ns() // 1000 + at) for at in range(count)]

    def table(self, rows: Rows) -> pa.Table:
        owners = [self.number] * len(rows)
        return pa.table([list(rows), owners, list(rows.values())], schema=SCHEMA)

    def settle(self) -> None:
        """Compare the rows of this process with the log; what was pending happened or not.

        Raises
        ------
        AssertionError
            They are neither those before nor those after it.
        """
        found = self.library.dataset(self.uri).to_table(filter=f"owner = {self.number}")
        rows = dict(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True))
        assert len(rows) == found.num_rows, f"process {self.number} has a row twice"
        pending = self.log.pending
        if pending is not None:
            self.log.write(end="killed, and done" if rows == pending else "killed, and not done")
        assert rows == self.log.rows, (
            f"process {self.number}: lost {sorted(self.log.rows.items() - rows.items())}, "
            f"foreign {sorted(rows.items() - self.log.rows.items())}, "
            f"{'in' if pending is not None else 'after no'} change that was under way"
        )

    def change(self) -> None:
        """Change rows; a conflict leaves all as it was."""
        rng, before = self.rng, self.log.rows
        make = rng.choice([self.append, self.append, self.delete, self.update, self.merge])
        if len(before) > MOST_ROWS:
            make = self.delete
        after, run = make(before)
        self.log.write(begin=make.__name__, after=after)
        try:
            run(self.library.dataset(self.uri))
        except (CommitConflictError, CommitContentionError):
            self.log.write(end="refused")
        except Exception:  # of the other library: the next look says what it was
            if self.library is glaive:
                raise
        else:
            self.log.write(end="done")

    def append(self, before: Rows) -> tuple[Rows, Callable[[Any], object]]:
        rows = {key: self.rng.randrange(10) for key in self.new_keys(self.rng.randrange(1, 30))}
        table, uri = self.table(rows), self.uri
        write = self.library.write_dataset
        return before | rows, lambda _: write(table, uri, mode="append")

    def delete(self, before: Rows) -> tuple[Rows, Callable[[Any], object]]:
        low = self.rng.randrange(4, 10)
        after = {key: value for key, value in before.items() if value % 10 < low}
        return after, lambda at: at.delete(f"owner = {self.number} AND value % 10 >= {low}")

    def update(self, before: Rows) -> tuple[Rows, Callable[[Any], object]]:
        rest = self.rng.randrange(3)
        after = {key: value + 7 * (value % 3 == rest) for key, value in before.items()}
        where = f"owner = {self.number} AND value % 3 = {rest}"
        return after, lambda at: at.update({"value": "value + 7"}, where)

    def merge(self, before: Rows) -> tuple[Rows, Callable[[Any], object]]:
        old = self.rng.sample(sorted(before), min(5, len(before)))
        rows = {key: self.rng.randrange(1000) for key in [*old, *self.new_keys(2)]}

        def run(at: Any) -> None:
            builder = at.merge_insert("key").when_matched_update_all()
            builder.when_not_matched_insert_all().execute(self.table(rows))

        return before | rows, run

    def upkeep(self) -> None:
        """Compact, index or clean up; conflicts are no matter."""
        works: list[Callable[[Any], object]] = [
            lambda at: at.optimize.compact_files(target_rows_per_fragment=500),
            lambda at: at.create_scalar_index("key", "BTREE", replace=True),
            lambda at: at.optimize.optimize_indices(),
            lambda at: at.cleanup_old_versions(AGE),
        ]
        work = self.rng.choice(works)
        try:
            work(self.library.dataset(self.uri))
        except (CommitConflictError, CommitContentionError):
            self.log.write(end="upkeep refused")
        except Exception:
            if self.library is glaive:
                raise
        else:
            self.log.write(end="upkeep")

    def act(self) -> None:
        self.settle()
        if self.rng.random() < 0.2:
            self.upkeep()
        else:
            self.change()


def run_worker(folder: Path, number: int, name: str, seed: str) -> None:
    """Work until somebody ends the process; exit status 1: something was found."""
    try:
        log = Log(folder / f"{number}.log")
        uri = str(folder / "t")
        worker = Worker(uri, number, import_module(name), log, random.Random(seed))
        while not (folder / "stop").exists():
            worker.act()
        worker.settle()
    except BaseException:
        (folder / f"{number}.found").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


def forked(act: Callable[[], None]) -> int:
    """The id of a new process; this one has no threads, as it only starts others."""
    process = os.fork()
    if process:
        return process
    act()
    os._exit(0)


def await_line(path: Path) -> None:
    """Wait until a process writes to its log, or for five seconds."""
    ends, size = time.monotonic() + 5, path.stat().st_size if path.exists() else 0
    while time.monotonic() < ends and (not path.exists() or path.stat().st_size == size):
        time.sleep(0.01)


def kill_at_random(folder: Path, options: argparse.Namespace) -> int:
    """Run the processes, and kill them; how many were killed."""
    rng, kills = random.Random(options.seed), 0
    names = ["lance"] * options.pylance
    names += ["glaive"] * (options.processes - len(names))

    def start(number: int) -> int:
        seed = f"{options.seed} {number} {rng.random()}"
        return forked(lambda: run_worker(folder, number, names[number], seed))

    running = {number: start(number) for number in range(options.processes)}
    ends = time.monotonic() + 60 * options.minutes
    while time.monotonic() < ends and not list(folder.glob("*.found")):
        number = rng.randrange(options.processes)
        await_line(folder / f"{number}.log")
        time.sleep(rng.expovariate(1 / DELAY))
        os.kill(running[number], signal.SIGKILL)
        _, status = os.waitpid(running[number], 0)
        kills += os.WIFSIGNALED(status)
        running[number] = start(number)
    (folder / "stop").touch()
    for process in running.values():
        os.waitpid(process, 0)
    return kills


def left(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What became of the table."""
    found = [path.read_text() for path in folder.glob("*.found")]
    logs = [Log(folder / f"{number}.log") for number in range(options.processes)]
    uri = str(folder / "t")
    dataset = glaive.dataset(uri)
    opened = [glaive.dataset(uri, version=one["version"]) for one in dataset.versions()]
    rows = [one.to_table().num_rows for one in opened]
    expected = {key: value for log in logs for key, value in log.rows.items()}
    table = dataset.to_table()
    newest = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    if not found and (newest != expected or len(newest) != table.num_rows):
        found.append(f"{len(newest)} rows are there, and {len(expected)} in the logs")
    dataset.validate()
    found += map(str, verify(uri))
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    there = {path.relative_to(uri).as_posix() for path in Path(uri).rglob("*") if path.is_file()}
    tracked = set(dataset.tracked_files().read_all()["path"].to_pylist())
    stray = there - tracked - {"_versions/latest_version_hint.json"}
    found += [f"{len(stray)} files that no version has: {sorted(stray)[:5]}"] * bool(stray)
    return {
        **dict(sorted(sum((log.counts for log in logs), Counter[str]()).items())),
        "versions": dataset.version,
        "versions opened": len(rows),
        "rows": len(newest),
        "found": found,
    }


def verify(uri: str) -> list[object]:
    """What ``glaive verify --deep`` finds."""
    from click.testing import CliRunner

    from glaive.cli.main import cli

    result = CliRunner().invoke(cli, ["verify", "--deep", uri])
    return [] if result.exit_code == 0 else [result.output or result.exception]


def make(folder: Path, options: argparse.Namespace) -> None:
    made = glaive.write_dataset(
        pa.Table.from_pylist([], SCHEMA),
        folder / "t",
        enable_stable_row_ids=options.seed % 2 == 1,
        auto_cleanup_options={"interval": 5, "older_than_seconds": 20}
        if options.auto_cleanup
        else None,
    )
    made.create_scalar_index("key", "BTREE")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0, help="an odd one has stable row ids")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--pylance", type=int, default=0, help="so many of them use pylance")
    parser.add_argument("--auto-cleanup", action="store_true", help="commits clean up")
    options = parser.parse_args()
    # Processes that compile kernels, and are killed meanwhile, wait longer than clean-ups keep.
    warm_up()
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        os.waitpid(forked(lambda: make(folder, options)), 0)
        kills = kill_at_random(folder, options)
        report = {"kills": kills, **left(folder, options)}
    print(json.dumps(report, indent=1))
    return 1 if report["found"] else 0


if __name__ == "__main__":
    sys.exit(main())
