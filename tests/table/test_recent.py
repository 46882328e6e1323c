"""The manifest made or read last is known by its bytes, and the directory need not be listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from glaive.errors import CommitConflictError
from glaive.format.manifest import Manifest, encode_manifest
from glaive.format.paths import HINT, VERSIONS, manifest_path
from glaive.format.pb import table_pb2
from glaive.io.local import LocalStore
from glaive.io.store import ObjectMeta
from glaive.table import recent
from glaive.table.commit import commit_transaction
from glaive.table.load import load_manifest, open_latest, open_version
from glaive.table.protocol import CommitOptions
from glaive.table.versions import list_versions

from .places import append, create

V1 = CommitOptions(enable_v2_manifest_paths=False)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "table")


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Directories that are listed from now on."""
    seen: list[str] = []
    names, found = LocalStore.names, LocalStore.list

    def spied_names(self: LocalStore, prefix: str) -> Sequence[str]:
        seen.append(prefix)
        return names(self, prefix)

    def spied_list(self: LocalStore, prefix: str) -> Iterator[ObjectMeta]:
        seen.append(prefix)
        return found(self, prefix)

    monkeypatch.setattr(LocalStore, "names", spied_names)
    monkeypatch.setattr(LocalStore, "list", spied_list)
    return seen


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
    recent.KNOWN.clear()
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
    assert recent.recall(store.get(manifest_path(2)), made.where) is None


def test_large_manifests_are_not_kept(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "_MOST_BYTES", 10)
    made = create(store)
    assert open_latest(store) is not made


def test_few_datasets_are_kept_and_the_last_ones(tmp_path: Path) -> None:
    stores = [LocalStore(tmp_path / str(number)) for number in range(6)]
    made = [create(one) for one in stores]
    assert len(recent.KNOWN) <= recent.MOST
    kept = [open_latest(one) is it for one, it in zip(stores[-4:], made[-4:], strict=True)]
    assert kept == [True] * 4
    assert open_latest(stores[0]) is not made[0]


class TestFollowing:
    @pytest.mark.parametrize("options", [CommitOptions(), V1], ids=["V2", "V1"])
    def test_a_version_known_a_moment_ago_needs_no_listing(
        self,
        store: LocalStore,
        listings: list[str],
        options: CommitOptions,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(recent, "_FRESH_SECONDS", 3600.0)  # however slow the machine is
        made = create(store, options=options)
        listings.clear()
        assert open_latest(store, to_follow=True) is made
        assert listings == []

    def test_opening_for_reading_lists_always(self, store: LocalStore, listings: list[str]) -> None:
        create(store)
        listings.clear()
        open_latest(store)
        assert listings == [VERSIONS]

    def test_a_second_later_the_directory_is_listed(
        self, store: LocalStore, listings: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create(store)
        listings.clear()
        monkeypatch.setattr(recent, "_FRESH_SECONDS", -1.0)
        assert open_latest(store, to_follow=True).version == 1
        assert listings == [VERSIONS]

    def test_versions_of_others_are_seen(self, store: LocalStore) -> None:
        base = create(store)
        known = dict(recent.KNOWN)
        for _ in range(3):
            base = commit_transaction(store, append(base), base=base)
        recent.KNOWN.update(known)  # as if another process had made them
        assert open_latest(store, to_follow=True).version == 4

    def test_a_version_that_is_gone_is_looked_for(self, store: LocalStore) -> None:
        base = create(store)
        commit_transaction(store, append(base), base=base)
        store.delete([manifest_path(2)])
        assert open_latest(store, to_follow=True).version == 1

    def test_versions_cleaned_up_meanwhile_are_no_gap_to_write_into(
        self, store: LocalStore
    ) -> None:
        base = create(store)
        known = dict(recent.KNOWN)
        for _ in range(3):
            base = commit_transaction(store, append(base), base=base)
        store.delete([manifest_path(2), manifest_path(3)])
        recent.KNOWN.update(known)  # as if another process had done all that
        store.rewrite(HINT, b'{"version":1}')  # and the hint came late
        found = open_latest(store, to_follow=True)
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
        assert recent.state_of(LocalStore(tmp_path / "file")) is None
        assert recent.newest_known(f"{tmp_path}/file/{VERSIONS}", None) is None


def test_versions_by_number_are_not_kept(store: LocalStore) -> None:
    made = create(store)
    recent.KNOWN.clear()
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
