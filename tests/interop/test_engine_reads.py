"""Engines that want a few rows read no more of a dataset through glaive than through pylance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
duckdb: Any = pytest.importorskip("duckdb", reason="install the 'interop' group")
pl: Any = pytest.importorskip("polars", reason="install the 'interop' group")

ROWS, PER_FRAGMENT = 120_000, 40_000
VERSIONS = ["2.0", "2.1", "2.2"]
_random = np.random.default_rng(1)
TABLE = pa.table(
    {
        "id": np.arange(ROWS),
        "score": pa.array(_random.random(ROWS), mask=_random.random(ROWS) < 0.1),
        "text": [f"text number {i * 7919}" for i in range(ROWS)],
        "group": [f"group {i % 70}" for i in range(ROWS)],
        "pair": pa.array([[i, i + 1] for i in range(ROWS)], pa.list_(pa.int64())),
        "wide": pa.FixedSizeListArray.from_arrays(
            pa.array(_random.random(ROWS * 48), pa.float32()), 48
        ),
    }
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("reads")
    found = {}
    for version in VERSIONS:
        found[version] = str(folder / version)
        lance.write_dataset(
            TABLE, found[version], max_rows_per_file=PER_FRAGMENT, data_storage_version=version
        )
    return found


def bytes_read(library: Any, place: str, work: Callable[[Any], Any]) -> int:
    """Bytes that work reads of a dataset of which nothing was read yet."""
    dataset = library.dataset(place)
    before = dataset.io_stats_snapshot().read_bytes
    work(dataset)
    return int(dataset.io_stats_snapshot().read_bytes) - before


def size_of(place: str) -> int:
    return sum(file.stat().st_size for file in (Path(place) / "data").iterdir())


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offset", [0, 25_000])
def test_a_slice_reads_the_chunks_it_lies_in(
    places: dict[str, str], version: str, offset: int
) -> None:
    def ask(dataset: Any) -> None:
        rows = dataset.to_table(limit=10, offset=offset)
        assert rows["id"].to_pylist() == list(range(offset, offset + 10))

    ours, theirs = (bytes_read(library, places[version], ask) for library in (glaive, lance))
    assert ours <= theirs * 1.02
    assert ours < size_of(places[version]) / 100


@pytest.mark.parametrize("column", TABLE.schema.names)
def test_a_slice_of_one_column_reads_its_chunks_only(places: dict[str, str], column: str) -> None:
    def ask(dataset: Any) -> None:
        dataset.to_table([column], limit=10, offset=25_000)

    ours, theirs = (bytes_read(library, places["2.1"], ask) for library in (glaive, lance))
    assert ours <= theirs


def test_lazy_frames_of_fragments_read_no_more_than_through_pylance(places: dict[str, str]) -> None:
    # As scan_lance of Polars asks for the slice (50_000, 10).
    def ask(dataset: Any) -> None:
        fragment = dataset.get_fragments()[1]
        scan = dataset.scanner(["id", "text"], fragments=[fragment], limit=10_010)
        assert sum(batch.num_rows for batch in scan.to_batches()) == 10_010

    ours, theirs = (bytes_read(library, places["2.1"], ask) for library in (glaive, lance))
    assert ours <= theirs


def test_deleted_rows_before_a_slice_change_little(tmp_path: Path) -> None:
    place = str(tmp_path / "some")
    lance.write_dataset(TABLE, place, data_storage_version="2.1")
    glaive.dataset(place).delete("id % 100 = 3")

    def ask(dataset: Any) -> None:
        assert dataset.to_table(limit=10, offset=990)["id"].to_pylist()[0] == 1000

    ours, theirs = (bytes_read(library, place, ask) for library in (glaive, lance))
    assert ours <= theirs * 1.02


@pytest.mark.parametrize("columns", ["*", "id"])
def test_a_limit_of_duckdb_reads_a_batch(places: dict[str, str], columns: str) -> None:
    def ask(dataset: Any) -> None:
        assert dataset is not None
        assert len(duckdb.sql(f"SELECT {columns} FROM dataset LIMIT 10").fetchall()) == 10

    # Its threads may ask for a second batch, which is twice as large; pylance reads ahead.
    assert bytes_read(glaive, places["2.1"], ask) < size_of(places["2.1"]) / 4


def test_the_head_of_a_lazy_frame_reads_no_fragment_ahead(places: dict[str, str]) -> None:
    def ask(dataset: Any) -> None:
        head = pl.scan_pyarrow_dataset(dataset).head(10).select("id", "text").collect()
        assert head["id"].to_list() == list(range(10))

    def read_all(dataset: Any) -> None:
        dataset.to_table(["id", "text"])

    # It asks for batches of a fragment's size, and for one more than it needs.
    all_of_it = bytes_read(glaive, places["2.1"], read_all)
    assert bytes_read(glaive, places["2.1"], ask) < 0.7 * all_of_it


def test_a_first_batch_is_about_all_that_is_read_for_it(places: dict[str, str]) -> None:
    def ask(size: int) -> Callable[[Any], Any]:
        return lambda dataset: next(iter(dataset.to_batches(batch_size=size)))

    whole = size_of(places["2.1"])
    assert bytes_read(glaive, places["2.1"], ask(100)) < whole / 50
    assert bytes_read(glaive, places["2.1"], ask(8192)) < whole / 8


def test_what_is_read_in_small_parts_and_then_whole_is_counted_as_what_it_is(
    places: dict[str, str],
) -> None:
    dataset = glaive.dataset(places["2.1"])
    for first in range(0, 3000, 1000):
        dataset.to_table(limit=10, offset=first)
    small = dataset.io_stats_snapshot().read_bytes
    dataset.to_table()

    assert small < size_of(places["2.1"]) / 20
    assert small + 0.9 * size_of(places["2.1"]) < dataset.io_stats_snapshot().read_bytes
