"""Handles where listings of versions are stale: what was seen once is not forgotten."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from glaive.fragment import write_fragments
from tests.table.places import StaleListing, create

import glaive
from glaive import LanceDataset, LanceOperation, blob_array, blob_field
from glaive.dataset import cleanup, refs
from glaive.errors import DatasetExistsError, StoreError, VersionNotFoundError
from glaive.format.paths import HINT, manifest_path
from glaive.format.transaction import Transaction
from glaive.io.access import open_store
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.namespace import folders
from glaive.spark.options import StreamOptions
from glaive.spark.stream_reader import Timeline
from glaive.table.commit import commit_transaction
from glaive.table.load import find_transaction, open_latest
from glaive.table.operations.overwrite import Append


@pytest.fixture
def newest() -> LanceDataset:
    """A dataset of two versions: rows 0 to 4, and rows 5 to 9."""
    uri = f"memory://{uuid4().hex}/t.lance"
    glaive.write_dataset(pa.table({"id": range(5), "n": [0] * 5}), uri)
    return glaive.write_dataset(pa.table({"id": range(5, 10), "n": [0] * 5}), uri, mode="append")


def with_stale_listing(dataset: LanceDataset, *, listed: int) -> LanceDataset:
    """The same version, of a store whose listing of versions ends at an old one."""
    return LanceDataset.of(StaleListing(dataset.store, newest=listed), dataset.manifest)


def test_a_listing_may_be_stale(newest: LanceDataset) -> None:
    assert open_latest(StaleListing(newest.store, newest=1)).version == 1


@pytest.mark.spec("rel-37")
def test_a_handle_does_not_go_back(newest: LanceDataset) -> None:
    handle = with_stale_listing(newest, listed=1)
    handle.checkout_latest()
    assert handle.version == 2


@pytest.mark.spec("rel-37")
def test_a_handle_does_not_go_back_to_what_another_thread_committed_before(
    newest: LanceDataset,
) -> None:
    older = newest.manifest
    newest.delete("id = 0")
    newest.move_to(older)  # as a thread does that made this version, and comes late
    assert newest.version == older.version + 1


def test_a_handle_goes_to_another_dataset_that_was_made_in_its_place(tmp_path: Path) -> None:
    rows = pa.table({"id": [1]})
    handle = glaive.write_dataset(rows, tmp_path / "t")
    handle.delete("id = 0")
    handle.insert(rows)
    shutil.rmtree(tmp_path / "t")
    glaive.write_dataset(rows, tmp_path / "t")
    handle.checkout_latest()
    assert handle.version == 1


@pytest.mark.spec("rel-37")
def test_a_handle_finds_the_versions_that_follow_its_own(newest: LanceDataset) -> None:
    handle = with_stale_listing(newest, listed=1)
    newest.delete("id = 0")
    newest.delete("id = 1")
    handle.checkout_latest()
    assert handle.version == 4


def test_a_handle_whose_version_was_cleaned_up_finds_the_newest(newest: LanceDataset) -> None:
    handle = with_stale_listing(newest, listed=1)
    newest.delete("id = 0")
    newest.delete("id = 1")
    newest.tags.create("kept", 1)
    newest.cleanup_old_versions(retain_versions=1, error_if_tagged_old_versions=False)
    handle.checkout_latest()
    assert handle.version == 4


def test_a_handle_of_a_dataset_that_was_made_again_moves_to_the_new_one(
    newest: LanceDataset,
) -> None:
    uri = newest.uri
    LanceDataset.drop(uri)
    glaive.write_dataset(pa.table({"new": [1]}), uri)
    newest.checkout_latest()
    assert newest.version == 1
    assert newest.to_table().to_pydict() == {"new": [1]}


@pytest.mark.spec("rel-37")
@pytest.mark.parametrize("listed", [1, 2])
def test_a_change_that_is_made_again_sees_all_rows_that_it_saw_before(
    newest: LanceDataset, listed: int
) -> None:
    handle = with_stale_listing(newest, listed=listed)
    newest.update({"n": "n + 10"}, "id = 7")
    handle.update({"n": "n + 1"})
    assert handle.version == 4
    handle.checkout_latest()
    found = handle.to_table(columns=["id", "n"]).sort_by("id")["n"].to_pylist()
    assert found == [1, 1, 1, 1, 1, 1, 1, 11, 1, 1]


@pytest.mark.spec("rel-37")
def test_a_change_that_is_made_again_starts_at_the_version_of_the_conflict(
    newest: LanceDataset,
) -> None:
    handle = with_stale_listing(newest, listed=1)
    newest.update({"n": "n + 10"}, "id = 7")
    newest.store.delete([manifest_path(2), HINT])  # as after a clean-up, and a lost hint
    handle.update({"n": "n + 1"})
    assert handle.version == 4
    assert handle.to_table(filter="id = 7")["n"].to_pylist() == [11]


@pytest.mark.spec("rel-37")
def test_a_commit_by_hand_is_not_refused_where_a_listing_lacks_the_version_that_was_read(
    newest: LanceDataset,
) -> None:
    part = write_fragments(pa.table({"id": [10], "n": [0]}), newest)
    handle = with_stale_listing(newest, listed=1)
    made = LanceDataset.commit(handle, LanceOperation.Append(part), read_version=2)
    assert (made.version, made.count_rows()) == (3, 11)
    with pytest.raises(VersionNotFoundError, match=r"version 5 .* the newest is 3"):
        LanceDataset.commit(handle, LanceOperation.Append(part), read_version=5)


def test_a_stream_does_not_take_a_stale_listing_for_another_dataset(newest: LanceDataset) -> None:
    timeline = Timeline(StaleListing(newest.store, newest=1), StreamOptions())
    assert timeline.newest(2) == 2


def test_the_version_of_a_job_is_found_where_a_listing_lacks_it(newest: LanceDataset) -> None:
    properties = {"job": "mine"}
    mine = Transaction(read_version=2, operation=Append(()), properties=properties)
    commit_transaction(newest.store, mine, base=newest.manifest)
    stale = StaleListing(newest.store, newest=1)
    assert find_transaction(stale, 0, "job", "mine") is None
    found = find_transaction(stale, 0, "job", "mine", known=3)
    assert found is not None
    assert found.version == 3


class Unlisted(WrappedStore):
    """A store over a network whose listings lack what was written some seconds ago."""

    @property
    def is_remote(self) -> bool:
        return True

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        return iter(()) if prefix.startswith(("data/", "_indices/")) else self.inner.list(prefix)


@pytest.mark.spec("rel-4")
def test_a_deep_clone_has_files_that_a_stale_listing_lacks() -> None:
    values = [b"a" * 100_000, b"few", b"b" * 5_000_000, b"c" * 100_000]
    ids = pa.table({"id": range(4)})
    rows = ids.append_column(blob_field("value"), blob_array(values))
    source = glaive.write_dataset(rows, f"memory://{uuid4().hex}/t.lance")
    source.create_scalar_index("id", "BTREE")
    target = f"memory://{uuid4().hex}/copy.lance"
    LanceDataset.of(Unlisted(source.store), source.manifest).deep_clone(target)
    clone = glaive.dataset(target)
    assert [file.read() for file in clone.take_blobs("value", indices=range(4))] == values
    assert clone.to_table(columns=["id"], filter="id = 2").num_rows == 1
    for folder in ("data", "_indices"):
        walked = [{file.path for file in one.store.walk(folder)} for one in (source, clone)]
        assert walked[0] == walked[1]


class AnswersForAny(Unlisted):
    """A web server that has a page for any name, as many do."""

    def head(self, path: str) -> ObjectMeta:
        return ObjectMeta(path, 1, None) if path.endswith(".blob") else self.inner.head(path)


@pytest.mark.spec("rel-25")
def test_a_deep_clone_ends_where_a_server_has_an_answer_for_any_name(tmp_path: Path) -> None:
    rows = pa.table([blob_array([b"a" * 100_000])], schema=pa.schema([blob_field("value")]))
    source = glaive.write_dataset(rows, f"memory://{uuid4().hex}/t.lance")
    answering = LanceDataset.of(AnswersForAny(source.store), source.manifest)
    with pytest.raises(StoreError, match="10,000 files that its listing lacks"):
        answering.deep_clone(tmp_path / "copy.lance")
    assert not (tmp_path / "copy.lance" / "_versions").exists()


class Unseen(WrappedStore):
    """A store over a network whose listings show what there was before; by default nothing."""

    def __init__(self, inner: ObjectStore, seen: Collection[str] = ()) -> None:
        super().__init__(inner)
        self.seen = seen

    @property
    def is_remote(self) -> bool:
        return True

    def below(self, path: str) -> ObjectStore | None:
        inner = self.inner.below(path)
        return None if inner is None else Unseen(inner)

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        return (meta for meta in self.inner.list(prefix) if meta.path in self.seen)

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        return (meta for meta in self.inner.walk(prefix) if meta.path in self.seen)


@pytest.mark.spec("rel-2")
@pytest.mark.parametrize("how", ["shallow_clone", "deep_clone"])
def test_no_clone_takes_the_place_of_a_dataset_that_listings_do_not_show_yet(
    newest: LanceDataset, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"memory://{uuid4().hex}/t.lance"
    other = glaive.write_dataset(pa.table({"other": [1]}), place)
    monkeypatch.setattr(refs, "open_root", lambda *_, **__: Unseen(other.store))
    with pytest.raises(DatasetExistsError):
        getattr(newest, how)(place)
    assert glaive.dataset(place).to_table() == other.to_table()


@pytest.mark.spec("rel-2")
def test_no_dataset_is_begun_beside_a_clone_that_listings_do_not_show_yet(
    newest: LanceDataset,
) -> None:
    clone = newest.shallow_clone(f"memory://{uuid4().hex}/t.lance")
    store = Unseen(clone.store)
    assert open_latest(store).version == clone.version == 2
    with pytest.raises(DatasetExistsError):
        create(store)
    assert [one["version"] for one in clone.versions()] == [2]


@pytest.mark.parametrize("versions_seen", [0, 1])
@pytest.mark.parametrize("ignore_not_found", [False, True])
def test_a_drop_leaves_no_version_that_listings_do_not_show_yet(
    versions_seen: int, ignore_not_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, rows = f"memory://{uuid4().hex}/t.lance", pa.table({"id": range(3)})
    dataset = glaive.write_dataset(rows, place)
    seen = {meta.path for meta in dataset.store.walk("")} if versions_seen else set()
    dataset.insert(rows)
    dataset.delete("id = 1")
    dataset.create_scalar_index("id", "BTREE")
    monkeypatch.setattr(cleanup, "open_root", lambda *_, **__: Unseen(dataset.store, seen))
    LanceDataset.drop(place, ignore_not_found=ignore_not_found)
    data = {f"data/{file.path}" for one in dataset.get_fragments() for file in one.data_files()}
    left = {meta.path for meta in dataset.store.walk("")}
    assert not [path for path in left if path in data or not path.startswith("_transactions/")]
    assert glaive.write_dataset(rows, place).version == 1


def test_a_table_that_listings_do_not_show_yet_is_written() -> None:
    table = glaive.write_dataset(pa.table({"id": [1]}), f"memory://{uuid4().hex}/t.lance").store
    root = Unseen(open_store(table.uri.removesuffix("/t.lance")))
    assert folders.is_written(root, "t.lance")
    assert not folders.is_written(root, "other.lance")
