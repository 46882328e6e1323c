"""Values that clauses of ``LanceTable.merge`` set: their types, and the columns they are for."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import glaive
import glaive.spark
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.format.field import quoted_name
from glaive.spark import LanceTable

pytestmark = pytest.mark.spark


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize(
    ("kind", "update", "insert", "found"),
    [
        ("bigint", "t.v * 2.0D", "s.big", [(1, 10), (3, 2**53 + 1)]),
        ("bigint", "cast(t.v as float)", "s.big", [(1, 5), (3, 2**53 + 1)]),
        ("decimal(38,10)", "cast(t.v as decimal(38,0))", "s.exact", [(1, 5), (3, "1E-10")]),
        ("array<bigint>", "array(2.0D)", "array(s.big)", [(1, [2]), (3, [2**53 + 1])]),
        ("bigint", "null", "s.big", [(1, None), (3, 2**53 + 1)]),
        ("string", "t.v", "'new' collate UNICODE", [(1, "5"), (3, "new")]),
    ],
)
def test_values_of_a_column_keep_their_digits_whatever_other_clauses_set(
    spark: SparkSession, uri: str, kind: str, update: str, insert: str, found: list[tuple[int, Any]]
) -> None:
    first = "array(5L)" if kind.startswith("array") else "5"
    glaive.spark.write(spark.sql(f"select 1L as id, cast({first} as {kind}) as v"), uri)
    source = spark.sql(
        f"select explode(array(1L, 3L)) as id, {2**53 + 1}L as big, "
        "cast('0.0000000001' as decimal(38,10)) as exact"
    )

    merge = LanceTable.forPath(spark, uri).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate(None, {"v": update})
    merge.whenNotMatchedInsert(None, {"id": "s.id", "v": insert}).execute()

    rows = glaive.dataset(uri).to_table().sort_by("id").to_pylist()
    exact = [(key, Decimal(v) if kind.startswith("decimal") else v) for key, v in found]
    assert [(row["id"], row["v"]) for row in rows] == exact


def test_a_value_of_another_type_that_does_not_fit_names_the_column(
    spark: SparkSession, uri: str
) -> None:
    glaive.spark.write(spark.sql("select 1L as id, 5L as v"), uri)
    source = spark.sql("select 1L as id, 1.5D as v")
    merge = LanceTable.forPath(spark, uri).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate("t.v = 0", {"v": "t.v + 1"})

    with pytest.raises(SchemaError, match=r"column 'v'"):
        merge.whenMatchedUpdate(None, {"v": "s.v"}).execute()
    with pytest.raises(SchemaError, match=r"column 'v'.*stores int64, the frame has .*string"):
        merge.whenMatchedUpdate(None, {"v": "'1'"}).execute()


def test_columns_whose_names_differ_in_case_get_the_values_of_their_own(
    spark: SparkSession, uri: str
) -> None:
    glaive.write_dataset(pa.table({"id": [1, 2], "a": [1, 2], "A": [10, 20]}), uri)
    table = LanceTable.forPath(spark, uri).alias("t")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        source = spark.sql("select 2L as id, 5L as a, 50L as A union all select 3L, 6L, 60L")
        merge = table.merge(source.alias("s"), "t.id = s.id").whenMatchedUpdateAll()
        merge.whenNotMatchedInsertAll().execute()
        named = table.merge(source.alias("s"), "t.id = s.id and s.a > 5")
        named.whenMatchedUpdate(None, {"A": "s.a", "a": "s.A"}).execute()
        more = spark.sql("select 1L as id, 7L as a, 70L as A, 700L as ID")
        wider = table.merge(more.alias("s"), "t.id = s.id").withSchemaEvolution()
        wider.whenMatchedUpdateAll().execute()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")

    found = glaive.dataset(uri).to_table().sort_by("id").to_pylist()
    assert [list(row.values()) for row in found] == [
        [1, 7, 70, 700],
        [2, 5, 50, None],
        [3, 60, 6, None],
    ]


def test_source_rows_without_a_key_are_no_duplicates_of_each_other(
    spark: SparkSession, uri: str
) -> None:
    glaive.write_dataset({"id": [1, 2], "k": ["a", "b"], "n": [0, 0]}, uri)
    table = LanceTable.forPath(spark, uri).alias("t")
    rows = "(1L, 'a', 1L), (1L, 'a', 2L), (1L, null, 3L), (1L, null, 4L), (null, 'a', 5L)"
    source = spark.sql(f"select * from values {rows}, (null, 'a', 6L) as c(id, k, n)").alias("s")

    merge = table.merge(source, "t.id = s.id and t.k = s.k").onDuplicateSource("last", by="n")
    counts = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    assert (counts["num_updated_rows"], counts["num_inserted_rows"]) == (1, 4)
    assert sorted(glaive.dataset(uri).to_table()["n"].to_pylist()) == [0, 2, 3, 4, 5, 6]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("others", [["id", "number"], ["number"]], ids=["beside it", "alone"])
def test_source_rows_are_ranked_by_the_member_of_a_struct_that_is_their_key(
    spark: SparkSession, uri: str, others: list[str]
) -> None:
    glaive.write_dataset({"id": [1, 2], "v": ["a", "b"]}, uri)
    table = LanceTable.forPath(spark, uri).alias("t")
    rows = "(10L, 1L, 'x', 1), (10L, 2L, 'y', 2), (11L, 3L, 'z', 3), (12L, 3L, 'zz', 4)"
    events = spark.sql(f"select * from values {rows} as e(id, key, v, number)")
    after = "named_struct('id', key, 'v', v) as after"

    merge = table.merge(events.selectExpr(*others, after), "t.id = after.id")
    merge = merge.onDuplicateSource("last", by="number")
    merge = merge.whenMatchedUpdate(None, {"v": "after.v"})
    merge.whenNotMatchedInsert(None, {"id": "after.id", "v": "after.v"}).execute()

    found = glaive.dataset(uri).to_table().sort_by("id").to_pylist()
    assert [(row["id"], row["v"]) for row in found] == [(1, "x"), (2, "y"), (3, "zz")]


def test_a_key_that_the_source_lacks_is_no_order_of_its_rows(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset({"id": [1, 2], "n": [1, 2]}, uri)
    table = LanceTable.forPath(spark, uri).alias("t")
    source = spark.sql("select 2L as id, 5L as n").alias("s")

    merge = table.merge(source, "t.id = s.ident").onDuplicateSource("last", by="n")
    with pytest.raises(ColumnNotFoundError, match=r"ident.*s\.id"):
        merge.whenMatchedUpdateAll().execute()


def test_a_column_is_not_taken_for_one_whose_name_differs_in_case(
    spark: SparkSession, uri: str
) -> None:
    glaive.write_dataset(pa.table({"id": [1, 2], "a": [1, 2], "A": [10, 20]}), uri)
    table = LanceTable.forPath(spark, uri).alias("t")
    source = spark.sql("select 2L as id, 5L as a").alias("s")

    with pytest.raises(ColumnNotFoundError, match=r"lacks columns .*: A\."):
        table.merge(source, "t.id = s.id").whenMatchedUpdateAll().execute()


@pytest.mark.nightly(reason="another merge on Spark")
@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", ["a`b", "`n`", "``", "*"])
def test_columns_may_have_any_names(spark: SparkSession, uri: str, name: str) -> None:
    quoted = quoted_name(name)
    glaive.write_dataset({"id": [1, 2, 2], "n": [1, 2, 3], name: [10, 20, 30]}, uri)
    table = LanceTable.forPath(spark, uri).alias("t")
    source = spark.sql(f"select explode(array(1L, 4L)) as id, 5L as n, 50L as {quoted}").alias("s")

    def rows() -> list[list[int]]:
        return sorted(list(row.values()) for row in glaive.dataset(uri).to_table().to_pylist())

    table.dropDuplicates("id", order_by=f"{quoted} desc")
    assert rows() == [[1, 1, 10], [2, 3, 30]]
    table.updateColumnsFrom(source.where("id = 1"), "id")
    assert rows() == [[1, 5, 50], [2, 3, 30]]
    merge = table.merge(source, "t.id = s.id").onDuplicateSource("last", name)
    merge.whenMatchedUpdate(set={quoted: f"t.{quoted} + 1"}).whenNotMatchedInsertAll().execute()
    assert rows() == [[1, 5, 51], [2, 3, 30], [4, 5, 50]]
    merge = table.merge(source.where("id = 1"), f"t.{quoted} = s.{quoted}")
    merge.whenMatchedUpdateAll().onDuplicateSource("first", "id").execute()
    assert rows() == [[1, 5, 50], [1, 5, 51], [2, 3, 30]]
    for every in ("hash(*)", "hash( 1, * )", "to_json(struct(* except (n)))"):  # not all are read
        with pytest.raises(OptionError, match=r"order_by reads .* \*$"):
            table.dropDuplicates("id", order_by=every)
        with pytest.raises(OptionError, match=r"a merge reads .* \*$"):
            table.merge(source, "t.id = s.id").whenMatchedUpdate(set={"n": every}).execute()
    with pytest.raises(ColumnNotFoundError, match=r"t\.n`o"):
        table.merge(source, "t.`n``o` = s.id").whenMatchedUpdateAll().execute()


def test_times_of_day_are_merged(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    source = str(tmp_path / "source.lance")
    for place, rows in (
        (uri, {"id": [1, 2], "at": [5, 6]}),
        (source, {"id": [2, 3], "at": [7, 8]}),
    ):
        table = pa.table(rows).cast(pa.schema([("id", pa.int64()), ("at", pa.time64("us"))]))
        glaive.write_dataset(table, place)
    merge = (
        LanceTable.forPath(spark, uri)
        .alias("t")
        .merge(glaive.spark.read(spark, source).alias("s"), "t.id = s.id")
    )
    merge.whenMatchedUpdate("s.id > 0", {"at": "s.at"}).whenNotMatchedInsertAll().execute()
    times = glaive.dataset(uri).to_table().sort_by("id")["at"]
    assert times.cast(pa.int64()).to_pylist() == [5, 7, 8]
