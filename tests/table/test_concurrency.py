"""Many writers at once: every commit becomes one version, none is lost or doubled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.kit.replaced import replaced_clock

from glaive.errors import CommitConflictError, CommitContentionError, DatasetExistsError
from glaive.format.rowids import decode_row_ids
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.process import Clock
from glaive.table.commit import commit_transaction
from glaive.table.load import open_latest
from glaive.table.protocol import CommitOptions
from glaive.table.root import guarded
from glaive.table.versions import list_versions

from .places import KINDS, append, create, make_store, overwrite

PATIENT = CommitOptions(max_retries=1000)
WRITERS, COMMITS = 6, 8


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return make_store(request.param, tmp_path)


def together(work: Callable[[int], object]) -> list[object]:
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(work, range(WRITERS)))


@pytest.mark.spec("commit-2", "commit-6", "commit-7")
def test_appends_of_threads_all_become_versions(store: ObjectStore) -> None:
    base = create(store, options=CommitOptions(enable_stable_row_ids=True))

    def work(number: int) -> None:
        newest = base
        for i in range(COMMITS):
            rows = 1 + number * COMMITS + i
            known = newest if i % 2 else base
            newest = commit_transaction(store, append(known, rows), base=known, options=PATIENT)

    together(work)
    total = WRITERS * COMMITS
    newest = open_latest(store)
    assert [one.version for one in list_versions(store)] == list(range(1, total + 2))
    assert newest.fragment_ids.tolist() == list(range(total + 1))
    assert sorted(newest.physical_rows[1:].tolist()) == list(range(1, total + 1))
    ids = np.concatenate(
        [
            decode_row_ids(one.row_ids or b"", one.physical_rows, where="t")
            for one in newest.fragments()
        ]
    )
    assert len(np.unique(ids)) == len(ids) == newest.wire.next_row_id


def test_of_overwrites_at_once_one_wins(store: ObjectStore) -> None:
    base = create(store)

    def work(number: int) -> bool:
        try:
            commit_transaction(store, overwrite(base, number + 1), base=base)
        except CommitConflictError:
            return False
        return True

    assert sum(map(bool, together(work))) == 1
    assert open_latest(store).version == 2


def test_of_creations_at_once_one_wins(store: ObjectStore) -> None:
    def work(number: int) -> bool:
        try:
            create(store, number + 1)
        except DatasetExistsError:
            return False
        return True

    assert sum(map(bool, together(work))) == 1
    assert open_latest(store).version == 1


OURS = """
import sys
from glaive.io.local import LocalStore
from glaive.table.load import open_latest
from glaive.table.commit import commit_transaction
from glaive.table.operations.overwrite import Append
from glaive.table.protocol import CommitOptions
from glaive.format.transaction import Transaction
from dataclasses import replace
store = LocalStore(sys.argv[1])
base = open_latest(store)
rows = replace(base.fragment(0), id=0, row_ids=None, created_at=None, updated_at=None)
for _ in range(10):
    transaction = Transaction(read_version=base.version, operation=Append((rows,)))
    commit_transaction(store, transaction, base=base, options=CommitOptions(max_retries=1000))
"""

THEIRS = """
import sys
import lance
dataset = lance.dataset(sys.argv[1])
rows = dataset.get_fragments()[0].metadata
for _ in range(10):
    operation = lance.LanceOperation.Append([rows])
    lance.LanceDataset.commit(sys.argv[1], operation, read_version=1, max_retries=1000)
"""


@pytest.mark.interop
def test_processes_of_both_libraries_append_together(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    place = str(tmp_path / "table")
    lance.write_dataset(pa.table({"id": [1, 2, 3]}), place)
    processes = [
        subprocess.Popen([sys.executable, "-c", script, place])
        for script in (OURS, THEIRS, OURS, THEIRS)
    ]
    assert [process.wait(timeout=280) for process in processes] == [0, 0, 0, 0]
    store = LocalStore(place)
    assert [one.version for one in list_versions(store)] == list(range(1, 42))
    assert open_latest(store).fragment_ids.tolist() == list(range(41))
    dataset = lance.dataset(place)
    assert dataset.version == 41
    assert dataset.count_rows() == 3 * 41
    assert dataset.to_table().num_rows == 3 * 41


class Watched(Clock):
    """A clock that notes how often somebody waits, and lets nobody wait."""

    waits = 0

    def sleep(self, seconds: float) -> None:
        """Note it."""
        self.waits += 1


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_writer_waits_between_its_attempts_and_not_after_the_last(retries: int) -> None:
    def refuse(_: int) -> AbstractContextManager[None]:
        raise CommitConflictError("another writer was first")

    store = make_store("memory", Path())
    base = create(store)
    root, clock = guarded(store, commit_lock=refuse), Watched()
    options = CommitOptions(max_retries=retries)
    with replaced_clock(clock), pytest.raises(CommitContentionError):
        commit_transaction(root, append(base), base=base, options=options)
    assert clock.waits == retries


def test_a_writer_that_ran_out_of_time_does_not_wait() -> None:
    def refuse(_: int) -> AbstractContextManager[None]:
        raise CommitConflictError("another writer was first")

    store = make_store("memory", Path())
    base = create(store)
    root, clock = guarded(store, commit_lock=refuse), Watched()
    options = CommitOptions(max_retries=9, timeout=-1.0)
    with replaced_clock(clock), pytest.raises(CommitContentionError, match="commit_timeout"):
        commit_transaction(root, append(base), base=base, options=options)
    assert clock.waits == 0
