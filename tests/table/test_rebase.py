"""Deletions of one fragment by two writers: other rows are united, the same rows conflict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyroaring import BitMap

from glaive.errors import CommitConflictError, CorruptFileError, NotFoundError, OptionError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Transaction
from glaive.io.store import ObjectStore
from glaive.table.commit import commit_transaction
from glaive.table.deletions import add_deletions, load_deletions
from glaive.table.load import open_latest, open_version
from glaive.table.operations.merge import DataReplacement, Project
from glaive.table.operations.overwrite import Overwrite
from glaive.table.operations.update import Delete, Update
from glaive.table.operations.update_config import UpdateBases

from .native import SCHEMA, data_file, fragment
from .places import KINDS, make_store, names

ROWS = 100


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    made = make_store(request.param, tmp_path)
    fragments = tuple(fragment(name=f"f{number}", rows=ROWS) for number in range(3))
    operation = Overwrite(fragments=fragments, schema=SCHEMA)
    commit_transaction(made, Transaction(read_version=0, operation=operation))
    return made


def delete(store: ObjectStore, base: Manifest, **rows: list[int]) -> Delete:
    """A delete of rows of fragments ``f0``, ``f1``, … that was made for ``base``."""
    updated, removed, affected = [], [], {}
    for name, offsets in rows.items():
        one = base.fragment(base.position_of(int(name[1:])))
        changed, added, _ = add_deletions(store, base, one, np.array(offsets))
        affected[one.id] = added
        if changed is None:
            removed.append(one.id)
        else:
            updated.append(changed)
    return Delete(updated=tuple(updated), removed=tuple(removed), predicate="…", affected=affected)


def commit(store: ObjectStore, operation: Delete | Update, read: int = 1) -> Manifest:
    return commit_transaction(store, Transaction(read_version=read, operation=operation))


def gone(store: ObjectStore, manifest: Manifest) -> dict[int, list[int]]:
    return {one.id: load_deletions(store, manifest, one).tolist() for one in manifest.fragments()}


@pytest.mark.spec("conflict-3")
def test_other_rows_of_one_fragment_are_united(store: ObjectStore) -> None:
    base = open_latest(store)
    first = delete(store, base, f0=[1, 2], f1=[5])
    second = delete(store, base, f0=[7], f2=[9])
    commit(store, first)
    made = commit(store, second)
    assert gone(store, open_latest(store)) == {0: [1, 2, 7], 1: [5], 2: [9]}
    united, untouched = made.fragment(0).deletion_file, made.fragment(2).deletion_file
    assert united is not None
    assert untouched is not None
    assert (united.bitmap, united.read_version, united.rows) == (True, 2, 3)
    assert (untouched.bitmap, untouched.read_version) == (False, 1)
    assert made.wire.transaction_file.startswith("2-")
    assert gone(store, open_version(store, 2)) == {0: [1, 2], 1: [5], 2: []}


def test_three_writers_are_united_one_after_the_other(store: ObjectStore) -> None:
    base = open_latest(store)
    all_three = [delete(store, base, f0=[number]) for number in (3, 1, 2)]
    for one in all_three:
        commit(store, one)
    assert gone(store, open_latest(store))[0] == [1, 2, 3]


@pytest.mark.spec("conflict-3")
def test_rows_united_at_one_attempt_are_kept_at_the_next(store: ObjectStore) -> None:
    base = open_latest(store)
    mine = delete(store, base, f0=[7], f1=[8])
    once = mine.rebase(
        [], commit(store, delete(store, base, f0=[1])), {0: np.array([1], np.uint32)}
    )
    assert isinstance(once, Delete)
    twice = once.rebase(
        [], commit(store, delete(store, base, f1=[2])), {1: np.array([2], np.uint32)}
    )
    assert isinstance(twice, Delete)
    assert {one: list(BitMap.deserialize(file)) for one, file in twice.merged.items()} == {
        0: [1, 7],
        1: [2, 8],
    }


def test_the_same_rows_conflict_and_nothing_changes(store: ObjectStore) -> None:
    base = open_latest(store)
    first, second = delete(store, base, f0=[1, 2]), delete(store, base, f0=[2, 3])
    commit(store, first)
    with pytest.raises(CommitConflictError, match="1 rows of fragment 0") as caught:
        commit(store, second)
    assert caught.value.retryable
    assert (caught.value.version, caught.value.operation) == (2, "delete")
    assert caught.value.fragments == (0,)
    assert open_latest(store).version == 2


def test_a_fragment_of_which_both_leave_nothing_goes(store: ObjectStore) -> None:
    base = open_latest(store)
    first = delete(store, base, f0=list(range(60)))
    second = delete(store, base, f0=list(range(60, ROWS)))
    commit(store, first)
    assert commit(store, second).fragment_ids.tolist() == [1, 2]


def test_a_fragment_that_is_gone_conflicts(store: ObjectStore) -> None:
    base = open_latest(store)
    first, second = delete(store, base, f0=list(range(ROWS))), delete(store, base, f0=[1])
    assert first.removed == (0,)
    commit(store, first)
    with pytest.raises(CommitConflictError, match="fragment 0") as caught:
        commit(store, second)
    assert caught.value.retryable


def test_a_delete_of_unknown_rows_is_not_united(store: ObjectStore) -> None:
    base = open_latest(store)
    first = delete(store, base, f0=[1])
    second = replace(delete(store, base, f0=[2]), affected={})
    commit(store, first)
    with pytest.raises(CommitConflictError, match="delete deleted rows of fragment 0"):
        commit(store, second)


def test_an_update_moves_rows_beside_a_delete(store: ObjectStore) -> None:
    base = open_latest(store)
    one = delete(store, base, f0=[1, 2])
    update = Update(
        updated=one.updated, affected=one.affected, new=(fragment(rows=2),), fields_touched=(1,)
    )
    commit(store, delete(store, base, f0=[3]))
    made = commit(store, update)
    assert gone(store, made) == {0: [1, 2, 3], 1: [], 2: [], 3: []}


def test_files_that_changed_meanwhile_conflict(store: ObjectStore) -> None:
    base = open_latest(store)
    mine = delete(store, base, f0=[1])
    theirs = delete(store, base, f0=[2])
    replaced = (replace(theirs.updated[0], files=(data_file("else", 0, 1, 2),)),)
    commit(store, replace(theirs, updated=replaced))
    with pytest.raises(CommitConflictError, match="data files of fragment 0 were replaced"):
        commit(store, mine)


@pytest.mark.spec("del-3", "del-4")
@pytest.mark.parametrize(("count", "kind"), [(16, "arrow"), (17, "bin")])
def test_many_deleted_rows_become_a_bitmap(tmp_path: Path, count: int, kind: str) -> None:
    store = make_store("local", tmp_path)
    operation = Overwrite(fragments=(fragment(rows=9000),), schema=SCHEMA)
    base = commit_transaction(store, Transaction(read_version=0, operation=operation))
    half = count // 2
    first = commit(store, delete(store, base, f0=list(range(half))))
    # Rows deleted before do not count twice.
    second = delete(store, first, f0=list(range(half - 5, count)))
    assert len(second.affected[0]) == count - half
    made = commit(store, second, read=2)
    assert gone(store, made)[0] == list(range(count))
    (file,) = (name for name in names(store, "_deletions") if name.startswith("0-2-"))
    assert file.endswith(f".{kind}")


def test_deleting_what_is_deleted_changes_nothing(store: ObjectStore) -> None:
    made = commit(store, delete(store, open_latest(store), f0=[4]))
    one = made.fragment(0)
    changed, added, _ = add_deletions(store, made, one, np.array([4, 4]))
    assert changed == one
    assert len(added) == 0
    with pytest.raises(CorruptFileError, match="offsets below 100, found -1 to 4"):
        add_deletions(store, made, one, np.array([4, -1]))
    with pytest.raises(CorruptFileError, match="offsets below 100"):
        add_deletions(store, made, one, np.array([100]))


# ------------------------------------------------------- what cannot be carried out


def test_a_fragment_that_never_was_is_refused(store: ObjectStore) -> None:
    with pytest.raises(NotFoundError, match="changes fragment 9, which version 1"):
        commit(store, Delete(removed=(9,)))
    assert open_latest(store).version == 1


def test_replacements_are_for_the_same_columns(store: ObjectStore) -> None:
    two = DataReplacement(((0, data_file("x", 1)), (1, data_file("y", 2))))
    with pytest.raises(OptionError, match=r"fields \(1,\) and \(2,\)"):
        commit_transaction(store, Transaction(read_version=1, operation=two))
    twice = DataReplacement(((0, data_file("x", 1)), (0, data_file("y", 1))))
    with pytest.raises(OptionError, match="fragment 0 has two new files"):
        commit_transaction(store, Transaction(read_version=1, operation=twice))


def test_a_base_is_registered_once(store: ObjectStore) -> None:
    def bases(**facts: object) -> Transaction:
        one = table_pb2.BasePath(**facts)  # type: ignore[arg-type]  # whatever the caller gives
        version = open_latest(store).version
        return Transaction(read_version=version, operation=UpdateBases((one,)))

    commit_transaction(store, bases(path="/a", id=1))
    made = commit_transaction(store, bases(path="/b"))
    assert [(one.id, one.path) for one in made.wire.base_paths] == [(1, "/a"), (2, "/b")]
    with pytest.raises(OptionError, match="already has a base path with path '/b'"):
        commit_transaction(store, bases(path="/b"))


def test_a_column_dropped_meanwhile_stays_dropped(store: ObjectStore) -> None:
    base = open_latest(store)
    mine = delete(store, base, f0=[1])
    left = SCHEMA.project(["a"])
    project = Project(schema=left, preserves_nullability=True)
    commit_transaction(store, Transaction(read_version=1, operation=project))
    made = commit(store, mine)
    assert made.schema == left
    assert gone(store, made)[0] == [1]
