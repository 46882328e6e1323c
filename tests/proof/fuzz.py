"""Many thousands of damaged files and datasets: ``python -m tests.proof.fuzz --trials 100000``.

Each trial damages something and reads it in every way. What may come of it is a ``GlaiveError``
or data. What may not: a signal, another exception, more than ``--seconds`` of processor time for
one trial, standing still, or more memory than ``--memory`` GiB of address space. Trials run in
worker processes; one that dies is reported with the number of its trial, and a new one goes on
behind it. ``--first N --trials 1`` repeats a trial. Kernels are compiled before the first one.

Prints a report as JSON. Exit status 1: something was found.
"""

from __future__ import annotations

import argparse
import atexit
import faulthandler
import json
import multiprocessing
import multiprocessing.connection
import os
import resource
import shutil
import signal
import struct
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from tests.damage import damaged, edited
from tests.damaged_tables import Trial as FieldTrial
from tests.damaged_tables import trials
from tests.file.test_damage import SOME, VERSIONS, _read_everything, _write
from tests.proof.figures import keep
from tests.proof.fuzz_indices import a_value_in_an_index, an_index_entry, an_index_file

import glaive
from glaive.errors import GlaiveError
from glaive.format.pb import table_pb2
from glaive.kernels.native import warm_up

Trial = Callable[[Path, np.random.Generator], str]
STILL = 60
"""Seconds of the clock, and as many more for each of ``--seconds``, that no trial should take."""
EXTREMES = [0, 1, -1, -(2**63), 2**63 - 1, 2**31, 2**31 - 1, -(2**31), 2**32, 2**62, 255, 65_535]


def extreme_numbers(raw: bytes, rng: np.random.Generator) -> bytes:
    """The file with a number or two of 1 to 8 bytes replaced by an extreme one."""
    found = bytearray(raw)
    for _ in range(int(rng.integers(1, 3))):
        width = int(rng.choice([1, 2, 4, 8]))
        at = int(rng.integers(max(1, (len(raw) - width) // width))) * width
        number = int(rng.choice(EXTREMES)) & ((1 << 8 * width) - 1)
        found[at : at + width] = number.to_bytes(width, "little")
    return bytes(found)


@cache
def data_file(name: str, version: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return _write(Path(folder), name, version)


def a_data_file(folder: Path, rng: np.random.Generator) -> str:
    """Damage a data file of any version and read it."""
    name, version = str(rng.choice(SOME)), str(rng.choice(VERSIONS))
    raw = data_file(name, version)
    content = (damaged if rng.random() < 0.6 else extreme_numbers)(raw, rng)
    _read_everything(folder, content, mapped=rng.random() < 0.7)
    return f"data file {version}"


# ------------------------------------------------------------------ datasets


@cache
def dataset_files(kind: str) -> Path:
    """A dataset with all that has a file of its own; made once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-base-")) / "base.lance"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    rows = 300
    source = pa.table(
        {
            "id": range(rows),
            "text": [f"text {i % 40}" for i in range(rows)],
            "vector": pa.array([[float(i), 1.0] for i in range(rows)], pa.list_(pa.float32(), 2)),
            "items": [list(range(i % 4)) for i in range(rows)],
        }
    )
    dataset = glaive.write_dataset(
        source,
        folder,
        max_rows_per_file=100,
        data_storage_version=kind.split(maxsplit=1)[0],
        enable_stable_row_ids="stable" in kind,
    )
    dataset.delete("id % 7 = 3")
    dataset.delete("id < 50")  # so many that a bitmap is smaller
    dataset.tags.create("first", 1)
    if "branch" in kind:
        dataset.create_branch("side")
    if "index" in kind:
        made = lance.dataset(str(folder))
        made.create_scalar_index("id", "BTREE")
        made.create_scalar_index("text", "BITMAP")
        dataset = glaive.dataset(folder)
    dataset.update({"text": "'changed'"}, where="id = 120")
    return folder


def changed_file(path: Path, rng: np.random.Generator) -> None:
    """Damage one file: its bytes, or, of a manifest, its messages."""
    raw = path.read_bytes()
    if path.suffix == ".manifest" and rng.random() < 0.8:
        content = changed_manifest(raw, rng)
    elif not raw:
        content = bytes(8)
    else:
        content = extreme_numbers(raw, rng) if rng.random() < 0.5 else cut_or_flipped(raw, rng)
    path.write_bytes(content)


def changed_manifest(raw: bytes, rng: np.random.Generator) -> bytes:
    """The manifest with one to three of its fields changed, removed or repeated."""
    position, *versions = struct.unpack("<QHH4s", raw[-16:])
    (size,) = struct.unpack_from("<I", raw, position)
    manifest = table_pb2.Manifest.FromString(raw[position + 4 : position + 4 + size])
    for _ in range(int(rng.integers(1, 4))):
        edited(manifest, rng)
    message = manifest.SerializeToString()
    footer = struct.pack("<QHH4s", position, *versions)
    return raw[:position] + struct.pack("<I", len(message)) + message + footer


def cut_or_flipped(raw: bytes, rng: np.random.Generator) -> bytes:
    if rng.random() < 0.3:
        return raw[: int(rng.integers(len(raw)))]
    found = bytearray(raw)
    for _ in range(int(rng.integers(1, 4))):
        found[int(rng.integers(len(found)))] ^= 1 << int(rng.integers(8))
    return bytes(found)


READS: list[Callable[[Any], Any]] = [
    lambda d: d.schema,
    lambda d: d.count_rows(),
    lambda d: d.to_table(with_row_id=True, with_row_address=True).validate(full=True),
    lambda d: d.to_table(columns=["text"], filter="id > 60 and text != 'x'").validate(full=True),
    lambda d: d.take([0, 5, 100], columns=["id", "items"]).validate(full=True),
    lambda d: [batch.validate() for batch in d.to_batches(batch_size=37)],
    lambda d: d.versions(),
    lambda d: d.tags.list(),
    lambda d: d.branches.list(),
    lambda d: d.describe_indices(),
    lambda d: d.stats.dataset_stats(),
    lambda d: d.stats.data_stats(),
    lambda d: d.validate(),
    lambda d: [fragment.metadata.to_json() for fragment in d.get_fragments()],
    lambda d: [fragment.count_rows() for fragment in d.get_fragments()],
    lambda d: d.get_transactions(),
    lambda d: d.checkout_version("first").count_rows(),
    lambda d: d.checkout_version(1).to_table(),
    lambda d: d.lance_schema,
    lambda d: d.changes(1).to_table().validate(full=True),
]
CHANGES: list[Callable[[Any], Any]] = [
    lambda d: d.delete("id = 70"),
    lambda d: d.update({"text": "'new'"}, where="id < 130"),
    lambda d: d.add_columns({"twice": "id * 2"}),
    lambda d: d.alter_columns({"path": "text", "name": "words"}),
    lambda d: d.drop_columns(["items"]),
    lambda d: d.optimize.compact_files(),
    lambda d: d.cleanup_old_versions(older_than=timedelta(0)),
    lambda d: (
        d.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(d.take([0]).slice(0, 1))
    ),
    lambda d: d.restore(),
    lambda d: glaive.write_dataset(d.head(3), d.uri, mode="append"),
    lambda d: glaive.write_dataset(pa.table({"a": [1]}), d.uri, mode="overwrite"),
    lambda d: d.create_branch("another"),
    lambda d: d.tags.create("second", 2),
    lambda d: d.drop_index("id_idx"),
]
KINDS = ["2.1", "2.1 stable", "2.2 index", "0.1", "2.0 index", "2.2 stable branch index"]


def a_dataset(folder: Path, rng: np.random.Generator) -> str:
    """Damage a file of a dataset that is no data file, read it in every way, and change it."""
    kind = str(rng.choice(KINDS))
    place = folder / "hurt.lance"
    shutil.copytree(dataset_files(kind), place)
    files = sorted(path for path in place.rglob("*") if path.is_file() and path.suffix != ".lance")
    manifests = [path for path in files if path.suffix == ".manifest"]
    chosen = manifests if rng.random() < 0.5 else files
    changed_file(chosen[int(rng.integers(len(chosen)))], rng)
    return f"dataset {kind}, {used(place, rng)}"


@cache
def fields_of(kind: str) -> dict[str, list[FieldTrial]]:
    """Every field of the metadata of a dataset with another value, by what it belongs to."""
    parts: dict[str, list[FieldTrial]] = {}
    for one in trials(dataset_files(kind)):
        parts.setdefault(one.part, []).append(one)
    return parts


def a_field(folder: Path, rng: np.random.Generator) -> str:
    """Give one field of the metadata of a dataset an extreme value; read it, and change it."""
    kind = str(rng.choice(KINDS))
    place = folder / "hurt.lance"
    shutil.copytree(dataset_files(kind), place)
    parts = fields_of(kind)
    some = parts[sorted(parts)[int(rng.integers(len(parts)))]]
    one = some[int(rng.integers(len(some)))]
    (place / one.path).write_bytes(one.content())
    return f"field of {one.part.split('/')[0]}, {used(place, rng)}"


def used(place: Path, rng: np.random.Generator) -> str:
    """Read a dataset in every way, and change it in one; what came of it."""
    outcomes = ["read"]
    try:
        dataset = glaive.dataset(place)
    except GlaiveError:
        return "not opened"
    for read in READS:
        try:
            read(dataset)
        except GlaiveError:
            outcomes = ["partly read"]
    try:
        CHANGES[int(rng.integers(len(CHANGES)))](dataset)
        outcomes.append("changed")
    except GlaiveError:
        outcomes.append("not changed")
    return ", ".join(outcomes)


TRIALS: list[Trial] = [
    *(a_data_file, a_dataset, a_field) * 3, an_index_file, a_value_in_an_index, an_index_entry
]  # fmt: skip


def work(first: int, stop: int, step: int, options: Any, results: Any) -> None:
    """Run the trials ``first``, ``first + step``, … and send what happened."""
    limit = int(options.memory * (1 << 30))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    pa.set_cpu_count(1)
    tempfile.tempdir = options.folder  # a worker that is killed leaves files there alone
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    faulthandler.register(signal.SIGPROF, chain=True)  # which ends the process
    try:
        for number in range(first, stop, step):
            results.send(("begin", number))
            # What other processes do takes no processor time of this one.
            signal.setitimer(signal.ITIMER_PROF, options.seconds)
            faulthandler.dump_traceback_later(STILL * (1 + options.seconds), exit=True)
            started = time.process_time()
            rng = np.random.default_rng([options.seed, number])
            chosen = [trial for trial in TRIALS if options.only in trial.__name__]
            trial = chosen[number % len(chosen)]
            place = folder / str(number)
            place.mkdir()
            try:
                said = trial(place, rng)
                results.send(("done", number, said, time.process_time() - started))
            except GlaiveError as error:
                results.send(("done", number, type(error).__name__, time.process_time() - started))
            except BaseException as error:
                where = "".join(traceback.format_exception(error)[-6:])
                results.send(
                    ("foreign", number, f"{trial.__name__}: {type(error).__name__}: {where}")
                )
            shutil.rmtree(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def death(status: int, seconds: float) -> str:
    """What a worker that ended with this status died of."""
    if status == -signal.SIGPROF:
        return f"more than {seconds:g} seconds of processor time"
    if status == 1:  # exceptions of trials do not end it
        return f"exit status 1: {STILL * (1 + seconds):g} seconds went by, or it did not start"
    return f"exit status {status}"


class Worker:
    """A process that runs every ``step``-th trial, and what it was doing when it died."""

    def __init__(self, first: int, stop: int, step: int, options: Any) -> None:
        self.stop, self.step, self.options = stop, step, options
        self.at = first - step
        self.start(first)

    def start(self, first: int) -> None:
        self.pipe, other = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(
            target=work, args=(first, self.stop, self.step, self.options, other)
        )
        self.process.start()
        other.close()


def run(options: Any) -> dict[str, Any]:
    """Run all trials in worker processes; what came of them."""
    outcomes: Counter[str] = Counter()
    found: list[str] = []
    slowest = (0.0, -1)
    last = options.first + options.trials
    workers = [
        Worker(options.first + k, last, options.workers, options) for k in range(options.workers)
    ]
    while workers:
        pipes = [worker.pipe for worker in workers]
        ready = multiprocessing.connection.wait(pipes)
        for worker in list(workers):
            if worker.pipe not in ready:
                continue
            try:
                kind, worker.at, *more = worker.pipe.recv()
            except EOFError:
                worker.process.join()
                if worker.process.exitcode == 0:
                    workers.remove(worker)
                    continue
                status = worker.process.exitcode or 0
                found.append(f"trial {worker.at}: {death(status, options.seconds)}")
                if worker.at + worker.step >= last:
                    workers.remove(worker)
                else:
                    worker.start(worker.at + worker.step)
                continue
            if kind == "done":
                outcomes[more[0]] += 1
                slowest = max(slowest, (more[1], worker.at))
            elif kind == "foreign":
                found.append(f"trial {worker.at}: {more[0]}")
    return {
        "trials": sum(outcomes.values()) + len(found),
        "outcomes": outcomes,
        "slowest": {"seconds": round(slowest[0], 2), "trial": slowest[1]},
        "found": found,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--memory", type=float, default=8.0)
    parser.add_argument("--only", default="", help="trials whose name has this in it")
    parser.add_argument("--keep", action="store_true", help="figures, for `make figures`")
    options = parser.parse_args()
    warm_up()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as options.folder:
        report = run(options)
    if options.keep:
        keep("damage", {"trials": report["trials"], "found": report["found"]})
    print(json.dumps(report, indent=1))
    return 1 if report["found"] else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    raise SystemExit(main())
