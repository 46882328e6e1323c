"""A lock of the user's decides who makes a version."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from tests.distant import DISTANT

import glaive
from glaive.errors import CommitConflictError, CommitError, OptionError, StoreError
from glaive.format.paths import manifest_path
from glaive.io.store import BytesLike, PutMode
from glaive.io.wrapped import WrappedStore
from glaive.table.load import open_version
from glaive.table.root import CommitLock, guarded, lock_of, open_other_root, open_root, register_of

from .server import Server

ROWS = pa.table({"id": [1, 2, 3]})


class Lock:
    """Held for one version at a time; remembers for which."""

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.ended = 0
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, version: int) -> Iterator[None]:
        with self._lock:
            self.versions.append(version)
            yield
            self.ended += 1


def test_it_is_held_while_a_version_is_made(tmp_path: Path) -> None:
    lock = Lock()
    for mode in ("create", "append"):
        glaive.write_dataset(ROWS, tmp_path / "t", mode=mode, commit_lock=lock)
    assert lock.versions == [1, 2]
    assert lock.ended == 2


def test_a_dataset_keeps_it(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path / "t")
    lock = Lock()
    dataset = glaive.dataset(tmp_path / "t", commit_lock=lock)
    again = glaive.write_dataset(ROWS, dataset, mode="append")
    glaive.write_dataset(ROWS, again, mode="append")
    assert lock.versions == [2, 3]
    other = Lock()
    glaive.write_dataset(ROWS, dataset, mode="append", commit_lock=other)
    assert (lock.versions, other.versions) == ([2, 3], [4])


@pytest.mark.parametrize("scheme", ["memory", "fsspec+memory", "distant"])
def test_writers_at_once_lose_nothing(scheme: str, tmp_path: Path) -> None:
    uri = DISTANT.format(tmp_path / "t") if scheme == "distant" else f"{scheme}://{uuid4().hex}/t"
    lock = Lock()
    glaive.write_dataset(ROWS, uri, commit_lock=lock)

    def append(_: int) -> int:
        return glaive.write_dataset(ROWS, uri, mode="append", commit_lock=lock).version

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(append, range(8))) == list(range(2, 10))
    assert glaive.dataset(uri).count_rows() == 27


class Overwriting(WrappedStore):
    """A store that puts an object over another, whatever it was asked, as some servers do."""

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        super().put(path, data)


@pytest.mark.spec("rel-2")
def test_writers_at_once_lose_nothing_in_a_store_that_overwrites() -> None:
    uri = f"memory://{uuid4().hex}/t"
    made = glaive.write_dataset(ROWS, uri)
    met, held = threading.Barrier(2), threading.Lock()

    @contextmanager
    def lock(version: int) -> Iterator[None]:
        if version == 2:  # both have read the version before
            met.wait(60)
        with held:
            yield

    store = guarded(Overwriting(open_root(uri)), commit_lock=lock)

    def append(_: int) -> int:
        dataset = glaive.LanceDataset.of(store, open_version(store, made.version))
        return glaive.write_dataset(ROWS, dataset, mode="append").version

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(append, range(2))) == [2, 3]
    assert glaive.dataset(uri).count_rows() == 9


@pytest.mark.spec("rel-21")
def test_a_store_without_conditions_takes_commits_with_it(server: Server) -> None:
    uri = f"s3://{server.bucket()}/t"
    options = server.options | {"aws_conditional_put": "disabled"}
    with pytest.raises(StoreError, match="This kind of store cannot do that"):
        glaive.write_dataset(ROWS, uri, storage_options=options)
    lock = Lock()
    for mode in ("create", "append"):
        glaive.write_dataset(ROWS, uri, mode=mode, storage_options=options, commit_lock=lock)
    assert lock.versions == [1, 2]
    assert glaive.dataset(uri, storage_options=options).count_rows() == 6


def test_an_empty_manifest_of_a_writer_that_was_stopped_is_replaced(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path / "t", commit_lock=Lock())
    (tmp_path / "t" / manifest_path(2, "V2")).touch()
    assert glaive.write_dataset(ROWS, dataset, mode="append").version == 2


def test_a_lock_may_say_that_another_was_first(tmp_path: Path) -> None:
    refusals = iter([True, True, False])

    @contextmanager
    def lock(_: int) -> Iterator[None]:
        if next(refusals):
            raise CommitConflictError("somebody else holds the lock")
        yield

    glaive.write_dataset(ROWS, tmp_path / "t")
    made = glaive.write_dataset(ROWS, tmp_path / "t", mode="append", commit_lock=lock)
    assert (made.version, made.count_rows()) == (2, 6)


MADE = "The version was made, and others see it: do not repeat the change."
NOT_MADE = "The version was not made"


CHANGES: dict[str, Callable[[Path, CommitLock], object]] = {
    "create": lambda place, lock: glaive.write_dataset(ROWS, place / "new", commit_lock=lock),
    "append": lambda place, lock: glaive.write_dataset(
        ROWS, place / "t", mode="append", commit_lock=lock
    ),
    "delete": lambda place, lock: glaive.dataset(place / "t", commit_lock=lock).delete("id = 1"),
    "add": lambda place, lock: glaive.dataset(place / "t", commit_lock=lock).add_columns(
        {"x": "1"}
    ),
    "restore": lambda place, lock: glaive.dataset(place / "t", commit_lock=lock).restore(),
}


@pytest.mark.parametrize(
    ("name", "error", "ends"),
    [
        *((name, TimeoutError("who?"), ends) for name in CHANGES for ends in (False, True)),
        *((name, CommitConflictError("who?"), True) for name in CHANGES),
        *((name, CommitConflictError("who?"), False) for name in ("create", "append")),
        ("append", KeyError(1), False),
    ],
)
def test_an_error_of_a_lock_is_named_by_the_one_of_the_commit(
    name: str, error: Exception, ends: bool, tmp_path: Path
) -> None:
    @contextmanager
    def lock(_: int) -> Iterator[None]:
        if ends:
            yield
        raise error

    glaive.write_dataset(ROWS, tmp_path / "t")
    with pytest.raises(CommitError, match=f"raised {type(error).__name__} for version") as raised:
        CHANGES[name](tmp_path, lock)
    assert isinstance(raised.value, OSError)
    assert (MADE if ends else NOT_MADE) in str(raised.value)
    assert str(error) in str(raised.value)
    assert len(list(tmp_path.glob("*/_versions/*.manifest"))) == 1 + ends


class Refusing(WrappedStore):
    """A store that takes no manifest."""

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        if path.endswith(".manifest"):
            raise StoreError("no manifest today")
        super().put(path, data)


@pytest.mark.spec("rel-8")
@pytest.mark.parametrize("outcome", ["nothing", "conflict"])
def test_a_lock_hides_no_failure_of_the_store(outcome: str) -> None:
    """Neither one that suppresses all errors, nor one that says of each that another was first."""

    @contextmanager
    def lock(_: int) -> Iterator[None]:
        try:
            yield
        except StoreError:
            if outcome == "conflict":
                raise CommitConflictError("somebody else holds the lock") from None

    uri = f"memory://{uuid4().hex}/t"
    made = glaive.write_dataset(ROWS, uri)
    store = guarded(Refusing(open_root(uri)), commit_lock=lock)
    dataset = glaive.LanceDataset.of(store, open_version(store, made.version))
    with pytest.raises(StoreError, match="no manifest today"):
        glaive.write_dataset(ROWS, dataset, mode="append")
    assert glaive.dataset(uri).version == 1


def test_a_lock_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="commit_lock"):
        open_root(tmp_path, commit_lock="lock")


def test_places_of_one_dataset_are_committed_to_alike(tmp_path: Path) -> None:
    lock = Lock()
    root = open_root(tmp_path / "t", {"fsync": "true"}, commit_lock=lock, manifest_store="sqlite")
    branch = open_other_root(root, f"{root.uri}/tree/one")
    assert branch.uri == f"{tmp_path}/t/tree/one"
    assert lock_of(branch) is lock
    assert register_of(branch) is register_of(root) is not None
    assert getattr(branch, "options", None) == {"fsync": "true"}
    plain = open_root(tmp_path / "t")
    assert lock_of(open_other_root(plain, f"{tmp_path}/u")) is None
    assert guarded(plain) is plain
