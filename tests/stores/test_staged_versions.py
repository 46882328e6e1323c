"""Versions that are registered, but not finished, behind the newest one: nothing loses them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

import glaive
from glaive.errors import (
    CleanupError,
    FormatError,
    ObjectNotFoundError,
    StoreError,
    VersionNotFoundError,
)
from glaive.format.paths import manifest_path
from glaive.io.store import ObjectStore
from glaive.table.load import open_latest, open_version
from glaive.table.manifest_registers import SqliteManifestStore
from glaive.table.manifest_store import ManifestEntry
from glaive.table.root import open_root
from glaive.table.versions import list_versions

from .registers import Faulty

ROWS = pa.table({"id": range(10)})


@pytest.fixture
def register(tmp_path: Path) -> Faulty:
    return Faulty(SqliteManifestStore(tmp_path / "m.sqlite"))


@pytest.fixture
def root(tmp_path: Path, register: Faulty) -> ObjectStore:
    """Four versions of one handle; the second is registered only, and has a file of its own."""
    store = open_root(tmp_path / "t", manifest_store=register)
    glaive.write_dataset(ROWS, str(tmp_path / "t"), manifest_store=register)
    dataset = glaive.LanceDataset.of(store, open_latest(store))
    register.before = {"put_if_exists": StoreError("no answer")}
    dataset.delete("id < 5")
    register.before = {}
    dataset.insert(ROWS, mode="overwrite")
    dataset.insert(ROWS)
    store.delete([manifest_path(2)])  # as if the third step had failed, not the fourth
    return store


def opened(root: ObjectStore) -> glaive.LanceDataset:
    return glaive.LanceDataset.of(root, open_latest(root))


def staged(root: ObjectStore) -> list[str]:
    return [meta.path for meta in root.list("_versions") if ".manifest-" in meta.path]


@pytest.mark.spec("rel-1", "rel-22", "external-2")
def test_a_listing_finishes_them(root: ObjectStore) -> None:
    assert len(staged(root)) == 1
    assert [one.version for one in list_versions(root)] == [1, 2, 3, 4]
    assert list_versions(root)[1].path == manifest_path(2)
    assert staged(root) == []


@pytest.mark.spec("rel-45")
def test_a_link_that_a_stranger_registered_brings_no_other_file_into_the_dataset(
    tmp_path: Path,
) -> None:
    (tmp_path / "id_rsa").write_bytes(b"-----BEGIN PRIVATE KEY-----" * 9)
    where = tmp_path / "t"
    glaive.write_dataset(ROWS, where, manifest_store="sqlite")
    link = f"{manifest_path(2)}-{UUID('f' * 32)}"
    register = SqliteManifestStore(where / "_manifests.sqlite")
    for target in (tmp_path / "id_rsa", where / manifest_path(1)):
        (where / link).symlink_to(target)
        register.put_if_absent(str(where), ManifestEntry(version=2, path=link, size=None))
        with pytest.raises(FormatError, match=link):
            glaive.dataset(where, manifest_store="sqlite")
        assert not (where / manifest_path(2)).exists()
        (where / link).unlink()


@pytest.mark.spec("rel-22", "external-2")
@pytest.mark.parametrize("digit", ["0", "f"])
def test_a_listing_has_them_once_where_writers_competed(
    root: ObjectStore, register: Faulty, digit: str
) -> None:
    suffix = "-" + str(UUID(digit * 32))
    root.put(manifest_path(2) + suffix, [b"of the one that lost"])
    (registered,) = [path for path in staged(root) if not path.endswith(suffix)]
    register.calls.clear()
    found = [(one.version, one.path) for one in list_versions(root)]
    assert found == [(version, manifest_path(version)) for version in (1, 2, 3, 4)]
    assert registered not in staged(root)
    assert register.calls["get"] == 1
    opened(root).cleanup_old_versions(timedelta(days=1))


@pytest.mark.spec("rel-14")
def test_a_clean_up_keeps_the_files_of_those_with_a_tag(
    root: ObjectStore, register: Faulty
) -> None:
    register.before = {"put_if_exists": StoreError("no answer")}
    opened(root).tags.create("good", 2)
    register.before = {}
    root.delete([manifest_path(2)])
    opened(root).cleanup_old_versions(
        timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )
    assert [one["version"] for one in opened(root).versions()] == [2, 4]
    assert opened(root).checkout_version("good").to_table()["id"].to_pylist() == [5, 6, 7, 8, 9]


def test_a_clean_up_deletes_those_without_one_for_good(root: ObjectStore) -> None:
    opened(root).cleanup_old_versions(timedelta(0))
    assert staged(root) == []
    with pytest.raises(VersionNotFoundError, match=r"Existing versions: 4\."):
        open_version(root, 2)


def test_what_cannot_be_finished_is_listed_and_stops_a_clean_up(
    root: ObjectStore, register: Faulty
) -> None:
    register.before = {"put_if_exists": StoreError("no answer")}
    path = staged(root)[0]
    locations = list_versions(root)
    assert [one.version for one in locations] == [1, 2, 3, 4]
    root.delete([manifest_path(2)])
    with pytest.raises(CleanupError, match=r"version 2 .* under its final name\. Clean up again"):
        opened(root).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert staged(root) == [path]
    register.before = {}
    opened(root).cleanup_old_versions(timedelta(0))
    assert [one.version for one in list_versions(root)] == [4]


def test_what_was_staged_and_not_registered_is_no_version(root: ObjectStore) -> None:
    left = f"{manifest_path(7)}-00000000-0000-4000-8000-000000000000"
    root.put(left, [b"of a writer that ended before its second step"])
    assert [one.version for one in list_versions(root)] == [1, 2, 3, 4]
    assert staged(root) == [left]


def test_what_was_finished_and_cleaned_up_does_not_come_back(
    root: ObjectStore, register: Faulty
) -> None:
    """The staged manifest is still there: its deletion has failed."""
    path = staged(root)[0]
    content = root.get(path).to_pybytes()
    list_versions(root)
    root.put(path, [content])
    assert [one.version for one in list_versions(root)] == [1, 2, 3, 4]
    root.delete([manifest_path(2)])
    assert [one.version for one in list_versions(root)] == [1, 3, 4]
    with pytest.raises(ObjectNotFoundError):
        root.head(manifest_path(2))
    found = register.get(root.uri, 2)
    assert found == ManifestEntry(version=2, path=manifest_path(2), size=len(content))
