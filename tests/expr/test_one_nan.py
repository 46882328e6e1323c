"""NaNs with the sign bit, compared with constants of pyarrow expressions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import glaive

NAN = math.nan
NUMBERS = [NAN, -NAN, 1.0, -1.0, 0.0, -0.0, math.inf, -math.inf, None, -NAN]


def floats(kind: Any) -> Any:
    words = np.array([NAN if one is None else one for one in NUMBERS], kind.to_pandas_dtype())
    nans = np.isnan(words)
    signs = np.array([one is not None and math.copysign(1, one) < 0 for one in NUMBERS])
    words[nans] = np.copysign(words[nans], np.where(signs[nans], -1, 1))
    return pa.array(words, mask=np.array([one is None for one in NUMBERS]))


def compared(column: Any, kind: Any) -> list[tuple[Any, Any]]:
    """Expressions, and the same for a number in the order that has one NaN, the greatest."""

    def order(one: float) -> tuple[bool, float]:
        return math.isnan(one), 0.0 if math.isnan(one) else one

    made: list[tuple[Any, Any]] = []
    for limit in (0.0, 1.0, -1.0, math.inf, -math.inf, NAN):
        constant, at = pa.scalar(kind.to_pandas_dtype()(limit), kind), order(limit)
        made += [
            (column < constant, lambda one, at=at: order(one) < at),
            (column <= constant, lambda one, at=at: order(one) <= at),
            (column == constant, lambda one, at=at: order(one) == at),
            (column != constant, lambda one, at=at: order(one) != at),
            (~(column < constant), lambda one, at=at: order(one) >= at),
            (
                (column < constant) & (column >= -1.0) & (pc.field("id") >= 0),
                lambda one, at=at: (False, -1.0) <= order(one) < at,
            ),
            (
                (column <= constant) & (column < 1.0),
                lambda one, at=at: order(one) <= at and order(one) < (False, 1.0),
            ),
        ]
    listed = column.isin(pa.array([kind.to_pandas_dtype()(NAN), kind.to_pandas_dtype()(1)]))
    made.append((listed, lambda one: math.isnan(one) or one == 1))
    made.append((~listed, lambda one: not (math.isnan(one) or one == 1)))
    made.append((column > NAN, lambda one: one is None))
    made.append((column >= NAN, math.isnan))
    return made


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("index", [None, "BTREE", "BITMAP", "ZONEMAP"])
def test_no_nan_is_below_a_number(
    tmp_path: Path, kind: Any, version: str, index: str | None
) -> None:
    values = floats(kind)
    table = pa.table({"id": range(len(values)), "f": values})
    dataset = glaive.write_dataset(table, tmp_path / "t", data_storage_version=version)
    if index is not None:
        dataset.create_scalar_index("f", index)
    for test, passes in compared(pc.field("f"), kind):
        expected = [at for at, one in enumerate(NUMBERS) if one is not None and passes(one)]
        assert dataset.to_table(filter=test)["id"].to_pylist() == expected, test


def test_nulls_stay_unknown(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(
        pa.table({"id": range(len(NUMBERS)), "f": floats(pa.float64())}), tmp_path / "t"
    )
    for test, _ in compared(pc.field("f"), pa.float64()):
        unknown = dataset.to_table(filter=test.is_null())["id"].to_pylist()
        assert unknown == [NUMBERS.index(None)], test


def test_a_range_is_one_test(tmp_path: Path) -> None:
    rows = pa.table({"f": floats(pa.float64())})
    dataset = glaive.write_dataset(rows, tmp_path / "t")
    plan = dataset.scanner(filter=(pc.field("f") >= 0.0) & (pc.field("f") <= 1.0)).explain_plan()
    assert "`f` >= 0.0 AND `f` <= 1.0" in plan
    assert "in encoded form" in plan
    assert "inf" not in plan


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "condition",
    ["f < 0", "f <= 1", "f > 0", "f >= 1", "f = 1", "f <> 1", "f = 'nan'", "f < 'nan'",
     "f BETWEEN -5 AND 1", "f IN (1, 'nan')", "f NOT IN (1, 2)", "NOT f < 0", "s.x < 0"],
)  # fmt: skip
def test_queries_find_the_rows_that_duckdb_finds(tmp_path: Path, condition: str) -> None:
    duckdb: Any = pytest.importorskip("duckdb")
    values = floats(pa.float64())
    members = pa.StructArray.from_arrays([values], ["x"])
    table = pa.table({"id": range(len(values)), "f": values, "s": members})
    dataset = glaive.write_dataset(table, tmp_path / "t")
    own = duckdb.connect()
    own.register("given", table)
    own.execute("CREATE TABLE kept AS SELECT * FROM given")
    own.register("dataset", dataset.to_pyarrow_dataset())
    query = f"SELECT id FROM {{}} WHERE {condition} ORDER BY id"
    found = own.execute(query.format("dataset")).fetchall()
    assert found == own.execute(query.format("kept")).fetchall()


def test_lazy_frames_find_no_nan_below_a_number(tmp_path: Path) -> None:
    polars: Any = pytest.importorskip("polars")
    table = pa.table({"id": range(len(NUMBERS)), "f": floats(pa.float64())})
    dataset = glaive.write_dataset(table, tmp_path / "t")
    column = polars.col("f")
    for test in (column < 0, column <= 1.0, column == NAN, column != 1, column.is_between(-5, 1)):
        lazy = polars.scan_pyarrow_dataset(dataset).filter(test).collect()
        assert lazy["id"].to_list() == polars.from_arrow(table).filter(test)["id"].to_list()
