"""Columns that have a dictionary are cast to the type of their values, and as these are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import SchemaError


def encoded(values: pa.Array) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.int8()), values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1, -2, None], pa.int64()), pa.int64()),
        (pa.array([1, -2, 10], pa.int64()), pa.int16()),
        (pa.array([0.5, None, 2.0], pa.float32()), pa.float64()),
        (pa.array([b"a", b"", b"c"], pa.binary()), pa.large_binary()),
        (pa.array([True, False, True]), pa.bool_()),
    ],
)
def test_values_of_a_dictionary_are_cast_without_it(
    tmp_path: Path, values: pa.Array, kind: pa.DataType
) -> None:
    column = encoded(values)
    items: Any = pa.ListArray.from_arrays(pa.array(range(5), pa.int32()), column)
    made = glaive.write_dataset(pa.table({"v": column, "l": items}), tmp_path / "t")
    made.alter_columns({"path": "v", "data_type": kind}, {"path": "l", "data_type": pa.list_(kind)})
    found = glaive.dataset(tmp_path / "t").to_table()
    assert [column.type for column in found.columns] == [kind, pa.list_(kind)]
    assert found["v"].to_pylist() == column.to_pylist()
    assert found["l"].to_pylist() == items.to_pylist()


def test_values_of_a_dictionary_are_cast_within_their_kind(tmp_path: Path) -> None:
    column = encoded(pa.array([1, -2, 10], pa.int64()))
    made = glaive.write_dataset(pa.table({"v": column}), tmp_path / "t")
    for kind in (pa.string(), pa.float64(), pa.uint8()):
        with pytest.raises(SchemaError, match="cannot be cast from dictionary"):
            made.alter_columns({"path": "v", "data_type": kind})
