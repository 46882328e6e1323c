"""Constants of pyarrow expressions that the type of a column does not hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import glaive
from glaive.errors import FilterError

TIMES = [-(10**9), -1500, -1001, -1000, -1, 0, 1, 999, 1000, 1001, 1500, 2000, 86_399_999, 10**15]


def comparisons(column: Any, constants: list[Any]) -> Iterator[Any]:
    """Comparisons of all kinds, also below others."""
    for one in constants:
        yield from (column < one, column <= one, column > one, column >= one)
        yield from (column == one, column != one, ~(column == one), ~(column < one))
        yield ((column > one) & (pc.field("id") > 2)) | (column == one)
        yield (column == one).is_null()


def selected(dataset: Any, table: pa.Table, test: Any) -> tuple[list[Any], list[Any]]:
    """Rows of the dataset and of the table that pass a test."""
    return dataset.to_table(filter=test)["id"].to_pylist(), table.filter(test)["id"].to_pylist()


@pytest.mark.sampled(every=42)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("other", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("indexed", [False, True])
def test_times_are_compared_with_those_of_other_units_as_arrow_does(
    tmp_path: Path, zone: str | None, unit: str, other: str, *, indexed: bool
) -> None:
    numbers = [*(at for at in TIMES if abs(at) < 10**9), None]
    table = pa.table({"id": range(len(numbers)), "t": pa.array(numbers, pa.timestamp(unit, zone))})
    dataset = glaive.write_dataset(table, tmp_path / "t")
    if indexed:
        dataset.create_scalar_index("t", "BTREE")
    found: Any = pa.array(numbers[:-1], pa.int64()).cast(pa.timestamp(other, zone))
    for test in comparisons(pc.field("t"), list(found)):
        mine, arrow = selected(dataset, table, test)
        assert mine == arrow, test
    listed = pc.field("t").isin(found[3:9])
    mine, _ = selected(dataset, table, listed)
    same = pc.is_in(
        table["t"].cast(pa.timestamp("ns", zone)), found[3:9].cast(pa.timestamp("ns", zone))
    )
    assert mine == table.filter(same)["id"].to_pylist()


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_times_of_day_are_compared_with_those_of_64_bits(tmp_path: Path, unit: str) -> None:
    numbers = [0, 1, 2, 999, 1000, 86_399, None]
    table = pa.table({"id": range(len(numbers)), "t": pa.array(numbers, pa.time32(unit))})
    dataset = glaive.write_dataset(table, tmp_path / "t")
    constants = [pa.scalar(at, pa.time64("us")) for at in (0, 1, 999, 1000, 1_000_000, 1_500_000)]
    for test in comparisons(pc.field("t"), constants):
        mine, arrow = selected(dataset, table, test)
        assert mine == arrow, test


def test_half_floats_are_compared_with_floats(tmp_path: Path) -> None:
    numbers = [0.1, 1, -0.1, 65504, -65504, np.inf, -np.inf, np.nan, 2.5, 0, 6e-8]
    halves = pa.array([*np.array(numbers, np.float16), None], pa.float16())
    table = pa.table({"id": range(len(halves)), "h": halves})
    dataset = glaive.write_dataset(table, tmp_path / "t")
    wide = glaive.write_dataset(
        table.set_column(1, "h", halves.cast(pa.float32())), tmp_path / "wide"
    )
    limits = [0.1, 0.0999, -0.1, 1, 65504, 65519, 65520, 1e30, -1e30, np.inf, -np.inf, np.nan, 1e-9]
    constants = [pa.scalar(limit, pa.float32()) for limit in limits]
    listed = pc.field("h").isin(pa.array(limits, pa.float32()))
    for test in (*comparisons(pc.field("h"), constants), listed, ~listed):
        found = [at.to_table(filter=test)["id"].to_pylist() for at in (dataset, wide)]
        assert found[0] == found[1], test


@pytest.mark.parametrize(
    "kind", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
@pytest.mark.parametrize("column", ["s", "d"])
def test_lists_of_texts_may_be_views_or_dictionaries(
    tmp_path: Path, kind: Any, column: str
) -> None:
    texts = pa.array(["a", "b", "c", None])
    rows = pa.table({"id": range(4), "s": texts, "d": texts.dictionary_encode()})
    dataset = glaive.write_dataset(rows, tmp_path / "t")
    for nulls, expected in (([None], [0, 1, 3]), ([], [0, 1])):
        given: Any = pa.array(["a", "b", "a", *nulls])
        listed = pc.field(column).isin(given.cast(kind))
        assert dataset.to_table(filter=listed)["id"].to_pylist() == expected
        assert dataset.to_table(filter=~listed)["id"].to_pylist() == [2]


@pytest.mark.parametrize(
    "function", [pc.match_substring, pc.match_substring_regex, pc.match_like, pc.starts_with]
)
def test_patterns_that_are_no_texts_are_errors_of_the_filter(tmp_path: Path, function: Any) -> None:
    dataset = glaive.write_dataset(pa.table({"s": ["a"]}), tmp_path / "t")
    with pytest.raises(FilterError, match="is not UTF-8"):
        dataset.to_table(filter=function(pc.field("s"), b"\xff"))


@pytest.mark.parametrize(
    ("kind", "values", "condition"),
    [
        (pa.timestamp("ms", "UTC"), [1000, 2000], "v < TIMESTAMPTZ '1970-01-01 00:00:01.0001+00'"),
        (pa.time32("s"), [1, 2], "v < TIME '00:00:01.5'"),
        (pa.time32("ms"), [1, 2], "v < TIME '00:00:00.0015'"),
    ],
)
def test_queries_select_the_rows_that_duckdb_does(
    tmp_path: Path, kind: Any, values: list[Any], condition: str
) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = pa.table({"id": [0, 1], "v": pa.array(values, kind)})
    with duckdb.connect() as connection:
        connection.register("t", glaive.write_dataset(rows, tmp_path / "t"))
        assert connection.sql(f"SELECT id FROM t WHERE {condition}").fetchall() == [(0,)]
