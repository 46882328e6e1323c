"""Writers that delete rows of one fragment and append, at once: no row is lost, none comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.errors import CommitConflictError
from glaive.format.manifest import Manifest
from glaive.format.transaction import Transaction
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.table.commit import commit_transaction
from glaive.table.deletions import add_deletions, load_deletions
from glaive.table.load import open_latest, open_version
from glaive.table.operations.overwrite import Overwrite
from glaive.table.operations.update import Delete
from glaive.table.protocol import CommitOptions
from glaive.table.versions import list_versions

from .native import SCHEMA, fragment
from .places import KINDS, append, make_store

PATIENT = CommitOptions(max_retries=1000)
ROWS = 300
WRITERS, COMMITS = 5, 8


def delete(store: ObjectStore, base: Manifest, rows: list[int]) -> Transaction:
    changed, added, _ = add_deletions(store, base, base.fragment(0), np.array(rows))
    assert changed is not None
    operation = Delete(updated=(changed,), predicate="…", affected={0: added})
    return Transaction(read_version=base.version, operation=operation)


@pytest.mark.spec("conflict-3")
@pytest.mark.parametrize("kind", KINDS)
def test_deletes_of_one_fragment_all_count(kind: str, tmp_path: Path) -> None:
    store = make_store(kind, tmp_path)
    operation = Overwrite(fragments=(fragment(rows=ROWS),), schema=SCHEMA)
    base = commit_transaction(store, Transaction(read_version=0, operation=operation))

    def work(number: int) -> None:
        for i in range(COMMITS):
            known = base if i % 2 else open_latest(store)
            if i % 4 == 3:
                commit_transaction(store, append(known, 1), options=PATIENT)
            else:
                rows = [number * 50 + i, number * 50 + i + 20]
                commit_transaction(store, delete(store, known, rows), options=PATIENT)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(work, range(WRITERS)))
    newest = open_latest(store)
    assert newest.version == 1 + WRITERS * COMMITS
    expected = {
        number * 50 + i + more
        for number in range(WRITERS)
        for i in range(COMMITS)
        for more in (0, 20)
        if i % 4 != 3
    }
    assert set(load_deletions(store, newest, newest.fragment(0)).tolist()) == expected
    assert newest.num_fragments == 1 + WRITERS * COMMITS // 4
    # No version ever brings a deleted row back.
    before: set[int] = set()
    for location in list_versions(store):
        manifest = open_version(store, location.version)
        now = set(load_deletions(store, manifest, manifest.fragment(0)).tolist())
        assert before <= now
        before = now


@pytest.mark.spec("conflict-3")
def test_deletes_of_several_fragments_keep_what_several_others_deleted(tmp_path: Path) -> None:
    """Others changed a fragment each; the last of them is not all that there is to merge."""
    store = make_store("local", tmp_path)
    operation = Overwrite(fragments=(fragment(rows=9), fragment(rows=9)), schema=SCHEMA)
    base = commit_transaction(store, Transaction(read_version=0, operation=operation))

    def deleting(rows: dict[int, list[int]]) -> Transaction:
        made = [
            (number, *add_deletions(store, base, base.fragment(number), np.array(offsets))[:2])
            for number, offsets in rows.items()
        ]
        updated = tuple(changed for _, changed, _ in made if changed is not None)
        affected = {number: added for number, _, added in made}
        operation = Delete(updated=updated, predicate="…", affected=affected)
        return Transaction(read_version=1, operation=operation)

    mine = deleting({0: [1], 1: [2]})
    for other in ({0: [3]}, {1: [4]}):
        commit_transaction(store, deleting(other), base=base)
    newest = commit_transaction(store, mine, base=base)
    deleted = [load_deletions(store, newest, newest.fragment(at)).tolist() for at in (0, 1)]
    assert deleted == [[1, 3], [2, 4]]


@pytest.mark.interop
def test_both_libraries_delete_and_append_at_once(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance", reason="install the 'interop' group")
    place = str(tmp_path / "t")
    table = pa.table({"a": pa.array(range(ROWS), pa.int64())})
    lance.write_dataset(table, place)
    store = LocalStore(place)

    def ours(number: int) -> None:
        for i in range(COMMITS):
            while True:
                known = open_latest(store)
                values = {number * 50 + i, number * 50 + i + 20}
                try:
                    commit_transaction(store, delete(store, known, sorted(values)), options=PATIENT)
                except CommitConflictError as error:
                    if not error.retryable:
                        raise
                    continue
                break

    def theirs(number: int) -> None:
        for i in range(COMMITS):
            dataset: Any = lance.dataset(place)
            if i % 2:
                first = number * 50 + i
                dataset.delete(f"a in ({first}, {first + 20})", conflict_retries=100)
            else:
                rows = pa.table({"a": pa.array([1000 + number * 50 + i], pa.int64())})
                lance.write_dataset(rows, place, mode="append")

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(ours if number % 2 else theirs, number) for number in range(4)]
        for one in tasks:
            one.result()
    gone = {
        number * 50 + i + more
        for number in range(4)
        for i in range(COMMITS)
        for more in (0, 20)
        if number % 2 or i % 2
    }
    added = {1000 + number * 50 + i for number in (0, 2) for i in range(0, COMMITS, 2)}
    found = lance.dataset(place).to_table()["a"].to_pylist()
    assert sorted(found) == sorted((set(range(ROWS)) - gone) | added)
    assert lance.dataset(place).version == 1 + 4 * COMMITS
