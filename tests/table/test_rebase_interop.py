"""Deletions of one fragment by both libraries, each behind the other's back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.errors import CommitConflictError
from glaive.format.manifest import Manifest
from glaive.format.transaction import Transaction
from glaive.io.local import LocalStore
from glaive.table.commit import commit_transaction
from glaive.table.deletions import add_deletions
from glaive.table.load import open_latest, read_transaction
from glaive.table.operations.update import Delete, hash_keys, key_filter, may_share_keys

from .compare import content

lance = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

TABLE = pa.table({"a": pa.array(range(20), pa.int64())})


def ours(store: LocalStore, base: Manifest, *rows: int) -> Transaction:
    one = base.fragment(0)
    changed, added, _ = add_deletions(store, base, one, np.array(rows))
    assert changed is not None
    operation = Delete(updated=(changed,), predicate="ours", affected={0: added})
    return Transaction(read_version=base.version, operation=operation)


def values(place: Path) -> list[Any]:
    return lance.dataset(str(place)).to_table()["a"].to_pylist()


def test_our_delete_over_theirs(tmp_path: Path) -> None:
    place = tmp_path / "t"
    dataset = lance.write_dataset(TABLE, str(place))
    store = LocalStore(place)
    transaction = ours(store, open_latest(store), 1, 2)
    dataset.delete("a in (5, 6)")
    made = commit_transaction(store, transaction)
    assert made.version == 3
    assert values(place) == [one for one in range(20) if one not in (1, 2, 5, 6)]


def test_their_delete_over_ours(tmp_path: Path) -> None:
    place = tmp_path / "t"
    stale = lance.write_dataset(TABLE, str(place))
    store = LocalStore(place)
    commit_transaction(store, ours(store, open_latest(store), 1, 2))
    stale.delete("a in (5, 6)")
    assert values(place) == [one for one in range(20) if one not in (1, 2, 5, 6)]


def test_both_make_the_same_of_it(tmp_path: Path) -> None:
    """Two stale deletes: one of theirs over theirs, one of ours over theirs."""
    contents = []
    for name in ("theirs", "ours"):
        place = tmp_path / name
        dataset = lance.write_dataset(TABLE, str(place), enable_stable_row_ids=True)
        stale = lance.dataset(str(place))
        store = LocalStore(place)
        transaction = ours(store, open_latest(store), 1, 2)
        dataset.delete("a in (5, 6)")
        if name == "theirs":
            stale.delete("a in (1, 2)")
        else:
            commit_transaction(store, transaction)
        made = content(open_latest(store))
        for one in made["fragments"]:
            del one["deletionFile"]["id"], one["files"]
        contents.append(made)
        name_of_file = open_latest(store).wire.transaction_file
        assert name_of_file.startswith("2-")
    assert contents[0] == contents[1]


def test_the_same_row_conflicts(tmp_path: Path) -> None:
    place = tmp_path / "t"
    dataset = lance.write_dataset(TABLE, str(place))
    store = LocalStore(place)
    transaction = ours(store, open_latest(store), 5, 7)
    dataset.update({"a": "100"}, where="a = 5")
    with pytest.raises(CommitConflictError, match="1 rows of fragment 0") as caught:
        commit_transaction(store, transaction)
    assert caught.value.retryable
    assert caught.value.operation == "update"


@pytest.mark.spec("update-3")
def test_their_filter_of_inserted_keys_is_read(tmp_path: Path) -> None:
    field = pa.field(
        "a", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}
    )
    schema = pa.schema([field])
    place = tmp_path / "t"
    dataset = lance.write_dataset(TABLE.cast(schema), str(place))

    def inserted(*keys: int) -> Any:
        rows = pa.table({"a": pa.array(keys, pa.int64())}, schema=schema)
        target = lance.dataset(str(place))
        merge = target.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows)
        store = LocalStore(place)
        transaction = read_transaction(store, open_latest(store))
        assert transaction is not None
        return transaction.operation.to_wire().inserted_rows

    one, two, other = inserted(100, 101), inserted(101, 102), inserted(103)
    assert dataset.version == 1
    assert not may_share_keys(one, two)  # the second one updated 101: 102 alone is new
    assert may_share_keys(one, one)
    assert not may_share_keys(other, two)
    hashes = hash_keys([pa.array([100, 101], pa.int64())])
    assert hashes is not None
    assert key_filter([0], hashes) == one
