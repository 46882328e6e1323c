"""Files with new names: small ones are made with one call, and nothing is left of failures."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from glaive.errors import ObjectExistsError, ObjectNotFoundError, StoreError
from glaive.io import local_sink
from glaive.io.local import LocalStore
from glaive.io.wrapped import FLUSH_BYTES, NewFiles
from glaive.testing import CountingStore

PIECES = [b"abc", memoryview(b"defg"), pa.py_buffer(b"h" * 100), bytearray(b"i")]
CONTENT = b"abcdefg" + b"h" * 100 + b"i"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def files(store: LocalStore) -> list[str]:
    """All files, unfinished ones too."""
    root = Path(store.root)
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


class TestPutNew:
    def test_the_pieces_are_the_file(self, store: LocalStore) -> None:
        store.put_new("a/b", PIECES)
        assert store.get("a/b").to_pybytes() == CONTENT
        assert files(store) == ["a/b"]

    def test_a_name_that_is_there_is_written_over(self, store: LocalStore) -> None:
        store.put_new("a", [b"first, and longer than what comes next"])
        store.put_new("a", [b"second"])
        assert store.get("a").to_pybytes() == b"second"
        assert files(store) == ["a"]

    @pytest.mark.parametrize(
        "size", [0, local_sink.SMALL_FILE_BYTES, local_sink.SMALL_FILE_BYTES + 1, 5_000_000]
    )
    def test_any_size(self, store: LocalStore, size: int) -> None:
        content = os.urandom(size)
        store.put_new("a", [content])
        assert store.get("a").to_pybytes() == content
        counted = store.counters.snapshot()
        assert (counted.write_iops, counted.written_bytes) == (1, size)

    def test_no_temporary_name_is_used(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "replace", None)
        monkeypatch.setattr(os, "link", None)
        store.put_new("a", PIECES)
        assert files(store) == ["a"]

    def test_a_root_that_leads_nowhere_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "root").symlink_to(tmp_path / "gone")
        store = LocalStore(tmp_path / "root")
        for put in (store.put, store.put_new):
            with pytest.raises(ObjectNotFoundError, match=r"root/a: .* a link .* is broken"):
                put("a", PIECES)

    def test_forced_to_disk_it_is_put_as_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[int] = []
        fsync = os.fsync

        def spied(fd: int) -> None:
            synced.append(fd)
            fsync(fd)

        monkeypatch.setattr(os, "fsync", spied)
        store = LocalStore(tmp_path, {"fsync": "true"})
        store.put_new("a", PIECES)
        assert len(synced) == 2  # the file and its folder
        assert store.get("a").to_pybytes() == CONTENT

    def test_the_names_of_new_folders_are_forced_to_disk_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[int] = []

        def spied(fd: int) -> None:
            synced.append(os.fstat(fd).st_ino)

        monkeypatch.setattr(os, "fsync", spied)
        store = LocalStore(tmp_path / "new" / "root", {"fsync": "true"})
        store.put("a/b", PIECES)
        root = tmp_path / "new" / "root"
        order = [root, tmp_path / "new", tmp_path, root / "a" / "b", root / "a"]
        assert synced == [path.stat().st_ino for path in order]
        synced.clear()
        store.put("a/b", PIECES)
        assert len(synced) == 2


Put = Callable[[LocalStore, str, list[bytes]], None]
PUTS: dict[str, Put] = {
    "new": lambda store, path, data: store.put_new(path, data),
    "overwrite": lambda store, path, data: store.put(path, data),
    "create": lambda store, path, data: store.put(path, data, mode="create"),
}


@pytest.mark.parametrize("how", PUTS)
def test_a_disk_that_is_full_leaves_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="No space left"):
        PUTS[how](store, "a", [b"abc"])
    monkeypatch.undo()
    assert files(store) == []


@pytest.mark.parametrize("how", PUTS)
def test_a_writer_that_is_interrupted_leaves_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def stopped(*_: object) -> int:
        raise KeyboardInterrupt

    step = {"new": "write", "overwrite": "replace", "create": "link"}[how]
    monkeypatch.setattr(os, step, stopped)
    with pytest.raises(KeyboardInterrupt):
        PUTS[how](store, "a", [b"abc"])
    monkeypatch.undo()
    assert files(store) == []


@pytest.mark.parametrize("how", PUTS)
def test_what_one_call_leaves_over_is_written_by_others(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:7]))
    PUTS[how](store, "a", [CONTENT])
    monkeypatch.undo()
    assert store.get("a").to_pybytes() == CONTENT


def test_the_second_who_creates_is_told_and_leaves_nothing(store: LocalStore) -> None:
    store.put("a", [b"first"], mode="create")
    with pytest.raises(ObjectExistsError):
        store.put("a", [b"second"], mode="create")
    assert store.get("a").to_pybytes() == b"first"
    assert files(store) == ["a"]


class TestSinks:
    def test_a_small_file_is_made_when_it_is_finished(self, store: LocalStore) -> None:
        sink = NewFiles(store).create("a")
        sink.write(PIECES)
        sink.write([b"x"])
        assert files(store) == []
        assert sink.finish() == sink.position == len(CONTENT) + 1
        assert store.get("a").to_pybytes() == CONTENT + b"x"

    def test_a_large_file_is_written_as_it_comes(self, store: LocalStore) -> None:
        sink = NewFiles(store).create("a")
        sink.write([b"a"])
        sink.write([bytes(FLUSH_BYTES)])
        (unfinished,) = files(store)
        assert unfinished.endswith(".tmp")
        sink.write([b"z"])
        assert sink.finish() == sink.position == FLUSH_BYTES + 2
        assert store.get("a").to_pybytes() == b"a" + bytes(FLUSH_BYTES) + b"z"
        assert files(store) == ["a"]

    @pytest.mark.parametrize("size", [1, FLUSH_BYTES])
    def test_aborting_leaves_nothing(self, store: LocalStore, size: int) -> None:
        sink = NewFiles(store).create("a")
        sink.write([bytes(size)])
        sink.abort()
        sink.abort()
        assert files(store) == []

    def test_other_stores_create_as_ever(self, store: LocalStore) -> None:
        counting = CountingStore(store)
        sink = NewFiles(counting).create("a")
        sink.write([b"abc"])
        assert sink.finish() == 3
        assert {request.path for request in counting.log} == {"a"}  # each step was seen


def test_files_larger_than_the_first_read_come_whole(store: LocalStore) -> None:
    for size in (64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 9_000_000):
        content = os.urandom(size)
        store.put("a", [content])
        assert store.get("a").to_pybytes() == content
