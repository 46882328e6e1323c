"""A disk that is full, or another error of the system, in the middle of a change."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from tests.kit.model import made_rows, sorted_rows
from tests.kit.system_errors import failing_from

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import CommitError, NotForcedError, StoreError
from glaive.io.local import LocalStore
from glaive.io.store import PutMode

ERRORS = {
    "full disk": errno.ENOSPC,
    "quota": errno.EDQUOT,
    "read-only": errno.EROFS,
    "too many open files": errno.EMFILE,
    "permission": errno.EACCES,
    "broken disk": errno.EIO,
}
OPERATIONS: dict[str, Callable[[LanceDataset], object]] = {
    "append": lambda at: at.insert(made_rows(range(100, 104), 3), max_rows_per_file=2),
    "delete": lambda at: at.delete("id % 3 = 0"),
    "update": lambda at: at.update({"text": "'new'"}, "id % 4 = 1"),
    "compact": lambda at: at.optimize.compact_files(target_rows_per_fragment=25),
    "index": lambda at: at.create_scalar_index("id", "BTREE"),
    "tag": lambda at: at.tags.create("name", 1),
}
FORCED = "could not be forced to disk"
"""In errors that say that the change was made, and may be undone by a power failure."""
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE", "fast") != "fast"
PAIRS = [*product(OPERATIONS, ERRORS)] if NIGHTLY else [*zip(OPERATIONS, ERRORS, strict=True)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("base") / "t"
    glaive.write_dataset(made_rows(range(9), 1), place, max_rows_per_file=3)
    glaive.dataset(place).delete("id = 1")
    return place


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-20")
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_nothing_is_visible_and_the_next_attempt_works(
    base: Path, tmp_path: Path, name: str, kind: str, record_property: Callable[[str, object], None]
) -> None:
    """Calls fail from one on, from the next on, and so forth; with ``fsync``, which is one more."""
    operation, at, failures = OPERATIONS[name], 0, 0
    before = sorted_rows(glaive.dataset(base).to_table())
    failed = True
    while failed:
        at += 1
        place = tmp_path / str(at)
        shutil.copytree(base, place)
        dataset = glaive.dataset(place, storage_options={"fsync": "true"})
        with failing_from(str(place), ERRORS[kind], at) as calls:
            error = failure(operation, dataset)
        failed = calls.failed
        newest = glaive.dataset(place)
        if error is not None:
            failures += 1
            assert str(place) in error
            if FORCED not in error:
                # A compaction reserves ids of fragments with a version of its own.
                assert newest.version == 2 or name == "compact"
                assert sorted_rows(newest.to_table()) == before
                assert "name" not in newest.tags.list()
                assert newest.describe_indices() == []
                operation(newest)
        elif name != "tag":
            assert newest.version > 2
        assert glaive.dataset(place).count_rows() == glaive.dataset(place).to_table().num_rows
        shutil.rmtree(place)
    assert failures > 1
    record_property("system errors", at - 1)


@pytest.mark.spec("rel-18")
@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_a_name_that_could_not_be_forced_to_disk_is_said_so(tmp_path: Path, mode: PutMode) -> None:
    store = LocalStore(tmp_path, {"fsync": "true"})
    # Opened, written, forced to disk, closed, named; then the folder is forced to disk.
    with (
        failing_from(str(tmp_path), errno.EIO, 6),
        pytest.raises(NotForcedError, match=r"name .* could not be forced to disk"),
    ):
        store.put("name", [b"content"], mode=mode)
    assert store.get("name").to_pybytes() == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["name"]


@pytest.mark.spec("rel-18")
def test_a_commit_that_could_not_be_forced_to_disk_is_said_so(base: Path, tmp_path: Path) -> None:
    messages = []
    for at in range(1, 40):
        place = tmp_path / str(at)
        shutil.copytree(base, place)
        dataset = glaive.dataset(place, storage_options={"fsync": "true"})
        with failing_from(str(place), errno.EIO, at):
            error = failure(OPERATIONS["append"], dataset)
        if error is not None and "others see it" in error:
            messages.append(error)
            assert glaive.dataset(place).version == 3
    assert len(messages) == 1


@pytest.mark.spec("rel-20")
def test_a_file_whose_closing_fails_is_closed_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, {"fsync": "true"})
    # Opened, written, forced to disk, closed: network file systems report a quota only then.
    with failing_from(str(tmp_path), errno.EDQUOT, 4):
        sink = store.create("name")
        sink.write([b"content"])
        with pytest.raises(StoreError, match="quota"):
            sink.publish("create")
    # Another file gets the number of the closed one, as those of other threads may meanwhile.
    with (tmp_path / "other").open("wb") as other:
        sink.abort()
        other.write(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    assert (tmp_path / "other").read_bytes() == b"whole"


@pytest.mark.spec("rel-8")
def test_a_name_that_was_taken_is_no_failure_where_nothing_may_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a directory to which names may only be added."""

    def refused(path: str, **_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    dataset = glaive.write_dataset(made_rows(range(3), 1), tmp_path / "t")
    monkeypatch.setattr(os, "unlink", refused)
    dataset.insert(made_rows(range(3, 6), 1))
    dataset.tags.create("name", 2)
    monkeypatch.undo()
    newest = glaive.dataset(tmp_path / "t")
    assert (newest.version, newest.count_rows(), [*newest.tags.list()]) == (2, 6, ["name"])


@pytest.mark.spec("rel-20")
@pytest.mark.parametrize("name", ["append", "index"])
def test_what_cannot_be_removed_then_hides_no_error(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As in a directory whose permissions were withdrawn."""

    def refused(path: str, **_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    failed, at = True, 0
    while failed:
        at += 1
        place = tmp_path / str(at)
        shutil.copytree(base, place)
        dataset = glaive.dataset(place)
        with failing_from(str(place), errno.EDQUOT, at) as calls, monkeypatch.context() as patch:
            patch.setattr(os, "unlink", refused)
            error = failure(OPERATIONS[name], dataset)
        failed = calls.failed
        assert error is None or "quota" in error
        shutil.rmtree(place)
    assert at > 3


def failure(operation: Callable[[LanceDataset], object], dataset: LanceDataset) -> str | None:
    """The message of the error that an operation ends in, if it does."""
    try:
        operation(dataset)
    except (StoreError, CommitError) as error:
        return str(error)
    return None
