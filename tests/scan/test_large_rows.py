"""Rows that together do not fit one Arrow array: they come in several chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.types import MAX_OFFSET

MIB = 1 << 20
LONG = pytest.mark.nightly(reason="takes two gigabytes of each kind of file")
TEXT = "".join(map(chr, np.random.default_rng(0).integers(97, 123, MIB)))


def write(place: Path, version: str = "2.0") -> LanceDataset:
    table = pa.table({"id": [0, 1, 2], "s": ["a", TEXT, None], "l": [[TEXT], [], None]})
    return glaive.write_dataset(table, str(place / "data"), data_storage_version=version)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "column", "row"),
    [
        ("0.1", "l", 0),
        *(
            pytest.param(version, column, row, marks=LONG)
            for version, column, row in [
                *[("0.1", "s", 1), ("2.0", "s", 1), ("2.1", "s", 1), ("2.2", "s", 1)],
                *[("2.0", "l", 0), ("2.1", "l", 0), ("2.2", "l", 0)],
            ]
        ),
    ],
)
def test_a_large_value_may_be_taken_many_times(
    tmp_path: Path, version: str, column: str, row: int
) -> None:
    dataset = write(tmp_path, version)
    times = MAX_OFFSET // MIB + 2
    taken = dataset.take([2, *[row] * times, 0], columns=["id", column])
    taken.validate()
    assert taken.num_rows == times + 2
    assert taken[column].num_chunks > 1
    assert taken["id"][-2:].to_pylist() == [row, 0]
    value: Any = taken[column][-2].as_py()
    assert value == (TEXT if column == "s" else [TEXT])


def test_new_columns_do_not_repeat_large_values_for_deleted_rows(tmp_path: Path) -> None:
    rows = 1 + MAX_OFFSET // (4 * MIB)
    texts = pa.array([TEXT, *["x"] * rows, "last"])
    table = pa.table({"id": np.arange(rows + 2), "s": texts})
    dataset = glaive.write_dataset(table, str(tmp_path / "data"))
    dataset.delete(f"id > 0 AND id <= {rows}")
    dataset.add_columns({"twice": "concat(s, s, s, s)"})
    found = dataset.to_table(columns=["id", "twice"])
    assert found["id"].to_pylist() == [0, rows + 1]
    assert found["twice"].to_pylist() == [TEXT * 4, "last" * 4]
    dataset.validate()


@LONG
@pytest.mark.spec("rel-24")
def test_rows_of_many_pages_for_which_a_file_has_few_bytes_come_in_parts(tmp_path: Path) -> None:
    size, rows = 2**28, 12
    lists = pa.LargeListArray.from_arrays(pa.array([0, size]), pa.nulls(size, pa.int8()))
    row = pa.record_batch([lists], ["l"])
    source = pa.RecordBatchReader.from_batches(row.schema, (row for _ in range(rows)))
    dataset = glaive.write_dataset(source, str(tmp_path / "data"), data_storage_version="2.0")
    sizes = [batch.nbytes for batch in dataset.to_batches()]
    assert max(sizes) <= MAX_OFFSET + 2 * size
    assert sum(sizes) > rows * size
