"""Joins: keys of a small side leave out rows of a large side, and the result stays the same."""

from __future__ import annotations

import pickle
import re
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import glaive
import glaive.spark
from glaive.spark import queries
from glaive.spark.options import from_spark
from glaive.spark.source import Keys, LanceReader
from glaive.spark.types import to_spark

pytest.importorskip("sqlglot", reason="install the extra 'spark'")

pytestmark = pytest.mark.spark

ROWS = range(600)
DAY = date(2026, 1, 1)


def _tables() -> dict[str, pa.Table]:
    return {
        "big": pa.table(
            {
                "id": pa.array(ROWS, pa.int64()),
                "k": pa.array([row % 50 if row % 9 else None for row in ROWS], pa.int64()),
                "short": pa.array([row % 50 for row in ROWS], pa.int32()),
                "name": [f"n{row % 40}" if row % 7 else None for row in ROWS],
                "day": [DAY + timedelta(row % 60) for row in ROWS],
                "price": pa.array([Decimal(row % 30) / 4 for row in ROWS], pa.decimal128(9, 2)),
                "size": [row / 4 for row in ROWS],
            }
        ),
        "small": pa.table(
            {
                "k": pa.array([*range(0, 90, 3), 3, 3, None, None], pa.int64()),
                "kind": [f"kind {row % 4}" for row in range(34)],
                "name": [f"n{row}" for row in range(34)],
                "day": [DAY + timedelta(row) for row in range(34)],
                "price": pa.array([Decimal(row) / 4 for row in range(34)], pa.decimal128(9, 2)),
                "size": [row / 4 for row in range(34)],
            }
        ),
        "kinds": pa.table({"kind": ["kind 1", "kind 3", None], "title": ["one", "three", "no"]}),
    }


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("joins")
    for name, table in _tables().items():
        glaive.write_dataset(table, folder / f"{name}.lance")
        spark.createDataFrame(table).createOrReplaceTempView(name)
    return {name: str(folder / f"{name}.lance") for name in _tables()}


def _read(spark: SparkSession, query: str, tables: dict[str, str]) -> list[str]:
    """Return the keys that scans of a query test, as the plan shows them."""
    (row,) = glaive.spark.sql(spark, f"EXPLAIN {query}", **tables).collect()
    return sorted(re.findall(r"\w+ among \d+ keys of \w+", row[0]))


def _check(spark: SparkSession, query: str, tables: dict[str, str], keys: list[str]) -> None:
    """Check that a query finds the rows that Spark finds, by scans that test these keys."""
    found = glaive.spark.sql(spark, query, **tables)

    assert sorted(map(repr, found.collect())) == sorted(map(repr, spark.sql(query).collect()))
    assert _read(spark, query, tables) == keys


KEYS = "k among 8 keys of small"

FEWER = {
    "inner": "from big b join small s on b.k = s.k where s.kind = 'kind 1'",
    "names": "from big b join small s using (k) where kind = 'kind 1'",
    "comma": "from big b, small s where b.k = s.k and s.kind = 'kind 1'",
    "where": "from big b left join small s on b.id = s.k where b.k = s.k and s.kind = 'kind 1'",
    "left": "from small s left join big b on b.k = s.k where s.kind = 'kind 1'",
    "right": "from big b right join small s on s.k = b.k where s.kind = 'kind 1'",
    "anti": "from small s left anti join big b on b.k = s.k where s.kind = 'kind 1'",
    "exists": "from small s where kind = 'kind 1' and exists (select * from big b where b.k = s.k)",
    "or": "from small s where kind = 'kind 1' and (k > 40 or not exists "
    "(select 1 from big where short > k and s.k = big.k))",
    "scalar": "from (select kind, (select sum(id) from big where big.k = s.k) n from small s "
    "where kind = 'kind 1')",
    "lateral": "from small s, lateral (select max(id) from big where big.k = s.k) "
    "where kind = 'kind 1'",
}


@pytest.mark.parametrize("query", FEWER.values(), ids=FEWER)
def test_rows_without_a_match_are_left_out(
    spark: SparkSession, tables: dict[str, str], query: str
) -> None:
    _check(spark, f"select * {query}", tables, [KEYS])


OTHERS = {
    "select * from big b left semi join small s on b.k = s.k": ["k among 30 keys of small"],
    "select * from big b join small s on b.k = s.k where s.k > 900": ["k among 0 keys of small"],
    "select * from big b join small s on b.name = s.name": ["name among 34 keys of small"],
    "select * from big b join small s on b.day = s.day": ["day among 34 keys of small"],
    "select * from big b join small s on b.price = s.price": ["price among 34 keys of small"],
    "select a.id, b.id from big a join big b on a.id = b.k where a.id < 5": [
        "k among 5 keys of big"
    ],
    "select * from big b join small s on b.k = s.k join kinds t on s.kind = t.kind where s.k > 1": [
        "k among 15 keys of small",
        "kind among 2 keys of kinds",
    ],
    "select s.k, count(*) from big b join small s on b.k = s.k and b.day = s.day group by 1": [
        "day among 34 keys of small",
        "k among 30 keys of small",
    ],
}


@pytest.mark.parametrize("query", OTHERS)
def test_keys_have_types_with_identical_equal_values(
    spark: SparkSession, tables: dict[str, str], query: str
) -> None:
    _check(spark, query, tables, OTHERS[query])


ALL = [
    "from big b left join small s on b.k = s.k and s.kind = 'kind 1'",
    "from small s right join big b on b.k = s.k",
    "from big b full join small s on b.k = s.k",
    "from big b left anti join small s on b.k = s.k",
    "from big b join small s on b.k <=> s.k where s.kind = 'kind 1'",
    "from big b join small s on b.k = s.k or b.id = 3",
    "from big b join small s on b.short = s.k",
    "from big b join small s on b.size = s.size",
    "from big b natural join small s",
    "from big tablesample (100 percent) b join small s on b.k = s.k",
    "from (select k, count(*) n from big group by k having n > 10) b join small s on b.k = s.k",
    "from (select k from big order by id limit 20) b join small s on b.k = s.k",
    "from big as b(k, id, short, name, day, price, size) join small s on b.k = s.k",
    "from (big b join kinds on b.name = kinds.title) join small s on b.id = s.k",
    "from big where k not in (select k from small where kind = 'kind 1')",
    "from small s where exists (select * from big b where b.short > s.k or b.k = s.k)",
    "from big b where exists (select * from small s where s.k = 3) and b.id < 9",
    "from big b left join (small s left anti join kinds t on s.kind = t.kind) on b.k = s.k",
]


@pytest.mark.parametrize("query", ALL)
def test_joins_that_need_other_rows_read_them(
    spark: SparkSession, tables: dict[str, str], query: str
) -> None:
    _check(spark, f"select * {query}", tables, [])


def test_keys_that_leave_out_few_rows_stay_where_they_are(
    spark: SparkSession, tables: dict[str, str]
) -> None:
    most = "select * from big a join big b on a.id = b.k where a.id < 500"
    small = f"select * {FEWER['inner']}"

    assert _read(spark, most, tables) == []
    spark.conf.set("spark.glaive.joinKeys", "false")
    try:
        assert _read(spark, small, tables) == []
    finally:
        spark.conf.unset("spark.glaive.joinKeys")


def test_keys_of_many_bytes_stay_where_they_are(
    spark: SparkSession, tables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(queries.MAX_SEARCHED_BYTES, True, 0)
    assert _read(spark, f"select * {FEWER['inner']}", tables) == []


LIMITS = {
    ("k", 64, 1): "k among 8 keys of small",
    ("k", 56, 11): "k among 8 keys of small",
    ("k", 56, 10): None,
    ("name", 1 << 10, 1): "name among 9 keys of small",
    ("name", 0, 64): None,
}


@pytest.mark.parametrize(("column", "size", "distance"), LIMITS)
def test_keys_are_few_bytes_or_integers_near_each_other(
    spark: SparkSession,
    tables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    size: int,
    distance: int,
) -> None:
    monkeypatch.setattr(queries, "MAX_KEY_BYTES", size)
    monkeypatch.setattr(queries, "MAX_KEY_DISTANCE", distance)
    query = f"select * from big b join small s on b.{column} = s.{column} where kind = 'kind 1'"
    wanted = LIMITS[column, size, distance]
    _check(spark, query, tables, [wanted] if wanted else [])


@pytest.mark.parametrize("column", ["k", "name"])
def test_more_integers_than_texts_are_keys(
    spark: SparkSession, tables: dict[str, str], monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    monkeypatch.setattr(queries, "MAX_KEYS", {True: 9, False: 8})
    monkeypatch.setattr(queries, "FEW_KEYS", 0)
    query = f"select * from big b join small s on b.{column} = s.{column} where kind = 'kind 1'"
    _check(spark, query, tables, [KEYS] if column == "k" else [])


def test_keys_are_counted_when_they_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"a": range(100), "b": [0] * 50, "c": range(100)}
    for name, ids in names.items():
        other = pa.array(range(len(ids)), pa.int64())
        glaive.write_dataset(
            pa.table({"id": pa.array(ids, pa.int64()), "x": other}), tmp_path / f"{name}.lance"
        )
    monkeypatch.setattr(queries, "FEW_KEYS", 10)
    uris = {name: str(tmp_path / f"{name}.lance") for name in names}
    query = "select * from a join b on a.id = b.id join c on b.x = c.x where a.x < 1"
    assert _read(spark, query, uris) == ["id among 1 keys of a"]


NUMBERS = {
    "none": pa.array([], pa.int64()),
    "one": pa.array([-5], pa.int8()),
    "near": pa.array([7, *range(100, 900, 3)], pa.int64()),
    "all": pa.array([-(2**63), -1, 0, 2**63 - 1], pa.int64()),
    "unsigned": pa.array([0, 2**32 - 1], pa.uint32()),
    "slice": pa.array([1, 4, 9, 300], pa.int16())[1:],
    "days": pa.array([DAY, DAY + timedelta(1)]),
    "texts": pa.array(["a", "b"]),
}


@pytest.mark.parametrize("values", NUMBERS.values(), ids=NUMBERS)
def test_keys_are_the_same_in_tasks(values: pa.Array) -> None:
    received = pickle.loads(pickle.dumps(Keys(("k",), values, "s")))

    assert received.values.equals(values)
    assert (received.path, received.origin) == (("k",), "s")


def test_near_integers_take_a_byte_each_in_pickles() -> None:
    values = pa.array(np.cumsum(np.arange(100_000) % 250 + 1), pa.int64())

    assert len(pickle.dumps(Keys(("k",), values, "s"))) < 101_000


def test_planner_knows_how_many_rows_pass(spark: SparkSession, tmp_path: Path) -> None:
    wide: dict[str, Any] = {f"c{at}": pa.array(range(200_000), pa.int64()) for at in range(8)}
    glaive.write_dataset(pa.table(wide), tmp_path / "wide.lance")
    query = "select * from w a join w b on a.c0 = b.c1 where a.c2 < 100"
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "20000")
    try:
        (row,) = glaive.spark.sql(
            spark, f"EXPLAIN {query}", w=str(tmp_path / "wide.lance")
        ).collect()
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")

    assert "BroadcastHashJoin" in row[0]
    assert "c1 among 100 keys of w" in row[0]


def test_days_that_spark_merges_are_no_keys(spark: SparkSession, tmp_path: Path) -> None:
    days = [date(1582, 10, 15), date(1582, 10, 10), *[DAY] * 8]
    glaive.write_dataset(pa.table({"day": days}), tmp_path / "t.lance")
    table = {"t": str(tmp_path / "t.lance")}
    query = "select a.day from t a join t b on a.day = b.day where a.day < date '1600-01-01'"

    spark.conf.set("spark.glaive.joinKeys", "false")
    expected = glaive.spark.sql(spark, query, **table).collect()
    spark.conf.unset("spark.glaive.joinKeys")

    assert glaive.spark.sql(spark, query, **table).collect() == expected
    assert _read(spark, query, table) == []


def test_a_scan_with_keys_reads_fewer_bytes_of_a_clustered_table(tmp_path: Path) -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 60, 1_000_000)
    table = pa.table({"k": pa.array(range(1_000_000), pa.int64()), "x": numbers})
    glaive.write_dataset(table, tmp_path / "t.lance", max_rows_per_file=100_000)
    dataset = glaive.dataset(tmp_path / "t.lance")
    dataset.create_scalar_index("k", "ZONEMAP")
    wanted = Keys(("k",), pa.array(range(90_000, 90_500), pa.int64()), "s")
    plain = from_spark({"path": str(tmp_path / "t.lance"), "columns": "k,x"})
    schema = to_spark(dataset.schema)

    rows, read = [], []
    for keys in ((), (wanted,)):
        reader = LanceReader(plain, schema, keys)
        arguments = reader._arguments(1024, (), 0, 0) | {"columns": ["k", "x"]}  # noqa: SLF001  # what tasks pass
        scanner = dataset.scanner(**arguments, scan_stats_callback=read.append)
        rows.append(scanner.to_table().num_rows)

    assert rows == [1_000_000, 500]
    assert read[1].bytes_read < read[0].bytes_read / 4
