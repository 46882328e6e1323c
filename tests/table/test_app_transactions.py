"""Transactions of applications are applied once, whatever happens between two attempts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import CorruptFileError, OptionError
from glaive.io.access import open_store
from glaive.table.load import open_latest
from glaive.table.named_jobs import AppTransaction, last_applied
from glaive.testing import CountingStore


def append(uri: Path, number: int, *, app: str = "stream", mode: str = "append") -> None:
    """Append one row as a transaction of an application."""
    properties = AppTransaction(app, number).properties
    glaive.write_dataset(
        pa.table({"id": [number]}), str(uri), mode=mode, transaction_properties=properties
    )


def ids(uri: Path) -> list[int]:
    return sorted(glaive.dataset(str(uri)).to_table()["id"].to_pylist())


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    place = tmp_path / "t.lance"
    append(place, 0)
    append(place, 1)
    return place


def test_a_transaction_is_applied_once(uri: Path) -> None:
    append(uri, 1)
    append(uri, 0)

    assert ids(uri) == [0, 1]
    assert glaive.dataset(str(uri)).version == 2


def test_applications_do_not_know_of_each_other(uri: Path) -> None:
    append(uri, 1, app="other")
    append(uri, 1, app="other")

    assert ids(uri) == [0, 1, 1]
    manifest = open_latest(open_store(str(uri)))
    assert [last_applied(manifest, app) for app in ("stream", "other", "third")] == [1, 1, None]


def test_it_is_recognised_after_changes_of_any_kind_and_a_clean_up(uri: Path) -> None:
    dataset = glaive.dataset(str(uri))
    dataset.insert(pa.table({"id": [7]}))
    dataset.update({"id": "8"}, where="id = 7")
    dataset.delete("id = 8")
    dataset.add_columns({"twice": "id * 2"})
    dataset.drop_columns(["twice"])
    dataset.create_scalar_index("id", "BTREE")
    dataset.optimize.compact_files()
    dataset.update_config({"a": "b"})
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    append(uri, 1)

    assert ids(uri) == [0, 1]
    assert last_applied(open_latest(open_store(str(uri))), "stream") == 1


def test_it_is_recognised_after_an_overwrite(uri: Path) -> None:
    glaive.write_dataset(pa.table({"id": [9]}), str(uri), mode="overwrite")
    append(uri, 1)
    append(uri, 1, mode="overwrite")
    assert ids(uri) == [9]

    append(uri, 2, mode="overwrite")
    assert ids(uri) == [2]


def test_a_restore_takes_back_what_was_applied_since(uri: Path) -> None:
    glaive.dataset(str(uri), version=1).restore()

    append(uri, 1)

    assert ids(uri) == [0, 1]


@pytest.mark.interop
def test_it_is_recognised_after_commits_of_pylance(uri: Path) -> None:
    lance = pytest.importorskip("lance")
    dataset = lance.write_dataset(pa.table({"id": [7]}), str(uri), mode="append")
    dataset.delete("id = 7")
    dataset.optimize.compact_files()
    dataset.create_scalar_index("id", "BTREE")
    dataset.add_columns({"twice": "id * 2"})
    dataset.cleanup_old_versions(older_than=timedelta(0))

    append(uri, 1)
    assert last_applied(open_latest(open_store(str(uri))), "stream") == 1
    lance.write_dataset(pa.table({"id": [5]}), str(uri), mode="overwrite")
    append(uri, 1)

    assert lance.dataset(str(uri)).to_table()["id"].to_pylist() == [5]


def test_of_two_attempts_at_once_one_is_applied(uri: Path) -> None:
    from glaive.dataset.writing.fragments import write_fragments
    from glaive.dataset.writing.plan import WriteOptions, plan_write
    from glaive.dataset.writing.rows import commit_plan

    store, rows = open_store(str(uri)), pa.table({"id": [2]})
    options = WriteOptions(
        mode="append", transaction_properties=AppTransaction("stream", 2).properties
    )
    plans = [plan_write(store, rows.schema, options) for _ in range(2)]
    written = [write_fragments(plan, rows.to_batches()) for plan in plans]

    made = [commit_plan(plan, found) for plan, found in zip(plans, written, strict=True)]

    assert [manifest.version for manifest in made] == [3, 3]
    assert ids(uri) == [0, 1, 2]


def test_the_last_one_is_found_with_the_newest_manifest(uri: Path) -> None:
    for number in range(20):
        glaive.dataset(str(uri)).insert(pa.table({"id": [100 + number]}))
    store = CountingStore(open_store(str(uri)))

    assert last_applied(open_latest(store), "stream") == 1
    assert store.requests <= 2


def test_a_merge_is_applied_once(uri: Path) -> None:
    def merge(number: int) -> dict[str, int]:
        builder = glaive.dataset(str(uri)).merge_insert("id").when_not_matched_insert_all()
        builder.transaction_properties(AppTransaction("stream", number).properties)
        return builder.execute(pa.table({"id": [1, 5]}))

    assert merge(2)["num_inserted_rows"] == 1
    version = glaive.dataset(str(uri)).version
    glaive.dataset(str(uri)).delete("id = 5")

    assert set(merge(2).values()) == {0}
    assert glaive.dataset(str(uri)).version == version + 1
    assert ids(uri) == [0, 1]


@pytest.mark.parametrize(
    ("app", "number", "message"),
    [("", 1, "the name of an application"), ("a", -1, "a number from 0"), ("a", True, "a number")],
)
def test_names_and_numbers_that_are_none_are_refused(app: str, number: int, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        AppTransaction(app, number)


@pytest.mark.spec("rel-10")
def test_replacing_all_metadata_does_not_let_it_be_applied_again(uri: Path) -> None:
    dataset = glaive.dataset(str(uri))
    dataset.update_metadata({"owner": "me", "team": "us"})
    dataset.update_metadata({"owner": "you"}, replace=True)
    append(uri, 1)

    assert ids(uri) == [0, 1]
    assert dataset.metadata == {"owner": "you", "glaive.txn.last:stream": "1"}


def test_its_entry_can_be_removed_by_name(uri: Path) -> None:
    removed = {"glaive.txn.last:stream": None}
    assert glaive.dataset(str(uri)).update_metadata(removed, replace=True) == {}
    append(uri, 1)

    assert ids(uri) == [0, 1, 1]


def test_an_entry_that_is_no_number_is_damage(uri: Path) -> None:
    glaive.dataset(str(uri)).update_metadata({"glaive.txn.last:stream": "x" * 99})

    with pytest.raises(CorruptFileError, match="last transaction of 'stream'"):
        append(uri, 2)


def test_properties_that_are_no_transaction_are_left_alone() -> None:
    properties = {"glaive.txn.app": "stream", "glaive.txn.version": "many"}

    assert AppTransaction.of(properties) is None
    assert AppTransaction.of({}) is None
