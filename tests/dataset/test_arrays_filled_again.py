"""Generators and functions that fill one array of NumPy for each of their batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from glaive.fragment import write_fragments

import glaive
from glaive import LanceDataset, LanceOperation
from glaive.arrow.validation import in_own_memory, own_rows
from glaive.dataset import ScannerBuilder
from glaive.file import LanceFileReader, LanceFileWriter

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float32())])
EXPECTED = pa.table([range(50), range(50)], schema=SCHEMA)


def _arrays() -> Iterator[tuple[Any, Any]]:
    ids, values = np.zeros(10, np.int64), np.zeros(10, np.float32)
    for first in range(0, 50, 10):
        ids[:] = range(first, first + 10)
        values[:] = ids
        yield ids, values


def _batches() -> Iterator[pa.RecordBatch]:
    return (pa.record_batch([pa.array(one) for one in pair], SCHEMA) for pair in _arrays())


class _Loader:
    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return _batches()


SOURCES: dict[str, Callable[[], Any]] = {
    "batches": _batches,
    "tables": lambda: (pa.Table.from_batches([batch]) for batch in _batches()),
    "a reader": lambda: pa.RecordBatchReader.from_batches(SCHEMA, _batches()),
    "an iterable": _Loader,
    "frames": lambda: (pd.DataFrame({"id": ids, "x": x}, copy=False) for ids, x in _arrays()),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("version", ["0.1", "2.2"])
def test_rows_are_those_of_the_time_they_were_given(
    tmp_path: Path, kind: str, version: str
) -> None:
    made = glaive.write_dataset(
        SOURCES[kind](), tmp_path / "a", max_rows_per_file=17, data_storage_version=version
    )
    assert made.to_table().cast(SCHEMA) == EXPECTED
    made.insert(SOURCES[kind]())
    assert made.to_table(offset=50).cast(SCHEMA) == EXPECTED
    parts = write_fragments(SOURCES[kind](), tmp_path / "a", data_storage_version=version)
    by_hand = LanceDataset.commit(tmp_path / "a", LanceOperation.Append(parts), made.version)
    assert by_hand.to_table(offset=100).cast(SCHEMA) == EXPECTED


def test_merges_find_the_rows_that_were_given(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(EXPECTED.slice(0, 5), tmp_path)
    dataset.merge_insert("id").when_not_matched_insert_all().execute(_batches())
    assert dataset.to_table().sort_by("id") == EXPECTED


def test_new_columns_are_what_the_function_returned(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(EXPECTED, tmp_path, max_rows_per_file=20)
    doubled = np.zeros(10, np.int64)

    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        doubled[: batch.num_rows] = 2 * batch["id"].to_numpy()
        return pa.record_batch({"double": doubled[: batch.num_rows]})

    dataset.add_columns(double, batch_size=10)
    assert dataset.to_table()["double"].to_pylist() == [2 * number for number in range(50)]


@pytest.mark.parametrize("as_given", [np.asarray, pa.array], ids=["numpy", "arrow"])
def test_a_search_is_for_the_vector_that_it_was_given(tmp_path: Path, as_given: Any) -> None:
    dataset = glaive.write_dataset({"id": np.arange(9), "v": np.eye(9, dtype="f4")}, tmp_path)
    query = np.zeros(9, np.float32)
    scans = []
    for number in 3, 7, 1:
        query[:] = np.arange(9) == number
        nearest = {"column": "v", "q": as_given(query), "k": 1}
        scans.append(dataset.scanner(columns=["id"], nearest=nearest))
    assert [scan.to_table()["id"].to_pylist() for scan in scans] == [[3], [7], [1]]
    builder = ScannerBuilder(dataset).columns(["id"]).nearest("v", as_given(query), k=1)
    query[:] = np.arange(9) == 5
    assert builder.to_scanner().to_table()["id"].to_pylist() == [1]


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.2"])
def test_an_array_may_be_filled_again_once_it_was_written(tmp_path: Path, version: str) -> None:
    numbers = np.zeros(3)
    for keeps, expected in (False, [1, 1, 1, 2, 2, 2]), (True, [2, 2, 2, 2, 2, 2]):
        path = tmp_path / f"{keeps}.lance"
        with LanceFileWriter(path, version=version, keep_original_array=keeps) as writer:
            for number in 1, 2:
                numbers[:] = number
                writer.write_batch(pa.table({"x": numbers}))
        assert LanceFileReader(path).read_all().to_table()["x"].to_pylist() == expected


@pytest.mark.parametrize("kind", [pa.RecordBatch, pa.Table])
def test_of_a_large_batch_a_part_is_copied_at_a_time(kind: Any) -> None:
    numbers = np.zeros(5_000_000)

    def large() -> Iterator[Any]:
        for value in (1, 2):
            numbers[:] = value
            yield kind.from_arrays([pa.array(numbers)], ["x"])

    before = pa.total_allocated_bytes()
    total = rows = 0.0
    for part in in_own_memory(large()):
        assert pa.total_allocated_bytes() - before <= 33 << 20  # this one and the one before
        total += np.asarray(part["x"]).sum()
        rows += part.num_rows
    assert (total, rows) == (15_000_000, 10_000_000)


def test_what_nobody_can_change_is_not_copied() -> None:
    fixed = np.arange(3)
    fixed.flags.writeable = False
    rows = pa.record_batch({"x": fixed, "y": np.arange(3)})
    owned = own_rows(rows)
    same = [
        one.buffers()[1].address == two.buffers()[1].address
        for one, two in zip(rows, owned, strict=True)
    ]
    assert same == [True, False]
    alone = rows.select(["x"])
    assert own_rows(alone) is alone
