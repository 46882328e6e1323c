"""Manifests of datasets with a manifest store get the names that list the newest first."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.cleanup import migrate_manifest_names
from glaive.dataset.layout import compare_manifest
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.paths import manifest_path
from glaive.io.local import LocalStore
from glaive.io.store import BytesLike, ObjectMeta, ObjectStore, PutMode
from glaive.io.wrapped import WrappedStore
from glaive.table.manifest_registers import SqliteManifestStore

ROWS = pa.table({"a": [1, 2]})


def made(path: Path, store: SqliteManifestStore | None) -> glaive.LanceDataset:
    """Two versions with old names."""
    for mode in ("create", "append"):
        dataset = glaive.write_dataset(
            ROWS, path, mode=mode, manifest_store=store, enable_v2_manifest_paths=False
        )
    return dataset


def names(path: Path) -> list[str]:
    found = (one.name for one in (path / "_versions").iterdir())
    return sorted(name for name in found if name.endswith(".manifest"))


def check(path: Path, store: SqliteManifestStore) -> None:
    assert [len(name) for name in names(path)] == [29, 29]
    for version in (1, 2):
        opened = glaive.dataset(path, version=version, manifest_store=store)
        assert opened.count_rows() == 2 * version
    added = glaive.write_dataset(ROWS, path, mode="append", manifest_store=store)
    assert (added.version, added.count_rows()) == (3, 6)
    assert [version["version"] for version in added.versions()] == [1, 2, 3]


@pytest.mark.spec("rel-22")
def test_the_manifest_store_has_their_new_names(tmp_path: Path) -> None:
    store = SqliteManifestStore(tmp_path / "versions.db")
    made(tmp_path / "t", store).migrate_manifest_paths_v2()
    check(tmp_path / "t", store)


@pytest.mark.spec("rel-22")
def test_a_version_that_was_left_staged_is_finished_before(tmp_path: Path) -> None:
    store = SqliteManifestStore(tmp_path / "versions.db")
    dataset = made(tmp_path / "t", store)
    final = tmp_path / "t/_versions/2.manifest"
    staged = f"_versions/2.manifest-{'0' * 8}-0000-4000-8000-{'0' * 12}"
    final.rename(tmp_path / "t" / staged)
    entry = store.get(dataset.store.uri, 2)
    assert entry is not None
    store.put_if_exists(dataset.store.uri, replace(entry, path=staged))
    dataset.migrate_manifest_paths_v2()
    check(tmp_path / "t", store)


@pytest.mark.spec("rel-22")
def test_renaming_that_was_stopped_is_completed(tmp_path: Path) -> None:
    store = SqliteManifestStore(tmp_path / "versions.db")
    dataset = made(tmp_path / "t", store)
    new = f"{2**64 - 1 - 1:020d}.manifest"
    shutil.copy(tmp_path / "t/_versions/1.manifest", tmp_path / "t/_versions" / new)
    dataset.migrate_manifest_paths_v2()
    check(tmp_path / "t", store)


class Catalogue(SqliteManifestStore):
    owns_manifests = True


def test_manifests_that_a_catalogue_names_are_not_renamed(tmp_path: Path) -> None:
    store = SqliteManifestStore(tmp_path / "versions.db")
    made(tmp_path / "t", store)
    before = names(tmp_path / "t")
    dataset = glaive.dataset(tmp_path / "t", manifest_store=Catalogue(tmp_path / "versions.db"))
    with pytest.raises(UnsupportedFeatureError, match="names them itself"):
        dataset.migrate_manifest_paths_v2()
    assert names(tmp_path / "t") == before


STORES = pytest.mark.parametrize("has_store", [False, True])


@STORES
def test_a_handle_from_before_the_renaming_reads_and_refers_to_its_version(
    tmp_path: Path, has_store: bool
) -> None:
    store = SqliteManifestStore(tmp_path / "versions.db") if has_store else None
    before = made(tmp_path / "t", store)
    glaive.dataset(tmp_path / "t", manifest_store=store).migrate_manifest_paths_v2()
    assert before.checkout_version(1).count_rows() == 2
    before.tags.create("read", 2)
    assert before.create_branch("other").count_rows() == 4
    assert before.cleanup_old_versions(older_than=timedelta(days=1)).old_versions == 0
    assert pickle.loads(pickle.dumps(before)).count_rows() == 4


@STORES
@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.insert(ROWS),
        lambda dataset: dataset.delete("a = 1"),
        lambda dataset: dataset.restore(),
    ],
    ids=["insert", "delete", "restore"],
)
@pytest.mark.spec("rel-1")
def test_what_a_handle_from_before_the_renaming_commits_is_the_newest_version(
    tmp_path: Path, change: Callable[[glaive.LanceDataset], object], has_store: bool
) -> None:
    store = SqliteManifestStore(tmp_path / "versions.db") if has_store else None
    before = made(tmp_path / "t", store)
    glaive.dataset(tmp_path / "t", manifest_store=store).migrate_manifest_paths_v2()
    change(before)
    newest = glaive.dataset(tmp_path / "t", manifest_store=store)
    assert (before.version, newest.version) == (3, 3)
    assert newest.to_table() == before.to_table()
    assert [len(name) for name in names(tmp_path / "t")] == [29, 29, 29]


def test_a_handle_from_before_the_renaming_appends_to_what_was_committed_since(
    tmp_path: Path,
) -> None:
    before = made(tmp_path / "t", None)
    renamed = glaive.dataset(tmp_path / "t")
    renamed.migrate_manifest_paths_v2()
    renamed.delete("a = 1")
    before.insert(ROWS)
    assert (before.version, before.count_rows()) == (4, 4)
    renamed.cleanup_old_versions(older_than=timedelta(0), retain_versions=1)
    assert glaive.dataset(tmp_path / "t").count_rows() == 4


def test_a_handle_from_before_the_renaming_lists_changes_and_compares_checksums(
    tmp_path: Path,
) -> None:
    before = made(tmp_path / "t", None)
    glaive.dataset(tmp_path / "t").migrate_manifest_paths_v2()
    assert before.changes(1, 2).to_table().num_rows == 4
    assert before.changes(2, net=True).to_table().num_rows == 2
    compare_manifest(before.snapshot)


def test_a_handle_from_before_the_renaming_commits_segments_that_were_built_earlier(
    tmp_path: Path,
) -> None:
    before = made(tmp_path / "t", None)
    segments = [
        before.create_index_uncommitted("a", "BTREE", "a_idx", fragment_ids=[one.fragment_id])
        for one in before.get_fragments()
    ]
    before.insert(ROWS)
    before.insert(ROWS)
    glaive.dataset(tmp_path / "t").migrate_manifest_paths_v2()
    before.commit_existing_index_segments("a_idx", "a", segments)
    assert before.to_table(filter="a = 1").num_rows == 4


def test_an_older_version_with_an_old_name_gets_tags_and_branches_with_a_manifest_store(
    tmp_path: Path,
) -> None:
    store = SqliteManifestStore(tmp_path / "versions.db")
    newest = made(tmp_path / "t", store)
    newest.tags.create("by_number", 1)
    older = glaive.dataset(tmp_path / "t", version=1, manifest_store=store)
    older.tags.create("opened")
    branch = older.create_branch("other")
    branch.insert(ROWS)
    assert newest.checkout_version("opened").count_rows() == 2
    assert branch.count_rows() == 4


class Stopped(BaseException):
    """Stands for a signal."""


class Stopping(LocalStore):
    """A directory in which so many changes are made before the process ends."""

    left = 0

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        self._go_on()
        super().put(path, data, mode=mode)

    def delete(self, paths: Sequence[str]) -> None:
        self._go_on()
        super().delete(paths)

    def _go_on(self) -> None:
        if not self.left:
            raise Stopped
        self.left -= 1


@pytest.mark.spec("rel-17")
@pytest.mark.parametrize("versions", [3, 12])
def test_renaming_that_is_stopped_anywhere_leaves_the_newest_version_and_can_be_repeated(
    tmp_path: Path, versions: int
) -> None:
    for _ in range(versions):
        glaive.write_dataset(ROWS, tmp_path / "t", mode="append", enable_v2_manifest_paths=False)
    for changes in range(2 * versions):
        path = tmp_path / f"stopped after {changes}"
        shutil.copytree(tmp_path / "t", path)
        store = Stopping(path)
        store.left = changes
        with pytest.raises(Stopped):
            migrate_manifest_names(store)
        opened = glaive.dataset(path)
        assert (opened.version, opened.count_rows()) == (versions, 2 * versions)
        if {len(name) for name in names(path)} > {29}:
            with pytest.raises(CorruptFileError, match="was stopped, call it again"):
                opened.versions()
        added = glaive.write_dataset(ROWS, path, mode="append")
        added.migrate_manifest_paths_v2()
        assert [one["version"] for one in added.versions()] == list(range(1, versions + 2))
        assert {len(name) for name in names(path)} == {29}


def test_the_newest_version_is_never_passed_over_where_another_library_was_stopped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t"
    made(path, None)
    (path / "_versions/1.manifest").rename(path / f"_versions/{2**64 - 1 - 1:020d}.manifest")
    with pytest.raises(CorruptFileError, match="one naming scheme"):
        glaive.dataset(path)
    with pytest.raises(CorruptFileError, match="one naming scheme"):
        glaive.write_dataset(ROWS, path, mode="append")
    glaive.dataset(path, version=1).migrate_manifest_paths_v2()
    assert glaive.dataset(path).count_rows() == 4


class Late(WrappedStore):
    """A store whose listings lack the manifests of some versions."""

    def __init__(self, inner: ObjectStore, unseen: Sequence[int]) -> None:
        super().__init__(inner)
        self.unseen = {manifest_path(version, "V1") for version in unseen}

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        return (meta for meta in self.inner.list(prefix) if meta.path not in self.unseen)


@pytest.mark.spec("rel-4")
@pytest.mark.parametrize("unseen", [(2,), (1, 2)])
def test_versions_that_listings_do_not_show_yet_are_renamed_too(
    tmp_path: Path, unseen: Sequence[int]
) -> None:
    path = tmp_path / "t"
    made(path, None)
    assert migrate_manifest_names(Late(LocalStore(path), unseen)) == 2
    assert {len(name) for name in names(path)} == {29}
    assert glaive.dataset(path).count_rows() == 4
