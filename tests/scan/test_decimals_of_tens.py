"""Decimals of scales below 0, which Arrow compares with nothing."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import FilterError

VALUES = [Decimal(number) for number in ("5E3", "5E3", "-3E3", "7E3", "5E3")]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", [pa.decimal128(7, -3), pa.decimal256(40, -3)])
@pytest.mark.parametrize("index", [None, "BTREE", "BITMAP", "ZONEMAP"])
def test_they_are_written_compared_and_searched(
    tmp_path: Path, kind: pa.DataType, index: str | None
) -> None:
    table = pa.table({"id": range(6), "v": pa.array([*VALUES, None], kind)})
    equal = table.slice(0, 2)
    dataset = glaive.write_dataset(table, tmp_path / "t")
    dataset.insert(equal)
    dataset.insert(table.slice(0, 5))
    assert dataset.to_table().equals(pa.concat_tables([table, equal, table.slice(0, 5)]))
    dataset.delete("_rowoffset > 5")
    if index is not None:
        dataset.create_scalar_index("v", index)
    for predicate, ids in {
        "v = decimal(7, 0) '5000'": [0, 1, 4],
        "v >= decimal(7, 0) '5000'": [0, 1, 3, 4],
        "v IN (decimal(7, 0) '7000', decimal(7, 0) '-3000')": [2, 3],
        "v = decimal(7, -3) '5000'": [0, 1, 4],
        "v IN (7000, -3000)": [2, 3],
        "v < 5000": [2],
        "v * 2 - 1 = 9999": [0, 1, 4],
        "CAST(v AS bigint) = 5000": [0, 1, 4],
        "v = abs(v)": [0, 1, 3, 4],
        "v IS NOT DISTINCT FROM v": [0, 1, 2, 3, 4, 5],
        "v IS NULL": [5],
    }.items():
        for asked in (True, False):
            found = dataset.to_table(["id"], predicate, use_scalar_index=asked)
            assert found["id"].to_pylist() == ids, predicate
    with pytest.raises(FilterError, match=r"constant 5500 .* does not fit .*, -3"):
        dataset.to_table(filter="v = 5500")
