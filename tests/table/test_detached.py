"""Versions outside the history, and several transactions in one commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from glaive.errors import CommitConflictError, OptionError, UnsupportedFeatureError
from glaive.format.manifest import Manifest, encode_manifest
from glaive.format.paths import DETACHED, manifest_path
from glaive.format.rowids import decode_versions
from glaive.format.transaction import Transaction
from glaive.io.store import ObjectStore
from glaive.table.commit import commit_transaction, merge_transactions
from glaive.table.load import open_latest, open_version, read_transaction
from glaive.table.operations.overwrite import Append, Restore
from glaive.table.operations.update import Delete
from glaive.table.protocol import CommitOptions

from .places import KINDS, append, create, fragment, make_store, names, overwrite

OUTSIDE = CommitOptions(detached=True)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return make_store(request.param, tmp_path)


@pytest.mark.spec("commit-8")
def test_a_detached_version_is_never_the_latest(store: ObjectStore) -> None:
    base = create(store, rows=10)
    hint = sorted(names(store, "_versions"))
    made = commit_transaction(store, append(base, 5), base=base, options=OUTSIDE)
    assert made.version & DETACHED
    assert made.count_rows() == 15
    assert open_latest(store).version == 1
    assert open_version(store, made.version).wire == made.wire
    added = set(names(store, "_versions")) - set(hint)
    assert added == {f"d{made.version}.manifest"}
    assert read_transaction(store, made) is not None
    again = commit_transaction(store, append(base, 5), base=base)
    assert again.version == 2


@pytest.mark.spec("commit-8")
def test_rows_of_a_detached_version_belong_to_the_next_one(store: ObjectStore) -> None:
    base = create(store, rows=2, options=CommitOptions(enable_stable_row_ids=True))
    made = commit_transaction(store, append(base, 3), base=base, options=OUTSIDE)
    assert made.fragment_ids.tolist() == [0, 1]
    assert made.wire.next_row_id == 5
    new = made.fragment(1)
    assert decode_versions(new.created_at or b"", 3, where="t").tolist() == [2, 2, 2]


def test_detached_versions_follow_each_other(store: ObjectStore) -> None:
    base = create(store, rows=1)
    first = commit_transaction(store, append(base, 2), base=base, options=OUTSIDE)
    second = commit_transaction(store, append(first, 4), options=OUTSIDE)
    assert second.count_rows() == 7
    assert open_latest(store).count_rows() == 1
    with pytest.raises(OptionError, match=r"is detached.*detached=True"):
        commit_transaction(store, append(first, 4))


def test_a_detached_commit_is_checked_as_well(store: ObjectStore) -> None:
    base = create(store)
    commit_transaction(store, overwrite(base), base=base)
    with pytest.raises(CommitConflictError, match="overwrite replaced the dataset"):
        commit_transaction(store, append(base), options=OUTSIDE)


def restore(version: Manifest, base: Manifest) -> Transaction:
    return Transaction(read_version=base.version, operation=Restore(version.version))


@pytest.mark.spec("rel-11")
@pytest.mark.parametrize("between", [0, 1])
def test_a_detached_version_whose_row_ids_others_got_since_is_not_restored(
    store: ObjectStore, between: int
) -> None:
    newest = create(store, rows=2, options=CommitOptions(enable_stable_row_ids=True))
    made = newest
    for _ in range(between + 1):
        made = commit_transaction(store, append(made, 3), options=OUTSIDE)
    newest = commit_transaction(store, append(newest, 4), base=newest)
    for options in (CommitOptions(), OUTSIDE):
        with pytest.raises(UnsupportedFeatureError, match="the history may have given the ids"):
            commit_transaction(store, restore(made, newest), options=options)
    assert open_latest(store).version == 2


def test_a_detached_version_is_restored_where_ids_of_rows_mean_one_row(store: ObjectStore) -> None:
    base = create(store, rows=2, options=CommitOptions(enable_stable_row_ids=True))
    made = commit_transaction(store, append(base, 3), options=OUTSIDE)
    newest = commit_transaction(store, restore(made, base), base=base)
    assert (newest.version, newest.count_rows(), newest.wire.next_row_id) == (2, 5, 5)

    without = Transaction(read_version=2, operation=Delete(removed=(1,)))
    made = commit_transaction(store, without, options=OUTSIDE)
    newest = commit_transaction(store, append(newest, 4), base=newest)
    newest = commit_transaction(store, restore(made, newest), base=newest)
    assert (newest.version, newest.count_rows(), newest.wire.next_row_id) == (4, 2, 9)


def test_so_is_one_of_a_dataset_whose_row_ids_are_addresses(store: ObjectStore) -> None:
    base = create(store, rows=2)
    made = commit_transaction(store, append(base, 3), options=OUTSIDE)
    newest = commit_transaction(store, append(base, 4), base=base)
    assert commit_transaction(store, restore(made, newest)).count_rows() == 5


def test_detached_versions_that_were_made_from_each_other_are_not_restored(
    store: ObjectStore,
) -> None:
    base = create(store, rows=2, options=CommitOptions(enable_stable_row_ids=True))
    made = commit_transaction(store, append(base, 3), options=OUTSIDE)
    itself = replace(append(base), read_version=made.version).encode()
    parts = encode_manifest(made.wire, transaction=itself, index_section=None)
    path = manifest_path(made.version, made.scheme)
    store.put(path, [bytes(part) for part in parts])
    with pytest.raises(UnsupportedFeatureError, match="the history may have given the ids"):
        commit_transaction(store, restore(made, base))


# ----------------------------------------------------------------------- batches


def test_appends_are_committed_together(store: ObjectStore) -> None:
    base = create(store, rows=1)
    newer = commit_transaction(store, append(base, 2), base=base)
    both = [
        Transaction(read_version=2, operation=Append((fragment(3),)), properties={"a": "1"}),
        Transaction(read_version=1, operation=Append((fragment(4), fragment(5)))),
    ]
    merged = merge_transactions(both)
    assert (merged.read_version, dict(merged.properties)) == (1, {"a": "1"})
    made = commit_transaction(store, merged)
    assert made.version == newer.version + 1
    assert made.physical_rows.tolist() == [1, 2, 3, 4, 5]


def test_only_appends_are_committed_together(store: ObjectStore) -> None:
    base = create(store)
    delete = Transaction(read_version=1, operation=Delete(removed=(0,)))
    with pytest.raises(UnsupportedFeatureError, match="transaction 1 of the batch is a delete"):
        merge_transactions([append(base), delete])
    with pytest.raises(OptionError, match="No transactions"):
        merge_transactions([])
