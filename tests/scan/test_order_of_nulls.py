"""Null lists are equal in an order, whatever bytes stand where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive import ColumnOrdering

LISTS = pa.FixedSizeListArray.from_arrays(
    pa.array(np.array([5, 6, 1, 2, 9, 9, 0, 0, 3, 3], np.float32)),
    2,
    mask=pa.array([True, False, True, True, False]),
)
"""Values under the nulls differ: a writer may leave any there."""


@pytest.mark.parametrize("limit", [None, 3, 5])
@pytest.mark.parametrize("nested", [False, True])
def test_null_lists_are_equal_and_the_next_column_decides(
    tmp_path: Path, limit: int | None, nested: bool
) -> None:
    column: Any = pa.StructArray.from_arrays([LISTS], ["x"]) if nested else LISTS
    table = pa.table({"id": range(5), "v": column})
    dataset = glaive.write_dataset(table, tmp_path / "t")

    def ids(*order: str | ColumnOrdering) -> list[Any]:
        found = dataset.to_table(["id"], order_by=list(order), limit=limit)
        assert found.num_rows == (5 if limit is None else limit)
        return found["id"].to_pylist()

    assert ids("v") == [1, 4, 0, 2, 3][:limit]
    for ascending in (False, np.bool_(0)):  # pylance takes NumPy's as well
        assert ids("v", ColumnOrdering("id", ascending=ascending)) == [1, 4, 3, 2, 0][:limit]
    nulls_first = ColumnOrdering("v", ascending=False, nulls_first=True)
    assert ids(nulls_first) == [0, 2, 3, 4, 1][:limit]
