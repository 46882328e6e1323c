"""What reading costs in requests and bytes, as an object store would count them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.io.access import open_store
from glaive.table.load import open_latest
from glaive.testing import CountingStore

ROWS = 40_000


def counted(place: Path, rows: pa.Table) -> tuple[LanceDataset, CountingStore]:
    """A dataset behind a counting store, its manifest already read."""
    glaive.write_dataset(rows, place)
    store = CountingStore(open_store(place))
    opened = LanceDataset.of(store, open_latest(store))
    store.reset()
    return opened, store


def data_requests(store: CountingStore) -> int:
    """Requests that are no metadata: all but the tail, and what lies right before it."""
    return sum(request.method == "read" for request in store.log)


def test_opening_takes_a_listing_and_a_manifest(tmp_path: Path) -> None:
    glaive.write_dataset(pa.table({"a": [1]}), tmp_path)
    store = CountingStore(open_store(tmp_path))
    LanceDataset.of(store, open_latest(store))
    assert store.by_method == {"list": 1, "get": 1}


def test_describing_and_counting_costs_nothing_more(tmp_path: Path) -> None:
    opened, store = counted(tmp_path, pa.table({"a": [1, 2]}))
    assert opened.count_rows() == 2
    assert len(opened.get_fragments()) == 1
    assert opened.scanner(limit=1).count_rows() == 1
    assert opened.to_table(columns=[]).num_rows == 2
    assert store.requests == 0


def test_compaction_opens_each_file_once(tmp_path: Path) -> None:
    glaive.write_dataset(pa.table({"a": range(300)}), tmp_path, max_rows_per_file=100)
    store = CountingStore(open_store(tmp_path))
    opened = LanceDataset.of(store, open_latest(store))
    store.reset()
    opened.optimize.compact_files()
    tails = [request.path for request in store.log if request.method == "tail"]
    assert len(tails) == len(set(tails)) == 3


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    columns = {f"c{i}": rng.integers(0, 2**62, ROWS) for i in range(100)}
    place = tmp_path_factory.mktemp("wide") / "t"
    glaive.write_dataset(pa.table(columns), place)
    return place


@pytest.mark.spec("read-1", "read-2")
def test_two_of_a_hundred_columns_fetch_only_their_bytes(wide: Path) -> None:
    store = CountingStore(open_store(wide))
    opened = LanceDataset.of(store, open_latest(store))
    store.reset()
    table = opened.to_table(["c7", "c70"])
    assert table.num_rows == ROWS
    size = (wide / "data" / opened.get_fragments()[0].data_files()[0].path).stat().st_size
    metadata = [r for r in store.log if r.method != "read" or r.offset > size - 512 * 1024]
    data = [r for r in store.log if r not in metadata]
    assert len(metadata) <= 2
    assert len(data) == 2
    assert 2 * ROWS * 8 <= sum(r.size for r in data) <= 2 * ROWS * 8 * 1.01


def test_a_second_scan_asks_for_no_metadata_again(wide: Path) -> None:
    store = CountingStore(open_store(wide))
    opened = LanceDataset.of(store, open_latest(store))
    opened.to_table(["c7"])
    store.reset()
    opened.to_table(["c7"])
    assert store.by_method == {"read": 1}


def _texts(count: int, prefix: str) -> pa.Array:
    return pa.array([f"{prefix} {i * 7919 % 10_007} {'x' * (i % 50)}" for i in range(count)])


COLUMNS: dict[str, tuple[Callable[[], Any], int]] = {
    "bit-packed numbers": (lambda: np.arange(ROWS), 1),
    "random numbers": (lambda: np.random.default_rng(1).integers(0, 2**62, ROWS), 1),
    "floats": (lambda: np.random.default_rng(1).random(ROWS), 1),
    "vectors": (
        lambda: pa.FixedSizeListArray.from_arrays(
            pa.array(np.random.default_rng(1).random(ROWS * 64).astype("f4")), 64
        ),
        1,
    ),
    "short texts": (lambda: _texts(ROWS, "text"), 2),
    "long texts": (lambda: pa.array([f"{i} " * 400 for i in range(2000)]), 2),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_one_row_costs_one_request_or_two(tmp_path: Path, kind: str) -> None:
    make, most = COLUMNS[kind]
    rows = pa.table({"a": make()})
    opened, store = counted(tmp_path, rows)
    opened.take([1], ["a"])  # opens the file and reads the small tables of the page
    for row in (1234, 17, len(rows) - 1):
        store.reset()
        assert opened.take([row]).equals(rows.slice(row, 1))
        assert store.by_method.keys() == {"read"}
        assert store.requests <= most
        assert store.bytes_read < 200_000


@pytest.mark.parametrize("kind", COLUMNS)
def test_the_first_row_from_a_cold_file_costs_few_requests(tmp_path: Path, kind: str) -> None:
    make, most = COLUMNS[kind]
    rows = pa.table({"a": make()})
    opened, store = counted(tmp_path, rows)
    assert opened.take([1234]).equals(rows.slice(1234, 1))
    assert store.by_method["tail"] == 1
    assert data_requests(store) <= most + 1


def test_columns_of_a_row_are_fetched_together(tmp_path: Path) -> None:
    rows = pa.table({f"c{i}": np.arange(1000) + i for i in range(20)})
    opened, store = counted(tmp_path, rows)
    opened.take([3])
    store.reset()
    assert opened.take([5]).equals(rows.slice(5, 1))
    assert store.requests == 1


def test_a_limit_reads_only_the_fragments_it_needs(tmp_path: Path) -> None:
    place = tmp_path / "t"
    glaive.write_dataset(pa.table({"a": np.arange(50_000)}), place, max_rows_per_file=10_000)
    store = CountingStore(open_store(place))
    opened = LanceDataset.of(store, open_latest(store))
    store.reset()
    assert opened.to_table(limit=10, offset=25_000)["a"][0].as_py() == 25_000
    assert {request.path for request in store.log} == {
        f"data/{opened.get_fragments()[2].data_files()[0].path}"
    }


def test_appending_reads_no_data(tmp_path: Path) -> None:
    rows = pa.table({"a": np.arange(1000)})
    opened, store = counted(tmp_path, rows)
    glaive.write_dataset(rows, opened, mode="append")
    assert store.bytes_read < 100
    assert store.by_method["list"] == 0
    assert {"data", "_transactions", "_versions"} == {
        request.path.split("/")[0] for request in store.log
    }
