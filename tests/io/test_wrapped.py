"""A store around another one goes the ways that the inner one has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.store import IOStats, ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.table.load import open_latest
from glaive.table.root import RootStore, open_other_root

FILES = 6
REQUESTS = {name for name, member in vars(ObjectStore).items() if callable(member)}
Wrap = Callable[[ObjectStore], ObjectStore]

WRAPPERS: dict[str, Wrap] = {
    "wrapped": WrappedStore,
    "wrapped twice": lambda store: WrappedStore(WrappedStore(store)),
    "with a commit lock": RootStore,
}


class Noting(WrappedStore):
    """Counts what is asked of a store, by method."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.asked: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in REQUESTS:
            self.asked[name] += 1
        return super().__getattribute__(name)


def written_and_read(place: Path, wrap: Wrap) -> tuple[Counter[str], IOStats]:
    """What is asked of a directory, and read and written there, by a dataset on a store."""
    rows = pa.table({"id": [1, 2, 3]})
    for _ in range(FILES):
        glaive.write_dataset(rows, place, mode="append")
    noting = Noting(LocalStore(place))
    store = wrap(noting)
    dataset = glaive.LanceDataset.of(store, open_latest(store))
    glaive.write_dataset(rows, dataset, mode="append")
    assert open_latest(store, to_follow=True).version == FILES + 1
    dataset.checkout_latest()
    assert dataset.take(range(0, 3 * FILES, 3))["id"].to_pylist() == [1] * FILES
    assert dataset.count_rows() == 3 * FILES + 3
    return noting.asked, noting.counters.snapshot()


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_dataset_asks_the_same_of_a_directory_through_a_wrapper(
    tmp_path: Path, wrap: Wrap
) -> None:
    asked, done = written_and_read(tmp_path / "plain", lambda store: store)
    asked_wrapped, wrapped = written_and_read(tmp_path / "wrapped", wrap)
    assert asked_wrapped == asked
    assert (wrapped.read_iops, wrapped.write_iops) == (done.read_iops, done.write_iops)
    # The time in a manifest takes a byte more or less.
    assert abs(wrapped.read_bytes - done.read_bytes) <= 2 * done.read_iops
    assert abs(wrapped.written_bytes - done.written_bytes) <= 2 * done.write_iops
    own_ways = {"names", "folder_state", "is_free", "put_new", "rewrite", "get_into"}
    assert own_ways <= asked.keys()
    assert not {"list", "open"} & asked.keys()


def test_a_wrapper_passes_on_all_that_a_store_may_have() -> None:
    own = {name for name in vars(ObjectStore) if not name.startswith("_")}
    made_of_others = {"discard", "file_link_out", "public_uri"}
    assert own - vars(WrappedStore).keys() == made_of_others


def test_a_folder_beside_a_wrapped_directory_is_a_directory(tmp_path: Path) -> None:
    root = RootStore(LocalStore(tmp_path))
    beside = open_other_root(root, f"{tmp_path}/tree/b")
    assert isinstance(beside, RootStore)
    assert beside.inner == LocalStore(tmp_path / "tree" / "b")


def test_a_bucket_has_none_of_what_only_directories_have() -> None:
    store = open_store("memory://plain-contract")
    store.put("a/x", [b"123"])
    assert not store.is_local
    assert (store.names("a"), store.folder_state("a"), store.below("a")) == (None, None, None)
    assert not store.rewrite("a/x", b"456")
    assert not store.is_free("a/y")
    assert (store.link_out("a"), store.is_link("a/x"), store.file_link_out("a/x")) == (
        None,
        False,
        None,
    )
    assert [*store.unfinished(""), *store.links("")] == []
    assert not store.remove_unfinished("a/x")
    store.remove_folders()
    store.remove_empty(["a"])
    assert [*store.empty_folders("")] == []
    memory = bytearray(5)
    assert store.get_into("a/x", memoryview(memory)) == 3
    assert memory == b"123\0\0"
    assert store.get_into("a/x", memoryview(memory)[3:]) == 3
    assert memory == b"12312"
    store.put_new("a/y", [b"4", b"5"])
    store.discard(["a/x"])
    assert [meta.path for meta in store.walk("")] == ["a/y"]
