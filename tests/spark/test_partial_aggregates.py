"""Queries with ``group by`` that tasks answer in part: values and types are those of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession
from pyspark.sql.types import DecimalType, LongType, StructField, StructType

import glaive
import glaive.spark
from glaive.errors import SchemaError
from glaive.spark.planned_scan import Aggregate, Arithmetic, Constant, Leaf, PartialAggregates

pytest.importorskip("sqlglot", reason="install the extra 'spark'")

pytestmark = pytest.mark.spark

ROWS = 200


def price(row: int) -> Decimal | None:
    return None if row % 11 == 0 else Decimal(row * row - 5000) / 100


@pytest.fixture(scope="module")
def items(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset, and a view of Spark with the same rows."""
    uri = str(tmp_path_factory.mktemp("items") / "items.lance")
    rows = range(ROWS)
    table = pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "shop": pa.array([row % 5 if row % 7 else None for row in rows], pa.int32()),
            "kind": [f"kind {row % 3}" if row % 13 else None for row in rows],
            "day": [date(2026, 1, 1 + row % 28) for row in rows],
            "price": pa.array([price(row) for row in rows], pa.decimal128(15, 2)),
            "rate": pa.array([Decimal(row % 10) / 100 for row in rows], pa.decimal128(15, 2)),
            "small": pa.array([Decimal(row % 10) / 10 for row in rows], pa.decimal128(5, 1)),
            "weight": [row / 10 for row in rows],
            "none": pa.nulls(ROWS, pa.decimal128(15, 2)),
        }
    )
    glaive.write_dataset(table, uri, max_rows_per_file=70)
    spark.createDataFrame(table).createOrReplaceTempView("i")
    return uri


GROUPED = [
    "select shop, sum(price), count(*), count(price), avg(price) from i group by shop order by 1",
    "select sum(price * (1 - rate)), sum(price * (1 - rate) * (2 + rate) - 0.005) s from i",
    """select kind, max(id) - min(id) as span, min(day) d, max(kind) from i where id >= 20 and
       day between '2026-01-03' and date '2026-01-20' group by kind having count(*) > 2
       order by span desc, kind limit 2""",
    "select x.shop % 2 p, sum(x.id) from i x group by x.shop, x.kind order by sum(x.id), p",
    """with t as (select shop k, sum(rate) as r from i group by shop)
       select k, r from t where r = (select max(r) from t) order by k""",
    """select id from i where price in (select max(price) from i where shop < 4 group by kind)
       order by id""",
    "select count(*), sum(price), avg(price), max(kind) from i where id < 0",
    "select shop as shop, count(*) n from i group by shop having shop > 1 order by shop",
    "select sum(none), avg(none), min(none), count(none) from i",
    "select kind, day, count(*) from i where price < rate group by day, kind order by day, kind",
    "select shop as `a``b{}`, sum(small) from i group by shop order by 2 desc, 1",
    """select a.n from (select max(id) n from i group by shop) a join (select min(id) m from i) b
       on a.n > b.m order by 1;""",
]

LEFT_TO_SPARK = [
    "select weight, sum(price) from i group by weight order by weight",
    "select sum(weight) > 1000 from i",
    "select avg(small), avg(id) from i",
    "select count(distinct shop), sum(distinct rate) from i",
    "select shop, count(*) from i group by rollup (shop) order by 1, 2",
    "select sum(price) filter (where id > 5) from i",
    """select shop, kind from i group by shop, kind having max(id) > 150 and length(kind) > 1
       order by 1, 2""",
    "select sum(price) from i where kind like 'kind%1'",
    "select sum(price) from i where length(kind) > 2",
    "select sum(price / 3) from i",
    "select sum(price * price * price * rate) from i",
    "select sum(shop + shop) from i",
    "select sum(id) over (partition by shop) from i order by 1",
    "select shop, max(kind) m from i group by shop having max(kind) <> 'kind\\u0020 2' order by 1",
    "select max(id) as id from i group by shop having id > 150 order by 1",
    "select max(id) as ID from i group by shop having id > 150 order by 1",
    "select max(id) as shop from i group by shop having shop > 3 order by 1",
    "select shop + 1 s, count(*) from i group by shop + 1 order by 1",
    "select shop, (select max(id) from i j where j.shop = i.shop) m from i order by 1, 2",
    "select max(price) from i union all select min(price) from i",
    "select distinct shop, count(*) from i group by shop order by 1",
]


@pytest.mark.sampled(every=15)
@pytest.mark.parametrize("query", GROUPED)
def test_answers_and_types_are_those_of_spark(
    spark: SparkSession, items: str, query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = glaive.spark.sql(spark, query, i=items)

    expected = spark.sql(query)
    assert found.collect() == expected.collect()
    assert found.columns == expected.columns
    assert [f.dataType for f in found.schema] == [f.dataType for f in expected.schema]
    found.explain()
    assert "grouped by" in capsys.readouterr().out


@pytest.mark.nightly(reason="more queries on Spark")
def test_other_queries_are_left_to_spark(
    spark: SparkSession, items: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for query in LEFT_TO_SPARK:
        glaive.spark.sql(spark, query, i=items).explain()
        shown = capsys.readouterr().out
        assert "MapInArrow" in shown, query
        assert "grouped by" not in shown, query


def test_a_star_beside_an_aggregate_stands_for_all_keys(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset(pa.table({"shop": [1, 1, 2], "kind": [3, 3, 4]}), uri)

    query = "select *, count(*) as n from t group by shop, kind order by shop"
    found = glaive.spark.sql(spark, query, t=uri)

    assert [tuple(row) for row in found.collect()] == [(1, 3, 2), (2, 4, 1)]


def test_a_session_may_leave_groups_to_spark(
    spark: SparkSession, items: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.conf.set("spark.glaive.partialAggregates", "false")
    try:
        found = glaive.spark.sql(spark, "select shop, sum(price) from i group by shop", i=items)
    finally:
        spark.conf.unset("spark.glaive.partialAggregates")

    found.explain()
    assert "grouped by" not in capsys.readouterr().out


def test_sums_that_overflow_are_an_error_as_in_spark(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset(pa.table({"n": [2**62, 2**62, 1]}), uri)

    with pytest.raises(ArithmeticException, match="OVERFLOW"):
        glaive.spark.sql(spark, "select sum(n) from t", t=uri).collect()


# --- in a task --------------------------------------------------------------------------------


def partial(
    batches: list[pa.RecordBatch], kind: Any, *aggregates: Aggregate, keys: tuple[str, ...] = ("k",)
) -> list[dict[str, Any]]:
    fields = [StructField(name, LongType()) for name in keys]
    fields += [StructField(f"a{number}", kind) for number in range(len(aggregates))]
    grouped = PartialAggregates(keys, aggregates, StructType(fields))
    return [row for batch in grouped.rows(batches) for row in batch.to_pylist()]


def batch(values: list[Any], kind: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array([1] * len(values)), pa.array(values, kind)], ["k", "v"])


def test_rows_of_several_batches_are_one_group() -> None:
    batches = [batch(list(range(n, n + 100)), pa.int64()) for n in (0, 100, 200)]

    total, count = Aggregate("sum", Leaf("v")), Aggregate("count", None)
    assert partial(batches, LongType(), total, count) == [
        {"k": 1, "a0": sum(range(300)), "a1": 300}
    ]


def test_rows_are_passed_on_where_a_sum_might_not_fit() -> None:
    total = Aggregate("sum", Leaf("v"))

    assert partial([batch([2**62, 2**62], pa.int64())], LongType(), total) == [
        {"k": 1, "a0": 2**62},
        {"k": 1, "a0": 2**62},
    ]
    digits = [Decimal(10**18 - 1), None, Decimal(1)]
    found = partial([batch(digits, pa.decimal128(18, 0))], DecimalType(18, 0), total)
    assert [row["a0"] for row in found] == digits


def test_partial_sums_stay_apart_where_their_sum_might_not_fit() -> None:
    batches = [batch([2**60] * 4, pa.int64())] * 3
    large = Aggregate("sum", Leaf("v"))

    assert [row["a0"] for row in partial(batches, LongType(), large)] == [2**62] * 3


NEAR_ONE_GROUP = [
    ([2**62 - 1] * 2, pa.int64(), LongType()),
    ([-(2**62) + 1] * 2, pa.int64(), LongType()),
    ([Decimal(5 * 10**17 - 1)] * 2, pa.decimal128(18, 0), DecimalType(18, 0)),
    ([None, None], pa.int64(), LongType()),
]
NEAR_ROWS = [
    ([-(2**62), -(2**62)], pa.int64(), LongType()),
    ([3, -(2**62), -1], pa.int64(), LongType()),
    ([Decimal(5 * 10**17)] * 2, pa.decimal128(18, 0), DecimalType(18, 0)),
    ([Decimal(-5 * 10**17)] * 2, pa.decimal128(18, 0), DecimalType(18, 0)),
]


@pytest.mark.parametrize(("values", "stored", "kind"), NEAR_ONE_GROUP)
def test_rows_are_added_up_to_the_largest_sum_that_fits(
    values: list[Any], stored: Any, kind: Any
) -> None:
    (row,) = partial([batch(values, stored)], kind, Aggregate("sum", Leaf("v")))
    assert row["a0"] == (None if values[0] is None else sum(values))


@pytest.mark.parametrize(("values", "stored", "kind"), NEAR_ROWS)
def test_rows_are_not_added_from_the_first_sum_on_that_does_not(
    values: list[Any], stored: Any, kind: Any
) -> None:
    found = partial([batch(values, stored)], kind, Aggregate("sum", Leaf("v")))
    assert [row["a0"] for row in found] == values


@pytest.mark.parametrize("sign", [1, -1])
def test_partial_sums_are_added_as_far_as_they_fit(sign: int) -> None:
    total = Aggregate("sum", Leaf("v"))
    for size, groups in ((2**59, 1), (2**60, 2)):
        found = partial([batch([sign * size] * 4, pa.int64())] * 2, LongType(), total)
        assert [row["a0"] for row in found] == [sign * size * 8 // groups] * groups


def groups_of(keys: int, rows_each: int) -> pa.RecordBatch:
    numbers = np.tile(np.arange(keys), rows_each)
    return pa.record_batch([numbers, np.ones(len(numbers), np.int64)], ["k", "v"])


def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = StructType([StructField("k", LongType()), StructField("n", LongType())])
    return PartialAggregates(("k",), (Aggregate("count", None),), schema).rows(batches)


def test_rows_of_small_groups_wait_for_rows_of_other_batches() -> None:
    groups = pa.Table.from_batches(counted(groups_of(100_000, 1) for _ in range(20)))
    assert groups.num_rows == 100_000
    assert set(groups.column("n").to_pylist()) == {20}


def test_rows_that_windows_do_not_make_fewer_are_passed_on() -> None:
    left = [groups_of(1 << 19, 1) for _ in range(4)]

    def batches() -> Iterator[pa.RecordBatch]:
        while left:
            yield left.pop()

    found = counted(batches())
    first = next(found).num_rows
    assert len(left) == 2  # the first window is complete
    assert first + sum(batch.num_rows for batch in found) == 3 << 19


def test_sums_of_both_widths_are_added() -> None:
    small, large = [Decimal(3)] * 4, [Decimal(4 * 10**9)] * 4
    squared = Aggregate("sum", Arithmetic("*", Leaf("v"), Leaf("v")))
    batches = [batch(values, pa.decimal128(18, 0)) for values in (small, large, small)]

    (row,) = partial(batches, DecimalType(38, 0), squared)

    assert row["a0"] == 8 * 9 + 4 * 16 * 10**18


def test_waiting_groups_are_added_when_there_are_many() -> None:
    groups = pa.Table.from_batches(counted(groups_of(60_000, 4) for _ in range(5)))
    assert groups.num_rows == 60_000
    assert set(groups.column("n").to_pylist()) == {20}


def test_groups_that_adding_does_not_make_fewer_go_on() -> None:
    left = [groups_of(100_000, 4) for _ in range(3)]

    def batches() -> Iterator[pa.RecordBatch]:
        while left:
            yield left.pop()

    first = next(counted(batches()))
    assert set(first.column("n").to_pylist()) == {8}
    assert len(left) == 1  # before the last batch is read


@pytest.mark.parametrize(
    ("value", "of", "scale"),
    [
        # 2^63 is the first number that is too large for 64 bits.
        (Arithmetic("*", Leaf("v"), Arithmetic("+", Leaf("v"), Leaf("v"))), 2**31, 0),
        (Arithmetic("+", Leaf("v"), Constant(9 * 10**18, 0)), 9 * 10**17, 0),
        (Arithmetic("-", Leaf("v"), Constant(9 * 10**18, 0)), -9 * 10**17, 0),
        (Arithmetic("-", Constant(-9 * 10**18, 0), Leaf("v")), 9 * 10**17, 0),
        (Arithmetic("*", Leaf("v"), Constant(-11, 0)), 9 * 10**17, 0),
        (Arithmetic("+", Leaf("v"), Constant(1, 19)), 3, 19),
        (Arithmetic("-", Constant(1, 17), Leaf("v")), 10**3, 17),
        # Each fits, the sum does not.
        (Arithmetic("*", Leaf("v"), Constant(5, 0)), 9 * 10**17, 0),
    ],
)
def test_arithmetic_is_exact_beyond_64_bits(value: Arithmetic, of: int, scale: int) -> None:
    rows = [Decimal(of), None, Decimal(of)]
    kind = DecimalType(38, scale)

    (row,) = partial([batch(rows, pa.decimal128(18, 0))], kind, Aggregate("sum", value))

    assert row["a0"] == 2 * by_hand(value, of)


def test_a_sum_of_products_may_be_the_first_number_beyond_64_bits() -> None:
    values = [Decimal(2**58)] * 4
    total = Aggregate("sum", Arithmetic("*", Leaf("v"), Constant(8, 0)))

    (row,) = partial([batch(values, pa.decimal128(18, 0))], DecimalType(38, 0), total)

    assert row["a0"] == 2**63


def by_hand(value: Any, of: int) -> Decimal:
    """Exact for numbers of 40 digits."""
    if isinstance(value, Leaf):
        return Decimal(of)
    with localcontext(prec=60):
        if isinstance(value, Constant):
            return Decimal(value.value).scaleb(-value.scale)
        left, right = by_hand(value.left, of), by_hand(value.right, of)
        return {"+": left + right, "-": left - right, "*": left * right}[value.op]


@pytest.mark.parametrize(
    ("root", "rows", "groups"),
    [
        (9 * 10**17, 123, 1),
        (9 * 10**17, 124, 124),
        (10**17, 9_999, 1),
        (10**17, 10_000, 10_000),  # 10^38
    ],
)
def test_rows_are_passed_on_where_a_sum_might_have_39_digits(
    root: int, rows: int, groups: int
) -> None:
    squared = Arithmetic("*", Leaf("v"), Leaf("v"))
    values = [Decimal(root)] * rows

    found = partial(
        [batch(values, pa.decimal128(18, 0))], DecimalType(38, 0), Aggregate("sum", squared)
    )

    assert [row["a0"] for row in found] == [Decimal(root**2 * rows // groups)] * groups


@pytest.mark.parametrize("size", [5, 10**13])
def test_products_beyond_64_bits_are_exact(size: int) -> None:
    values = [Decimal(size), Decimal(-3), None, Decimal(size)]
    squared = Arithmetic("*", Leaf("v", 2), Arithmetic("+", Constant(5, 1), Leaf("v", 2)))
    total = Aggregate("sum", squared)

    (row,) = partial([batch(values, pa.decimal128(18, 2))], DecimalType(38, 4), total)

    assert row["a0"] == 2 * size * (size + Decimal("0.5")) + Decimal("7.5")


def test_sums_of_more_than_38_digits_name_the_setting() -> None:
    value: Any = Leaf("v", 0)
    for _ in range(2):
        value = Arithmetic("*", value, Leaf("v", 0))
    values = [Decimal(10**17)]

    with pytest.raises(SchemaError, match=r"38 digits.*spark\.glaive\.partialAggregates=false"):
        partial([batch(values, pa.decimal128(18, 0))], DecimalType(38, 0), Aggregate("sum", value))
