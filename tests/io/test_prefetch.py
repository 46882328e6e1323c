"""Mapped files read by prefetched ranges."""

from __future__ import annotations

from pathlib import Path

from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore, RangeReader
from glaive.io.uri import open_store
from glaive.io.wrapped import PrefetchingReader, PrefetchingStore
from glaive.types import ByteRange

CONTENT = bytes(range(256)) * 4096


def test_ranges_are_views_of_the_map_without_saying_so(tmp_path: Path) -> None:
    store = PrefetchingStore(LocalStore(tmp_path))
    store.put("x", [CONTENT])
    reader = store.open("x")
    assert isinstance(reader, PrefetchingReader)
    assert isinstance(reader, RangeReader)
    assert not reader.mapped
    asked = [ByteRange(500_000, 100), ByteRange(3, 0), ByteRange(1, 9000)]
    assert [b.to_pybytes() for b in reader.read(asked)] == [CONTENT[o : o + s] for o, s in asked]
    assert reader.tail(5).to_pybytes() == CONTENT[-5:]
    assert (reader.size, reader.path) == (len(CONTENT), str(tmp_path / "x"))
    reader.advise_pattern("random")
    reader.advise(asked, "willneed")
    reader.close()


def test_all_else_is_passed_on(tmp_path: Path) -> None:
    store = PrefetchingStore(LocalStore(tmp_path))
    assert isinstance(store, ObjectStore)
    sink = store.create("a/x")
    sink.write([b"1"])
    sink.finish()
    assert store.get("a/x").to_pybytes() == b"1"
    assert store.head("a/x").size == 1
    assert [meta.path for meta in store.list("a")] == [meta.path for meta in store.walk("")]
    assert (store.uri, store.full("a/x")) == (str(tmp_path), str(tmp_path / "a/x"))
    store.delete(["a/x"])
    assert list(store.walk("")) == []


def test_other_stores_keep_their_readers() -> None:
    inner = open_store("memory://advised")
    inner.put("x", [CONTENT])
    assert not isinstance(PrefetchingStore(inner).open("x"), PrefetchingReader)


def test_a_file_just_written_is_in_memory(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("x", [CONTENT])
    reader = store.open("x")
    assert reader.tail(len(CONTENT)).to_pybytes() == CONTENT
    assert not reader.is_cold()
