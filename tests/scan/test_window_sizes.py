"""Windows of scans have a size in memory, however few bytes of a file stand for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.dataset.test_claimed_rows import rewrite

import glaive
from glaive.arrow.chunked import value_bytes
from glaive.dataset.dataset import LanceDataset
from glaive.scan.filter_search import FragmentSelection, Search
from glaive.scan.options import ScanOptions
from glaive.scan.plan import FragmentRows
from glaive.scan.query import make_query
from glaive.scan.run.parts import FragmentWindows
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.views import Views

ROWS, BLOCK = 60_000, 5000
ALL_IN_ONE = 1_000_000
"""Rows of a batch: each window is one."""

MB = 1024 * 1024


def texts() -> pa.Array:
    return pa.array(["x" * 4000]).take(pa.array([0] * BLOCK))


def lists() -> pa.Array:
    return pa.array([[7] * 500] * BLOCK, pa.list_(pa.int64()))


def structs() -> pa.Array:
    return pa.StructArray.from_arrays([texts()], ["text"])


@pytest.fixture(
    scope="module", params=[(texts, "2.0"), (texts, "2.1"), (structs, "2.1"), (lists, "2.1")]
)
def dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> LanceDataset:
    """240 MB of rows in a file of a few MB at most."""
    make: Callable[[], Any] = request.param[0]
    values = make()

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, ROWS, BLOCK):
            ids = pa.array(range(first, first + BLOCK))
            yield pa.RecordBatch.from_arrays([ids, values], ["id", "value"])

    schema = pa.schema([("id", pa.int64()), ("value", values.type)])
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    place: Path = tmp_path_factory.mktemp("windows") / "t.lance"
    return glaive.write_dataset(reader, place, data_storage_version=request.param[1])


def opened_again(dataset: LanceDataset) -> LanceDataset:
    return glaive.dataset(dataset.uri, session=glaive.Session())


def largest(batches: Iterator[pa.RecordBatch]) -> int:
    rows, most = 0, 0
    for batch in batches:
        rows, most = rows + batch.num_rows, max(most, batch.nbytes)
    assert rows == ROWS
    return most


@pytest.mark.sampled(every=2)
def test_streams_of_compressed_values_hold_windows_of_some_megabytes(dataset: LanceDataset) -> None:
    assert largest(opened_again(dataset).to_batches(batch_size=ALL_IN_ONE)) <= 36 * MB


def test_so_do_streams_that_end_at_a_limit(dataset: LanceDataset) -> None:
    again = opened_again(dataset)
    assert largest(again.to_batches(batch_size=ALL_IN_ONE, limit=ROWS)) <= 36 * MB


@pytest.mark.sampled(every=2)
def test_filtered_streams_have_larger_ones(dataset: LanceDataset) -> None:
    again = opened_again(dataset)
    assert largest(again.to_batches(batch_size=ALL_IN_ONE, filter="id >= 0")) <= 130 * MB
    # Now it is known what rows take.
    assert largest(again.to_batches(batch_size=ALL_IN_ONE, filter="id >= 0")) <= 68 * MB


@pytest.mark.nightly(reason="makes large rows")
@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_rows_that_are_tiny_first_do_not_make_windows_of_later_ones_large(
    version: str, tmp_path: Path
) -> None:
    """A filtered stream of a file of 680 KB took 6 GB."""
    empty, large = pa.array([""] * BLOCK), texts()

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(100):
            yield pa.RecordBatch.from_arrays([empty if at < 60 else large], ["value"])

    reader = pa.RecordBatchReader.from_batches(pa.schema([("value", pa.string())]), batches())
    dataset = glaive.write_dataset(reader, tmp_path, data_storage_version=version)
    for test in (None, "value is not null", "length(value) >= 0"):
        streamed = dataset.to_batches(batch_size=ALL_IN_ONE, filter=test)
        sizes = [(batch.num_rows, batch.nbytes) for batch in streamed]
        assert sum(rows for rows, _ in sizes) == 100 * BLOCK
        assert max(size for _, size in sizes) <= 180 * MB


@pytest.mark.spec("rel-24")
def test_what_a_filter_finds_is_made_when_it_is_taken_once_rows_turn_out_to_be_huge(
    tmp_path: Path,
) -> None:
    """Of a window that had to be read in parts all were held: 24 GB of a file of 543 bytes."""
    dataset = glaive.write_dataset({"text": [f"{at}" for at in range(8000)]}, tmp_path)
    query = make_query(Views(dataset.snapshot), ScanOptions.of(filter="length(text) > 0"))
    search = Search.of(ScanRun(query.source, query.options), query.filter)
    query.source.projection.row_sizes.measure(
        0, pa.array(["x" * 1000])
    )  # of which a window has many
    size = 2**29
    text = [None, pa.py_buffer(np.array([0, size])), pa.py_buffer(np.zeros(size, np.uint8))]
    huge = pa.Array.from_buffers(pa.large_binary(), 1, text)
    made = []

    def work(selection: FragmentSelection) -> int:
        selection.bound.projection.row_sizes.measure(0, huge)
        made.append(selection.count)
        return selection.count

    found = FragmentWindows([FragmentRows(0, 0, 8000)]).filter(search, work, stream=True)
    assert next(found) == made[0]
    assert len(made) == 1
    assert made[0] + sum(found) == sum(made) == 8000
    assert len(made) > 1


@pytest.mark.parametrize("is_stream", [True, False])
def test_streams_see_one_window_before_others_are_fetched(is_stream: bool, tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"text": ["x"]}, f"memory://windows/{tmp_path.name}")
    source = Views(dataset.snapshot).take(("text",))
    run, begun = ScanRun(source, ScanOptions()), 0

    def jobs() -> Iterator[int]:
        nonlocal begun
        for number in range(1, 9):
            begun = number
            yield number

    ranges = [FragmentRows(0, 0, 1)]
    done = iter(run.map(lambda job: job, jobs(), ranges, job_bytes=1, stream=is_stream))
    assert next(done) == 1
    assert begun == (1 if is_stream else 8)
    assert list(done) == [*range(2, 9)]


@pytest.mark.spec("rel-25")
def test_the_size_that_a_manifest_claims_for_a_file_makes_no_windows_of_one_row(
    tmp_path: Path,
) -> None:
    glaive.write_dataset(pa.table({"text": ["same"] * ROWS}), tmp_path)
    usual = len(list(glaive.dataset(tmp_path).to_batches(batch_size=ALL_IN_ONE)))

    def change(_: Any, fragments: list[Any]) -> None:
        fragments[0].files[0].file_size_bytes = 2**60

    rewrite(tmp_path, change)
    claimed = glaive.dataset(tmp_path)
    assert len(list(claimed.to_batches(batch_size=ALL_IN_ONE))) == usual
    reader = claimed.scanner(filter="text = 'same'", batch_size=ALL_IN_ONE).to_reader()
    assert len(list(reader)) < 10


@pytest.mark.spec("rel-24")
def test_choosing_among_vectors_of_nulls_takes_no_memory_by_their_items(tmp_path: Path) -> None:
    rows = pa.table({"v": pa.nulls(2**17, pa.list_(pa.null(), 1024))})
    dataset = glaive.write_dataset(rows, tmp_path / "t", data_storage_version="2.2")
    dataset.delete("_rowaddr = 2")
    pool = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(watched)
    try:
        assert dataset.to_table().num_rows == 2**17 - 1
        assert dataset.to_table(filter="_rowaddr % 2 = 0").num_rows == 2**16 - 1
    finally:
        pa.set_memory_pool(pool)
    assert (watched.max_memory() or 0) < 400 * MB  # numbers of all items are 1,024 MB


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("item", [pa.null(), pa.struct([("a", pa.null())])], ids=str)
def test_each_item_of_a_vector_that_arrow_numbers_counts_as_its_number(item: pa.DataType) -> None:
    assert value_bytes(pa.list_(item, 1024)) == 8 * 1024
