"""The manifest made or read last is known by its bytes, and the directory need not be listed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from glaive.errors import CommitConflictError
from glaive.format.manifest import Manifest, encode_manifest
from glaive.format.paths import HINT, VERSIONS, manifest_path
from glaive.format.pb import table_pb2
from glaive.io.local import LocalStore
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.table.commit import commit_transaction
from glaive.table.load import MANIFESTS, ManifestCache, load_manifest, open_latest, open_version
from glaive.table.manifest_registers import SqliteManifestStore
from glaive.table.manifest_store import ManifestEntry
from glaive.table.protocol import CommitOptions
from glaive.table.root import guarded
from glaive.table.versions import list_versions

from .places import append, create

V1 = CommitOptions(enable_v2_manifest_paths=False)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "table")


class Listed(WrappedStore):
    """A directory, and which folders of it were listed."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.folders: list[str] = []

    def names(self, prefix: str) -> Sequence[str] | None:
        self.folders.append(prefix)
        return super().names(prefix)

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        self.folders.append(prefix)
        return super().list(prefix)


class AskedRegister(SqliteManifestStore):
    """A register, and how often it was asked for the newest version."""

    times = 0

    def latest(self, root: str) -> ManifestEntry | None:
        self.times += 1
        return super().latest(root)


def test_the_version_just_made_is_not_parsed_again(store: LocalStore) -> None:
    base = create(store)
    made = commit_transaction(store, append(base), base=base)
    assert open_latest(store) is made
    assert open_version(store, 1) is not base  # only the newest is kept


def test_a_manifest_that_is_kept_says_what_its_file_says(store: LocalStore) -> None:
    base = create(store, options=CommitOptions(enable_stable_row_ids=True))
    for _ in range(3):
        base = commit_transaction(store, append(base), base=base)
    kept = open_latest(store)
    MANIFESTS.clear()
    read = open_latest(store)
    assert kept is base
    assert read is not kept
    assert read.wire == kept.wire
    assert (read.transaction, read.index_section, read.scheme, read.where) == (
        kept.transaction,
        kept.index_section,
        kept.scheme,
        kept.where,
    )
    assert read.count_rows() == kept.count_rows() == 40


def test_other_bytes_under_the_same_name_are_read(store: LocalStore) -> None:
    made = create(store)
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(made.wire)
    wire.config["changed"] = "yes"
    store.put(
        manifest_path(1),
        encode_manifest(wire, transaction=made.transaction or b"", index_section=None),
    )
    assert open_latest(store).config == {"changed": "yes"}
    assert open_latest(store, to_follow=True).config == {"changed": "yes"}


def test_a_manifest_without_rows_of_its_fragments_is_read_again(store: LocalStore) -> None:
    base = create(store)
    made = commit_transaction(store, append(base, rows=0), base=base)
    assert MANIFESTS.recall(store.get(manifest_path(2)), made.where) is None


@pytest.mark.parametrize(("max_bytes", "kept"), [(10, False), (10_000, True)])
def test_large_manifests_are_not_kept(store: LocalStore, max_bytes: int, kept: bool) -> None:
    create(store)
    cache = ManifestCache(max_bytes=max_bytes)
    assert (open_latest(store, cache=cache) is open_latest(store, cache=cache)) == kept


def test_few_datasets_are_kept_and_the_last_ones(tmp_path: Path) -> None:
    stores = [LocalStore(tmp_path / str(number)) for number in range(6)]
    made = [create(store) for store in stores]
    kept = [open_latest(stores[at]) is made[at] for at in (2, 3, 4, 5)]
    assert kept == [True] * 4
    assert open_latest(stores[0]) is not made[0]
    cache = ManifestCache(max_datasets=1)
    first = open_latest(stores[0], cache=cache)
    assert open_latest(stores[0], cache=cache) is first
    open_latest(stores[1], cache=cache)
    assert open_latest(stores[0], cache=cache) is not first


class TestFollowing:
    @pytest.mark.parametrize("options", [CommitOptions(), V1], ids=["V2", "V1"])
    def test_a_version_known_a_moment_ago_needs_no_listing(
        self, store: LocalStore, options: CommitOptions
    ) -> None:
        create(store, options=options)
        cache = ManifestCache(fresh_seconds=3600.0)  # however slow the machine is
        known, listed = open_latest(store, cache=cache), Listed(store)
        assert open_latest(listed, to_follow=True, cache=cache) is known
        assert listed.folders == []

    def test_the_version_just_made_needs_no_listing(self, store: LocalStore) -> None:
        base = create(store)
        for _ in range(20):  # a machine may stand still for a second, not each time
            base, listed = commit_transaction(store, append(base), base=base), Listed(store)
            assert open_latest(listed, to_follow=True) is base
            if not listed.folders:
                return
        pytest.fail("the directory was listed each time")

    def test_opening_for_reading_lists_a_directory_that_changed_a_moment_ago(
        self, store: LocalStore
    ) -> None:
        create(store)
        # However slow the machine is.
        cache = ManifestCache(step_seconds=3600.0, fine_step_seconds=3600.0)
        open_latest(store, cache=cache)
        listed = Listed(store)
        open_latest(listed, cache=cache)
        assert listed.folders == [VERSIONS]

    @pytest.mark.parametrize("options", [CommitOptions(), V1], ids=["V2", "V1"])
    def test_opening_lists_a_directory_once_that_nobody_changes(
        self, store: LocalStore, options: CommitOptions
    ) -> None:
        create(store, options=options)
        cache = ManifestCache(step_seconds=-3600.0, fine_step_seconds=-3600.0)
        known, listed = open_latest(store, cache=cache), Listed(store)
        assert open_latest(listed, cache=cache) is known
        assert listed.folders == []

    @pytest.mark.parametrize(("nanoseconds", "shows"), [(1, True), (0, False)])
    def test_times_with_parts_of_milliseconds_show_changes_sooner(
        self, nanoseconds: int, shows: bool
    ) -> None:
        a_second_ago = (time.time_ns() - 10**9) // 10**6 * 10**6 + nanoseconds
        seen = ManifestCache(step_seconds=3600.0).judge((1, a_second_ago, a_second_ago))
        assert seen is not None
        assert seen.shows_changes is shows

    def test_versions_of_others_are_seen_when_opening(self, store: LocalStore) -> None:
        base, cache = create(store), ManifestCache(step_seconds=-3600.0, fine_step_seconds=-3600.0)
        for version in range(2, 6):
            open_latest(store, cache=cache)
            base = commit_transaction(store, append(base), base=base)
            assert open_latest(store, cache=cache).version == version

    def test_a_version_that_was_restored_by_hand_is_seen_when_opening(
        self, store: LocalStore
    ) -> None:
        base, cache = create(store), ManifestCache(step_seconds=-3600.0, fine_step_seconds=-3600.0)
        commit_transaction(store, append(base), base=base)
        assert open_latest(store, cache=cache).version == 2
        store.delete([manifest_path(2)])
        assert open_latest(store, cache=cache).version == 1

    def test_what_a_commit_leaves_behind_does_not_spare_a_listing(self, store: LocalStore) -> None:
        create(store)  # by this process, which has not listed the directory
        listed = Listed(store)
        open_latest(listed)
        assert listed.folders == [VERSIONS]

    def test_a_second_later_the_directory_is_listed(self, store: LocalStore) -> None:
        create(store)
        cache = ManifestCache(fresh_seconds=-1.0)
        open_latest(store, cache=cache)
        listed = Listed(store)
        assert open_latest(listed, to_follow=True, cache=cache).version == 1
        assert listed.folders == [VERSIONS]

    def test_versions_of_others_are_seen(self, store: LocalStore) -> None:
        base, cache = create(store), ManifestCache()
        open_latest(store, cache=cache)
        for _ in range(3):  # by another process, whose cache is its own
            base = commit_transaction(store, append(base), base=base)
        assert open_latest(store, to_follow=True, cache=cache).version == 4

    def test_where_versions_are_registered_the_directory_does_not_tell(
        self, store: LocalStore
    ) -> None:
        register = AskedRegister(store.full("manifests.sqlite"))
        root = guarded(store, manifest_store=register)
        create(root)
        cache = ManifestCache(fresh_seconds=3600.0)
        open_latest(root, cache=cache)
        asked = register.times
        assert open_latest(root, to_follow=True, cache=cache).version == 1
        assert register.times > asked

    def test_a_version_that_is_gone_is_looked_for(self, store: LocalStore) -> None:
        base = create(store)
        commit_transaction(store, append(base), base=base)
        store.delete([manifest_path(2)])
        assert open_latest(store, to_follow=True).version == 1

    def test_versions_cleaned_up_meanwhile_are_no_gap_to_write_into(
        self, store: LocalStore
    ) -> None:
        base, cache = create(store), ManifestCache()
        open_latest(store, cache=cache)
        for _ in range(3):  # by another process, whose cache is its own
            base = commit_transaction(store, append(base), base=base)
        store.delete([manifest_path(2), manifest_path(3)])
        store.rewrite(HINT, b'{"version":1}')  # and the hint came late
        found = open_latest(store, to_follow=True, cache=cache)
        assert found.version == 4
        commit_transaction(store, append(found), base=found)
        assert [one.version for one in list_versions(store)] == [1, 4, 5]

    def test_a_commit_for_a_version_before_those_cleaned_up_is_refused(
        self, store: LocalStore
    ) -> None:
        first = base = create(store)
        for _ in range(3):
            base = commit_transaction(store, append(base), base=base)
        store.delete([manifest_path(2), manifest_path(3)])
        with pytest.raises(CommitConflictError, match="cleaned up"):
            commit_transaction(store, append(first), base=first)
        assert [one.version for one in list_versions(store)] == [1, 4]

    def test_a_directory_that_cannot_be_looked_at_is_not_known(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"no directory")
        assert LocalStore(tmp_path / "file").folder_state(VERSIONS) is None
        assert ManifestCache().newest(f"{tmp_path}/file/{VERSIONS}", None) is None


def test_versions_by_number_are_not_kept(store: LocalStore) -> None:
    made = create(store)
    MANIFESTS.clear()
    (location,) = list_versions(store)
    assert load_manifest(store, location) is not load_manifest(store, location)
    assert load_manifest(store, location).wire == made.wire


def test_versions_with_the_same_columns_share_their_schema(store: LocalStore) -> None:
    base = create(store)
    made = commit_transaction(store, append(base), base=base)
    assert made.schema is base.schema
    other = table_pb2.ManifestOutline()
    other.CopyFrom(made.wire)
    other.fields[0].name = "renamed"
    changed = Manifest(other, where="elsewhere")
    changed.share_schema(base)
    assert changed.schema.names == ["renamed", "name"]
