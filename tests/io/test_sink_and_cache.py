"""Aligned writing, and the cache with a budget."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.errors import StoreError
from glaive.file import LanceFileWriter
from glaive.io import local_sink
from glaive.io.cache import ByteCache
from glaive.io.local import LocalStore
from glaive.io.wrapped import AlignedSink
from glaive.types import ByteRange


def test_buffers_begin_on_64_byte_offsets(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    sink = AlignedSink(store.create("f"))
    assert sink.write_aligned([b"a" * 3, b"b" * 64, b"", b"c"]) == [
        ByteRange(0, 3),
        ByteRange(64, 64),
        ByteRange(128, 0),
        ByteRange(128, 1),
    ]
    assert sink.write([b"raw"]) == ByteRange(129, 3)
    assert sink.pad() == 192
    assert sink.pad() == sink.position == 192
    assert sink.finish() == 192
    content = store.get("f").to_pybytes()
    assert content == b"aaa" + b"\x48" * 61 + b"b" * 64 + b"c" + b"raw" + b"\x48" * 60


def test_the_parts_of_a_buffer_lie_back_to_back(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    sink = AlignedSink(store.create("f"))
    ranges = sink.write_aligned([b"a", (b"bc", b"", b"d"), (), b"e"])
    assert ranges == [ByteRange(0, 1), ByteRange(64, 3), ByteRange(128, 0), ByteRange(128, 1)]
    sink.finish()
    content = store.get("f").to_pybytes()
    assert content == b"a" + b"\x48" * 63 + b"bcd" + b"\x48" * 61 + b"e"


def test_an_aborted_aligned_sink_leaves_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    sink = AlignedSink(store.create("f"))
    sink.write_aligned([b"abc"])
    sink.abort()
    assert list(store.list("")) == []


def test_the_least_recently_used_value_goes_first() -> None:
    cache: ByteCache[str, str] = ByteCache(10)
    cache.put("a", "A", 4)
    cache.put("b", "B", 4)
    assert cache.get("a") == "A"
    cache.put("c", "C", 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("A", None, "C")
    assert (cache.size, len(cache), cache.hits, cache.misses) == (8, 2, 3, 1)


def test_a_value_larger_than_the_budget_is_not_kept() -> None:
    cache: ByteCache[str, int] = ByteCache(10)
    cache.put("a", 1, 5)
    cache.put("big", 2, 11)
    assert (cache.get("big"), cache.get("a"), cache.size) == (None, 1, 5)


def test_a_replaced_value_gives_its_bytes_back() -> None:
    cache: ByteCache[str, int] = ByteCache(10)
    cache.put("a", 1, 6)
    cache.put("a", 2, 7)
    assert (cache.get("a"), cache.size) == (2, 7)
    cache.clear()
    assert (cache.get("a"), cache.size, len(cache)) == (None, 0, 0)


def test_bytes_of_a_removal_that_was_interrupted_are_found_once_the_cache_is_empty() -> None:
    cache: ByteCache[str, int] = ByteCache(10)
    cache.size = 500  # as Ctrl-C leaves it between a removal and its count
    cache.put("a", 1, 5)
    cache.put("a", 1, 5)
    assert (cache.get("a"), cache.size) == (1, 5)


def test_a_value_is_loaded_once() -> None:
    cache: ByteCache[str, list[int]] = ByteCache(10)
    loads: list[int] = []

    def load() -> tuple[list[int], int]:
        loads.append(1)
        return [7], 3

    assert cache.get_or_load("a", load) is cache.get_or_load("a", load)
    assert loads == [1]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 8)), max_size=60))
def test_the_budget_holds_whatever_is_put(puts: list[tuple[int, int]]) -> None:
    cache: ByteCache[int, int] = ByteCache(20)
    sizes: dict[int, int] = {}
    for key, size in puts:
        cache.put(key, key, size)
        sizes[key] = size
        kept = [key for key in sizes if cache.get(key) is not None]
        assert cache.size == sum(sizes[key] for key in kept) <= 20


def test_threads_share_a_cache() -> None:
    cache: ByteCache[int, int] = ByteCache(50)

    def pair(key: int) -> tuple[int, int]:
        return key, 1

    def work() -> None:
        for i in range(2000):
            key = i % 80
            assert cache.get_or_load(key, partial(pair, key)) == key

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Threads that found one value too many at the same time have each removed one.
    assert 50 - 3 <= cache.size == len(cache) <= 50
    assert cache.hits + cache.misses == 8000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
@pytest.mark.parametrize("kind", [os.mkfifo, Path.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path, kind: Any) -> None:
    """As root, whoever measures writes to /dev/null would have a file there from then on."""
    kind(tmp_path / "it")
    before, store = os.lstat(tmp_path / "it"), LocalStore(str(tmp_path))
    with pytest.raises(StoreError, match="cannot write"):
        store.put("it", [b"x"])
    sink = store.create("it")
    sink.write([b"x"])
    with pytest.raises(StoreError, match="cannot write"):
        sink.finish()
    with pytest.raises(StoreError, match="cannot write"), LanceFileWriter(tmp_path / "it") as file:
        file.write_batch(pa.table({"x": [1]}))
    assert os.lstat(tmp_path / "it").st_ino == before.st_ino
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
def test_a_link_to_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    """As root, a file would stand for ``/dev/stdout`` from then on."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"old")
    store = LocalStore(str(tmp_path))
    for name, at in (("bad", "pipe"), ("good", "file"), ("nowhere", "-"), ("round", "round")):
        (tmp_path / name).symlink_to(tmp_path / at)
    with pytest.raises(StoreError, match="cannot write"):
        store.put("bad", [b"x"])
    assert (tmp_path / "bad").is_symlink()
    for name in ("good", "nowhere", "round"):
        store.put(name, [b"x"])
        assert (tmp_path / name).read_bytes() == b"x"
    assert (tmp_path / "file").read_bytes() == b"old"


@pytest.mark.skipif(not Path("/dev/stdout").is_symlink(), reason="this system has none")
def test_a_link_of_the_system_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[str] = []
    monkeypatch.setattr(os, "replace", lambda _, name: replaced.append(name))
    monkeypatch.setattr(local_sink, "write_new", lambda *_: None)
    with pytest.raises(StoreError, match="cannot write"):
        LocalStore("/dev").put("stdout", [b"x"])
    assert not replaced


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system (ext4) of 64 MB with 20 MB free."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    image.touch()
    os.truncate(image, 64 << 20)
    folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        free = os.statvfs(folder)
        with (folder / "fill").open("wb") as file:
            file.write(bytes(free.f_bavail * free.f_frsize - (20 << 20)))
        os.sync()
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.nightly(reason="mounts a file system, as root")
def test_a_file_takes_no_more_of_a_nearly_full_disk_than_its_size(small_disk: Path) -> None:
    store = LocalStore(small_disk)
    for name in ("a", "b"):
        sink = store.create(name)
        sink.write([bytes(3 << 20)])
        assert sink.finish() == 3 << 20
        assert (small_disk / name).stat().st_blocks * 512 < (3 << 20) + (256 << 10)
