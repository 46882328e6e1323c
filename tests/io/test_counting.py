"""The counting store counts what an object store would charge for, and fails on demand."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from glaive.errors import StoreError
from glaive.io.access import open_store
from glaive.testing import CountingStore, Fault, Request
from glaive.types import ByteRange


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    counted = CountingStore(open_store(tmp_path))
    counted.put("x", [bytes(1_000_000)])
    counted.reset()
    return counted


def test_near_ranges_count_once(store: CountingStore) -> None:
    store.open("x").read([ByteRange(0, 10), ByteRange(100, 10), ByteRange(500_000, 10)])
    assert store.by_method == {"read": 2}
    assert store.bytes_read == 120
    assert store.log == [Request("read", "x", 0, 110), Request("read", "x", 500_000, 10)]


def test_opening_counts_nothing_and_size_counts_once(store: CountingStore) -> None:
    reader = store.open("x")
    assert store.requests == 0
    assert reader.size == reader.size == 1_000_000
    assert store.by_method == {"head": 1}


def test_a_tail_tells_the_size_for_free(store: CountingStore) -> None:
    reader = store.open("x")
    reader.tail(100)
    assert reader.size == 1_000_000
    assert store.log == [Request("tail", "x", 999_900, 100)]


def test_a_reader_never_says_it_is_mapped(store: CountingStore) -> None:
    assert store.inner.open("x").mapped
    assert not store.open("x").mapped


def test_writes_are_counted_in_bytes(store: CountingStore) -> None:
    sink = store.create("y")
    sink.write([b"abc", b"d"])
    sink.finish()
    store.put("z", [b"12345"], mode="create")
    assert store.bytes_written == 9
    assert store.by_method == {"create": 1, "write": 1, "finish": 1, "put": 1}


def test_the_nth_request_fails_and_nothing_happens(store: CountingStore) -> None:
    store.inject(Fault(at=2, method="put"))
    store.put("a", [b"1"])
    with pytest.raises(StoreError, match="injected fault"):
        store.put("b", [b"1"])
    store.put("c", [b"1"])
    assert [meta.path for meta in store.list("")] == ["a", "c", "x"]


def test_a_lie_does_it_and_raises(store: CountingStore) -> None:
    store.inject(Fault(at=1, kind="lie", method="put", path="manifest"))
    store.put("other", [b"1"])
    with pytest.raises(StoreError):
        store.put("1.manifest", [b"1"])
    assert store.get("1.manifest").to_pybytes() == b"1"


def test_a_fault_may_stay(store: CountingStore) -> None:
    store.inject(Fault(at=1, method="head", forever=True, error=TimeoutError("slow")))
    for _ in range(3):
        with pytest.raises(TimeoutError):
            store.head("x")


def test_a_delay_only_delays(store: CountingStore) -> None:
    store.inject(Fault(at=1, kind="delay", seconds=0.05))
    start = time.perf_counter()
    assert store.get("x").size == 1_000_000
    assert time.perf_counter() - start >= 0.05


@pytest.mark.parametrize("method", ["tail", "read", "get", "list", "head", "delete", "finish"])
def test_every_method_can_fail(store: CountingStore, method: str) -> None:
    store.inject(Fault(at=1, method=method))
    sink = store.create("new")
    actions = {
        "tail": lambda: store.open("x").tail(1),
        "read": lambda: store.open("x").read([ByteRange(0, 1)]),
        "get": lambda: store.get("x"),
        "list": lambda: store.list(""),
        "head": lambda: store.head("x"),
        "delete": lambda: store.delete(["x"]),
        "finish": sink.finish,
    }
    with pytest.raises(StoreError, match=f"cannot {method} "):
        actions[method]()
    sink.abort()
    assert [meta.path for meta in store.inner.list("")] == ["x"]
