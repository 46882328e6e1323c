"""Scans return the rows asked for, in order, in bounded memory, on all cores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import OptionError
from glaive.io.access import open_store
from glaive.scan.options import ScanOptions
from glaive.scan.run import stream
from glaive.scan.run.parts import FragmentWindows
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.run.stream import rebatch
from glaive.testing import CountingStore, open_on

ROWS = 5000


def make(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "score": pa.array(rng.random(rows), mask=rng.random(rows) < 0.1),
            "name": [f"name {i % 97}" for i in range(rows)],
            "meta": [{"x": i, "y": None if i % 3 else str(i)} for i in range(rows)],
            "tags": [list(range(i % 4)) for i in range(rows)],
        }
    )


TABLE, TABLE_60 = make(ROWS), make(60_000)


@pytest.fixture(scope="module", params=["mapped", "fetched"])
def dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> LanceDataset:
    place: Any = tmp_path_factory.mktemp("scan") / "t.lance"
    if request.param == "fetched":
        place = f"memory://{place.parent.name}/t"
    return glaive.write_dataset(TABLE, place, max_rows_per_file=1700)


def test_a_table_is_what_was_written(dataset: LanceDataset) -> None:
    assert dataset.to_table().equals(TABLE)


def test_batches_are_what_was_written(dataset: LanceDataset) -> None:
    assert pa.Table.from_batches(dataset.to_batches()).equals(TABLE)


def test_batches_end_at_their_size_and_at_fragments(dataset: LanceDataset) -> None:
    sizes = [batch.num_rows for batch in dataset.to_batches(batch_size=1000)]
    assert sizes == [1000, 700, 1000, 700, 1000, 600]


def test_strict_batches_cross_fragments(dataset: LanceDataset) -> None:
    batches = list(dataset.to_batches(batch_size=1500, strict_batch_size=True))
    assert [batch.num_rows for batch in batches] == [1500, 1500, 1500, 500]
    assert pa.Table.from_batches(batches).equals(TABLE)


def test_batches_can_be_bounded_in_bytes(dataset: LanceDataset) -> None:
    batches = list(dataset.to_batches(columns=["id"], batch_size_bytes=800))
    assert {batch.num_rows for batch in batches[:10]} == {100}
    assert pa.Table.from_batches(batches).equals(TABLE.select(["id"]))


@pytest.mark.parametrize("place", ["{}/t", "memory://first-batches{}/t"])
def test_first_batches_are_as_large_as_others_though_rows_are_deleted(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_SOON_BYTES", 0)
    dataset = glaive.write_dataset(make(60_000), place.format(tmp_path), max_rows_per_file=45_000)
    for expected in (TABLE_60, TABLE_60.filter(pa.array(np.arange(60_000) % 7 != 3))):
        batches = list(dataset.to_batches(batch_size=1500))
        assert pa.Table.from_batches(batches).equals(expected)
        assert [batch.num_rows == 1500 for batch in batches].count(False) <= 2
        dataset.delete("id % 7 = 3")


@pytest.mark.parametrize(("rows", "parts"), [(20_000, 1), (400_000, 3)])
def test_a_stream_of_few_bytes_is_read_in_one_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, parts: int
) -> None:
    table = pa.concat_tables([make(20_000)] * (rows // 20_000))
    dataset = glaive.write_dataset(table, tmp_path / "t")
    read: list[int] = []
    batches = FragmentWindows.batches

    def counted(part: FragmentWindows, run: ScanRun) -> Iterator[pa.RecordBatch]:
        read.append(part.rows)
        return batches(part, run)

    monkeypatch.setattr(FragmentWindows, "batches", counted)
    assert sum(batch.num_rows for batch in dataset.to_batches()) == rows
    assert min(len(read), 3) == parts


def test_a_stream_that_is_left_has_fetched_little_and_one_read_to_its_end_all_once(
    tmp_path: Path,
) -> None:
    place = f"memory://left-streams{tmp_path}/t"
    glaive.write_dataset(make(60_000), place, max_rows_per_file=20_000)

    def fetched(work: Callable[[LanceDataset], Any]) -> tuple[int, int]:
        dataset = glaive.dataset(place)
        work(dataset)
        stats = dataset.io_stats_snapshot()
        return stats.read_bytes, stats.read_iops

    whole, requests = fetched(LanceDataset.to_table)
    first, _ = fetched(lambda dataset: next(dataset.to_batches(batch_size=100)))
    streamed, parts = fetched(lambda dataset: list(dataset.to_batches(batch_size=100)))

    assert first < 0.4 * whole  # with the end of the file, which holds its metadata
    assert streamed < 1.15 * whole  # pages that are small are fetched whole
    assert parts <= requests + 12


def test_the_first_batch_of_few_fetched_bytes_needs_a_part_of_them(tmp_path: Path) -> None:
    place = f"memory://few-bytes{tmp_path}/t"
    size = 0
    glaive.write_dataset(make(50_000), place)
    for work in (LanceDataset.to_table, lambda dataset: next(dataset.to_batches(batch_size=100))):
        dataset = glaive.dataset(place)
        work(dataset)
        whole, size = size, dataset.io_stats_snapshot().read_bytes
    assert size < 0.6 * whole


@pytest.mark.parametrize(("columns", "rows"), [(None, 30_000), (["id"], 1)])
def test_a_fetched_stream_waits_for_one_part_before_it_reads_ahead_and_for_none_if_all_is_small(
    tmp_path: Path, columns: list[str] | None, rows: int
) -> None:
    place = f"memory://parts-ahead{tmp_path}/t"
    glaive.write_dataset(make(60_000), place, max_rows_per_file=45_000)
    store = CountingStore(open_store(place))
    dataset = open_on(store)

    def files() -> set[str]:
        return {request.path for request in store.log if request.path.endswith(".lance")}

    batches = dataset.to_batches(columns, batch_size=1500)
    seen = next(batches).num_rows
    assert len(files()) == (2 if rows == 1 else 1)
    while seen < rows:
        seen += next(batches).num_rows
    assert len(files()) == 2


def test_rows_may_come_in_any_order_but_come_once(dataset: LanceDataset) -> None:
    batches = dataset.to_batches(columns=["id"], scan_in_order=False)
    assert pa.Table.from_batches(batches).sort_by("id").equals(TABLE.select(["id"]))


@given(
    limit=st.none() | st.integers(0, ROWS + 10),
    offset=st.none() | st.integers(0, ROWS + 10),
    batch_size=st.integers(1, 2000),
)
def test_limit_and_offset_cut_a_range(
    dataset: LanceDataset, limit: int | None, offset: int | None, batch_size: int
) -> None:
    expected = TABLE.select(["id", "name"]).slice(offset or 0, limit)
    scanner = dataset.scanner(["id", "name"], limit=limit, offset=offset, batch_size=batch_size)
    assert scanner.to_table().equals(expected)
    assert scanner.count_rows() == expected.num_rows
    batches = list(scanner.to_batches())
    assert pa.Table.from_batches(batches, expected.schema).equals(expected)
    assert all(0 < batch.num_rows <= batch_size for batch in batches)


def test_columns_come_in_the_order_asked_for(dataset: LanceDataset) -> None:
    assert dataset.to_table(["tags", "id"]).equals(TABLE.select(["tags", "id"]))


def test_members_of_structs_can_be_had_alone(dataset: LanceDataset) -> None:
    table = dataset.to_table(["meta.y", "id"], limit=3, offset=1698)
    assert table.to_pydict() == {"meta.y": ["1698", None, None], "id": [1698, 1699, 1700]}


def test_null_structs_have_null_members(tmp_path: Path) -> None:
    rows = pa.table({"s": pa.array([{"x": 1}, None, {"x": None}])})
    written = glaive.write_dataset(rows, tmp_path / "t")
    assert written.to_table(["s.x"]).to_pydict() == {"s.x": [1, None, None]}


@pytest.mark.spec("frag-2")
def test_row_ids_are_addresses(dataset: LanceDataset) -> None:
    table = dataset.to_table(["id"], with_row_id=True, with_row_address=True, offset=1699, limit=2)
    assert table["_rowid"].to_pylist() == [1699, 1 << 32]
    assert table["_rowaddr"].equals(table["_rowid"])


def test_stable_row_ids_are_what_the_manifest_says(tmp_path: Path) -> None:
    written = glaive.write_dataset(
        TABLE, tmp_path / "t", enable_stable_row_ids=True, max_rows_per_file=2000
    )
    assert written.has_stable_row_ids
    table = written.to_table(["id"], with_row_id=True, with_row_address=True)
    assert table["_rowid"].to_pylist() == list(range(ROWS))
    assert table["_rowaddr"][2000].as_py() == 1 << 32


def test_no_columns_still_count_rows(dataset: LanceDataset) -> None:
    assert dataset.to_table(columns=[]).num_rows == ROWS
    assert sum(batch.num_rows for batch in dataset.to_batches(columns=[])) == ROWS


def test_only_row_ids_read_no_file(dataset: LanceDataset) -> None:
    assert dataset.to_table(columns=[], with_row_id=True).num_rows == ROWS


def test_fragments_can_be_picked_and_ordered(dataset: LanceDataset) -> None:
    first, second, third = dataset.get_fragments()
    table = dataset.to_table(["id"], fragments=[third, first])
    assert table["id"].to_pylist() == [*range(3400, 5000), *range(1700)]
    assert dataset.to_table(["id"], fragments=[second.fragment_id], limit=1)["id"].to_pylist() == [
        1700
    ]


def test_stopping_early_is_harmless(dataset: LanceDataset) -> None:
    batches = dataset.to_batches(batch_size=10)
    assert next(batches).num_rows == 10
    del batches
    assert dataset.to_table().num_rows == ROWS


def test_arrays_outlive_the_dataset(tmp_path: Path) -> None:
    written = glaive.write_dataset(TABLE, tmp_path / "t")
    table = written.to_table(["id", "score"])
    del written
    for path in (tmp_path / "t" / "data").iterdir():
        path.unlink()
    assert table.equals(TABLE.select(["id", "score"]))


def test_wide_rows_make_small_windows(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(200 * 65_536, "f4")), 65_536)
    written = glaive.write_dataset(pa.table({"v": vectors}), tmp_path / "t")
    sizes = [batch.num_rows for batch in written.to_batches()]
    assert sum(sizes) == 200
    assert max(sizes) <= 64


def test_windows_of_a_narrow_column_have_more_rows(tmp_path: Path) -> None:
    rows = 300_000
    table = pa.table({name: np.arange(rows) for name in "abcdef"} | {"flag": [True] * rows})
    made = glaive.write_dataset(table, tmp_path / "t")
    flags = [batch.num_rows for batch in made.to_batches(columns=["flag"], batch_size=rows)]
    assert flags == [rows]
    whole = list(made.to_batches(batch_size=rows))
    assert pa.Table.from_batches(whole).equals(table)
    assert max(batch.num_rows for batch in whole) <= 256 * 1024


def test_an_empty_dataset_has_a_schema(tmp_path: Path) -> None:
    written = glaive.write_dataset(TABLE.slice(0, 0), tmp_path / "t")
    assert written.to_table().equals(TABLE.slice(0, 0))
    assert list(written.to_batches()) == []
    assert written.scanner().to_reader().read_all().schema.equals(TABLE.schema)
    assert written.count_rows() == 0


STREAM = """
import resource, sys
import numpy as np, pyarrow as pa
import glaive
place = sys.argv[1]
def rows():
    rng = np.random.default_rng(0)
    for at in range(40):
        values = rng.random(500_000)
        yield pa.record_batch({"a": values, "b": values[::-1], "n": np.arange(len(values)) + at})
schema = pa.schema({"a": pa.float64(), "b": pa.float64(), "n": pa.int64()})
if len(sys.argv) > 2:
    glaive.write_dataset(rows(), place, schema=schema)
else:
    dataset = glaive.dataset(place)
    next(dataset.to_batches())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = sum(batch.num_rows for batch in dataset.to_batches())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(seen, grown // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted differently elsewhere")
def test_streaming_takes_bounded_memory(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-c", STREAM, str(tmp_path / "t"), *arguments]
        environment = {**os.environ, "GLAIVE_KERNELS": "auto"}
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment
        ).stdout

    run("write")
    size = sum(path.stat().st_size for path in (tmp_path / "t" / "data").iterdir())
    rows, grown = map(int, run().split())
    assert rows == 20_000_000
    assert size > 350_000_000
    assert grown < 250


def mapped_bytes(folder: Path) -> int:
    """Bytes of files below a folder that are mapped into this process and in memory."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text("utf-8", "replace").splitlines():
        if "-" in line.partition(" ")[0]:
            inside = str(folder) in line
        elif inside and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped")
def test_a_long_stream_lets_go_of_mapped_pages_and_a_short_one_keeps_them(tmp_path: Path) -> None:
    numbers = np.random.default_rng(1).integers(0, 2**60, 2_500_000)
    glaive.write_dataset(dict.fromkeys("abc", numbers), tmp_path / "t")
    made = glaive.dataset(tmp_path / "t")
    column = 7 * len(numbers)  # bytes in the file, at least
    assert sum(batch.num_rows for batch in made.to_batches()) == len(numbers)
    assert mapped_bytes(tmp_path) < 2 * column
    assert sum(batch.num_rows for batch in made.to_batches(columns=["a"])) == len(numbers)
    before = mapped_bytes(tmp_path)
    assert before > column // 2
    assert sum(batch.num_rows for batch in made.to_batches(columns=["a"])) == len(numbers)
    assert mapped_bytes(tmp_path) >= before


def test_rows_that_fit_no_single_batch_are_refused() -> None:
    lists = pa.ListArray.from_arrays([0, 2**30], pa.nulls(2**30))
    rows = [pa.record_batch({"l": lists})] * 3  # more items than 31 bits count
    with pytest.raises(OptionError, match="3 rows do not fit one batch"):
        list(rebatch(rows, ScanOptions.of(batch_size=3, strict_batch_size=True)))
