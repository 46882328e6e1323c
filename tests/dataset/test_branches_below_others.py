"""Deletions of branches beside what others do between their requests, and what they leave."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.overtaken import Countdown, opened

import glaive
from glaive.errors import (
    CommitConflictError,
    CommitError,
    NotFoundError,
    ObjectNotFoundError,
    RefExistsError,
    RefNotFoundError,
)
from glaive.io.local_sink import temporary_path

ROWS = pa.table({"a": [1, 2]})
REQUESTS = 60
"""More than a deletion or a creation makes."""


def rows_of_branches(place: Path) -> dict[str, int]:
    """Rows of all branches, read."""
    dataset = glaive.dataset(place)
    return {
        name: dataset.checkout_version((name, None)).to_table().num_rows
        for name in dataset.branches.list()
    }


def begin(place: Path) -> glaive.LanceDataset:
    dataset = glaive.write_dataset(ROWS, place)
    dataset.create_branch("dev").insert(ROWS)
    return dataset


NAMES = ["dev/x", "dev/data", "dev/_versions/x"]


@pytest.mark.sampled(every=4)
@pytest.mark.spec("branch-6")
@pytest.mark.parametrize("name", NAMES)
def test_a_branch_made_below_one_that_is_being_deleted_keeps_its_files(
    tmp_path: Path, name: str
) -> None:
    """It is made between any two requests of the deletion."""
    for requests in range(1, REQUESTS):
        place = tmp_path / f"{requests}"
        begin(place)
        made: list[int] = []

        def make(place: Path = place, made: list[int] = made) -> None:
            made.append(glaive.dataset(place).create_branch(name).count_rows())

        countdown = Countdown(requests, make)
        opened(place, countdown).branches.delete("dev")
        if not made:
            break
        assert rows_of_branches(place) == {name: 2}
        glaive.dataset(place).checkout_version((name, None)).insert(ROWS)
        assert rows_of_branches(place) == {name: 4}
    assert 10 < requests < REQUESTS - 1


@pytest.mark.spec("branch-6")
@pytest.mark.parametrize("folder", ["data", "_versions", "_deletions", "_indices", "data/x"])
def test_a_branch_in_a_folder_of_another_one_is_deleted_without_files_of_that_one(
    tmp_path: Path, folder: str
) -> None:
    """And the other one without files of it."""
    dev = begin(tmp_path).checkout_version(("dev", None))
    dev.delete("a = 1")
    dev.create_scalar_index("a", "BTREE")
    own = {path for path in (tmp_path / "tree/dev").rglob("*") if path.is_file()}
    assert {path.parent.parent.name for path in own} >= {"dev", "_indices"}
    dev.create_branch(f"dev/{folder}", 1).insert(ROWS)
    glaive.dataset(tmp_path).branches.delete(f"dev/{folder}")
    assert {path for path in (tmp_path / "tree/dev").rglob("*") if path.is_file()} == own

    glaive.dataset(tmp_path).create_branch(f"dev/{folder}").insert(ROWS)
    glaive.dataset(tmp_path).branches.delete("dev")
    assert rows_of_branches(tmp_path) == {f"dev/{folder}": 4}
    assert not [path for path in own if path.exists()]


@pytest.mark.spec("branch-6")
def test_a_deletion_between_requests_of_one_who_makes_a_branch_below_deletes_nothing_of_it(
    tmp_path: Path,
) -> None:
    for requests in range(1, REQUESTS):
        place = tmp_path / f"{requests}"
        begin(place)
        deleted: list[str] = []

        def delete(place: Path = place, deleted: list[str] = deleted) -> None:
            glaive.dataset(place).branches.delete("dev")
            deleted.append("dev")

        opened(place, Countdown(requests, delete)).create_branch("dev/x")
        if not deleted:
            break
        assert rows_of_branches(place) == {"dev/x": 2}
    assert 10 < requests < REQUESTS - 1


@pytest.mark.spec("branch-6")
@pytest.mark.parametrize("deletes", [True, False], ids=["deletion", "creation"])
def test_a_branch_made_from_one_that_is_being_deleted_is_whole_or_not_there(
    tmp_path: Path, deletes: bool
) -> None:
    """One of the two ends in an error, or both do."""
    for requests in range(1, REQUESTS):
        place = tmp_path / f"{requests}"
        begin(place)
        ended: list[str] = []

        def make(at: Any = None, place: Path = place, ended: list[str] = ended) -> None:
            with suppress(NotFoundError, ObjectNotFoundError):
                (at or glaive.dataset(place)).create_branch("other", ("dev", None))
                ended.append("made")

        def delete(at: Any = None, place: Path = place, ended: list[str] = ended) -> None:
            with suppress(CommitError):
                (at or glaive.dataset(place)).branches.delete("dev")
                ended.append("deleted")

        outer, inner = (delete, make) if deletes else (make, delete)
        countdown = Countdown(requests, inner)
        outer(opened(place, countdown))
        if countdown.left > 0:
            break
        assert ended != ["made", "deleted"]
        assert ended != ["deleted", "made"]
        expected = {"dev": 4, "other": 4} if ended == ["made"] else {}
        if ended:
            assert rows_of_branches(place) == expected
    assert 10 < requests < REQUESTS - 1


@pytest.mark.spec("branch-5")
@pytest.mark.parametrize("versions", [1, 2])
def test_a_branch_made_again_while_it_is_deleted_is_whole_or_not_there(
    tmp_path: Path, versions: int
) -> None:
    for requests in range(1, REQUESTS):
        place = tmp_path / f"{requests}"
        branch = glaive.write_dataset(ROWS, place).create_branch("dev")
        for _ in range(1, versions):
            branch.insert(ROWS)

        def make(place: Path = place) -> None:
            with suppress(RefExistsError):
                glaive.dataset(place).create_branch("dev")

        countdown = Countdown(requests, make)
        opened(place, countdown).branches.delete("dev")
        if countdown.left > 0:
            break
        if not rows_of_branches(place):
            glaive.dataset(place).create_branch("dev")
        assert rows_of_branches(place) == {"dev": 2}
    assert 10 < requests < REQUESTS - 1


@pytest.mark.sampled(every=2)
@pytest.mark.spec("branch-7")
@pytest.mark.parametrize("later", [1, 2, 3])
def test_a_branch_deleted_twice_and_made_again_loses_no_file_of_a_commit(
    tmp_path: Path, later: int
) -> None:
    """Between two requests of one deletion another one ends; a writer commits some later."""
    for requests in range(1, REQUESTS):
        place = tmp_path / f"{requests}"
        begin(place)
        written: list[Any] = []
        countdown = Countdown(requests, lambda: None)

        def make(
            place: Path = place, written: list[Any] = written, countdown: Countdown = countdown
        ) -> None:
            countdown.left, countdown.work = later, lambda: finish(written)
            with suppress(NotFoundError, ObjectNotFoundError):
                glaive.dataset(place).branches.delete("dev")
            with suppress(RefExistsError):
                branch = glaive.dataset(place).create_branch("dev")
                files = glaive.fragment.write_fragments(ROWS, branch)
                written.append((branch, glaive.LanceOperation.Append(files)))

        countdown.work = make
        with suppress(NotFoundError, ObjectNotFoundError):
            opened(place, countdown).branches.delete("dev")
        if countdown.work is make:
            break
        assert rows_of_branches(place) in ({}, {"dev": 2}, {"dev": 4})
    assert 10 < requests < REQUESTS - 1


def finish(written: list[Any]) -> None:
    """Commit what was written, unless the branch is gone."""
    while written:
        branch, operation = written.pop()
        with suppress(CommitConflictError, NotFoundError, ObjectNotFoundError):
            glaive.LanceDataset.commit(branch, operation, read_version=branch.version)


@pytest.mark.sampled(every=3)
@pytest.mark.spec("branch-7")
@pytest.mark.parametrize("moves", [False, True], ids=["creates", "moves"])
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made-again"])
@pytest.mark.parametrize("deletes", [True, False], ids=["deletion", "tag"])
def test_a_tag_of_a_branch_that_is_being_deleted_names_a_version_or_is_not_there(
    tmp_path: Path, deletes: bool, again: bool, moves: bool
) -> None:
    for requests in range(1, REQUESTS):
        place = tmp_path / f"{requests}"
        dataset = begin(place)
        if moves:
            dataset.tags.create("t", 1)

        def tag(at: Any = None, place: Path = place) -> None:
            tags = (at or glaive.dataset(place)).tags
            with suppress(NotFoundError, ObjectNotFoundError):
                (tags.update if moves else tags.create)("t", ("dev", 2))

        def delete(at: Any = None, place: Path = place) -> None:
            with suppress(CommitError):
                (at or glaive.dataset(place)).branches.delete("dev")
                if again:
                    glaive.dataset(place).create_branch("dev")

        outer, inner = (delete, tag) if deletes else (tag, delete)
        countdown = Countdown(requests, inner)
        outer(opened(place, countdown))
        if countdown.left > 0:
            break
        named = glaive.dataset(place).tags.list()
        assert named or not moves
        for name in named:
            assert glaive.dataset(place, version=name).to_table().num_rows in (2, 4)
    assert 5 < requests < REQUESTS - 1


def test_a_tag_of_a_branch_looks_for_the_branch_twice_more(tmp_path: Path) -> None:
    begin(tmp_path)
    made: list[int] = []
    for name, reference in (("main", 1), ("dev", ("dev", 2))):
        countdown = Countdown(REQUESTS, kill)
        opened(tmp_path, countdown).tags.create(name, reference)
        made.append(REQUESTS - countdown.left)
    # The manifest, its size and the put; for a branch also its file, and the two looks.
    assert made == [3, 6]


def kill() -> None:
    raise KeyboardInterrupt


@pytest.mark.spec("branch-6")
def test_a_deletion_that_was_stopped_anywhere_is_completed_by_the_next(tmp_path: Path) -> None:
    """Nothing of the branch is left; its name may be given again."""
    for requests in range(1, REQUESTS):
        place = tmp_path / f"{requests}"
        begin(place)
        countdown = Countdown(requests, kill)
        with suppress(KeyboardInterrupt):
            opened(place, countdown).branches.delete("dev")
        if countdown.left > 0:
            break
        left = [path for path in (place / "tree").rglob("*") if path.is_file()]
        if left:
            glaive.dataset(place).branches.delete("dev")
        assert not [path for path in (place / "tree").rglob("*") if path.is_file()]
        assert glaive.dataset(place).create_branch("dev").count_rows() == 2
    assert 10 < requests < REQUESTS - 1


def test_files_of_a_branch_whose_versions_were_deleted_before_are_deleted(tmp_path: Path) -> None:
    """Earlier releases deleted the versions first, and others delete in any order."""
    dataset = begin(tmp_path)
    (tmp_path / "_refs/branches/dev.json").unlink()
    for path in (tmp_path / "tree/dev/_versions").iterdir():
        path.unlink()
    own = tmp_path / "tree/own/notes.txt"
    own.parent.mkdir()
    own.write_text("mine")
    dataset.branches.delete("dev")
    assert not [path for path in (tmp_path / "tree/dev").rglob("*") if path.is_file()]
    for name in ("dev", "own"):
        with pytest.raises(RefNotFoundError):
            dataset.branches.delete(name)
    assert own.exists()


def test_a_dataset_in_the_place_of_a_branch_is_not_deleted_as_one(tmp_path: Path) -> None:
    dataset = begin(tmp_path)
    glaive.write_dataset(ROWS, tmp_path / "tree/own")
    with pytest.raises(RefNotFoundError):
        dataset.branches.delete("own")
    assert glaive.dataset(tmp_path / "tree/own").count_rows() == 2


@pytest.mark.skipif(os.name == "nt", reason="names of files cannot have such characters there")
def test_a_file_whose_name_no_dataset_can_have_stays_when_its_branch_is_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the branch lost its ref and kept its files, so that its name was taken for ever."""
    dataset = begin(tmp_path / "t")
    foreign = tmp_path / "t/tree/dev/data/Icon\r"
    foreign.write_bytes(b"x")
    dataset.branches.delete("dev")
    assert [path for path in (tmp_path / "t/tree").rglob("*") if path.is_file()] == [foreign]
    assert any("Icon\\r" in message for message in caplog.messages)
    assert dataset.create_branch("dev").count_rows() == 2


def test_what_a_killed_writer_had_not_finished_goes_with_its_branch(tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"id": [1]}, tmp_path / "t")
    for name in ("dev", "dev/data"):
        dataset.create_branch(name)
    left = [
        Path(temporary_path(str(tmp_path / "t" / "tree" / folder / "data" / "0.lance")))
        for folder in ("dev", "dev/data")
    ]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"unfinished")
    dataset.branches.delete("dev")
    assert [path.exists() for path in left] == [False, True]
    dataset.branches.delete("dev/data")
    assert not any(path.exists() for path in left)
