"""What holds on every release of Spark 4: ``make test`` runs this file on the first and the last.

Each step is one that daily work takes; what a release lacks is done in another way, or refused
with the release that has it.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, datasource
from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark
from tests.docs.test_examples import ROOT
from tests.docs.test_examples import run as run_page

import glaive
import glaive.spark
from glaive.errors import SchemaError
from glaive.spark import LanceTable
from glaive.spark.launch import ensure_java
from glaive.spark.versions import HAS_READ_LIMITS, HAS_TIME, LATEST_JAVA

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # of PySpark 4.0
]

ROWS = 1000


def frame(spark: SparkSession) -> DataFrame:
    """Rows with a column of each kind."""
    return spark.range(ROWS).selectExpr(
        "id",
        "int(id % 7) as day",
        "concat('name ', id % 50) as name",
        "cast(id / 8 as decimal(12, 3)) as price",
        "timestamp '2026-01-01 10:00:00' + make_interval(0, 0, 0, int(id % 90)) as at",
        "timestamp_ntz '2026-01-01 10:00:00.5' as wall",
        "date '2026-01-01' + int(id % 90) as born",
        "if(id % 10 = 0, null, double(id)) as score",
        "transform(sequence(0, 3), n -> float(id + n)) as v",
        "named_struct('a', id, 'b', array(string(id))) as nested",
        "map('k', id) as pairs",
        "encode(string(id), 'utf-8') as bytes",
    )


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """All rows, in four fragments."""
    uri = str(tmp_path_factory.mktemp("facts") / "shop.lance")
    glaive.spark.write(frame(spark).repartition(4, "id"), uri, vector_columns=["v:4"])
    return uri


def values(found: DataFrame, *names: str) -> list[Any]:
    return sorted(
        tuple(row) if len(names) > 1 else row[0] for row in found.select(*names).collect()
    )


def test_frames_are_written_and_read_as_they_are(spark: SparkSession, uri: str) -> None:
    rows = frame(spark)
    rows.write.format("lance").mode("overwrite").save(uri)
    assert glaive.spark.write(rows, uri, mode="ignore") == 1
    rows.limit(10).write.format("lance").mode("append").save(uri)

    found = spark.read.format("lance").load(uri)
    assert found.count() == ROWS + 10
    first = spark.read.format("lance").option("version", 1).load(uri)
    assert first.schema.simpleString() == rows.schema.simpleString()
    assert first.orderBy("id").collect() == rows.orderBy("id").collect()
    stored = glaive.dataset(uri)
    (row,) = stored.to_table(filter="id = 999").to_pylist()
    assert row["price"] == Decimal("124.875")
    assert row["at"] == datetime(2026, 1, 10, 10, tzinfo=UTC)
    assert (row["born"], row["nested"]) == (date(2026, 1, 10), {"a": 999, "b": ["999"]})


def test_reads_take_columns_filters_and_searches(spark: SparkSession, shop: str) -> None:
    read = glaive.spark.read(spark, shop, columns=["id", "day"], filter="id < 20 and day = 3")
    assert values(read, "id", "day") == [(3, 3), (10, 3), (17, 3)]
    pushed = glaive.spark.read(spark, shop, push_filters=True)
    pushed = pushed.where((F.col("day") == 3) & F.col("name").startswith("name 1"))
    assert values(pushed.where("score > 100 and id in (150, 164, 514)"), "id") == [164, 514]
    by_option = spark.read.format("lance").option("columns", "id,price").load(shop)
    assert by_option.agg(F.sum("price")).first() == (Decimal("62437.500"),)
    nearest = {"column": "v", "q": [7.0, 8.0, 9.0, 10.0], "k": 3}
    assert values(glaive.spark.read(spark, shop, nearest=nearest), "id") == [6, 7, 8]


def test_sql_takes_datasets_and_views(spark: SparkSession, shop: str) -> None:
    spark.range(7).selectExpr("id as day", "concat('d', id) as title").createOrReplaceTempView("d")
    joined = (
        "select d.title, count(*) as n, max(s.score) as top from s join d on s.day = d.day "
        "where s.id >= 100 and s.id < 800 and s.name like 'name 1%' and s.born is not null "
        "and s.day in (1, 2) and (s.score > 5 or s.score is null) group by d.title"
    )
    found = {
        row.title: (row.n, row.top) for row in glaive.spark.sql(spark, joined, s=shop).collect()
    }
    ids = [i for i in range(100, 800) if f"name {i % 50}".startswith("name 1") and i % 7 in {1, 2}]
    for day in (1, 2):
        own = [i for i in ids if i % 7 == day]
        assert found[f"d{day}"] == (len(own), max(i for i in own if i % 10))
    assert glaive.spark.sql(spark, f"select count(*) from lance.`{shop}`").first() == (ROWS,)
    glaive.spark.register_view(spark, "shop", shop, columns=["id", "day"])
    assert spark.sql("select sum(day) from shop where id < 14").first() == (42,)


def test_table_functions_scan_and_search_in_sql(spark: SparkSession, shop: str) -> None:
    scan = f"lance_scan('{shop}', columns => 'id,price,at,nested,pairs', filter => 'id < 20')"
    found = spark.sql(f"select * from {scan}")
    assert found.orderBy("id").collect() == frame(spark).select(found.columns).head(20)
    queries = f"lance_scan('{shop}', filter => 'id in (7, 90)')"
    by_vector = f"lance_search('{shop}', q.v, 'v', k => 1, select => array('id'))"
    joined = spark.sql(f"select q.id as n, r.id from {queries} q, lateral {by_vector} r")
    assert values(joined, "n", "id") == [(7, 7), (90, 90)]
    by_text = f"lance_search_text('{shop}', q.name, 'name', k => 1, filter => 'id < 50')"
    joined = spark.sql(f"select q.id as n, r.id from {queries} q, lateral {by_text} r")
    assert values(joined, "n", "id") == [(7, 7), (90, 40)]
    history = spark.sql(f"select version, operation from lance_history('{shop}')")
    assert history.collect() == [(1, "overwrite")]
    assert spark.sql(f"select * from lance_changes('{shop}', 1)").count() == ROWS
    with pytest.raises(AnalysisException, match="column: missing"):
        spark.sql(f"select * from lance_search('{shop}', array(1f))")


def test_tables_are_changed_in_place(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(frame(spark).repartition(3, "id"), uri, vector_columns=["v:4"])
    table = LanceTable.forPath(spark, uri)

    assert table.delete("day = 6")["num_deleted_rows"] == 142
    assert table.update("day = 5", {"score": "score + 1"})["num_rows_updated"] == 143
    changes = spark.range(990, 1010).join(frame(spark).drop("id").limit(1)).selectExpr("*")
    merge = table.alias("t").merge(changes.alias("c"), "t.id = c.id")
    merge.whenMatchedUpdate(set={"name": "'changed'"}).whenNotMatchedInsertAll().execute()
    assert table.toDF().count() == ROWS - 142 + 10 + sum(i % 7 == 6 for i in range(990, 1000))
    assert table.toDF().where("name = 'changed'").count() == sum(
        i % 7 != 6 for i in range(990, 1000)
    )

    table.addColumns({"twice": "id * 2"})
    table.addColumnsFrom(spark.range(1010).selectExpr("id", "id % 3 as third"), "id")
    table.renameColumn("third", "rest")
    table.dropColumns("wall")
    table.createIndex("id", "BTREE")
    table.createIndex("name", "FTS")
    table.createIndex("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2)
    assert {index.name for index in glaive.dataset(uri).describe_indices()} == {
        "id_idx",
        "name_idx",
        "v_idx",
    }
    (row,) = glaive.spark.read(spark, uri, filter="id = 700").collect()
    assert (row.twice, row.rest, row.day) == (1400, 1, 0)
    assert values(table.searchText("changed", columns=["name"]), "id") == [
        i for i in range(990, 1000) if i % 7 != 6
    ]
    glaive.spark.write(table.toDF().limit(5), uri, mode="append")
    table.optimizeIndices()
    table.optimize().executeCompaction()
    table.optimize().executeClusterBy("day")
    days = glaive.dataset(uri).to_table(columns=["day"])["day"].to_numpy()
    assert (np.diff(days) >= 0).all()
    assert table.dropDuplicates(["id"])["num_deleted_rows"] == 5
    assert table.history(1).count() == 1
    table.restoreToVersion(1)
    assert table.toDF().count() == ROWS


def test_files_are_ingested_converted_and_exported(
    spark: SparkSession, shop: str, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    table = LanceTable.forPath(spark, shop)
    written = table.export("parquet", str(folder), filter="id < 300")
    assert written["num_rows"] == 300
    done = glaive.spark.ingest(spark, str(folder), str(tmp_path / "new.lance"), task_bytes=1)
    assert done.rows == 300
    pq.write_table(
        pa.table({"id": [299, 300], "day": pa.array([9, 9], pa.int32())}), tmp_path / "m.parquet"
    )
    merged = glaive.spark.ingest(
        spark,
        str(tmp_path / "m.parquet"),
        str(tmp_path / "new.lance"),
        mode="merge",
        merge_keys="id",
        schema_drift="add",
    )
    assert merged.rows == 2
    assert glaive.dataset(str(tmp_path / "new.lance")).count_rows("day = 9") == 2


def test_values_in_names_of_folders_are_those_that_spark_finds(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = str(tmp_path / "in")
    rows = spark.range(0, 8, 1, 2).selectExpr(
        "id",
        "id % 3 as rest",
        "id % 2 * 3000000000 as far",
        "id / 2 as half",
        "if(id = 5, null, date '2026-01-01' + int(id)) as born",
        "timestamp '2026-01-01 10:00:00' + make_interval(0, 0, 0, 0, 0, int(id)) as at",
        "concat('a/b=', id, ': ü %') as name",
    )
    columns = ("rest", "far", "half", "born", "at", "name")
    rows.write.partitionBy(*columns).parquet(folder)
    found = spark.read.parquet(folder)
    glaive.spark.ingest(spark, folder, str(tmp_path / "i.lance"), task_bytes=1)
    made = glaive.spark.read(spark, str(tmp_path / "i.lance"))
    assert made.schema.simpleString() == found.schema.simpleString()
    assert made.orderBy("id").collect() == found.orderBy("id").collect()


def run(stream: DataFrame, uri: str, checkpoint: Path, **options: Any) -> None:
    """Run a query until it has read all there is."""
    writer = stream.writeStream.format("lance").options(**options)
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(uri)
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def test_streams_go_on_where_they_stopped(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    source, checkpoint = str(tmp_path / "source.lance"), tmp_path / "checkpoint"
    glaive.write_dataset(pa.table({"id": [1, 2], "n": [0, 0]}), source, enable_stable_row_ids=True)

    def stream(**options: Any) -> DataFrame:
        return spark.readStream.format("lance").options(**options).load(source)

    run(stream(), uri, checkpoint)
    assert glaive.dataset(uri).count_rows() == 2
    for at in (3, 4):
        glaive.write_dataset(pa.table({"id": [at], "n": [at]}), source, mode="append")
    if HAS_READ_LIMITS:
        run(stream(maxFilesPerTrigger=1), uri, checkpoint)
        assert glaive.dataset(uri).version == 3
    else:
        with pytest.raises(StreamingQueryException, match=r"tells sources no limits.*Spark 4\.2"):
            run(stream(maxFilesPerTrigger=1), uri, checkpoint)
    run(stream(), uri, checkpoint)
    run(stream(), uri, checkpoint)
    assert values(glaive.spark.read(spark, uri), "id") == [1, 2, 3, 4]
    assert glaive.dataset(uri).version == (3 if HAS_READ_LIMITS else 2)

    target = str(tmp_path / "merged.lance")
    glaive.write_dataset(pa.table({"id": [1, 5], "n": [8, 8]}), target)
    run(stream(), target, tmp_path / "other", merge_keys="id")
    assert values(glaive.spark.read(spark, target), "id", "n") == [
        (1, 0),
        (2, 0),
        (3, 3),
        (4, 4),
        (5, 8),
    ]
    changes = glaive.spark.read_changes(spark, source, 2)
    assert values(changes, "id", "_change_type") == [(3, "insert"), (4, "insert")]


def test_times_of_day_are_read_or_refused_with_the_release_that_has_them(
    spark: SparkSession, uri: str
) -> None:
    glaive.write_dataset(pa.table({"id": [1], "t": pa.array([time(9)], pa.time64("us"))}), uri)
    assert glaive.spark.read(spark, uri, columns=["id"]).collect() == [(1,)]
    if HAS_TIME:
        assert glaive.spark.read(spark, uri).first() == (1, time(9))
    else:
        with pytest.raises(SchemaError, match=r"'t': Spark 4.0.* no type .*Spark 4.1 has"):
            glaive.spark.read(spark, uri)


FEATURES = {
    "filters for data sources in Python": hasattr(datasource, "EqualTo"),
    "Arrow batches for sinks of streams": hasattr(datasource, "DataSourceStreamArrowWriter"),
    "partitions by number (`repartitionById`)": hasattr(DataFrame, "repartitionById"),
    "times of day (`TIME`)": HAS_TIME,
    "limits of a stream (`maxFilesPerTrigger`)": HAS_READ_LIMITS,
    "Java 23 and later": LATEST_JAVA is None,
}


def test_the_guide_says_what_each_release_has() -> None:
    guide = Path(__file__, "../../../docs/guide/spark.md").resolve().read_text("utf-8")
    since = dict(re.findall(r"^\| (.+?) \| (4\.\d) \|", guide, re.MULTILINE))
    minor = ".".join(pyspark.__version__.split(".")[:2])
    assert {name: minor >= first for name, first in since.items()} == FEATURES


def test_a_java_that_this_release_cannot_use_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch()
    (tmp_path / "jdk" / "release").write_text(
        'JAVA_VERSION="25.0.2"\nMODULES="java.base jdk.incubator.vector"\n'
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert (ensure_java() == tmp_path / "jdk") == (LATEST_JAVA is None)


def test_statements_of_sql_change_and_describe_a_table(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")

    def run(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in glaive.spark.sql(spark, statement, t=uri).collect()]

    run("CREATE TABLE t (id BIGINT NOT NULL, name STRING COMMENT 'of it', v ARRAY<FLOAT>)")
    assert run("INSERT INTO t (id, name) SELECT id, concat('n', id) FROM range(9)") == [(9, 9)]
    assert run("DELETE FROM t WHERE id IN (SELECT max(id) FROM t)") == [(1,)]
    assert run("UPDATE t SET name = upper(name), v = array(1, 2) WHERE id % 2 = 0") == [(4,)]
    merge = "MERGE INTO t USING range(6, 9) r ON t.id = r.id WHEN MATCHED THEN DELETE "
    assert run(merge + "WHEN NOT MATCHED THEN INSERT (id) VALUES (r.id)") == [(3, 0, 2, 1)]
    assert run("SELECT count(name), max(id), max(v[1]) FROM t") == [(6, 8, 2.0)]
    assert run("SELECT count(*) FROM t VERSION AS OF 2") == [(9,)]
    assert run("OPTIMIZE t")[0][0] == uri
    assert run("DESCRIBE t")[1] == ("name", "string", "of it")
    run("RESTORE TABLE t TO VERSION AS OF 2")
    assert run("SELECT count(*) FROM t") == [(9,)]


@pytest.mark.usefixtures("in_start_folder")
def test_the_page_of_a_first_table_runs() -> None:
    run_page(ROOT / "docs" / "guide" / "spark-first-table.md", "spark")
