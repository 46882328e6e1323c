"""Cleaning up while others clean up the same dataset."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from tests.kit.replaced import replaced_clock

import glaive
from glaive.errors import CleanupError, CommitConflictError, ObjectNotFoundError, StoreError
from glaive.format.manifest import Manifest
from glaive.format.paths import DETACHED, HINT, manifest_path
from glaive.io.local import LocalStore
from glaive.io.store import ObjectMeta
from glaive.io.wrapped import WrappedStore
from glaive.process import Clock
from glaive.table.cleanup import (
    IN_PROCESS,
    CleanupPlan,
    CleanupPolicy,
    CleanupWork,
    delete_planned,
    plan_cleanup,
)
from glaive.table.commit import commit_transaction
from glaive.table.load import open_version
from glaive.table.operations.overwrite import Append
from glaive.table.references import FileSet
from glaive.table.refs import Tag, create_tag, list_tags
from glaive.table.root import guarded
from glaive.table.versions import list_versions, list_versions_past, read_hint
from glaive.testing import CountingStore, Fault

from .pieces import InPieces
from .places import StaleListing, append, create, overwrite

EVERYTHING = CleanupPolicy(older_than=timedelta(0))


@pytest.fixture(params=[IN_PROCESS, InPieces()], ids=["whole", "in pieces"])
def work(request: pytest.FixtureRequest) -> CleanupWork:
    """Where parts of a clean-up run."""
    found: CleanupWork = request.param
    return found


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
    store: LocalStore, newest: Manifest, work: CleanupWork
) -> None:
    class Listed(WrappedStore):
        def list(self, prefix: str) -> Iterator[ObjectMeta]:
            found = [*super().list(prefix)]
            self.delete([manifest_path(1)])
            return iter(found)

    plan = plan_cleanup(Listed(store), store, newest, EVERYTHING, work)
    assert plan.versions == (2, 3)
    delete_planned(store, plan, work=work)
    assert [one.version for one in list_versions(store)] == [4]


def test_versions_gone_since_they_were_read_are_not_counted(
    store: LocalStore, newest: Manifest, work: CleanupWork
) -> None:
    class Read(WrappedStore):
        def get(self, path: str) -> pa.Buffer:
            found = super().get(path)
            if path == manifest_path(2):
                self.delete([path])
            return found

    plan = plan_cleanup(Read(store), store, newest, EVERYTHING, work)
    assert manifests_of(plan) == {manifest_path(1), manifest_path(3)}


def test_sizes_of_manifests_are_those_of_a_listing(
    store: LocalStore, newest: Manifest, work: CleanupWork
) -> None:
    """Not one request for each, of thousands."""
    counted = CountingStore(store)
    plan = plan_cleanup(counted, counted, newest, EVERYTHING, work)
    sizes = {one.path: one.size for one in plan.files if one.kind == "manifest"}
    assert sizes == {manifest_path(at): store.head(manifest_path(at)).size for at in (1, 2, 3)}
    asked = {one.path for one in counted.log if one.method == "head"}
    assert asked.isdisjoint(sizes)
    stale = StaleListing(store, newest=2)
    assert manifests_of(plan_cleanup(stale, store, newest, EVERYTHING, work)) == set(sizes)


def test_nothing_goes_when_a_version_that_is_there_cannot_be_read(
    store: LocalStore, newest: Manifest, work: CleanupWork
) -> None:
    class Missing(WrappedStore):
        def get(self, path: str) -> pa.Buffer:
            raise ObjectNotFoundError(f"a file that {path} needs is not there")

    with pytest.raises(ObjectNotFoundError, match="needs is not there"):
        plan_cleanup(Missing(store), store, newest, EVERYTHING, work)


def test_files_of_versions_that_a_stale_listing_does_not_show_stay(
    store: LocalStore, work: CleanupWork
) -> None:
    first = create(store)
    second = commit_transaction(store, append(first), base=first)
    third = commit_transaction(store, append(second), base=second)
    fourth = commit_transaction(store, overwrite(third), base=third)
    store.delete([manifest_path(2)])  # by another clean-up
    wanted = [file for one in third.fragments() for file in one.files]
    paths = [Path(store.root, "data", file.path) for file in wanted]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"rows")

    policy = CleanupPolicy(retain_versions=2, delete_unverified=True)
    plan = plan_cleanup(StaleListing(store, newest=1), store, fourth, policy, work)
    assert plan.versions == (1,)
    delete_planned(store, plan, work=work)
    assert [path.exists() for path in paths] == [True, True, True]


@pytest.mark.usefixtures("newest")
def test_a_listing_that_lacks_thousands_of_versions_is_no_ground_to_delete(
    store: LocalStore,
) -> None:
    for later in (10_004, 10_005):
        store.put(manifest_path(later), [store.get(manifest_path(4)).to_pybytes()])
    stale = StaleListing(store, newest=4)
    for known, found in (10_004, [10_004, 10_005]), (DETACHED | 20_000, []):
        versions = [one.version for one in list_versions_past(stale, known)]
        assert versions == [1, 2, 3, 4, *found]
    with pytest.raises(CleanupError, match="ends at version 4, and version 10005 was made"):
        list_versions_past(stale, 10_005)


@pytest.mark.usefixtures("newest")
def test_a_stale_listing_is_no_ground_to_delete_where_the_opened_version_is_deleted(
    store: LocalStore,
) -> None:
    """Another clean-up deleted it, so later versions cannot be asked for one after the other."""
    store.delete([manifest_path(2), manifest_path(3)])
    assert [one.version for one in list_versions_past(store, 3)] == [1, 4]
    with pytest.raises(CleanupError, match="ends at version 1, and version 3 was made"):
        list_versions_past(StaleListing(store, newest=1), 3)


@pytest.mark.spec("rel-2")
@pytest.mark.parametrize("hint", [True, False], ids=["with a hint", "without"])
def test_files_of_a_version_stay_where_all_listed_before_it_but_a_tagged_one_were_deleted(
    store: LocalStore, hint: bool, work: CleanupWork
) -> None:
    """Another clean-up deleted those that are listed, and the next one, after this one began."""
    first = create(store)
    second = commit_transaction(store, append(first), base=first)
    third = commit_transaction(store, append(second), base=second)
    fourth = commit_transaction(store, append(third), base=third)
    store.put("_refs/tags/origin.json", [b'{"version":1,"manifestSize":0}'])
    files = [Path(store.root, "data", one.path) for it in fourth.fragments() for one in it.files]
    for path in files:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"rows")
        os.utime(path, (0, 0))
    stale = StaleListing(store, newest=2)
    store.delete([manifest_path(2), manifest_path(3), *([] if hint else [HINT])])
    policy = CleanupPolicy(older_than=timedelta(0), error_if_tagged=False)
    with nullcontext() if hint else pytest.raises(CleanupError, match="cleaned up version 2"):
        delete_planned(store, plan_cleanup(stale, store, second, policy, work), work=work)
    assert all(path.exists() for path in files)


@pytest.mark.parametrize("hint", [10_000, 3, 99])
def test_hints_of_versions_that_are_not_there_say_nothing_of_what_there_is(
    store: LocalStore, newest: Manifest, hint: int
) -> None:
    store.put(HINT, [b'{"version":%d}' % hint])
    assert [one.version for one in list_versions_past(store, newest.version)] == [1, 2, 3, 4]


@pytest.mark.spec("rel-2")
@pytest.mark.parametrize("hint", [b'{"version":1}', None], ids=["old", "none"])
def test_a_late_commit_does_not_take_the_place_of_a_version_that_goes(
    store: LocalStore, newest: Manifest, hint: bytes | None, work: CleanupWork
) -> None:
    """The writers after it ended before they moved the hint."""
    first, stale = open_version(store, 1), StaleListing(store, newest=1)
    if hint is None:
        store.delete([HINT])
    else:
        store.put(HINT, [hint])
    delete_planned(store, plan_cleanup(store, store, newest, EVERYTHING, work), work=work)
    with pytest.raises(CommitConflictError, match="cleaned up"):
        commit_transaction(stale, append(first), base=first)
    assert [one.version for one in list_versions(store)] == [4]


@pytest.mark.spec("rel-2")
def test_no_version_goes_while_the_hint_cannot_name_the_newest_one(
    store: LocalStore, newest: Manifest, work: CleanupWork
) -> None:
    store.delete([HINT])
    failing = CountingStore(store)
    failing.inject(Fault(at=1, kind="fail", method="put", path=HINT, forever=True))
    plan = plan_cleanup(failing, failing, newest, EVERYTHING, work)
    with pytest.raises(StoreError, match="hint"):
        delete_planned(failing, plan, work=work)
    assert [one.version for one in list_versions(store)] == [1, 2, 3, 4]


def test_a_hint_of_a_later_version_stays(
    store: LocalStore, newest: Manifest, work: CleanupWork
) -> None:
    plan = plan_cleanup(store, store, newest, EVERYTHING, work)
    commit_transaction(store, append(newest), base=newest)
    delete_planned(store, plan, work=work)
    assert read_hint(store) == 5


@pytest.mark.parametrize("locked", [False, True], ids=["plain", "with a commit lock"])
def test_what_a_writer_left_unfinished_a_week_ago_goes(
    store: LocalStore, newest: Manifest, work: CleanupWork, *, locked: bool
) -> None:
    left = Path(store.root) / "data" / ".x.lance.0123.tmp"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"begun")
    week_ago = time.time() - 7.5 * 24 * 3600
    os.utime(left, (week_ago, week_ago))
    root = guarded(store, commit_lock=lambda _: nullcontext()) if locked else store
    delete_planned(root, plan_cleanup(root, root, newest, EVERYTHING, work), work=work)
    assert not left.exists()


@pytest.mark.spec("rel-15")
def test_what_pylance_left_unfinished_a_week_ago_goes(
    store: LocalStore, newest: Manifest, work: CleanupWork
) -> None:
    folders = ("data", "_deletions", "_transactions", "_versions", f"_indices/{UUID(int=7)}")
    left = [Path(store.root, folder, f".tmp{name}") for folder in folders for name in OTHERS]
    week_ago = time.time() - 7.5 * 24 * 3600
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"begun")
        if not path.name.endswith("young1"):
            os.utime(path, (week_ago, week_ago))
    delete_planned(store, plan_cleanup(store, store, newest, EVERYTHING, work), work=work)
    assert [path.name for path in left if path.exists()] == [".tmpyoung1", ".tmp-mine.txt"] * 5
    assert store.head(manifest_path(4)).size


OTHERS = ("FO4P9F", "young1", "-mine.txt")


@pytest.mark.spec("clean-4")
@pytest.mark.parametrize("folder", ["_refs/tags", "_refs/branches"])
def test_what_was_left_of_writing_tags_and_branches_a_week_ago_goes(
    store: LocalStore, newest: Manifest, work: CleanupWork, folder: str
) -> None:
    drawn = "7143b06e5a254046ad75c5f5e24d2eb5"
    goes = {
        ".tmpBYz7wB",
        f"a%2Fb.json.tmp.{drawn}",
        f"v1.json.tmp.{drawn}#1",
        ".v1.json.0123456789abcdef.tmp",
    }
    stays = {
        "notes.txt",
        f"v1.json.tmp.{drawn[1:]}",
        f"v1.json.tmp.{drawn}#mine",
        f"v1.tmp.{drawn}",
        ".notes.txt.0123456789abcdef.tmp",
    }
    above, below = Path(store.root, "_refs"), Path(store.root, folder, "mine")
    below.mkdir(parents=True)
    for path in (above, below):
        (path / ".tmpBYz7wB").write_bytes(b"begun")
    for name in goes | stays:
        Path(store.root, folder, name).write_bytes(b"begun")

    def cleaned(age: float) -> set[str]:
        for path in above.rglob("*"):
            os.utime(path, (time.time() - age, time.time() - age))
        plan = plan_cleanup(store, store, newest, EVERYTHING, work)
        delete_planned(store, plan, work=work)
        assert {one.kind for one in plan.files if one.path.startswith("_refs")} <= {"ref"}
        return {path.name for path in Path(store.root, folder).iterdir() if path.is_file()}

    assert cleaned(6.5 * 24 * 3600) == goes | stays
    assert cleaned(7.5 * 24 * 3600) == stays
    assert (above / ".tmpBYz7wB").exists()
    assert (below / ".tmpBYz7wB").exists()


def test_tags_and_branches_are_no_files_to_be_cleaned_up(
    store: LocalStore, newest: Manifest, work: CleanupWork
) -> None:
    name = "old.json.tmp.7143b06e5a254046ad75c5f5e24d2eb5"
    create_tag(store, name, Tag(version=newest.version))
    nobody_writes = replace(EVERYTHING, delete_unverified=True)
    year_ago = time.time() - 365 * 24 * 3600
    (tag,) = Path(store.root, "_refs/tags").iterdir()
    os.utime(tag, (year_ago, year_ago))
    delete_planned(store, plan_cleanup(store, store, newest, nobody_writes, work), work=work)
    assert len(list_tags(store)) == 1


INDEX, BLOBS = f"_indices/{UUID(int=7)}", "data/" + "01" * 12 + "ab" * 13


@pytest.fixture
def empty_folders(store: LocalStore) -> dict[str, Path]:
    """Empty folders with names of writers and of others, a week old or just made."""
    made = {name: Path(store.root, name) for name in (INDEX, BLOBS, "_indices/mine", "data/mine")}
    week_ago = time.time() - 7.5 * 24 * 3600
    for path in made.values():
        path.mkdir(parents=True)
        os.utime(path, (week_ago, week_ago))
    made["just made"] = Path(store.root, f"_indices/{UUID(int=8)}")
    made["just made"].mkdir()
    return made


def test_empty_folders_of_indices_and_blobs_go_after_a_week(
    store: LocalStore, newest: Manifest, empty_folders: dict[str, Path], work: CleanupWork
) -> None:
    delete_planned(store, plan_cleanup(store, store, newest, EVERYTHING, work), work=work)
    left = {name for name, path in empty_folders.items() if path.exists()}
    assert left == {"_indices/mine", "data/mine", "just made"}


def test_an_empty_folder_that_is_a_week_old_goes(
    store: LocalStore, newest: Manifest, empty_folders: dict[str, Path], work: CleanupWork
) -> None:
    class Later(Clock):
        def now_ns(self) -> int:
            return week_later

    just_made = empty_folders["just made"]
    made = int(time.time())
    os.utime(just_made, (made, made))
    week_later = (made + 7 * 24 * 3600 - 1) * 1_000_000_000
    folder = just_made.relative_to(store.root).as_posix()
    with replaced_clock(Later()):
        assert folder not in plan_cleanup(store, store, newest, EVERYTHING, work).folders
        week_later += 1_000_000_000
        assert folder in plan_cleanup(store, store, newest, EVERYTHING, work).folders


def test_a_plan_says_of_which_files_no_version_knows(
    store: LocalStore, newest: Manifest, work: CleanupWork
) -> None:
    store.put("data/0123456789abcdef0123456789abcdef.lance", [b"1"])
    policy = CleanupPolicy(older_than=timedelta(0), delete_unverified=True)
    unverified = {
        one.path for one in plan_cleanup(store, store, newest, policy, work).files if one.unverified
    }
    assert unverified == {"data/0123456789abcdef0123456789abcdef.lance"}


@pytest.mark.spec("rel-14")
def test_versions_that_an_empty_tag_may_be_of_are_kept(
    store: LocalStore, newest: Manifest, work: CleanupWork
) -> None:
    """As a power failure leaves it: nobody knows which version it was made for."""
    store.put("_refs/tags/kept.json", [b""])
    plan = plan_cleanup(store, store, newest, EVERYTHING, work)
    assert plan.versions == ()
    assert not manifests_of(plan)
    assert any("kept.json is empty, so its version is unknown" in one for one in plan.warnings)


def test_a_folder_just_made_goes_if_nobody_writes(
    store: LocalStore, newest: Manifest, empty_folders: dict[str, Path], work: CleanupWork
) -> None:
    policy = CleanupPolicy(older_than=timedelta(0), delete_unverified=True)
    delete_planned(store, plan_cleanup(store, store, newest, policy, work), work=work)
    assert not empty_folders["just made"].exists()


def test_the_folder_goes_with_the_last_of_its_files(
    store: LocalStore, newest: Manifest, work: CleanupWork
) -> None:
    for name in ("index.idx", "notes.txt"):
        store.put(f"{INDEX}/{name}", [b"1"])
    store.put(f"{BLOBS}/{'0' * 32}.blob", [b"1"])
    policy = CleanupPolicy(older_than=timedelta(0), delete_unverified=True)
    delete_planned(store, plan_cleanup(store, store, newest, policy, work), work=work)
    assert [meta.path for meta in store.walk("_indices")] == [f"{INDEX}/notes.txt"]
    assert not Path(store.root, BLOBS).exists()


def test_a_folder_stays_if_a_writer_fills_it_after_the_plan(
    store: LocalStore, newest: Manifest, empty_folders: dict[str, Path], work: CleanupWork
) -> None:
    plan = plan_cleanup(store, store, newest, EVERYTHING, work)
    assert set(plan.folders) == empty_folders.keys() & {INDEX, BLOBS}
    store.put(f"{INDEX}/index.idx", [b"1"])
    delete_planned(store, plan, work=work)
    assert store.head(f"{INDEX}/index.idx").size == 1


@pytest.mark.nightly(reason="plans for many versions")
def test_a_plan_holds_few_versions_at_a_time(store: LocalStore) -> None:
    base = create(store)
    (fragment,) = append(base).operation.fragments
    base = commit_transaction(
        store, replace(append(base), operation=Append((fragment,) * 1000)), base=base
    )

    def peak(versions: int) -> int:
        nonlocal base
        while base.version < versions:
            base = commit_transaction(store, append(base), base=base)
        tracemalloc.start()
        try:
            assert len(plan_cleanup(store, store, base, EVERYTHING).versions) == versions - 1
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few = peak(10)
    assert peak(30) < 1.5 * few


@pytest.mark.parametrize("name", ["a.lance", "a"])
def test_blobs_belong_to_the_data_file_whose_folder_they_are_in(name: str) -> None:
    files = FileSet()
    files.paths.add(f"data/{name}")
    assert "data/a/1.blob" in files
    assert files.has_folder("data/a")
    assert "data/b/1.blob" not in files
    assert "data/a.lance/1.blob" not in files


@pytest.mark.parametrize(
    "name", [".page_data.lance.0123456789abcdef.tmp", ".tmpAb3dEf"], ids=["own", "of pylance"]
)
def test_files_that_a_stopped_copy_left_in_the_folder_of_an_index_go_when_they_are_old(
    tmp_path: Path, name: str
) -> None:
    dataset = glaive.write_dataset(pa.table({"id": [1, 2, 3]}), tmp_path / "t")
    dataset.create_scalar_index("id", "BTREE")
    (folder,) = (tmp_path / "t/_indices").iterdir()
    used = set(folder.iterdir())
    left = folder / name
    left.write_bytes(b"x")
    dataset.cleanup_old_versions(timedelta(0))
    assert left.exists()
    old = time.time() - 8 * 86_400
    for path in folder.iterdir():
        os.utime(path, (old, old))
    dataset.cleanup_old_versions(timedelta(0))
    assert set(folder.iterdir()) == used
    assert dataset.to_table(filter="id = 2").num_rows == 1
