"""Queries that keep rows, or columns, which their text does not seem to ask for."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import glaive
import glaive.spark
from glaive.spark.frame_writing import frame_sources

pytest.importorskip("sqlglot", reason="install the extra 'spark'")

pytestmark = pytest.mark.spark

ROWS = 60
NOTES = ["it's", "its", 'say "so"', "a\\nb", "a\nb", "anb", "app", None]
WEIGHTS = [0.1, 0.2, 0.19999999999999998, 0.3333331, 1 / 3, 9999999999999998.0, float("nan"), None]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    rows = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "k": pa.array([row % 3 if row % 7 else None for row in range(ROWS)], pa.int64()),
            "v": pa.array([1 + row % 4 for row in range(ROWS)], pa.int32()),
            "w": pa.array([2**31 - 1 - row for row in range(ROWS)], pa.int32()),
            "note": [NOTES[row % len(NOTES)] for row in range(ROWS)],
            "weight": [WEIGHTS[row // 2 % len(WEIGHTS)] for row in range(ROWS)],
            "day": [date(2026, 1, 1 + row % 31) for row in range(ROWS)],
            "flag": [(None, True, False)[row % 3] for row in range(ROWS)],
        }
    )
    folder = tmp_path_factory.mktemp("rows")
    names = ("f", "g", "cased", "words", "texts")
    places = {name: str(folder / f"{name}.lance") for name in names}
    glaive.write_dataset(rows, places["f"])
    glaive.write_dataset(rows.slice(20, 30), places["g"])
    glaive.write_dataset(rows.select(["id", "v"]).rename_columns(["id", "K"]), places["cased"])
    words = {"id": [1, 2, 3], "session_user": ["a", "b", "a"], "current_date": ["x", "y", "z"]}
    lists = {"list": [[1], [2], []], "array": [[5], [6], []]}
    glaive.write_dataset(pa.table(words | lists), places["words"])
    keys = [f"{row:02}" for row in range(ROWS)]  # equal to numbers, but other texts
    texts = pa.table({"id": keys, "v": pa.array(range(ROWS), pa.int32())})
    glaive.write_dataset(texts, places["texts"])
    return places


def found(spark: SparkSession, query: str, tables: dict[str, str]) -> list[str]:
    return sorted(map(repr, glaive.spark.sql(spark, query, **tables).collect()))


def expected(spark: SparkSession, query: str, tables: dict[str, str]) -> list[str]:
    for name, uri in tables.items():
        spark.createDataFrame(glaive.dataset(uri).to_table()).createOrReplaceTempView(name)
    return sorted(map(repr, spark.sql(query).collect()))


@pytest.mark.sampled(every=28)
@pytest.mark.parametrize(
    "query",
    [
        # Texts: Spark takes a quote written twice for one, sqlglot for two texts.
        "select id from f where note = 'it''s'",
        'select id from f where note = "say ""so"""',
        "select id from f where note in ('it''s', 'its')",
        r"select id from f where note = 'a\nb'",
        "select id from f where note = '${spark.app.name}' or note = 'its'",
        # Numbers: Spark calculates with the digits of decimals and floats.
        "select id from f where weight > 1.0 / 3",
        "select id from f where weight + 0.1 = 0.3",
        "select id from f where weight + 1 >= 10000000000000000",
        "select id from f where (flag is null) = true",
        # Dates: the last day of a month is a month after several days.
        "select id from f where day + interval 1 month <= date '2026-02-28'",
        "select id from f where day > date '2026-03-31' - interval 1 month - interval 2 weeks",
        # Names: those of other columns, or of the other table.
        "select id from f as t(id, v, k, w, note, weight, day, flag) where v = 1",
        "select v, sum(k) from f as t(id, v, k, w, note, weight, day, flag) group by v",
        "select f.id from f left anti join g on f.k = g.k and g.v = 2 where w > 2147483640",
        "select f.id from f left semi join g on f.k = g.k and g.v = 2 where id < 9",
        "select id from (f left anti join g using (id)) where v = 1",
        "select id from f left semi join (g join f h using (id)) on f.v = g.v where k > 1",
        "select id, z from f pivot (sum(v) for k in (1 as z, 2 as y))",
        "select * from f pivot (sum(v) for k in (1 as v, 2 as y)) where v > 3",
        "select id, v from f unpivot (v for name in (v, w)) where v > 3",
        # Names that sqlglot takes for functions or types, and one that Spark makes of a text.
        "select id, session_user from words where session_user > 'a'",
        "select session_user, max(current_date) from words group by session_user",
        "select words.id, current_date from words join f on words.id = f.id",
        "select list[0] from words where id < 3",
        "select array[0], id from words where id < 3",
        "select identifier('words.id') from words",
        # Columns of joins by names: those of the first table, in another type in the second.
        "select v from (select id from f) f join texts using (id) where id >= '8'",
        "select k, texts.v from f join texts using (id) where id = '8'",
        "select k, texts.v from f left join texts using (id) where id in ('8', '9')",
        "select texts.v from texts right join f using (id) where id = '8' or id = '9'",
        "select f.k, texts.v from texts full join f using (id) where id = '8'",
        "select k from texts natural join (select id, k from f) where id >= '8'",
        "select k, note from f join texts using (id) where id >= '8' and texts.v < 20",
        # Another name around a table.
        "select x.* from (f) x where id < 5",
        "select x.note, x.k from ((f as y) x) where x.v = 1",
        "select x.* from (f join (select 1 as one)) as x where x.v = 1",
        "select x.v, count(*) from (f) as x group by x.v",
        "select id, (select count(*) from (g as f) as x where f.k = 1) from f",
        "select id, (select count(*) from (g) as f where f.k = 1) from f",
        # A comment that goes on in the next line.
        "select id from f where v = 1 -- and \\\n and k = 1",
        # Steps, one after the other.
        "from f |> order by id |> limit 5 |> where v = 1 |> select id",
        "from f |> where v = 1 |> order by id |> limit 3 |> where k = 1",
        # What follows by logic alone.
        "select id from f where not (v <> 1)",
        "select id from f where not (weight < 0.2 or k = 1)",
        "select id from f where not (weight < 0.2 and k = 1)",
        "select id from f where not (k is null or v > 2)",
        "select count(*) from f where not (v > 2 or not k is not null)",
        "select id from f where (v = 1 and k = 2) or (v = 1 and k is null)",
        "select id from f where not ((v = 1 or k = 2) and (v = 1 or k = 1))",
        "select id from f where note not like 'a%'",
        "select id from f where v = 1 and not (note not like 'a%' or k = 1)",
        "select id from f where (note not like 'it%' and v = 1) or (note not like 'it%' and k = 2)",
    ],
)
def test_rows_are_those_that_spark_finds(
    spark: SparkSession, tables: dict[str, str], query: str
) -> None:
    assert found(spark, query, tables) == expected(spark, query, tables)


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize(
    ("setting", "value", "query"),
    [
        (
            "spark.sql.ansi.doubleQuotedIdentifiers",
            "true",
            'select "id" from f where note = "note" and "v" = 1',
        ),
        ("spark.sql.parser.escapedStringLiterals", "true", r"select id from f where note = 'a\nb'"),
        ("spark.sql.parser.quotedRegexColumnNames", "true", "select `(id|k)` from f"),
        ("spark.sql.ansi.enabled", "false", "select id from f where w + 1 < 3"),
        (
            "spark.sql.caseSensitive",  # a column of the table around, not one of this query's own
            "true",
            "select id from f where exists (select 1 from cased where k = 1 and cased.id = f.id)",
        ),
        (
            "spark.sql.caseSensitive",
            "TRUE",
            "select id from f t where exists (select 1 from g T where t.k = 1 and T.id = t.id + 1)",
        ),
        (
            "spark.sql.ansi.enabled",
            "false",
            "select count(*) from f where day in ('2026-01-03', '2026-W02-1')",  # no day for Spark
        ),
    ],
)
def test_rows_are_those_that_spark_finds_with_a_setting(
    spark: SparkSession, tables: dict[str, str], setting: str, value: str, query: str
) -> None:
    spark.conf.set(setting, value)
    try:
        rows = found(spark, query, tables)
        assert rows
        assert rows == expected(spark, query, tables)
    finally:
        spark.conf.unset(setting)


def test_a_column_of_a_join_by_names_is_tested_where_both_tables_have_one_type(
    spark: SparkSession, tables: dict[str, str]
) -> None:
    query = "select f.k, g.k from f join g using (id) where id = 21"

    read = frame_sources(glaive.spark.sql(spark, query, **tables))

    assert len(read) == 2
    assert all(one.filter is not None for one in read)


def test_tests_that_all_alternatives_share_are_asked_of_the_files(
    spark: SparkSession, tables: dict[str, str]
) -> None:
    query = """select id from f where (v between 1 and 2 and k = 1) or (v between 1 and 2 and k = 2)
               and day < date '2026-02-28' - interval 1 month"""

    (read,) = frame_sources(glaive.spark.sql(spark, query, f=tables["f"]))

    assert read.filter is not None
    assert glaive.dataset(tables["f"]).count_rows(read.filter) == ROWS // 2
