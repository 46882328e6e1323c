"""SQL over datasets: the rows that Spark would find, from few columns and rows."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import glaive
import glaive.spark
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.spark.frame_writing import frame_sources, planned_bytes
from glaive.spark.options import from_spark
from glaive.spark.planned_scan import ScanFunction
from glaive.spark.source import LanceReader

pytest.importorskip("sqlglot", reason="install the extra 'spark'")

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("sales") / "sales.lance")
    rows = range(100)
    glaive.write_dataset(
        pa.table(
            {
                "id": pa.array(rows, pa.int64()),
                "shop": pa.array([row % 5 if row % 7 else None for row in rows], pa.int32()),
                "day": [date(2026, 1, 1 + row % 28) for row in rows],
                "price": pa.array([Decimal(row) / 100 for row in rows], pa.decimal128(15, 2)),
                "note": [f"note {row}" if row % 3 else None for row in rows],
                "weight": [row / 10 for row in rows],
                "wide": [bytes(10)] * 100,
                "tax": pa.array([Decimal(50) / 100] * 100, pa.decimal128(15, 2)),
                "due": [date(2026, 1, 1 + row % 31) for row in rows],
                "memo": [f"note {row // 2 * 2}" if row % 5 else None for row in rows],
                "heft": [float("nan") if row % 2 else row % 10 / 2 for row in rows],
            }
        ),
        uri,
    )
    return uri


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("shops") / "shops.lance")
    glaive.write_dataset(
        pa.table({"shop": [0, 1, 2, 9], "town": ["a", "b", None, "d"], "mayor": ["x"] * 4}), uri
    )
    return uri


QUERIES = [
    "select count(*) as n from s",
    "select count(*) as n from s where price between 0.05 and 0.07",
    "select * from s where id = 3 or id = 5 order by id",
    "select s.* from s join t on s.shop = t.shop where t.town <> 'b' and s.id >= 40 order by id",
    "select town, sum(price) from s left join t using (shop) where id < 50 group by 1 order by 1",
    "select id from s left join t on s.shop = t.shop where town is null and id < 30 order by id",
    "select id, town from s full join t on s.shop = t.shop and s.id > 90 where town = 'd'",
    "select id from s where not (shop = 3) and note like 'note 1%' order by id",
    "select id from s where shop in (1, 2, 400) and weight > 2.5 and -1 < id and 90 > id",
    "select id from s where day >= date '2026-02-01' - interval '9' day",
    "select id from s where day = '2026-01-03' and note is not null order by id",
    "with x as (select * from s where id > 98) select max(price), `day` from x group by 2",
    "with s as (select * from s where id < 3) select count(*) from s",
    "with s as (select shop from t), x as (select * from s) select count(*) from x, T",
    "with x as (with s as (select 5 id) select * from s) select count(*) from x join s using(id)",
    "select a.id, b.id from s a join s b on a.id = b.id + 1 where a.id < 5 and b.id > 1 order by 1",
    "select id from s where exists (select 1 from t where t.shop = s.shop and town = 'a') and id<9",
    "select id from s where not exists (select * from t where t.shop = s.shop) and id < 9",
    "select s.*, (select max(town) from (select * from t)) from s join t using (shop) where id < 9",
    "select t.town from t natural join s where id = 11",
    "select id from s where note = 'it''s {braces}' or note = 'note 5'",
    "from s select id where id in (select shop from t) order by id",
    "select id from s where price < 0.055 and price > 1e-2 and id < 2147483648000 order by id",
    "select id from s where (weight = 0.3 or id = 1) and shop is not null",
    "select a.id from s a join s b on a.id = b.id where a.price < a.tax and b.tax = b.price + 0.5",
    "select id from s where day > due and note <> memo and weight > heft order by id",
    "select s.id from s left join t on s.shop = t.shop where t.town <= t.mayor and due >= day",
    "select x.c, x.b from s as x(a, b, c, d, e, f, g, h, i, j, k) where x.a < 9 order by 1",
]


@pytest.mark.sampled(every=16)
@pytest.mark.parametrize("query", QUERIES)
def test_results_are_those_of_spark(
    spark: SparkSession, sales: str, shops: str, query: str
) -> None:
    found = glaive.spark.sql(spark, query, s=sales, T=shops)

    for name, uri in {"s": sales, "t": shops}.items():
        spark.createDataFrame(glaive.dataset(uri).to_table()).createOrReplaceTempView(name)
    expected = spark.sql(query)
    assert found.columns == expected.columns
    # Not compared as rows, which differ where a value is NaN.
    assert list(map(repr, found.collect())) == list(map(repr, expected.collect()))


def test_only_columns_and_rows_that_are_needed_are_read(spark: SparkSession, sales: str) -> None:
    query = "select sum(price) from s where shop = 3 and length(note) > 2 and id < 50"

    (read,) = frame_sources(glaive.spark.sql(spark, query, s=sales))

    assert read.columns == ("id", "shop", "price", "note")
    assert read.filter is not None
    assert glaive.dataset(sales).count_rows(read.filter) == 9


def test_columns_of_a_row_are_compared_where_they_are_read(spark: SparkSession, sales: str) -> None:
    query = "select sum(s.id) + max(note) from s where price > tax and day < due and weight < heft"

    (read,) = frame_sources(glaive.spark.sql(spark, query, s=sales))

    assert read.filter is not None
    assert "weight" not in read.filter  # Spark has another order of NaN
    rows = range(51, 100)
    assert glaive.dataset(sales).count_rows(read.filter) == sum(r % 28 < r % 31 for r in rows)


def test_qualified_columns_are_those_of_their_table(spark: SparkSession, sales: str) -> None:
    query = "select a.id from s a join s b on a.shop = b.shop where b.price > 0.5 and a.weight > 1"

    first, second = frame_sources(glaive.spark.sql(spark, query, s=sales))

    assert (first.columns, second.columns) == (("id", "shop", "weight"), ("shop", "price"))


def test_a_star_of_a_query_within_a_query_is_none_of_the_other_one(
    spark: SparkSession, sales: str, shops: str
) -> None:
    query = """select id from s where exists (select * from t where t.shop = s.shop)
               and id in (select length(town) from (select * from t))"""

    read = frame_sources(glaive.spark.sql(spark, query, s=sales, t=shops))

    columns = sorted(one.columns for one in read)
    assert columns == [("id", "shop"), ("shop", "town"), ("shop", "town", "mayor")]


def test_rows_are_counted_without_reading(spark: SparkSession, sales: str) -> None:
    counted = glaive.spark.sql(spark, "select count(*) as n from s", s=sales)

    assert frame_sources(counted) == []
    assert counted.collect()[0].n == 100


def test_each_table_of_a_join_is_read_for_itself(
    spark: SparkSession, sales: str, shops: str
) -> None:
    query = "select town from s join t on s.shop = t.shop where s.id = 1"

    first, second = frame_sources(glaive.spark.sql(spark, query, s=sales, t=shops))

    assert (first.columns, second.columns) == (("id", "shop"), ("shop", "town"))
    assert first.filter is not None
    assert second.filter is None


def test_names_of_views_are_those_of_spark(spark: SparkSession, sales: str) -> None:
    spark.range(3).createOrReplaceTempView("view_of_spark")

    found = glaive.spark.sql(
        spark, "select count(*) n from view_of_spark v join s on v.id = s.id", s=sales
    )

    assert found.collect()[0].n == 3


def test_a_dataset_is_named_by_its_path_or_with_options(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset(pa.table({"id": [1, 2]}), uri)
    glaive.write_dataset(pa.table({"id": [3]}), uri, mode="append")

    by_path = glaive.spark.sql(spark, f"select max(id) m from lance.`{uri}`")
    older = glaive.spark.sql(spark, "select max(id) m from t", t={"uri": uri, "version": 1})

    assert by_path.collect()[0].m == 3
    assert older.collect()[0].m == 2


@pytest.mark.parametrize("version", ["", " version as of 1"])
@pytest.mark.parametrize("place", ["other.cat", "other.lance", "nowhere"])
def test_tables_of_other_catalogs_and_databases_are_those_of_spark(
    spark: SparkSession, sales: str, place: str, version: str
) -> None:
    """Spark looks for them; there is none."""
    with pytest.raises(AnalysisException, match=r"`(other|nowhere)`.*`s`"):
        glaive.spark.sql(spark, f"select * from {place}.s{version}", s=sales)


def test_other_statements_are_those_of_spark(spark: SparkSession) -> None:
    assert glaive.spark.sql(spark, "show functions like 'abs'").count() == 1


def test_names_of_two_tables_differ_in_more_than_case(spark: SparkSession, sales: str) -> None:
    with pytest.raises(OptionError, match="one name in Spark's SQL, found S, s"):
        glaive.spark.sql(spark, "select count(*) from S", S=sales, s="other.lance")


def test_a_table_is_a_place_or_options(spark: SparkSession) -> None:
    with pytest.raises(OptionError, match=r"table 't': expected a path.*found 5"):
        glaive.spark.sql(spark, "select 1 from t", t=5)
    with pytest.raises(OptionError, match="expected one statement, found 2"):
        glaive.spark.sql(spark, "select 1; select 2")
    with pytest.raises(OptionError, match="query: "):
        glaive.spark.sql(spark, "select from where (")


def test_spark_knows_how_large_a_scan_is(spark: SparkSession, sales: str) -> None:
    whole, part = (
        planned_bytes(glaive.spark.sql(spark, f"select {columns} from s", s=sales))
        for columns in ("*", "id, price")
    )

    assert whole == pytest.approx(glaive.dataset(sales).manifest.columns.file_bytes, rel=0.01)
    assert whole is not None
    assert part is not None
    assert 0 < part < 0.3 * whole


def test_equal_scans_of_a_query_run_once(
    spark: SparkSession, sales: str, capsys: pytest.CaptureFixture[str]
) -> None:
    query = """select id from s where id in (select id from s where id < 4)
               and shop in (select id from s where id < 4) order by id"""
    found = glaive.spark.sql(spark, query, s=sales)

    assert [row.id for row in found.collect()] == [1, 2, 3]
    found.explain()
    assert "ReusedExchange" in capsys.readouterr().out


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("digits", [1, 18, 19, 38])
def test_decimals_of_any_width_arrive(spark: SparkSession, uri: str, digits: int) -> None:
    largest = 10**digits - 1
    values = [Decimal(f"{number}e-1") for number in (largest, -largest, 0, 1, -1)]
    stored = pa.array([*values, None] * 3, pa.decimal128(digits, 1))
    glaive.write_dataset(pa.table({"a b`c": stored, "none": pa.nulls(18, stored.type)}), uri)

    rows = glaive.spark.sql(spark, "select * from t where `none` is null", t=uri)

    assert [row[0] for row in rows.collect()] == stored.to_pylist()
    assert rows.schema[0].dataType.typeName() == "decimal"


def test_a_query_reads_through_the_data_source_where_the_session_says_so(
    spark: SparkSession, sales: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.conf.set("spark.glaive.plannedScans", "false")
    try:
        found = glaive.spark.sql(spark, "select sum(price) from s where id < 5", s=sales)
    finally:
        spark.conf.unset("spark.glaive.plannedScans")

    found.explain()
    assert "BatchScan lance" in capsys.readouterr().out
    assert found.collect()[0][0] == Decimal("0.10")
    assert [source.columns for source in frame_sources(found)] == [("id", "price")]


class OneBatch:
    """Stands for the reader of a dataset: the same rows for every part."""

    options, filter, keys = SimpleNamespace(uri="memory://d"), None, ()

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def read(self, _part: object) -> list[pa.RecordBatch]:
        return [self.batch]


def test_a_frame_that_came_back_from_a_server_tells_what_it_reads(
    spark: SparkSession, sales: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = pytest.importorskip("pyspark.sql.connect.plan", reason="install 'pyspark[connect]'")
    from pyspark.sql.connect import proto

    asked = glaive.spark.sql(spark, "select id from s where id < 9", s=sales)
    (options,) = frame_sources(asked)
    asked.explain()
    shown = re.search(r"lance sales\.lance.* \[[0-9a-f]{16}\]", capsys.readouterr().out)
    assert shown is not None
    scan, source = proto.Relation(), proto.Relation()
    scan.map_partitions.func.function_name = shown[0]
    source.read.data_source.format = "lance"
    source.read.data_source.options["columns"] = "id"
    source.read.data_source.paths.append(sales)
    answer = proto.Relation()
    answer.with_relations.root.sql.query = "select * from a join b using (id)"
    for name, relation in (("a", scan), ("b", source)):
        reference = answer.with_relations.references.add()
        reference.subquery_alias.alias = name
        reference.subquery_alias.input.CopyFrom(relation)

    found: Any = SimpleNamespace(_plan=plans.CachedRelation(answer))
    read = {source.version: source for source in frame_sources(found)}

    assert read[1] == options
    assert (read[None].uri, read[None].columns) == (sales, ("id",))


@pytest.mark.parametrize("value", [10**18, 1 << 63, 1 << 64, -(1 << 63) - 1, None, -7])
def test_decimals_that_do_not_fit_64_bits_are_refused(value: int | None) -> None:
    wide = pa.array([None if value is None else Decimal(value)], pa.decimal128(38, 0))
    # A stranger's file may hold more digits than its type says.
    array = pa.Array.from_buffers(pa.decimal128(18, 0), 1, wide.buffers())
    reader: Any = OneBatch(pa.record_batch([array], ["d"]))
    scan = ScanFunction(reader, [0], 1, frozenset({"d"}))
    numbers = iter([pa.record_batch([pa.array([0])], ["id"])])
    if value is not None and not -(1 << 63) <= value < 1 << 63:
        with pytest.raises(SchemaError, match="more digits"):
            list(scan(numbers))
    else:
        assert [batch.to_pydict() for batch in scan(numbers)] == [{"d": [value]}]


@pytest.mark.parametrize("query", ["select idd from s", "select 1 from s join t on s.idd = t.shop"])
def test_a_column_that_does_not_exist_is_named_with_the_closest_of_the_datasets(
    spark: SparkSession, sales: str, shops: str, query: str
) -> None:
    with pytest.raises(ColumnNotFoundError, match=r"idd.* did you mean 'id'"):
        glaive.spark.sql(spark, query, s=sales, t=shops)


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://me:hidden@host:8080", "me:***@host:8080"),
        ("http://me:hidden@host/t.lance?sig=hidden", "t.lance?sig=***"),
        ("az://box/t.lance", "t.lance"),
    ],
)
def test_plans_name_a_dataset_without_passwords(uri: str, shown: str) -> None:
    reader = LanceReader(from_spark({"path": uri}), StructType([]))
    name = ScanFunction(reader, [], 1, frozenset()).__name__
    assert name.startswith(f"lance {shown} [")
