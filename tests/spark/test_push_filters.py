"""Filters that Spark hands over keep the very rows that Spark would have kept."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructType

import glaive
import glaive.spark
from glaive.spark.frame import frame_schema, open_dataset, pinned
from glaive.spark.options import Options
from glaive.spark.source import PushingReader
from glaive.spark.types import to_spark
from glaive.spark.versions import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

ROWS = 40
NAN = float("nan")
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
"""One whose sign bit is set, as some processors make them."""


def column(values: list[Any], kind: Any) -> pa.Array:
    """Return a column of these values again and again, some of them null."""
    made = [values[i % len(values)] for i in range(ROWS)]
    made[3] = made[17] = None
    return pa.array(made, kind)


def whole(kind: Any) -> pa.Array:
    signed = pa.types.is_signed_integer(kind)
    most = 2 ** (kind.bit_width - signed) - 1
    return column([0, 1, 5, most, most - 1, 7, *([-1, -most - 1] if signed else [])], kind)


def floats(kind: Any) -> pa.Array:
    values = [0.0, -0.0, 1.5, NAN, OTHER_NAN, float("inf"), float("-inf"), -2.0, 0.1]
    made = np.array([values[i % len(values)] for i in range(ROWS)])
    with np.errstate(invalid="ignore"):
        narrow = made.astype(f"f{kind.bit_width // 8}")
    return pa.array(narrow, mask=np.arange(ROWS) % 14 == 3)


def moments(unit: str, zone: str | None) -> pa.Array:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    seconds = [0, 1, -1, 86_400, 1_700_000_000, -1_000_000]
    values = [one * per_second + more for one in seconds for more in (0, 1, -1)]
    return column(values, pa.timestamp(unit, zone))


def table() -> pa.Table:
    small = [Decimal("1.50"), Decimal("-0.01"), Decimal("0.00"), Decimal("99999.99")]
    texts = ["", "a", "a%b", "a_b", "a\\b", "grüße", "line\nbreak", "ab", "it's", "😀", "A"]
    return pa.table(
        {
            "row": pa.array(range(ROWS)),
            "b": column([True, False], pa.bool_()),
            **{
                str(kind): whole(kind)
                for bits in (8, 16, 32, 64)
                for kind in (getattr(pa, f"int{bits}")(), getattr(pa, f"uint{bits}")())
            },
            "f2": floats(pa.float16()),
            "f4": floats(pa.float32()),
            "f8": floats(pa.float64()),
            "dec": column(small, pa.decimal128(7, 2)),
            "dec_wide": column(small, pa.decimal256(50, 2)),
            "text": column(texts, pa.string()),
            "long": column(texts, pa.large_string()),
            "coded": column(texts, pa.string()).dictionary_encode(),
            "bin": column([b"", b"a", b"\xff\x00", b"ab"], pa.binary()),
            "fixed": column([b"aa", b"ab", b"\xff\x00"], pa.binary(2)),
            "date": column([0, 1, -1, 20_000, -700_000], pa.date32()),
            "date64": column([0, 86_400_000], pa.date64()),
            "s_utc": moments("s", "UTC"),
            "ms_tokyo": moments("ms", "Asia/Tokyo"),
            "us_utc": moments("us", "UTC"),
            "ns_utc": moments("ns", "UTC"),
            "ns": moments("ns", None),
            "us": moments("us", None),
            "list": column([[1], [], [2, None]], pa.list_(pa.int32())),
            "st": pa.array(
                [
                    None if i % 9 == 4 else {"a.b": None if i % 5 == 1 else i, "T": {"x": str(i)}}
                    for i in range(ROWS)
                ],
                pa.struct([("a.b", pa.uint8()), ("T", pa.struct([("x", pa.string())]))]),
            ),
        }
    )


UTC = dt.UTC
COMPARISONS: dict[Any, Callable[[Any, Any], bool]] = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
}
WORDS: dict[Any, Callable[[str, str], bool]] = {
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: str.__contains__,
}


def ranked(value: Any) -> Any:
    """Return a value that Python orders as Spark does: NaN equal and last, texts by bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def holds(test: Any, row: dict[str, Any]) -> bool | None:
    """Return what Spark says of a row; None for unknown."""
    if isinstance(test, Not):
        found = holds(test.child, row)
        return None if found is None else not found
    value: Any = row
    for name in test.attribute:
        value = None if value is None else value[name]
    if isinstance(test, IsNull):
        return value is None
    if isinstance(test, IsNotNull):
        return value is not None
    if isinstance(test, EqualNullSafe):
        return ranked(value) == ranked(test.value)
    if value is None:
        return None
    if isinstance(test, In):
        if any(one is not None and ranked(one) == ranked(value) for one in test.value):
            return True
        return None if None in test.value else False
    if type(test) in WORDS:
        return WORDS[type(test)](value, test.value)
    return COMPARISONS[type(test)](ranked(value), ranked(test.value))


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """Return how to read a dataset of all types, in two fragments with a deleted row."""
    place = str(tmp_path_factory.mktemp("push") / "t")
    made = glaive.write_dataset(table(), place, max_rows_per_file=25)
    made.delete("row = 11")
    return Options(uri=place, version=made.version, allow_truncation=True, with_row_id=True)


def reader_of(options: Options, schema: StructType | None = None) -> PushingReader:
    dataset = open_dataset(options)
    shown = schema or to_spark(frame_schema(dataset, options))
    return PushingReader(pinned(options, dataset), shown)


def rows_of(reader: PushingReader) -> list[dict[str, Any]]:
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def every(options: Options) -> list[dict[str, Any]]:
    """Return all rows as Spark sees them."""
    return rows_of(reader_of(options))


def compared(name: str, *values: Any) -> list[Filter]:
    """Return all tests of a column against these values."""
    path = tuple(name.split("/"))
    one_by_one = [kind(path, value) for kind in COMPARISONS for value in values]
    sets = [In(path, list(values)), In(path, [values[0], None]), In(path, [None])]
    tests = [*one_by_one, *sets, IsNull(path), EqualNullSafe(path, None)]
    return [*tests, *map(Not, tests[::2]), IsNotNull(path)]


def words(name: str) -> list[Filter]:
    made = [
        kind((name,), word)
        for kind in WORDS
        for word in ("", "a", "%", "_", "\\", "ü", "\n", "'", "a_b")
    ]
    return [*made, *map(Not, made[::3])]


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


FLOATS = (0.0, -0.0, 1.5, -2.0, NAN, float("inf"), float("-inf"))
INSTANTS = [
    at(f"{day}+00:00")
    for day in (
        "1970-01-01T00:00:00",
        "1970-01-01T00:00:00.001",
        "1969-12-31T23:59:59.999999",
        "1969-12-20T10:13:20",
        "0001-01-01T00:00:00",
        "9999-12-31T23:59:59.999999",
    )
]
PUSHED = {
    **{f"{sign}int{bits}": (0, 5, -1, 127, 255) for sign in ("", "u") for bits in (8, 16, 32)},
    "int64": (5, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1),
    "uint64": (Decimal(5), Decimal(2**64 - 1), Decimal(2**64), Decimal(-1), Decimal(2**63)),
    "_rowid": (3, 2**32, 2**32 + 5, -1),
    "b": (True, False),
    "f2": FLOATS,
    "f4": (*FLOATS, float(np.float32(0.1))),
    "f8": (*FLOATS, 0.1, 1e300),
    "dec": (Decimal("1.50"), Decimal("0.00"), Decimal("1.505"), Decimal(10**9), Decimal(-(10**9))),
    "text": ("", "a_b", "ü", "😀", "it's", "a\\b"),
    "long": ("a", "zz"),
    "coded": ("a", "line\nbreak", "zz"),
    "bin": (b"", b"a", b"\xff"),
    "date": (dt.date(1970, 1, 2), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    **dict.fromkeys(("s_utc", "ms_tokyo", "us_utc", "ns_utc"), tuple(INSTANTS)),
    **dict.fromkeys(("ns", "us"), tuple(one.replace(tzinfo=None) for one in INSTANTS)),
    "st/a.b": (6, 0, 300, -1),
    "st/T/x": ("2", ""),
}


@pytest.mark.sampled(every=30)
@pytest.mark.parametrize("name", PUSHED)
def test_rows_are_those_that_spark_would_keep(
    options: Options, every: list[dict[str, Any]], name: str
) -> None:
    tests = compared(name, *PUSHED[name])
    if name in ("text", "coded", "long"):
        tests += words(name)
    every_column = to_spark(frame_schema(open_dataset(options), options))
    two = StructType([every_column["row"], every_column[name.split("/", maxsplit=1)[0]]])
    for test in tests:
        reader = reader_of(options, two)

        assert list(reader.pushFilters([test])) == [], test

        found = [row["row"] for row in rows_of(reader)]
        assert found == [row["row"] for row in every if holds(test, row)], (test, reader.pushed)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("f2", 0.1),
        ("f4", 0.1),
        ("f8", 1),
        ("dec_wide", "1.50"),
        ("date64", dt.date(1970, 1, 1)),
        ("list", [1]),
        ("fixed", b"aa"),
        ("int64", True),
        ("text", b"a"),
        ("us_utc", dt.datetime(1970, 1, 1)),  # noqa: DTZ001  # this is the point
    ],
)
def test_what_may_differ_is_left_to_spark(options: Options, name: str, value: Any) -> None:
    reader = reader_of(options)
    tests = [EqualTo((name,), value), Not(In((name,), [value])), IsNotNull((name,))]

    rest = list(reader.pushFilters(tests))

    assert [id(one) for one in rest] == [id(one) for one in tests[:2]]
    assert all(row[name] is not None for row in rows_of(reader))


def test_columns_of_another_type_are_tested_for_nulls_only(options: Options) -> None:
    schema = StructType().add("row", "long").add("int8", "long").add("text", "string")
    schema = schema.add("long", StringType("UTF8_LCASE"))
    reader = reader_of(options, schema)
    tests = [EqualTo(("int8",), 5), EqualTo(("long",), "a"), EqualTo(("text",), "a")]

    assert list(reader.pushFilters([*tests, IsNotNull(("int8",))])) == tests[:2]

    assert reader.pushed == ("`text` = 'a'", "`int8` IS NOT NULL")


def test_computed_columns_are_left_to_spark_and_renamed_ones_are_not(options: Options) -> None:
    from dataclasses import replace

    reader = reader_of(
        replace(options, columns={"twice": "row * 2", "number": "row"}, filter="row < 9 or b")
    )
    tests = [LessThan(("twice",), 8), GreaterThan(("number",), 1)]

    assert list(reader.pushFilters(tests)) == tests[:1]

    assert reader.filter == "(row < 9 OR b) AND `row` >= 2"
    assert all(row["twice"] == 2 * row["number"] >= 4 for row in rows_of(reader))


def test_filters_that_are_too_long_are_left_to_spark(options: Options) -> None:
    reader = reader_of(options)
    many = In(("row",), list(range(10_001)))
    texts = [EqualTo(("text",), f"{i}" + "x" * 150_000) for i in range(4)]

    assert list(reader.pushFilters([many, *texts])) == [many, *texts[2:]]


def test_no_task_is_planned_where_no_row_can_pass(options: Options) -> None:
    reader = reader_of(options)

    assert list(reader.pushFilters([LessThan(("uint8",), -3)])) == []
    assert list(reader.partitions()) == []


# ----------------------------------------------------------------------- in a session


@pytest.fixture
def numbers(uri: str) -> str:
    """Return a dataset of a thousand rows."""
    ids = range(1000)
    columns = {"id": ids, "name": [f"n{i}" for i in ids], "f": pa.array(np.arange(1000) / 8)}
    glaive.write_dataset(pa.table(columns), uri)
    return uri


def test_spark_gets_only_rows_that_pass(spark: SparkSession, numbers: str) -> None:
    frame = glaive.spark.read(spark, numbers, push_filters=True)
    kept = frame.where("id >= 500 AND name LIKE 'n9%' AND f > 115D AND length(name) = 4")

    assert [row.id for row in kept.collect()] == list(range(921, 1000))

    plan = kept._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001  # no public way
    assert "Filter (length(name" in plan
    assert "500" not in plan


def test_without_the_session_s_consent_nothing_is_pushed(spark: SparkSession, numbers: str) -> None:
    frame = glaive.spark.read(spark, numbers, push_filters=True)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")

    assert frame.where("id < 10").count() == 10


def test_a_frame_may_be_used_with_several_filters(spark: SparkSession, numbers: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("lance").option("filter", "id % 2 = 0").load(numbers)
        assert frame.where("id < 10").count() == 5
        assert frame.count() == 500
        assert frame.where("id < 10").union(frame.where("id >= 980")).count() == 15
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("name", "constant"),
    [("day", "date'1582-10-10'"), ("moment", "timestamp'1582-10-10 12:00:00Z'")],
)
def test_days_that_spark_takes_for_the_first_of_the_gregorian_calendar_are_left_to_it(
    spark: SparkSession, uri: str, name: str, constant: str
) -> None:
    days = [dt.date(1582, 10, day) for day in range(3, 18)]
    moments = [dt.datetime(day.year, day.month, day.day, 12, tzinfo=UTC) for day in days]
    glaive.write_dataset(pa.table({"day": days, "moment": moments}), uri)

    for operator, expected in (("=", 1), ("<=", 8), (">", 7)):
        frame = glaive.spark.read(spark, uri, push_filters=True)
        assert frame.where(f"{name} {operator} {constant}").count() == expected


def test_decimals_of_which_spark_leaves_28_digits_in_a_filter_are_compared_by_spark(
    spark: SparkSession, uri: str
) -> None:
    long = Decimal("12345678901234567890.123456789012345678")
    near, many = Decimal("12345678901234567890.12345679"), Decimal("9" * 20 + "." + "9" * 18)
    kind = pa.decimal128(38, 18)
    glaive.write_dataset(pa.table({"d": pa.array([long, near, many, Decimal("1.5")], kind)}), uri)

    for condition, expected in (
        (f"d = {long}BD", [long]),
        (f"d in ({long}BD, {many}BD)", [long, many]),
        (f"not (d = {long}BD)", [near, many, Decimal("1.5")]),
        (f"d < {long}BD", [Decimal("1.5")]),
        (f"d > {long}BD and d < 1e21BD", [near, many]),
        ("d = 1.5BD", [Decimal("1.5")]),
    ):
        frame = glaive.spark.read(spark, uri, push_filters=True)
        assert [row.d for row in frame.where(condition).collect()] == expected
