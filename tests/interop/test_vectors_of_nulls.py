"""Fixed-size lists whose items are all null, which pages hold without values."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

import glaive

lance = pytest.importorskip("lance", reason="install the 'interop' group")

ROWS = 3000


def _columns(dimension: int) -> dict[str, pa.Array]:
    nulls = pa.nulls(ROWS * dimension, pa.float32())
    lists = pa.FixedSizeListArray.from_arrays(nulls, dimension)
    mask = pa.array(np.arange(ROWS) % 3 == 0)
    behind = pa.array([1.0] * dimension * 10 + [None] * dimension * ROWS, pa.float32())
    return {
        "lists": lists,
        "some null": pa.FixedSizeListArray.from_arrays(nulls, dimension, mask=mask),
        "in lists": pa.ListArray.from_arrays(np.arange(ROWS + 1, dtype=np.int32), lists),
        "in structs": pa.StructArray.from_arrays([lists], ["v"], mask=mask),
        "cut off": pa.FixedSizeListArray.from_arrays(behind, dimension).slice(10),
        "booleans": pa.FixedSizeListArray.from_arrays(nulls.cast(pa.bool_()), dimension),
    }


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("dimension", [1, 3, 100])
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("writer", [glaive, lance], ids=["glaive", "pylance"])
@pytest.mark.parametrize("reader", [glaive, lance], ids=["by glaive", "by pylance"])
def test_they_come_back_from_each_others_files(
    tmp_path: Path, writer: ModuleType, reader: ModuleType, version: str, dimension: int
) -> None:
    table = pa.table(_columns(dimension))
    writer.write_dataset(table, str(tmp_path), data_storage_version=version)
    dataset = reader.dataset(str(tmp_path))
    assert dataset.to_table().to_pylist() == table.to_pylist()
    some = [0, 7, ROWS - 1]
    assert dataset.take(some).to_pylist() == table.take(some).to_pylist()
    assert dataset.count_rows("`some null` is null") == table["some null"].null_count


def test_a_single_value_is_kept_with_its_page(tmp_path: Path) -> None:
    items = pa.array([None] * (ROWS * 3 - 1) + [2.5], pa.float32())
    column = pa.FixedSizeListArray.from_arrays(items, 3)
    glaive.write_dataset(pa.table({"v": column}), tmp_path)
    assert glaive.dataset(tmp_path).to_table()["v"].combine_chunks().equals(column)
