"""A clean-up that is divided among processes does what an undivided one does."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import JobError, NotLanceError
from glaive.format.paths import manifest_path, new_data_file_name
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.table.cleanup import (
    IN_PROCESS,
    CleanupPlan,
    CleanupPolicy,
    CleanupWork,
    DeleteFiles,
    Division,
    Part,
    delete_planned,
    plan_cleanup,
    spans_of,
)
from glaive.table.commit import commit_transaction
from glaive.table.load import open_latest
from glaive.table.operations.overwrite import Append
from glaive.table.references import FOLDERS, FoundFiles
from glaive.table.versions import list_versions

from .pieces import InPieces
from .places import append, create, fragment, overwrite

R = TypeVar("R")

EVERYTHING = CleanupPolicy(older_than=timedelta(0))
UNVERIFIED = replace(EVERYTHING, delete_unverified=True)
ROWS = pa.table({"id": range(12)})
NO_FILES = FoundFiles.of([])
WEEK = 7.5 * 24 * 3600


def changes(chosen: random.Random, dataset: LanceDataset) -> list[Callable[[], object]]:
    """What may happen to a dataset next."""
    uri, some = dataset.uri, chosen.randrange(12)
    return [
        lambda: glaive.write_dataset(ROWS, uri, mode="append", max_rows_per_file=3),
        lambda: glaive.write_dataset(ROWS, uri, mode="overwrite", max_rows_per_file=4),
        lambda: dataset.delete(f"id = {some}"),
        lambda: dataset.update({"id": "id + 100"}, f"id = {some}"),
        dataset.optimize.compact_files,
        lambda: dataset.create_scalar_index("id", "BTREE", replace=True),
        lambda: dataset.tags.create(f"tag{chosen.random()}", dataset.version),
        lambda: dataset.create_branch(f"branch{chosen.randrange(10**6)}"),
        lambda: dataset.checkout_version(chosen.randint(1, dataset.version)).restore(),
    ]


def leave_strays(chosen: random.Random, root: Path) -> None:
    """Files and folders of other writers, of failed ones and of nobody, new or a week old."""
    folder, stem = UUID(int=chosen.getrandbits(128)), new_data_file_name()[: -len(".lance")]
    used = [path.stem for path in (root / "data").glob("*.lance")]
    for place in (
        f"data/{stem}.lance",
        f"data/{folder}.lance",
        f"data/{folder.hex}.lance",
        f"data/.{stem}.lance.0123456789abcdef.tmp",
        f"data/{stem}/{'0' * 32}.blob",
        f"data/{chosen.choice(used)}/{'0' * 32}.blob",
        "data/notes.lance",
        "data/.tmpAbCd12",
        f"_deletions/{chosen.randrange(99)}-1-{chosen.getrandbits(64)}.arrow",
        f"_transactions/1-{folder}.txn",
        f"_indices/{folder}/index.idx",
        f"_indices/{folder}/mine.txt",
        "_versions/18446744073709551000.manifest",
        f"_versions/18446744073709551001.manifest-{folder}",
    ):
        path = root / place
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(b"" if path.suffix == ".manifest" else b"stray")
        age(chosen, path)
    for name in ("data", "_indices"):
        path = root / name / (stem if name == "data" else str(UUID(int=folder.int ^ 1)))
        path.mkdir(exist_ok=True)
        age(chosen, path)
    (root / "data" / new_data_file_name()).symlink_to(root / "data" / "notes.lance")


def age(chosen: random.Random, path: Path) -> None:
    if chosen.random() < 0.7:
        os.utime(path, (time.time() - WEEK,) * 2)


def facts(plan: CleanupPlan) -> tuple[object, ...]:
    """A plan without the order of its files."""
    files = sorted(plan.files, key=lambda file: file.path)
    return replace(plan, files=NO_FILES, warnings=()), files, sorted(plan.warnings)


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("seed", range(4))
def test_a_divided_clean_up_plans_and_deletes_what_an_undivided_one_does(
    tmp_path: Path, seed: int
) -> None:
    chosen, root = random.Random(seed), tmp_path / "t"
    glaive.write_dataset(ROWS, root, max_rows_per_file=3)
    for _ in range(10):
        chosen.choice(changes(chosen, glaive.dataset(root)))()
    leave_strays(chosen, root)
    store = LocalStore(root)
    policy = CleanupPolicy(
        timedelta(0),
        chosen.choice([None, 3]),
        delete_unverified=chosen.random() < 0.3,
        error_if_tagged=False,
    )
    whole = plan_cleanup(store, store, open_latest(store), policy)
    pieces = plan_cleanup(store, store, open_latest(store), policy, InPieces())
    assert facts(pieces) == facts(whole)
    assert whole.files
    other = LocalStore(shutil.copytree(root, tmp_path / "other", symlinks=True))
    delete_planned(store, whole)
    delete_planned(other, pieces, work=InPieces())
    assert names(tmp_path / "other") == names(root)
    for uri in (root, tmp_path / "other"):
        glaive.dataset(uri).validate()


def test_files_that_a_version_made_meanwhile_uses_again_stay(tmp_path: Path) -> None:
    root = tmp_path / "t"
    glaive.write_dataset(ROWS, root)
    newest = glaive.write_dataset(ROWS, root, mode="overwrite").manifest

    class Restored(WrappedStore):
        def links(self, prefix: str) -> Iterator[str]:  # asked when versions have been read
            if glaive.dataset(root).version == 2:
                glaive.dataset(root, version=1).restore()
            return super().links(prefix)

    store = Restored(LocalStore(root))
    plan = plan_cleanup(store, store, newest, EVERYTHING, InPieces())
    assert plan.versions == (1,)
    assert plan.count("data") == 0
    delete_planned(store, plan, work=InPieces())
    assert glaive.dataset(root).to_table() == ROWS


@pytest.mark.spec("rel-14")
@pytest.mark.parametrize("work", [IN_PROCESS, InPieces()], ids=["whole", "in pieces"])
@pytest.mark.parametrize("deletions", [0, 1], ids=["planned", "begun"])
def test_files_of_a_version_that_is_restored_after_the_plan_stay(
    tmp_path: Path, work: CleanupWork, deletions: int
) -> None:
    """Another process may restore it until its manifest is deleted."""
    root = tmp_path / "t"
    glaive.write_dataset(ROWS, root)
    newest = glaive.write_dataset(ROWS, root, mode="overwrite").manifest

    class Restored(WrappedStore):
        def delete(self, paths: list[str]) -> None:  # type: ignore[override]  # as it is called
            if deletions and paths and glaive.dataset(root).version == 2:
                glaive.dataset(root, version=1).restore()
            super().delete(paths)

    store = Restored(LocalStore(root))
    plan = plan_cleanup(store, store, newest, EVERYTHING, work)
    if not deletions:
        glaive.dataset(root, version=1).restore()
    assert (plan.versions, plan.count("data")) == ((1,), 1)
    done = delete_planned(store, plan, work=work)
    assert (done.versions, done.count("data")) == ((1,), 0)
    assert glaive.dataset(root).to_table() == ROWS
    glaive.dataset(root).validate()
    assert [one["version"] for one in glaive.dataset(root).versions()] == [2, 3]


@pytest.mark.spec("rel-14")
@pytest.mark.parametrize("work", [IN_PROCESS, InPieces()], ids=["whole", "in pieces"])
def test_files_of_a_detached_version_that_is_made_after_the_plan_stay(
    tmp_path: Path, work: CleanupWork
) -> None:
    root = tmp_path / "t"
    glaive.write_dataset(ROWS, root)
    newest = glaive.write_dataset(ROWS, root, mode="overwrite").manifest
    store = LocalStore(root)
    plan = plan_cleanup(store, store, newest, EVERYTHING, work)
    back = glaive.LanceOperation.Restore(1)
    detached = glaive.LanceDataset.commit(root, back, read_version=2, detached=True)
    assert (plan.versions, plan.count("data")) == ((1,), 1)
    delete_planned(store, plan, work=work)
    assert glaive.dataset(root, version=detached.version).to_table() == ROWS
    assert glaive.dataset(root).to_table() == ROWS


@pytest.mark.parametrize("work", [IN_PROCESS, InPieces()], ids=["whole", "in pieces"])
def test_manifests_are_deleted_before_any_other_file(tmp_path: Path, work: CleanupWork) -> None:
    deleted: list[str] = []

    class Noted(WrappedStore):
        def delete(self, paths: list[str]) -> None:  # type: ignore[override]  # as it is called
            deleted.extend(paths)
            super().delete(paths)

    root = tmp_path / "t"
    glaive.write_dataset(ROWS, root, max_rows_per_file=4)
    glaive.write_dataset(ROWS, root, mode="append")
    newest = glaive.write_dataset(ROWS, root, mode="overwrite").manifest
    store = Noted(LocalStore(root))
    delete_planned(store, plan_cleanup(store, store, newest, EVERYTHING, work), work=work)
    kinds = [path.startswith("_versions/") for path in deleted]
    assert kinds == sorted(kinds, reverse=True)
    assert (sum(kinds), len(kinds)) == (2, 2 + 4 + 2)


class Sent(InPieces):
    """Keeps the paths that parts delete."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        for part in parts:
            given: object = part
            if isinstance(given, DeleteFiles):
                self.paths += given.paths
        return super().run(store, parts)


def test_names_that_may_come_again_are_not_deleted_by_other_processes(tmp_path: Path) -> None:
    """A part that a cluster gave up may run later, when a new file has the name."""
    store, work = LocalStore(tmp_path / "t"), Sent()
    drawn, chosen = fragment(), fragment()
    mine = replace(chosen, files=(replace(chosen.files[0], path="mine.lance"),))
    base = create(store)
    base = commit_transaction(
        store, replace(append(base), operation=Append((drawn, mine))), base=base
    )
    newest = commit_transaction(store, overwrite(base), base=base)
    paths = [f"data/{one.files[0].path}" for one in (drawn, mine)]
    for path in paths:
        store.put(path, [b"1"])
    plan = plan_cleanup(store, store, newest, EVERYTHING, work)
    assert {file.path for file in plan.files} >= {*paths, manifest_path(1), manifest_path(2)}
    delete_planned(store, plan, work=work)
    assert [path for path in work.paths if not path.startswith("_transactions/")] == paths[:1]
    assert not [*store.walk("data")]
    assert [one.version for one in list_versions(store)] == [3]


class Stopped(InPieces):
    """Is stopped before the deletion of a number of parts; keeps those that have not run."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.left: list[DeleteFiles] = []

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        given: Sequence[object] = parts
        deletions = [part for part in given if isinstance(part, DeleteFiles)]
        if not deletions:
            return super().run(store, parts)
        for part in deletions[: self.after]:
            part.run(store)
        self.left = deletions[self.after :]
        raise JobError("the cluster is gone")


@pytest.mark.parametrize("after", [0, 1])
def test_a_clean_up_stopped_while_it_deletes_leaves_no_version_without_its_files(
    tmp_path: Path, after: int
) -> None:
    root, work = tmp_path / "t", Stopped(after)
    glaive.write_dataset(ROWS, root, max_rows_per_file=2)
    newest = glaive.write_dataset(ROWS, root, mode="overwrite").manifest
    store = LocalStore(root)
    plan = plan_cleanup(store, store, newest, EVERYTHING, work)
    with pytest.raises(JobError):
        delete_planned(store, plan, work=work)
    assert len(work.left) >= 4 - after
    assert [one.version for one in list_versions(store)] == [2]
    glaive.dataset(root).validate()
    again = plan_cleanup(store, store, newest, UNVERIFIED, InPieces())
    left = {path for part in work.left for path in part.paths}
    assert {file.path for file in again.files} == left
    delete_planned(store, again, work=InPieces())
    assert len([*store.walk("data")]) == 1


def test_deletions_that_a_cluster_gave_up_may_run_long_after(tmp_path: Path) -> None:
    root, work = tmp_path / "t", Stopped(0)
    glaive.write_dataset(ROWS, root, max_rows_per_file=2)
    newest = glaive.write_dataset(ROWS, root, mode="overwrite").manifest
    store = LocalStore(root)
    with pytest.raises(JobError):
        delete_planned(store, plan_cleanup(store, store, newest, EVERYTHING, work), work=work)
    glaive.write_dataset(ROWS, root, mode="append", max_rows_per_file=2).delete("id = 3")
    before = {meta.path for meta in store.walk("")}
    for part in [*work.left, *work.left]:  # missing files are no error
        part.run(store)
    assert before - {meta.path for meta in store.walk("")} == {
        path for part in work.left for path in part.paths
    }
    glaive.dataset(root).validate()
    assert glaive.dataset(root).count_rows() == 22


def test_nothing_is_planned_when_a_piece_meets_a_damaged_manifest(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    base = create(store)
    newest = commit_transaction(store, append(base), base=base)
    store.put(manifest_path(1), [b"damage" * 9])
    with pytest.raises(NotLanceError, match=manifest_path(1)):
        plan_cleanup(store, store, newest, EVERYTHING, InPieces())


@pytest.mark.parametrize("count", [1, 2, 5, 300, 10**6])
def test_each_path_is_in_one_span_and_blobs_are_with_their_data_file(count: int) -> None:
    spans = spans_of(Division(files=1).cuts(count))
    stems = ["0101", "01", "1", "0", "f", "a b", "~", "\u00e9", new_data_file_name()[:50]]
    for stem in stems:
        (file,) = [span for span in spans if f"data/{stem}.lance" in span]
        (blob,) = [span for span in spans if f"data/{stem}/0.blob" in span]
        assert file == blob
        assert file.overlaps("data")
    for folder in FOLDERS:
        for span in spans:
            within = [
                name for name in ("0", "5-1-2.bin", "zz", ".x.tmp") if f"{folder}/{name}" in span
            ]
            assert span.overlaps(folder) or not within
