"""Commits made for a dataset that was deleted, with another one in its place."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kit.replaced import replaced_clock

import glaive
from glaive.errors import CommitConflictError
from glaive.format.manifest import Manifest
from glaive.format.paths import HINT, VERSIONS, manifest_path
from glaive.io.store import ObjectStore
from glaive.process import Clock
from glaive.table.commit import commit_transaction
from glaive.table.load import open_latest
from glaive.table.versions import list_versions
from glaive.testing import CountingStore

from .places import KINDS, StaleListing, append, create, make_store

ANOTHER = "not a version of the current dataset.*Open the dataset again"


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return make_store(request.param, tmp_path)


def grow(store: ObjectStore, versions: int) -> Manifest:
    """A dataset of so many versions."""
    newest = create(store)
    for _ in range(versions - 1):
        newest = commit_transaction(store, append(newest), base=newest)
    return newest


def drop(store: ObjectStore) -> None:
    for folder in (VERSIONS, "_transactions"):
        store.delete([meta.path for meta in store.list(folder)])


@pytest.mark.spec("commit-9")
def test_a_commit_for_a_dataset_that_was_made_again_with_fewer_versions_is_refused(
    store: ObjectStore,
) -> None:
    old = grow(store, 3)
    drop(store)
    grow(store, 2)
    with pytest.raises(CommitConflictError, match=ANOTHER) as refused:
        commit_transaction(store, append(old), base=old)
    assert not refused.value.retryable
    assert [found.version for found in list_versions(store)] == [1, 2]


def test_so_is_one_whose_writer_gives_the_number_of_the_version_alone(store: ObjectStore) -> None:
    old = grow(store, 3)
    drop(store)
    grow(store, 2)
    with pytest.raises(CommitConflictError, match=ANOTHER):
        commit_transaction(store, append(old))


@pytest.mark.spec("commit-9")
def test_a_commit_for_a_dataset_that_was_made_again_with_more_versions_is_refused(
    store: ObjectStore,
) -> None:
    old = grow(store, 3)
    drop(store)
    grow(store, 5)
    with pytest.raises(CommitConflictError, match=ANOTHER):
        commit_transaction(store, append(old), base=old)
    assert open_latest(store).version == 5


def test_a_commit_looks_once_more_where_others_were_first(store: ObjectStore) -> None:
    old = grow(store, 3)
    newest = commit_transaction(store, append(old), base=old)
    counting, other = CountingStore(store), CountingStore(store)
    assert commit_transaction(counting, append(newest), base=newest).version == 5
    assert commit_transaction(other, append(old), base=old).version == 6
    # Two versions that others made, and the one that the change was made for.
    assert other.requests - counting.requests == 3


@pytest.mark.parametrize("hint", [b'{"version":1}', None])
def test_a_hint_that_came_late_is_no_other_dataset(store: ObjectStore, hint: bytes | None) -> None:
    newest = grow(store, 3)
    store.delete([HINT])
    if hint is not None:
        store.put(HINT, [hint])
    counting = CountingStore(store)
    assert commit_transaction(counting, append(newest), base=newest).version == 4
    assert counting.requests == (5 if hint is not None else 4)  # or the versions are listed


class AMinuteLater(Clock):
    def now_ns(self) -> int:
        return time.time_ns() + 61 * 10**9


@pytest.mark.spec("rel-2")
@pytest.mark.parametrize("read", [1, 2], ids=["before-it", "that-it-names"])
def test_a_hint_that_goes_back_past_a_clean_up_hides_no_version(
    store: ObjectStore, read: int
) -> None:
    """The number after the tagged version is free, and not that of the newest version."""
    base = grow(store, read)
    tagged = base if read == 2 else commit_transaction(store, append(base), base=base)
    late = store.get(HINT).to_pybytes()
    newest = tagged
    for _ in range(3):
        newest = commit_transaction(store, append(newest), base=newest)
    store.delete([manifest_path(version, "V2") for version in (3, 4)])
    store.put(HINT, [late])
    with replaced_clock(AMinuteLater()), pytest.raises(CommitConflictError, match="cleaned up"):
        commit_transaction(store, append(base), base=base)
    assert open_latest(store).version == newest.version == 5
    assert [one.version for one in list_versions(store)] == [1, 2, 5]


def test_a_commit_for_a_version_of_a_minute_ago_lists_the_versions(store: ObjectStore) -> None:
    newest = grow(store, 3)
    counting = CountingStore(store)
    with replaced_clock(AMinuteLater()):
        assert commit_transaction(counting, append(newest), base=newest).version == 4
    assert counting.requests == 5  # one of them is the listing


ROW = pa.table({"a": [1]})


def of_another(place: Path, versions: int, now: int) -> glaive.LanceDataset:
    """A handle of a dataset in whose place there is another one, with ``now`` versions."""
    for _ in range(versions):
        old = glaive.write_dataset(ROW, place, mode="append")
    shutil.rmtree(place)
    for _ in range(now):
        glaive.write_dataset(ROW, place, mode="append")
    return old


@pytest.mark.parametrize("versions", [1, 2, 4])
def test_on_a_disk_a_handle_of_a_dataset_that_was_made_again_has_to_be_opened_again(
    tmp_path: Path, versions: int
) -> None:
    old = of_another(tmp_path / "t", 2, versions)
    with pytest.raises(CommitConflictError, match=ANOTHER):
        old.insert(ROW)
    assert glaive.dataset(old.uri).version == versions
    old.checkout_latest()
    old.insert(ROW)
    assert glaive.dataset(old.uri).count_rows() == versions + 1


@pytest.mark.spec("rel-4")
@pytest.mark.parametrize("versions", [3, 5])
def test_such_a_handle_neither_restores_nor_cleans_up_nor_compares_the_other_dataset(
    tmp_path: Path, versions: int
) -> None:
    old = of_another(tmp_path / "t", 3, versions)
    with pytest.raises(CommitConflictError, match=ANOTHER):
        old.checkout_version(3).restore()
    with pytest.raises(CommitConflictError, match=ANOTHER):
        old.cleanup_old_versions(retain_versions=1)
    with pytest.raises(CommitConflictError, match=ANOTHER):
        old.changes(2)
    with pytest.raises(CommitConflictError, match=ANOTHER):
        old.delta(compared_against=1).get_deleted_row_ids()
    with pytest.raises(CommitConflictError, match=ANOTHER):
        old.delta(compared_against=1).list_transactions()
    assert len(glaive.dataset(old.uri).versions()) == versions


def test_a_version_that_was_cleaned_up_meanwhile_is_built_upon_as_before(
    store: ObjectStore,
) -> None:
    base = grow(store, 2)
    late, newest = append(base), base
    for _ in range(2):
        newest = commit_transaction(store, append(newest), base=newest)
    old = [location.path for location in list_versions(store)[:2]]
    transactions = [f"_transactions/{base.wire.transaction_file}"]
    store.delete(old + transactions)
    assert commit_transaction(store, late, base=base).version == 5
    assert open_latest(store).count_rows() == 50


def test_so_is_one_that_neither_the_hint_nor_a_listing_knows(store: ObjectStore) -> None:
    base = grow(store, 2)
    late, stale = append(base), StaleListing(store, newest=1)
    commit_transaction(store, append(base), base=base)
    store.delete([HINT, manifest_path(2)])
    assert commit_transaction(stale, late, base=base).version == 4
