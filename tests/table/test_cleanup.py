"""Cleaning up while others clean up the same dataset."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest

from glaive.errors import ObjectNotFoundError
from glaive.format.manifest import Manifest
from glaive.format.paths import manifest_path
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.table import cleanup
from glaive.table.cleanup import CleanupPlan, CleanupPolicy, delete_planned, plan_cleanup
from glaive.table.commit import commit_transaction
from glaive.table.root import guarded
from glaive.table.versions import ManifestLocation, list_versions

from .places import append, create

EVERYTHING = CleanupPolicy(older_than=timedelta(0))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "table")


@pytest.fixture
def newest(store: LocalStore) -> Manifest:
    """The last of four versions."""
    base = create(store)
    for _ in range(3):
        base = commit_transaction(store, append(base), base=base)
    return base


def manifests_of(plan: CleanupPlan) -> set[str]:
    return {one.path for one in plan.files if one.kind == "manifest"}


def test_versions_gone_since_they_were_listed_are_left_out(
    store: LocalStore, newest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(place: ObjectStore) -> list[ManifestLocation]:
        found = list_versions(place)
        store.delete([manifest_path(1)])
        return found

    monkeypatch.setattr(cleanup, "list_versions", listed)
    plan = plan_cleanup(store, store, newest, EVERYTHING)
    assert plan.versions == (2, 3)
    delete_planned(store, plan)
    assert [one.version for one in list_versions(store)] == [4]


def test_versions_gone_since_they_were_read_are_not_counted(
    store: LocalStore, newest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = cleanup.load_manifest

    def loaded(place: ObjectStore, location: ManifestLocation) -> Manifest:
        found = load(place, location)
        if location.version == 2:
            store.delete([location.path])
        return found

    monkeypatch.setattr(cleanup, "load_manifest", loaded)
    plan = plan_cleanup(store, store, newest, EVERYTHING)
    assert manifests_of(plan) == {manifest_path(1), manifest_path(3)}


def test_nothing_goes_when_a_version_that_is_there_cannot_be_read(
    store: LocalStore, newest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: ObjectStore, location: ManifestLocation) -> Manifest:
        raise ObjectNotFoundError(f"data file of version {location.version} is not there")

    monkeypatch.setattr(cleanup, "load_manifest", missing)
    with pytest.raises(ObjectNotFoundError, match="data file of version"):
        plan_cleanup(store, store, newest, EVERYTHING)


@pytest.mark.parametrize("locked", [False, True], ids=["plain", "with a commit lock"])
def test_what_a_writer_left_unfinished_a_week_ago_goes(
    store: LocalStore, newest: Manifest, *, locked: bool
) -> None:
    left = Path(store.root) / "data" / ".x.lance.0123.tmp"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"begun")
    week_ago = time.time() - 7.5 * 24 * 3600
    os.utime(left, (week_ago, week_ago))
    root = guarded(store, commit_lock=lambda _: nullcontext()) if locked else store
    delete_planned(root, plan_cleanup(root, root, newest, EVERYTHING))
    assert not left.exists()
