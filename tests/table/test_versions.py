"""Versions are found by listing, in both naming schemes, at little cost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest

from glaive.dataset.dataset import LanceDataset
from glaive.errors import (
    CorruptFileError,
    DatasetNotFoundError,
    NotFoundError,
    NotLanceError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from glaive.format.paths import DETACHED, HINT, manifest_path
from glaive.io.local import LocalStore
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.table.cleanup import CleanupPolicy, plan_cleanup
from glaive.table.commit import commit_transaction
from glaive.table.load import describe_versions, find_transaction, open_latest, open_version
from glaive.table.protocol import CommitOptions
from glaive.table.refs import list_tags
from glaive.table.versions import latest, list_versions, read_hint, write_hint
from glaive.testing import CountingStore, Fault

from .places import KINDS, append, change_newest, create, make_store

V1 = CommitOptions(enable_v2_manifest_paths=False)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return make_store(request.param, tmp_path)


@pytest.mark.spec("latest-1")
@pytest.mark.parametrize("options", [CommitOptions(), V1], ids=["V2", "V1"])
def test_the_newest_version_is_opened(store: ObjectStore, options: CommitOptions) -> None:
    base = create(store, options=options)
    for _ in range(11):
        base = commit_transaction(store, append(base), base=base)
    assert open_latest(store).version == 12
    assert open_latest(store).scheme == options.scheme
    assert [one.version for one in list_versions(store)] == list(range(1, 13))
    assert open_version(store, 3).num_fragments == 3


class DirectoryBucket(WrappedStore):
    """A store whose listings are in no order, as those of S3 Express One Zone are."""

    lists_in_order = False  # type: ignore[assignment]  # a property of the base class

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        found = list(super().list(prefix))
        return iter(found[2:] + found[:2])

    def names(self, prefix: str) -> None:
        return None

    def folder_state(self, prefix: str) -> None:
        return None


@pytest.mark.spec("latest-1")
@pytest.mark.parametrize("options", [CommitOptions(), V1], ids=["V2", "V1"])
def test_the_newest_version_is_opened_where_listings_are_in_no_order(
    store: ObjectStore, options: CommitOptions
) -> None:
    base = create(store, options=options)
    for _ in range(4):
        base = commit_transaction(store, append(base), base=base)
    bucket = DirectoryBucket(store)
    assert open_latest(bucket).version == 5
    assert [one.version for one in list_versions(bucket)] == [1, 2, 3, 4, 5]


def test_opening_costs_one_listing_and_one_read(store: ObjectStore) -> None:
    create(store)
    counting = CountingStore(store)
    open_latest(counting)
    assert [request.method for request in counting.log] == ["list", "get"]


def test_a_version_that_is_not_there_is_reported_with_those_that_are(store: ObjectStore) -> None:
    base = create(store)
    commit_transaction(store, append(base), base=base)
    for version in (3, 0, -1, 2**70):
        with pytest.raises(NotFoundError, match=rf"version {version} of .*newest is 2.*1, 2"):
            open_version(store, version)


@pytest.mark.spec("dir-1")
def test_a_place_without_manifests_is_no_dataset(store: ObjectStore) -> None:
    store.put("data/x.lance", [b"x"])
    with pytest.raises(DatasetNotFoundError, match=r"was not found: .*_versions.*write_dataset"):
        open_latest(store)
    with pytest.raises(DatasetNotFoundError):
        open_version(store, 1)


@pytest.mark.spec("name-4", "name-5")
def test_other_files_beside_manifests_are_ignored(store: ObjectStore) -> None:
    create(store)
    for name in ("1.manifest#1", "notes.txt", "d9223372036854775815.manifest"):
        store.put(f"_versions/{name}", [b"x"])
    assert open_latest(store).version == 1
    assert len(list_versions(store)) == 1


@pytest.mark.spec("name-3")
def test_two_naming_schemes_in_one_place_are_damage(store: ObjectStore) -> None:
    create(store)
    for version in (1, 2):
        store.put(manifest_path(version, "V1"), [b"x"])
        with pytest.raises(CorruptFileError, match="one naming scheme"):
            list_versions(store)
    with pytest.raises(CorruptFileError, match="one naming scheme"):
        open_latest(store)


@pytest.mark.parametrize("keep", [0, 10, 100, -1, -5])
def test_a_manifest_that_was_cut_off_is_reported(tmp_path: Path, keep: int) -> None:
    store = LocalStore(tmp_path)
    create(store)
    path = latest(store).path
    data = store.get(path).to_pybytes()
    store.put(path, [data[:keep]])
    with pytest.raises((NotLanceError, CorruptFileError), match=r"18446744073709551614\.manifest"):
        open_latest(store)


def test_a_version_that_needs_unknown_features_is_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    create(store)
    change_newest(store, reader_feature_flags=1 << 30)
    with pytest.raises(UnsupportedFeatureError, match="flag 30"):
        open_latest(store)


@pytest.mark.spec("name-6")
def test_a_manifest_under_the_name_of_another_version_is_damage(store: ObjectStore) -> None:
    create(store)
    store.put(manifest_path(2), [store.get(manifest_path(1))])
    with pytest.raises(CorruptFileError, match=r"expected 2, as in its name, found 1"):
        open_latest(store)
    with pytest.raises(CorruptFileError, match=r"expected 2, as in its name, found 1"):
        open_version(store, 2)


@pytest.mark.parametrize("options", [CommitOptions(), V1], ids=["V2", "V1"])
def test_there_is_no_version_0(store: ObjectStore, options: CommitOptions) -> None:
    """A commit would make the first version, without the rows of this one."""
    base = create(store, options=options)
    change_newest(store, version=0)
    store.put(manifest_path(0, base.scheme), [store.get(manifest_path(1, base.scheme))])
    store.delete([manifest_path(1, base.scheme)])
    with pytest.raises(CorruptFileError, match=r"expected a number from 1 on, as in its name"):
        open_latest(store)


def test_versions_are_described(store: ObjectStore) -> None:
    base = create(store, rows=7)
    commit_transaction(store, append(base, 5), base=base)
    first, second = describe_versions(store)
    assert (first.version, second.version) == (1, 2)
    assert first.timestamp <= second.timestamp
    assert second.metadata == {
        "total_data_file_rows": "12",
        "total_data_files": "2",
        "total_deletion_file_rows": "0",
        "total_deletion_files": "0",
        "total_files_size": "198",
        "total_fragments": "2",
        "total_rows": "12",
    }


def test_the_hint_is_written_and_read(store: ObjectStore) -> None:
    assert read_hint(store) is None
    for version in (9, 8, 10, 11, 99, 100):
        write_hint(store, version)
        assert store.get(HINT).to_pybytes() == b'{"version":%d}' % version
        assert read_hint(store) == version


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"7", b"{}", b'{"version":"x"}', b"\xff", b"[]", b'{"version":true}'),
        b'{"version":%d}' % DETACHED,
        b'{"version":%d}' % 10**400,  # no file system has names of so many digits
    ],
)
def test_a_hint_that_says_nothing_is_none(store: ObjectStore, content: bytes) -> None:
    store.put(HINT, [content])
    assert read_hint(store) is None


def test_a_version_cleaned_up_while_versions_are_described_is_left_out(store: ObjectStore) -> None:
    base = create(store)
    commit_transaction(store, append(base), base=base)

    class CleanedUp(CountingStore):
        def list(self, prefix: str) -> Iterator[ObjectMeta]:
            listed = list(super().list(prefix))
            self.inner.delete([manifest_path(1)])
            return iter(listed)

    assert [one.version for one in describe_versions(CleanedUp(store))] == [2]


class FourAtATime(WrappedStore):
    """A store over a network that answers for manifests and tags when four are asked for."""

    is_remote = True

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.asked = Barrier(4, timeout=20)

    def get(self, path: str) -> pa.Buffer:
        if path.endswith(".manifest") or path.startswith("_refs/"):
            self.asked.wait()
        return self.inner.get(path)


def test_manifests_and_tags_over_a_network_are_asked_for_side_by_side(store: ObjectStore) -> None:
    base = create(store)
    for _ in range(7):
        base = commit_transaction(store, append(base), base=base)
    remote = FourAtATime(store)
    assert [one.version for one in describe_versions(remote)] == list(range(1, 9))
    recent = LanceDataset.of(remote, base).get_transactions(8)
    assert [one.read_version for one in recent if one] == [*range(7, -1, -1)]
    assert find_transaction(remote, 0, "job", "of nobody") is None
    planned = plan_cleanup(remote, remote, base, CleanupPolicy(retain_versions=1))
    assert planned.versions == tuple(range(1, 8))
    tags = LanceDataset.of(store, base).tags
    for version in range(1, 5):
        tags.create(f"v{version}", version)
    assert [tag.version for tag in list_tags(remote).values()] == [1, 2, 3, 4]


@pytest.mark.spec("commit-4")
def test_a_hint_that_cannot_be_written_is_logged(
    store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    counting = CountingStore(store)
    counting.inject(Fault(at=1, method="put", path=HINT))
    with caplog.at_level(logging.DEBUG):
        base = create(counting)
    assert base.version == open_latest(store).version == 1
    assert "version hint" in caplog.text


def test_a_version_that_goes_before_it_is_read_is_looked_for_again(store: ObjectStore) -> None:
    base = create(store)
    commit_transaction(store, append(base), base=base)
    counting = CountingStore(store)
    counting.inject(Fault(at=1, method="get", error=ObjectNotFoundError("cleaned up")))
    assert open_latest(counting).version == 2
    counting.inject(Fault(at=1, method="get", error=ObjectNotFoundError("gone"), forever=True))
    with pytest.raises(ObjectNotFoundError, match="gone"):
        open_latest(counting)
