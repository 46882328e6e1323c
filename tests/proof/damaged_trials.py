"""A process that opens datasets with one thing wrong in their metadata, and tells what came of it.

    python -m tests.proof.damaged_trials folder work seed count

Its memory is limited, and what takes too long is stopped. Prints one JSON object: what ended in
anything but a right result or a ``GlaiveError``, and the most memory that was in use.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from tests.damaged_tables import Trial, trials

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import GlaiveError
from glaive.io.access import open_store
from glaive.testing import open_on

ADDRESS_SPACE = 8 << 30
"""Bytes of memory that may be asked for."""

SECONDS = 20
"""After these an operation is stopped: a few rows take a fraction of one."""

WRITES_PER_TRIAL = 4

Operation = Callable[[LanceDataset], object]

SYSTEM = ["_rowid", "_rowaddr", "_rowoffset"]
VERSIONS = ["_row_created_at_version", "_row_last_updated_at_version"]


def _table(at: LanceDataset) -> None:
    table = at.to_table(with_row_id=True)
    table.validate()
    if table.num_rows != at.count_rows():
        raise AssertionError(f"{table.num_rows} rows read, {at.count_rows()} counted")


def _merged(at: LanceDataset) -> None:
    rows = at.to_table(limit=3)
    if "id" in rows.schema.names:
        ids = pa.array([2, 100_001, 100_002][: rows.num_rows], pa.int64())
        rows = rows.set_column(rows.schema.names.index("id"), "id", ids)
        builder = at.merge_insert("id")
        builder.when_matched_update_all().when_not_matched_insert_all().execute(rows)


READS: dict[str, Operation] = {
    "schema": lambda at: (at.schema, at.schema_metadata, at.max_field_id, repr(at)),
    "table": _table,
    "system columns": lambda at: at.to_table(columns=SYSTEM),
    "versions of rows": lambda at: at.to_table(columns=VERSIONS),
    "take": lambda at: at.take([0, 5, 8]),
    "take by id": lambda at: at._take_rows([0, 5, 2**32 + 3]),  # noqa: SLF001  # pylance's
    "filter": lambda at: at.to_table(filter="id = 7 OR text = 't3'"),
    "filter by id": lambda at: at.to_table(filter="_rowid IN (1, 2, 3) AND _rowaddr < 40"),
    "limit": lambda at: at.to_table(limit=3, offset=10),
    "bare batches": lambda at: sum(one.num_rows for one in at.to_batches(columns=[])),
    "sample": lambda at: at.sample(5),
    "list indices": lambda at: [one.details for one in at.describe_indices()],
    "figures of an index": lambda at: at.stats.index_stats("numbers"),
    "moved rows": lambda at: at.remap_row_addrs(pa.array([0, 1, 2**32], pa.uint64())),
    "validate": lambda at: at.validate(),
    "tags": lambda at: (at.tags.list(), at.branches.list()),
    "tagged": lambda at: at.checkout_version("first").count_rows(),
    "versions": lambda at: (at.versions(), at.latest_version),
    "statistics": lambda at: (at.stats.dataset_stats(), at.stats.data_stats()),
    "fragments": lambda at: [
        (one.metadata.to_json(), one.count_rows(), one.to_table()) for one in at.get_fragments()
    ],
    "transactions": lambda at: at.get_transactions(),
    "files": lambda at: (at.all_files().read_all(), at.tracked_files().read_all()),
    "clean-up explained": lambda at: at.explain_cleanup_old_versions(timedelta(0)),
    "delta": lambda at: at.delta(compared_against=1).get_inserted_rows().read_all(),
    "changes": lambda at: at.changes(1).to_table(),
    "net changes": lambda at: at.changes(min(2, at.version), net=True).to_table(),
    "bases": lambda at: at.base_paths(),
}

WRITES: dict[str, Operation] = {
    "add by expression": lambda at: at.add_columns({"sum": "id + 1"}),
    "add a constant": lambda at: at.add_columns({"one": "1"}),
    "add nulls": lambda at: at.add_columns(pa.field("none", pa.int32())),
    "join columns": lambda at: at.merge(pa.table({"id": [1, 2], "more": [5, 6]}), "id"),
    "drop columns": lambda at: at.drop_columns(["text"]),
    "alter": lambda at: at.alter_columns({"path": "id", "data_type": pa.int32()}),
    "delete": lambda at: at.delete("id % 2 = 0"),
    "update": lambda at: at.update({"text": "'z'"}, "id < 30"),
    "append": lambda at: at.insert(at.to_table(limit=3)),
    "overwrite": lambda at: at.insert(pa.table({"q": [1]}), mode="overwrite"),
    "merge": _merged,
    "compact": lambda at: at.optimize.compact_files(materialize_deletions_threshold=0.0),
    "compact later": lambda at: at.optimize.compact_files(defer_index_remap=True),
    "clean up": lambda at: at.cleanup_old_versions(
        timedelta(0), error_if_tagged_old_versions=False
    ),
    "restore": lambda at: at.checkout_version(1).restore(),
    "config": lambda at: at.update_config({"a": "b"}),
    "metadata": lambda at: at.update_field_metadata({"id": {"a": "b"}}),
    "tag": lambda at: at.tags.create("new", at.version),
    "drop index": lambda at: at.drop_index("numbers"),
    "truncate": lambda at: at.truncate_table(),
    "delete from before": lambda at: at.checkout_version(at.version - 1).delete("id = 2"),
    "update from before": lambda at: at.checkout_version(at.version - 1).update({"text": "'q'"}),
    "compact from before": lambda at: at.checkout_version(at.version - 1).optimize.compact_files(),
    "overwrite from before": lambda at: at.checkout_version(at.version - 1).insert(
        pa.table({"q": [1]}), mode="overwrite"
    ),
}


def _written(write: Callable[[Any], Any], store: Any) -> Any:
    return write(open_on(store))


class TookTooLongError(Exception):
    """An operation did not end."""


def _stop(*_: object) -> None:
    raise TookTooLongError(f"{SECONDS} s")


class Trials:
    """Carries out operations on damaged datasets and keeps what went wrong."""

    def __init__(self, folder: Path, work: Path, seed: int) -> None:
        self.folder, self.work = folder, work
        self.chance = random.Random(seed)
        self.failed: list[str] = []
        self.files = {
            str(one.relative_to(folder)): one.read_bytes()
            for one in folder.rglob("*")
            if one.is_file()
        }

    def attempt(self, label: str, operation: Callable[[], Any]) -> Any:
        """The result of an operation; ``None`` if it was refused, or failed."""
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            return operation()
        except GlaiveError:
            return None
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.filename.rpartition('glaive/')[2]}:{place.lineno}"
            self.failed.append(f"{label}: {type(error).__name__}: {error!s:.200} at {where}")
            return None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def run(self, trial: Trial) -> None:
        """Read a dataset with this thing wrong, and change copies of it."""
        content = trial.content()
        path = self.work / trial.path
        path.write_bytes(content)
        try:
            opened = self.attempt(f"{trial.label}, open", lambda: glaive.dataset(self.work))
            if opened is not None:
                for name, read in READS.items():
                    self.attempt(f"{trial.label}, {name}", partial(read, opened))
        finally:
            path.write_bytes(self.files[trial.path])
        if opened is None:
            return
        for name in self.chance.sample(sorted(WRITES), WRITES_PER_TRIAL):
            store = open_store(f"memory://{uuid4().hex}/table")
            for place, data in (self.files | {trial.path: content}).items():
                store.put(place, [data])
            write = WRITES[name]
            changed = self.attempt(f"{trial.label}, {name}", partial(_written, write, store))
            if changed is not None:
                self.attempt(f"{trial.label}, after {name}", partial(open_on, store))


def main() -> None:
    """Carry out some of the trials, chosen by the seed."""
    folder, work, seed, count = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:5])
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, _stop)
    made = Trials(folder, work, seed)
    parts: dict[str, list[Trial]] = {}
    for trial in trials(folder):
        parts.setdefault(trial.part, []).append(trial)
    # As many of each part, though some have far more numbers than others.
    share = -(-count // len(parts))
    chosen = [
        one for part in parts.values() for one in made.chance.sample(part, min(share, len(part)))
    ]
    for trial in chosen:
        made.run(trial)
    print(json.dumps({"failed": made.failed, "trials": len(chosen), "memory": most_memory()}))


def most_memory() -> int:
    """Bytes of memory at most: of this program, not of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():  # `ru_maxrss` is handed on from whatever forked this process
        (line,) = [one for one in status.read_text().splitlines() if one.startswith("VmHWM")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
