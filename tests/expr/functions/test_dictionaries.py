"""Columns of numbers and bytes with a dictionary are what they stand for to functions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive

INDICES = pa.array([0, 1, 1, None, 2], pa.int8())


def encoded(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(INDICES, values)


ROWS = pa.table(
    {
        "id": range(5),
        "whole": encoded(pa.array([1, -2, 10], pa.int64())),
        "real": encoded(pa.array([1.0, -2.0, 10.0], pa.float32())),
        "raw": encoded(pa.array([b"1", b"x", b"10"], pa.binary())),
        "plain": [1, 2, 3, 4, 5],
    }
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("power(whole, 2) = 4", [1, 2]),
        ("round(real) = 1", [0]),
        ("signum(whole) = 1", [0, 4]),
        ("nullif(whole, 1) IS NULL", [0, 3]),
        ("greatest(whole, 0) = 1", [0]),
        ("repeat('a', whole) = 'a'", [0]),
        ("array_has([1, 2], whole)", [0]),
        ("nanvl(real, 1.0) = 1.0", [0]),
        ("sha256(raw) IS NOT NULL", [0, 1, 2, 4]),
        ("nvl2(whole, whole, 5) > 4", [3, 4]),
        ("nvl(real, 1.5) > 1", [3, 4]),
        ("nvl(whole, 1.5) > 1", [3, 4]),
        ("nvl(whole, plain) > 2", [3, 4]),
        ("nvl(raw, x'31') = x'31'", [0, 3]),
    ],
)
def test_functions_take_values_of_a_dictionary(tmp_path: Path, text: str, found: list[int]) -> None:
    made = glaive.write_dataset(ROWS, tmp_path / "t")
    assert made.to_table(["id"], text)["id"].to_pylist() == found


def test_the_first_value_that_is_not_null_is_a_number_where_both_are(tmp_path: Path) -> None:
    made = glaive.write_dataset(ROWS, tmp_path / "t")
    column = made.to_table({"v": "nvl(whole, 7)"})["v"]
    assert column.type == pa.int64()
    assert column.to_pylist() == [1, -2, -2, 7, 10]
