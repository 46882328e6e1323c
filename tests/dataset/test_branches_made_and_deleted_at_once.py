"""A branch that is deleted by one writer while another one makes it is whole, or is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from tests.overtaken import Countdown, Interrupted, opened

import glaive
from glaive.errors import (
    CommitError,
    DatasetExistsError,
    NotFoundError,
    ObjectNotFoundError,
    RefExistsError,
    StoreError,
)
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.table.copying import begin_clone
from glaive.table.load import open_latest, open_version
from glaive.table.operations.overwrite import Clone
from glaive.table.versions import list_versions

ROWS = pa.table({"a": [1, 2]})


class Meanwhile(WrappedStore):
    """Has others do something before the ref of a branch is put, or after it is deleted."""

    def __init__(self, place: Path, work: Callable[[], object]) -> None:
        super().__init__(LocalStore(place))
        self.work = work

    def put(self, path: str, *given: Any, **options: Any) -> Any:
        self._do([path])
        return self.inner.put(path, *given, **options)

    def delete(self, paths: Sequence[str]) -> None:
        self.inner.delete(paths)
        self._do(paths)

    def _do(self, paths: Sequence[str]) -> None:
        if any(path.startswith("_refs/branches/") for path in paths):
            work, self.work = self.work, lambda: None
            work()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    glaive.write_dataset(ROWS, tmp_path / "t")
    return tmp_path / "t"


def begin(place: Path) -> glaive.LanceDataset:
    dataset = glaive.write_dataset(ROWS, place)
    dataset.create_branch("dev").insert(ROWS)
    return dataset


def rows_of_branches(place: Path) -> dict[str, int]:
    dataset = glaive.dataset(place)
    return {
        name: dataset.checkout_version((name, None)).count_rows()
        for name in dataset.branches.list()
    }


@pytest.mark.spec("rel-1")
def test_a_branch_whose_files_were_deleted_before_it_had_its_ref_is_whole(place: Path) -> None:
    def delete() -> None:
        glaive.dataset(place).branches.delete("dev")

    store = Meanwhile(place, delete)
    made = glaive.LanceDataset.of(store, open_latest(store)).create_branch("dev")
    assert made.count_rows() == 2
    assert rows_of_branches(place) == {"dev": 2}
    made.insert(ROWS)
    assert rows_of_branches(place) == {"dev": 4}


@pytest.mark.spec("rel-1")
def test_a_branch_that_gets_its_ref_before_its_files_are_deleted_is_whole(place: Path) -> None:
    glaive.dataset(place).create_branch("dev")
    ref = place / "_refs/branches/dev.json"
    content = ref.read_bytes()
    ref.unlink()
    # Its writer goes on once the deletion has found no ref, and before the files are deleted.
    store = Meanwhile(place, lambda: ref.write_bytes(content))
    glaive.LanceDataset.of(store, open_latest(store)).branches.delete("dev")
    assert rows_of_branches(place) == {"dev": 2}
    glaive.dataset(place).branches.delete("dev")
    assert glaive.dataset(place).create_branch("dev").count_rows() == 2


def test_of_two_who_make_a_branch_from_other_versions_one_is_told_that_it_is_there(
    tmp_path: Path,
) -> None:
    for requests in range(1, 60):
        place = tmp_path / f"{requests}"
        glaive.write_dataset(ROWS, place)
        glaive.write_dataset(ROWS, place, mode="append")
        refused: list[Any] = []

        def make(dataset: glaive.LanceDataset, number: int, refused: list[Any] = refused) -> None:
            try:
                dataset.create_branch("dev", number)
            except RefExistsError as error:
                refused.append(error)

        countdown = Countdown(requests, partial(make, glaive.dataset(place), 2))
        make(opened(place, countdown), 1)
        if countdown.left > 0:
            break
        assert len(refused) == 1
        made = glaive.dataset(place)
        parent = made.branches.list()["dev"]["parent_version"]
        assert rows_of_branches(place)["dev"] == 2 * parent
        versions = made.checkout_version(("dev", None)).versions()
        assert [version["version"] for version in versions] == [parent]
    assert requests > 10


@pytest.mark.spec("rel-3")
@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_of_two_who_make_a_clone_of_other_versions_one_is_refused(
    tmp_path: Path, first: int, second: int
) -> None:
    for _ in range(2):
        glaive.write_dataset(ROWS, tmp_path / "t", mode="append")
    source = LocalStore(tmp_path / "t")
    for requests in range(1, 60):
        target = LocalStore(tmp_path / f"{requests}")
        made: list[int] = []

        def clone(store: ObjectStore, number: int, made: list[int] = made) -> None:
            with suppress(DatasetExistsError):
                begin_clone(source, open_version(source, number), store, _clone_of(source, number))
                made.append(number)

        countdown = Countdown(requests, partial(clone, target, second))
        clone(Interrupted(target, countdown), first)
        if countdown.left > 0:
            break
        assert len(made) == 1
        assert [location.version for location in list_versions(target)] == made
    assert requests > 4


def _clone_of(source: ObjectStore, number: int) -> Clone:
    return Clone(shallow=True, ref_version=number, ref_path=source.uri)


@pytest.mark.spec("rel-3")
def test_a_clone_that_others_append_to_at_once_stays(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path / "t")
    source = LocalStore(tmp_path / "t")
    appended = 0
    for requests in range(1, 60):
        target = LocalStore(tmp_path / f"{requests}")
        versions: list[int] = []

        def append(target: LocalStore = target, versions: list[int] = versions) -> None:
            with suppress(NotFoundError):
                there = glaive.LanceDataset.of(target, open_latest(target))
                versions.append(glaive.write_dataset(ROWS, there, mode="append").version)

        countdown = Countdown(requests, append)
        store = Interrupted(target, countdown)
        begin_clone(source, open_version(source, 1), store, _clone_of(source, 1))
        if countdown.left > 0:
            break
        appended += len(versions)
        assert [location.version for location in list_versions(target)] == [1, *versions]
    assert appended > 1


@pytest.mark.spec("rel-8")
def test_a_clone_whose_versions_cannot_be_listed_may_have_been_made(tmp_path: Path) -> None:
    class Unlisted(WrappedStore):
        """A store that lists nothing once there is a manifest."""

        def list(self, prefix: str) -> Iterator[ObjectMeta]:
            """Fail."""
            found = [*super().list(prefix)]
            if found:
                raise StoreError("the store is not available")
            yield from found

        def names(self, prefix: str) -> None:
            """Not quicker."""

    glaive.write_dataset(ROWS, tmp_path / "t")
    source, target = LocalStore(tmp_path / "t"), LocalStore(tmp_path / "clone")
    change = _clone_of(source, 1)
    with pytest.raises(CommitError, match=r"version 1 .* may or may not have been committed"):
        begin_clone(source, open_version(source, 1), Unlisted(target), change)
    assert [location.version for location in list_versions(target)] == [1]


@pytest.mark.spec("branch-6")
def test_a_branch_made_from_one_that_is_deleted_and_made_again_has_its_files(
    tmp_path: Path,
) -> None:
    """Both have a version of the number from which it is made."""
    kept = 0
    for requests in range(1, 60):
        place = tmp_path / f"{requests}"
        begin(place)

        def make_again(place: Path = place) -> None:
            with suppress(CommitError):  # the other branch has its file
                glaive.dataset(place).branches.delete("dev")
                glaive.dataset(place).create_branch("dev").insert(ROWS)

        countdown = Countdown(requests, make_again)
        with suppress(NotFoundError, ObjectNotFoundError):
            opened(place, countdown).create_branch("other", ("dev", 2))
            kept += 1
        if countdown.left > 0:
            break
        assert rows_of_branches(place) in ({"dev": 4}, {"dev": 4, "other": 4})
        assert glaive.dataset(place).branches.list().keys() >= {"dev"}
    assert kept
    assert 10 < requests < 59


def test_a_branch_begun_before_its_parent_was_made_again_has_the_files_of_the_new_one(
    tmp_path: Path,
) -> None:
    """Its creation was stopped before its file was put, so that the parent could be deleted."""
    begin(tmp_path).create_branch("other", ("dev", 2))
    (tmp_path / "_refs/branches/other.json").unlink()
    glaive.dataset(tmp_path).branches.delete("dev")
    dataset = glaive.dataset(tmp_path)
    dataset.create_branch("dev").insert(ROWS)
    with pytest.raises(RefExistsError, match="delete it"):
        dataset.create_branch("other", ("dev", 2))
    dataset.branches.delete("other")
    assert dataset.create_branch("other", ("dev", 2)).count_rows() == 4
    assert rows_of_branches(tmp_path) == {"dev": 4, "other": 4}


class Stale(WrappedStore):
    """Listings of refs show those that are deleted a while longer."""

    def __init__(self, place: Path) -> None:
        super().__init__(LocalStore(place))
        self.shown: dict[str, ObjectMeta] = {}

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        found = {meta.path: meta for meta in self.inner.list(prefix)}
        if prefix.startswith("_refs/branches"):
            self.shown = found = {**self.shown, **found}
        return iter(found.values())


def test_a_branch_is_deleted_although_listings_still_show_it(place: Path) -> None:
    glaive.dataset(place).create_branch("dev").insert(ROWS)
    store = Stale(place)
    dataset = glaive.LanceDataset.of(store, open_latest(store))
    assert list(dataset.branches.list()) == ["dev"]
    dataset.branches.delete("dev")
    assert rows_of_branches(place) == {}
    assert not [path for path in place.rglob("tree/dev/**/*") if path.is_file()]
    assert dataset.create_branch("dev").count_rows() == ROWS.num_rows


class Late(Meanwhile):
    """Listings do not show a ref of a branch yet."""

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        return iter(()) if prefix.startswith("_refs/branches") else self.inner.list(prefix)


@pytest.mark.spec("rel-1")
def test_a_branch_made_again_that_listings_do_not_show_yet_keeps_its_files(place: Path) -> None:
    glaive.dataset(place).create_branch("dev").insert(ROWS)

    def make_again() -> None:
        others = glaive.dataset(place)
        others.branches.delete("dev")
        others.create_branch("dev").insert(ROWS)

    store = Late(place, make_again)
    with suppress(CommitError):
        glaive.LanceDataset.of(store, open_latest(store)).branches.delete("dev")
    assert rows_of_branches(place) == {"dev": 2 * ROWS.num_rows}


class LateVersions(WrappedStore):
    """Has others do something once manifests of a branch are deleted, and does not list theirs."""

    def __init__(self, inner: ObjectStore, work: Callable[[], object]) -> None:
        super().__init__(inner)
        self.work = work

    def sibling(self, uri: str) -> ObjectStore:
        return LateVersions(open_store(uri), self.work)

    def delete(self, paths: Sequence[str]) -> None:
        self.inner.delete(paths)
        if any(path.endswith(".manifest") for path in paths):
            self.work()

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        is_late = "/tree/" in self.uri and prefix == "_versions"
        return iter(()) if is_late else self.inner.list(prefix)


@pytest.mark.spec("rel-1")
def test_a_branch_made_again_whose_versions_listings_do_not_show_yet_keeps_its_ref() -> None:
    place = f"memory://{uuid4().hex}/t"
    dataset = glaive.write_dataset(ROWS, place)
    dataset.create_branch("dev").insert(ROWS)
    store = LateVersions(dataset.store, lambda: glaive.dataset(place).create_branch("dev"))
    glaive.LanceDataset.of(store, open_latest(store)).branches.delete("dev")
    assert glaive.dataset(place).checkout_version(("dev", None)).count_rows() == ROWS.num_rows
