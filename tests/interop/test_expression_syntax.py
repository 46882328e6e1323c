"""Ways to write expressions that pylance knows: the same rows and values, or both refuse them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import GlaiveError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

FILTERS = [
    "a NOT NULL",
    "NOT a NOT NULL",
    "a NOT NULL AND n = 1",
    "a ISNULL",
    "n = 1;",
    "n = 1 ;; ",
    "x'01' = x'01'",
    "[a, c] = [1, 4]",
    "array_has([a, c], 4)",
    "a IN ([1])",
    "ts > ts - interval '1 day'",
    "date_trunc('day', ts) = date_trunc('day', ts + interval '1 hour')",
    r"s = 'a\\b'",
]

VALUES = [
    "n + 1;",
    "x'0'",
    "X'0f1'",
    "decimal(38,10) '9999999999999999999999999999.9999999999'",
    "decimal(38,10) '-9999999999999999999999999999.9999999999'",
    "decimal(38,10) '99999999999999999999999999999.9'",
    "[a, c]",
    "make_array(a, c)",
    "array_length([a, c])",
    "coalesce([a], [c])",
    *[f"CAST({name} AS string)" for name in ("li", "lf", "lb", "ls", "ly", "ld", "ldec", "ll")],
    *[f"CAST({name} AS string)" for name in ("lt", "ldu", "lst", "st", "v")],
    "TRY_CAST(li AS string)",
    "concat(li, 'a')",
    "arrow_cast(li, 'LargeUtf8')",
    "interval '1 day'",
    "dd + interval '1 day'",
    "date_bin(interval '15 minutes', ts)",
    "`date_bin`(INTERVAL '1' day, ts)",
    "date_trunc('hour', interval '1 hour' + ts)",
    "date_trunc('day', dd + interval '1 month')",
    "date_trunc('day', dd - interval '2 months 1 day')",
    "date_trunc('day', dd + interval '30 hours')",
    "date_trunc('day', ts + interval '1.5 days')",
    "date_trunc('hour', ts + interval '-1.5 months')",
    "date_trunc('hour', ts - interval '1 year 2 weeks 3 minutes')",
    "regexp_match(lg, 'b.')[1]",
    "regexp_match(s, '.')[1]",
]


def table() -> pa.Table:
    items = pa.struct([("x", pa.int32())])
    lists: dict[str, Any] = {
        "li": pa.array([[1, None], [], None], pa.list_(pa.int32())),
        "lf": pa.array([[1.0, 2.5, 1e20], [float("nan")], None]),
        "lb": pa.array([[True, False], [None], None]),
        "ls": pa.array([["a", "b, c"], [""], None], pa.large_list(pa.string())),
        "ly": pa.array([[b"\x01\xff"], [b""], None]),
        "ld": pa.array([[dt.date(2020, 1, 2)], [], None]),
        "lt": pa.array([[86_400_000_006], [], None], pa.list_(pa.timestamp("us"))),
        "ldu": pa.array([[5], [-90_061_000_000], None], pa.list_(pa.duration("us"))),
        "ldec": pa.array([[Decimal("1.50")], [], None], pa.list_(pa.decimal128(10, 2))),
        "ll": pa.array([[[1], None, [2, 3]], [], None], pa.list_(pa.list_(pa.int32()))),
        "lst": pa.array([[{"x": 1}], [], None], pa.list_(items)),
        "st": pa.array([{"x": 1}, None, {"x": None}], items),
        "v": pa.array([[1, 2], [3, 4], None], pa.list_(pa.float32(), 2)),
    }
    return pa.table(
        {
            "n": [1, 2, 3],
            "a": pa.array([1, None, 3], pa.int32()),
            "c": [4, 5, 6],
            "s": ["a\\b", "x", None],
            "lg": pa.array(["abc", "xbz", None], pa.large_string()),
            "dd": [dt.date(2020, 1, 31)] * 3,
            "ts": pa.array([1_577_934_245_000_006] * 3, pa.timestamp("us")),
            **lists,
        }
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    place: Path = tmp_path_factory.mktemp("syntax") / "t"
    theirs = lance.write_dataset(table(), place, data_storage_version="2.2")
    return theirs, glaive.dataset(place)


def compare(pair: tuple[Any, Any], **options: Any) -> None:
    theirs, ours = pair
    try:
        expected = theirs.to_table(**options)
    except (ValueError, OSError):
        with pytest.raises(GlaiveError):
            ours.to_table(**options)
        return
    found = ours.to_table(**options)
    assert found.to_pylist() == expected.to_pylist()
    assert found.schema.types == expected.schema.types


@pytest.mark.parametrize("text", FILTERS)
def test_filters_keep_the_same_rows(pair: tuple[Any, Any], text: str) -> None:
    compare(pair, columns=["n"], filter=text)


@pytest.mark.parametrize("text", VALUES)
def test_computed_columns_are_the_same(pair: tuple[Any, Any], text: str) -> None:
    compare(pair, columns={"r": text, "n": "n"})


def test_patterns_with_a_backslash_are_not_made_patterns_of_like(pair: tuple[Any, Any]) -> None:
    theirs, ours = pair
    text = r"regexp_like(s, '\\')"
    assert theirs.count_rows(filter=text) == 0
    assert ours.to_table(columns=["n"], filter=text)["n"].to_pylist() == [1]
