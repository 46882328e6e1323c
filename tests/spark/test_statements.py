"""SQL statements over datasets: what they return, and what pylance then reads."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
import sqlglot
from pyspark.sql import SparkSession

import glaive
import glaive.spark
from glaive.errors import (
    ColumnNotFoundError,
    DatasetExistsError,
    DatasetNotFoundError,
    OptionError,
    RefNotFoundError,
    SchemaError,
    StoreError,
    UnsupportedFeatureError,
)
from glaive.namespace import connect
from glaive.spark.filters import MAX_CHARS
from glaive.spark.grammar import Choice, Slot, Table, Version, Words, compiled, matched
from glaive.spark.statements import STATEMENTS
from glaive.spark.table_statements import PROCEDURES, snake

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "name": ["a", "b", None, "it's"],
        "price": [1.5, 2.5, None, 4.5],
    }
)

ABC = [(1, "a", 1.5), (2, "b", 2.5), (3, None, None), (4, "it's", 4.5)]


BY_SQLGLOT_30 = pytest.mark.skipif(
    int(sqlglot.__version__.split(".")[0]) < 30, reason="sqlglot 30 reads expressions after AS OF"
)


def rows_of(uri: str, **version: Any) -> list[tuple[Any, ...]]:
    """Return the rows as pylance reads them, by id."""
    table = lance.dataset(uri, **version).to_table().sort_by("id")
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Write two fragments: version 2 has all rows."""
    place = str(tmp_path / "t.lance")
    glaive.write_dataset(ROWS.slice(0, 2), place)
    glaive.write_dataset(ROWS.slice(2), place, mode="append")
    return place


MERGED = (
    "MERGE INTO t USING (SELECT id, 'm' AS name FROM range(2, 6)) AS s ON t.id = s.id "
    "WHEN MATCHED AND CASE WHEN t.id = 2 THEN true ELSE false END THEN DELETE "
    'WHEN MATCHED AND t.price IS NULL THEN UPDATE SET name = concat(s.name, "\'", s.id), '
    "t.price = 0 "
    "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name) "
    "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET price = t.price * 2"
)

CHANGES: list[tuple[str, list[Any], list[Any]]] = [
    ("DELETE FROM t WHERE id > 2", [2], ABC[:2]),
    ("DELETE FROM t AS x WHERE length(x.name) = 4 AND upper(x.name) LIKE 'IT%';", [1], ABC[:3]),
    ("delete from t where id in (select max(id) from t)", [1], ABC[:3]),
    ("DELETE FROM t WHERE id = (SELECT 3) OR name = 'a'", [2], [ABC[1], ABC[3]]),
    ("DELETE FROM t WHERE name <> 'a' -- null is unknown", [2], [ABC[0], ABC[2]]),
    ("DELETE FROM t WHERE id = 77", [0], ABC),
    ("DELETE FROM t", [4], []),
    ("TRUNCATE TABLE t", [], []),
    (
        "UPDATE t SET price = price + id, name = coalesce(name, 'none') WHERE id >= 3",
        [2],
        [*ABC[:2], (3, "none", None), (4, "it's", 8.5)],
    ),
    (
        "UPDATE t SET `price` = 1.25 * 3, t.id = 4.0 WHERE id = 4",
        [1],
        [*ABC[:3], (4, "it's", 3.75)],
    ),
    ('UPDATE t x SET x.name = NULL WHERE name = "it\'s"', [1], [*ABC[:3], (4, None, 4.5)]),
    (
        "UPDATE t SET price = -1 WHERE EXISTS (SELECT 1 FROM range(2) r WHERE r.id = t.id)",
        [1],
        [(1, "a", -1.0), *ABC[1:]],
    ),
    (MERGED, [4, 2, 1, 1], [(1, "a", 3.0), (3, "m'3", 0.0), ABC[3], (5, "m", None)]),
    (
        "MERGE INTO t x USING t VERSION AS OF 1 y ON x.id = y.id WHEN MATCHED THEN DELETE",
        [2, 0, 2, 0],
        ABC[2:],
    ),
    ("INSERT INTO t VALUES (5, 'e', 1), (6, NULL, NULL)", [2, 2], [*ABC, (5, "e", 1.0)]),
    ("INSERT INTO TABLE t (name, id) SELECT 'z', 9", [1, 1], [*ABC, (9, "z", None)]),
    ("INSERT INTO t BY NAME SELECT 2.25 AS price, 9 AS ID", [1, 1], [*ABC, (9, None, 2.25)]),
    ("INSERT INTO t (SELECT id + 10, name, price FROM t@v1)", [2, 2], [*ABC, (11, "a", 1.5)]),
    ("INSERT OVERWRITE t SELECT 1, 'x', price FROM t WHERE id = 2", [1, 1], [(1, "x", 2.5)]),
    (
        "INSERT INTO t REPLACE WHERE id >= 3 AND id < 9 VALUES (7, 'r', 0)",
        [1, 1],
        [*ABC[:2], (7, "r", 0.0)],
    ),
    (
        "INSERT INTO t REPLACE USING (name) VALUES (7, 'a', 0), (8, 'a', 1), (9, NULL, 2)",
        [4, 1, 3],
        [*ABC[1:], (7, "a", 0.0), (8, "a", 1.0), (9, None, 2.0)],
    ),
    (
        "INSERT INTO t (id, name) REPLACE USING (id, `name`) SELECT id, 'b' FROM t WHERE id < 3",
        [3, 1, 2],
        [ABC[0], (1, "b", None), (2, "b", None), *ABC[2:]],
    ),
    ("INSERT INTO t REPLACE USING (id) SELECT * FROM t WHERE false", [0, 0, 0], ABC),
    (
        "INSERT INTO t x BY NAME REPLACE ON x.name <=> s.name (SELECT 9 AS id, NULL AS name) AS s",
        [2, 1, 1],
        [*ABC[:2], ABC[3], (9, None, None)],
    ),
]


@pytest.mark.spark
@pytest.mark.parametrize(("statement", "counts", "rows"), CHANGES)
def test_changes_of_rows_return_counts_and_commit(
    spark: SparkSession, uri: str, statement: str, counts: list[Any], rows: list[Any]
) -> None:
    made = glaive.spark.sql(spark, statement, t=uri)

    assert [list(row) for row in made.collect()] == ([counts] if counts else [])
    found = rows_of(uri)
    assert [row for row in found if row in rows] == rows
    if "INSERT INTO" not in statement or "REPLACE" in statement:
        assert found == rows
    else:
        assert len(found) == 4 + counts[0]
    assert rows_of(uri, version=2) == ABC


COUNTS = {
    "DELETE FROM t WHERE id < 0": ["num_affected_rows"],
    "UPDATE t SET id = 1 WHERE id < 0": ["num_affected_rows"],
    "INSERT INTO t SELECT * FROM t WHERE id < 0": ["num_affected_rows", "num_inserted_rows"],
    "MERGE INTO t USING range(1) r ON t.id = r.id WHEN MATCHED THEN DELETE": [
        "num_affected_rows",
        "num_updated_rows",
        "num_deleted_rows",
        "num_inserted_rows",
    ],
}


@pytest.mark.spark
@pytest.mark.parametrize("statement", COUNTS)
def test_results_have_the_columns_of_databricks(
    spark: SparkSession, uri: str, statement: str
) -> None:
    made = glaive.spark.sql(spark, statement, t=uri)

    assert made.columns == COUNTS[statement]
    assert not any(made.first() or [1])


@pytest.mark.spark
@pytest.mark.parametrize(
    ("table", "ids"),
    [
        ("t", [1, 2, 3, 4, 5]),
        ("t VERSION AS OF 1", [1, 2]),
        ("lance.`{uri}` FOR VERSION AS OF 2 x", [1, 2, 3, 4]),
        ("t@v1 AS x", [1, 2]),
        ("lance.`{uri}@v1`", [1, 2]),
        ("lance.`{uri}`@gold", [1, 2, 3, 4]),
        ("t VERSION AS OF 'gold'", [1, 2, 3, 4]),
        ("t@dev", [1, 2, 3, 4, 7]),
        ("t VERSION AS OF 'main'", [1, 2, 3, 4, 5]),
        pytest.param(
            "t TIMESTAMP AS OF current_timestamp() + INTERVAL 1 DAY x",
            [1, 2, 3, 4, 5],
            marks=BY_SQLGLOT_30,
        ),
        pytest.param(
            "t FOR SYSTEM_TIME AS OF TIMESTAMP '2999-01-01 00:00:00'",
            [1, 2, 3, 4, 5],
            marks=BY_SQLGLOT_30,
        ),
        ("t TIMESTAMP AS OF '2999-01-01' WHERE id > 4", [5]),
    ],
)
def test_queries_read_versions_tags_and_branches(
    spark: SparkSession, uri: str, table: str, ids: list[int]
) -> None:
    dataset = lance.dataset(uri)
    dataset.tags.create("gold", 2)
    dev = dataset.create_branch("dev")
    for target, new in ((dev, 7), (dataset, 5)):
        lance.write_dataset(
            pa.table({"id": [new], "name": ["n"], "price": [1.0]}), target, mode="append"
        )

    query = f"SELECT id FROM {table.format(uri=uri)} ORDER BY id"
    assert [row.id for row in glaive.spark.sql(spark, query, t=uri).collect()] == ids


@pytest.mark.spark
def test_queries_join_versions_of_one_table(spark: SparkSession, uri: str) -> None:
    query = 'SELECT b.id FROM t b LEFT ANTI JOIN t@v1 AS a ON a.id = b.id WHERE b.name = "it\'s"'

    assert [tuple(row) for row in glaive.spark.sql(spark, query, t=uri).collect()] == [(4,)]


@pytest.mark.spark
def test_spark_evaluates_a_condition_that_is_too_long_for_tasks(
    spark: SparkSession, uri: str
) -> None:
    long = "x" * MAX_CHARS
    glaive.spark.sql(spark, f"DELETE FROM t WHERE id > 0 AND name IN ('a', '{long}')", t=uri)
    assert rows_of(uri) == ABC[1:]


@pytest.mark.spark
def test_an_overwrite_keeps_the_declared_columns(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "new.lance")
    columns = "(id BIGINT NOT NULL COMMENT 'key', v ARRAY<FLOAT>)"
    options = "OPTIONS (vector_columns = 'v:2')"
    glaive.spark.sql(spark, f"CREATE TABLE t {columns} {options}", t=place)
    declared = lance.dataset(place).schema
    glaive.spark.sql(spark, "INSERT OVERWRITE t VALUES (1, array(1F, 2F))", t=place)
    assert lance.dataset(place).to_table().to_pylist() == [{"id": 1, "v": [1.0, 2.0]}]
    assert lance.dataset(place).schema.equals(declared, check_metadata=True)


@pytest.mark.spark
def test_a_merge_adds_the_columns_of_its_source_if_it_may(spark: SparkSession, uri: str) -> None:
    source = "(SELECT 9L AS id, 'n' AS name, 1D AS price, 'x' AS extra) s ON t.id = s.id"
    merge = f"INTO t USING {source} WHEN NOT MATCHED THEN INSERT *"
    glaive.spark.sql(spark, f"MERGE {merge}", t=uri)
    assert rows_of(uri) == [*ABC, (9, "n", 1.0)]
    merge = merge.replace("9L", "10L")
    glaive.spark.sql(spark, f"MERGE WITH SCHEMA EVOLUTION {merge}", t=uri)
    assert rows_of(uri)[-2:] == [(9, "n", 1.0, None), (10, "n", 1.0, "x")]


@pytest.mark.spark
def test_tables_are_created_changed_described_and_dropped_by_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "new.lance")
    place = f"lance.`{uri}`"

    def run(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in glaive.spark.sql(spark, statement).collect()]

    run(
        f"CREATE TABLE {place} (id BIGINT NOT NULL COMMENT 'the key, default', v ARRAY<FLOAT>, "
        "img BINARY, d DECIMAL(5, 2)) USING lance TBLPROPERTIES ('team' = 'x', a.b = 2) "
        "COMMENT 'all' OPTIONS (vector_columns = 'v:2', blob_columns = 'img') CLUSTER BY (id)"
    )
    schema = lance.dataset(uri).schema
    assert schema.field("id").metadata == {b"comment": b"the key, default"}
    assert (schema.field("id").nullable, schema.field("v").type) == (
        False,
        pa.list_(pa.float32(), 2),
    )
    with pytest.raises(DatasetExistsError, match="CREATE OR REPLACE TABLE"):
        run(f"CREATE TABLE {place} (x INT)")
    assert run(f"CREATE TABLE IF NOT EXISTS {place} (x INT)") == []
    run(f"INSERT INTO {place} (id, d) SELECT id, id / 4 FROM range(3)")
    run(f"INSERT INTO {place} (id, v) VALUES (7, array(0.5, 1)), (8, NULL)")
    assert lance.dataset(uri).to_table(["v"], filter="id = 7").to_pylist() == [{"v": [0.5, 1.0]}]
    run(f"ALTER TABLE {place} ADD COLUMNS (note STRING COMMENT 'n', e INT)")
    run(f"ALTER TABLE {place} ADD COLUMN f DOUBLE")
    run(f"ALTER TABLE {place} DROP COLUMNS IF EXISTS (f, missing)")
    run(f"ALTER TABLE {place} RENAME COLUMN note TO remark")
    run(f"ALTER TABLE {place} ALTER COLUMN e TYPE BIGINT")
    run(f"ALTER TABLE {place} ALTER COLUMN e COMMENT 'more'")
    run(f"ALTER TABLE {place} ALTER COLUMN id DROP NOT NULL")
    run(f"ALTER TABLE {place} SET TBLPROPERTIES (x = '1')")
    run(f"ALTER TABLE {place} UNSET TBLPROPERTIES (team)")
    run(f"ALTER TABLE {place} CLUSTER BY (id, d)")
    run(f"COMMENT ON TABLE {place} IS 'it''s new'")
    assert run(f"DESCRIBE {place}") == [
        ("id", "bigint", "the key, default"),
        ("v", "array<float>", None),
        ("img", run(f"DESC TABLE {place}")[2][1], None),
        ("d", "decimal(5,2)", None),
        ("remark", "string", "n"),
        ("e", "bigint", "more"),
    ]
    assert run(f"SHOW TBLPROPERTIES {place}") == [
        ("a.b", "2"),
        ("comment", "it's new"),
        ("glaive.cluster_by", '["id", "d"]'),
        ("x", "1"),
    ]
    assert run(f"SHOW COLUMNS IN {place}")[-1] == ("e",)
    described = glaive.spark.sql(spark, f"DESCRIBE TABLE EXTENDED {place}").collect()
    assert {row.col_name: row.data_type for row in described}["Location"] == uri
    assert len(run(f"DESCRIBE HISTORY {place} LIMIT 2")) == 2
    assert glaive.spark.sql(spark, f"DESCRIBE DETAIL {place}").collect()[0].num_rows == 5
    run(f"CREATE OR REPLACE TABLE {place} CLUSTER BY (k) AS SELECT id % 2 AS k FROM range(4)")
    assert lance.dataset(uri).to_table()["k"].to_pylist() == [0, 0, 1, 1]
    run(f"DROP TABLE {place}")
    assert run(f"DROP TABLE IF EXISTS {place}") == []
    with pytest.raises(DatasetNotFoundError):
        run(f"DROP TABLE {place}")


CREATE_ALL = """
CREATE TABLE t (
  id bigint GENERATED BY DEFAULT AS IDENTITY (START WITH 5 INCREMENT BY -2) COMMENT 'it\\'s \\\\',
  key bigint GENERATED ALWAYS AS IDENTITY, `a b` double DEFAULT 1 + 1.5 NOT NULL,
  twice double GENERATED ALWAYS AS (`a b` * 2), emb array<float>,
  s struct<x: int, `y-1`: array<map<string, struct<`a b`: int>>>>, at timestamp,
  CONSTRAINT `b c` CHECK (`a b` > 0))
OPTIONS (vector_columns = 'emb:4:float16', enable_stable_row_ids = true)
COMMENT 'the orders' TBLPROPERTIES ('a.b' = 'c\\'d', e = '1') CLUSTER BY (`a b`)
"""


@pytest.mark.spark
def test_a_table_is_created_again_by_its_statement(spark: SparkSession, tmp_path: Path) -> None:
    def create_statement(uri: Path) -> str:
        row = glaive.spark.sql(spark, "SHOW CREATE TABLE t", t=uri).first()
        assert row is not None
        return str(row.createtab_stmt)

    first, second = tmp_path / "first", tmp_path / "second"
    glaive.spark.sql(spark, CREATE_ALL, t=first)
    glaive.spark.sql(spark, create_statement(first), t=second)
    tables = [glaive.dataset(uri) for uri in (first, second)]
    schemas = [lance.dataset(str(uri)).schema for uri in (first, second)]
    assert schemas[0].equals(schemas[1])
    assert tables[0].config() == tables[1].config()
    assert (
        tables[0].manifest.wire.writer_feature_flags == tables[1].manifest.wire.writer_feature_flags
    )
    assert create_statement(first) == create_statement(second)
    assert "TBLPROPERTIES ('a.b' = 'c\\'d', 'e' = '1')" in create_statement(first)
    for table in tables:
        table.insert({"id": [None]})
    assert [lance.dataset(str(uri)).to_table()["id"].to_pylist() for uri in (first, second)] == [
        [5],
        [5],
    ]
    blob = pa.field("n", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    for number, (field, kind) in enumerate(
        [(pa.field("n", pa.uint16()), "uint16"), (blob, "large_binary lance-encoding:blob")]
    ):
        place = tmp_path / f"{number}"
        glaive.write_dataset(pa.schema([field]).empty_table(), place, data_storage_version="2.1")
        with pytest.raises(UnsupportedFeatureError, match=f"'n' has the type {kind}, which"):
            create_statement(place)


@pytest.mark.spark
def test_plans_of_queries_are_explained(spark: SparkSession, uri: str) -> None:
    for mode, part in (
        ("", "MapInArrow"),
        ("EXTENDED", "Optimized Logical Plan"),
        ("COST", "size"),
    ):
        query = f"EXPLAIN {mode} SELECT name FROM t WHERE id > 1"
        (row,) = glaive.spark.sql(spark, query, t=uri).collect()
        assert part in row.plan


@pytest.mark.spark
def test_plans_that_threads_ask_for_stay_apart(
    spark: SparkSession, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def plans(_: int) -> list[str]:
        query = "EXPLAIN SELECT name FROM t"
        return [glaive.spark.sql(spark, query, t=uri).collect()[0].plan for _ in range(3)]

    output = sys.stdout
    with ThreadPoolExecutor(4) as threads:
        found = [plan for some in threads.map(plans, range(4)) for plan in some]
    assert [plan.count("Physical Plan") for plan in found] == [1] * 12
    assert sys.stdout is output
    assert "Physical Plan" not in capsys.readouterr().out


@pytest.mark.spark
def test_folders_get_other_names(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    before, other = rows_of(uri), str(tmp_path / "other.lance")
    glaive.spark.sql(spark, f"ALTER TABLE t RENAME TO lance.`{other}`", t=uri)
    assert rows_of(other) == before
    with pytest.raises(DatasetNotFoundError):
        glaive.dataset(uri)
    glaive.write_dataset({"id": [1]}, uri)
    with pytest.raises(StoreError, match="Choose a free name"):
        glaive.spark.sql(spark, "ALTER TABLE u RENAME TO t", t=uri, u=other)
    assert rows_of(other) == before
    with pytest.raises(UnsupportedFeatureError, match="only folders of a file system"):
        glaive.spark.sql(spark, "ALTER TABLE t RENAME TO u", t=uri, u="s3://bucket/u")


@pytest.mark.spark
def test_tables_of_catalogues_are_named(spark: SparkSession, tmp_path: Path) -> None:
    shop = connect("dir", {"root": str(tmp_path)})

    def run(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in glaive.spark.sql(spark, statement, shop=shop).collect()]

    run("CREATE SCHEMA shop.eu")
    run("CREATE SCHEMA IF NOT EXISTS shop.eu")
    run("CREATE TABLE shop.orders AS SELECT id, id % 3 AS kind FROM range(9)")
    run("CREATE TABLE shop.eu.kinds AS VALUES (0, 'a'), (1, 'b')")
    assert run("SHOW TABLES IN shop") == [("shop", "orders", False)]
    assert run("SHOW TABLES IN shop.eu LIKE 'k*'") == [("shop.eu", "kinds", False)]
    assert run("SHOW NAMESPACES IN shop") == [("eu",)]
    query = (
        "SELECT kinds.col2, count(*) FROM shop.orders JOIN shop.eu.kinds ON kind = kinds.col1 "
        "WHERE orders.id > 0 GROUP BY 1 ORDER BY 1"
    )
    assert run(query) == [("a", 2), ("b", 3)]
    merge = (
        "MERGE INTO shop.orders USING shop.eu.kinds ON orders.kind = kinds.col1 "
        "WHEN MATCHED THEN UPDATE SET kind = 10"
    )
    assert run(merge) == [(6, 6, 0, 0)]
    assert run("SELECT count(*) FROM shop.orders@v1 WHERE kind = 10") == [(0,)]
    with pytest.raises(UnsupportedFeatureError, match="rename"):
        run("ALTER TABLE shop.orders RENAME TO sales")
    with pytest.raises(OptionError, match="catalogue of a table cannot change"):
        run("ALTER TABLE shop.orders RENAME TO lance.`sales.lance`")
    run("CREATE TABLE shop.copy SHALLOW CLONE shop.orders VERSION AS OF 1")
    assert run("SELECT sum(kind) FROM shop.copy") == [(9,)]
    run("DROP TABLE shop.copy")
    assert run("SHOW TABLES IN shop") == [("shop", "orders", False)]
    run("DROP TABLE shop.eu.kinds")
    run("DROP SCHEMA shop.eu")
    assert run("SHOW SCHEMAS IN shop") == []


@pytest.mark.spark
def test_upkeep_runs_the_methods_of_the_table(spark: SparkSession, uri: str) -> None:
    def run(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in glaive.spark.sql(spark, statement, t=uri).collect()]

    (made,) = run("OPTIMIZE t WHERE id > 0")
    assert (made[0], made[1].fragments_removed, made[1].fragments_added) == (uri, 2, 1)
    assert run("OPTIMIZE t ZORDER BY (id, price)")[0][1].files_added == 1
    with pytest.raises(OptionError, match="no columns to cluster by"):
        run("OPTIMIZE t FULL")
    run("ALTER TABLE t CLUSTER BY (name)")
    run("OPTIMIZE t")
    assert lance.dataset(uri).to_table()["name"].to_pylist() == [None, "a", "b", "it's"]
    assert run("OPTIMIZE t")[0][1].files_added == 0
    assert run("OPTIMIZE t FULL")[0][1].files_added == 1
    for columns, keys in (("(price, id)", ["price", "id"]), ("NONE", [])):
        run(f"ALTER TABLE t CLUSTER BY {columns}")
        (detail,) = glaive.spark.sql(spark, "DESCRIBE DETAIL t", t=uri).collect()
        assert detail.clustering_columns == keys
    run("CREATE INDEX by_id ON t (id)")
    run("CREATE INDEX IF NOT EXISTS by_id ON t USING btree (id)")
    run("ALTER TABLE t CREATE INDEX words USING inverted (name) WITH (with_position = true)")
    assert [row[:3] for row in run("SHOW INDEXES IN t")] == [
        ("by_id", "BTree", ["id"]),
        ("words", "Inverted", ["name"]),
    ]
    run("DROP INDEX words ON t")
    run("CREATE TAG gold ON t AS OF VERSION 2")
    run("ALTER TABLE t CREATE OR REPLACE TAG gold AS OF VERSION 1")
    run("CREATE BRANCH IF NOT EXISTS dev ON t")
    assert sorted(row[:3] for row in run("SHOW REFS IN t"))[1] == ("gold", "tag", 1)
    assert run("INSERT INTO t@dev SELECT 8, 'dev', 0") == [(1, 1)]
    assert run("UPDATE t@dev SET price = 1 WHERE id = 8") == [(1,)]
    assert len(rows_of(uri)) == 4
    run("CALL lance.system.publish('t', 'dev')")
    assert rows_of(uri)[-1] == (8, "dev", 1.0)
    run("DROP BRANCH dev ON t")
    run("DROP TAG gold ON t")
    assert run("SHOW TAGS IN t") == run("SHOW BRANCHES IN t") == []
    called = run("CALL lance.system.drop_duplicates(table => 't', columns => array('price'))")
    assert called[0][1] == 0
    paths = run("VACUUM t RETAIN 0 HOURS DRY RUN")
    restored = glaive.spark.sql(spark, "RESTORE TABLE t TO VERSION AS OF 2", t=uri).first()
    assert restored is not None
    assert (restored.num_of_files_after_restore, rows_of(uri)) == (2, ABC)
    assert paths
    assert run("VACUUM t RETAIN 0 HOURS")[0][1].old_versions > 0
    assert len(lance.dataset(uri).versions()) == 1


@pytest.mark.spark
@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("DELET FROM t", OptionError, r"closest one is DELETE FROM \{table\}"),
        ("DELETE FROM t WHERE", OptionError, "closest one is DELETE FROM"),
        ("OPTIMISE t", OptionError, "closest one is OPTIMIZE"),
        ("GRANT SELECT ON t TO me", OptionError, "begins with ALTER, CALL"),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (id > 1)", SchemaError, "by row 0, id = 1"),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK id > 1", OptionError, "closest one is ALTER TABLE"),
        ("ALTER TABLE t DROP CONSTRAINT c", OptionError, "has the constraints none"),
        ("ALTER TABLE t ADD COLUMN x INT GENERATED ALWAYS AS (id)", SchemaError, "get null"),
        ("ALTER TABLE t RENAME TO u", OptionError, "expected a folder"),
        ("EXPLAIN DELETE FROM t", OptionError, "EXPLAIN"),
        ("ALTER TABLE t ADD COLUMN x INT PRIMARY KEY", UnsupportedFeatureError, "'PRIMARY'"),
        ("ALTER TABLE t ADD COLUMN x INT NOT NULL", SchemaError, "rows of the table get null"),
        ("INSERT INTO t REPLACE USING (x) SELECT 1, 'a', 2", ColumnNotFoundError, "x"),
        ("INSERT INTO t REPLACE ON t.x = 1 SELECT 1, 'a', 2", ColumnNotFoundError, "x"),
        ("INSERT INTO t REPLACE USING () SELECT 1, 'a', 2", OptionError, "REPLACE USING"),
        ("INSERT INTO t REPLACE WHERE rand() < 1 SELECT 1", OptionError, "comparisons of columns"),
        ("INSERT INTO t VALUES (1)", SchemaError, r"3 columns \(id, name, price\) get 1 values"),
        ("INSERT INTO t VALUES ('x', 'y', 1)", SchemaError, "'id' stores bigint"),
        ("INSERT INTO t (id, nam) VALUES (1, 'y')", ColumnNotFoundError, "'name'"),
        ("INSERT INTO t (id, nam) VALUES (1, DEFAULT)", ColumnNotFoundError, "'name'"),
        ("UPDATE t SET price = (SELECT 1)", OptionError, "MERGE INTO"),
        ("UPDATE t SET prise = 1", ColumnNotFoundError, "price"),
        ("ALTER TABLE t CLUSTER BY (prise)", ColumnNotFoundError, "price"),
        ("DELETE FROM t@gold", RefNotFoundError, "'gold'"),
        ("DELETE FROM t@v1", OptionError, "needs the newest version"),
        ("MERGE INTO t USING t s ON t.id = s.id WHEN MATCHED THEN KEEP", OptionError, "clause"),
        ("CREATE TABLE other USING lance AS SELECT 1", OptionError, "lance.`path`.* other="),
        ("CREATE TABLE lance.`/x`", OptionError, "columns in brackets"),
        ("CALL lance.system.vacum('t')", OptionError, "closest one is vacuum"),
        ("CALL lance.system.vacuum('t', hours => 3)", OptionError, "'hours'"),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", OptionError, "WITH after INSERT"),
        ("SELECT 1; SELECT 2", OptionError, "expected one statement, found 2"),
        ("DELETE FROM t; DELETE FROM t", OptionError, "closest one"),
        ("", OptionError, "expected one statement"),
    ],
)
def test_mistakes_are_named_and_change_nothing(
    spark: SparkSession, uri: str, statement: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        glaive.spark.sql(spark, statement, t=uri)

    assert (lance.dataset(uri).version, rows_of(uri)) == (2, ABC)


SLOTS = {
    "table": "shop.`a b`",
    "origin": "c@v3",
    "catalogue": "shop.eu",
    "clauses": "WHEN MATCHED AND CASE WHEN a THEN b END THEN DELETE",
    "assignments": "x = CASE WHEN a THEN b END, t.y = f(1, 2)",
    "query": "SELECT (1)",
    "version": "VERSION AS OF 3",
    "columns": "(x, `y z`)",
    "definitions": "(x MAP<INT, ARRAY<STRUCT<a: INT, b: INT>>>, comment STRING COMMENT 'y')",
    "definition": "x INT",
    "arguments": "('t', a => 1)",
    "properties": "(a.b = 'c', 'd' = 1)",
    "options": "(a = 1)",
    "number": "3",
    "text": "'text'",
    "pattern": "'*.csv'",
    "values": "('a.csv')",
    "condition": "(a OR b) AND c IN (SELECT 1)",
    "check": "(a > 0 OR (b))",
    "keys": "(x, `y z`)",
    "default": "f(1) + 2",
    "source": "(SELECT 1 FROM d WHERE e)",
    "type": "DECIMAL(3, 2)",
}


def filled(parts: tuple[Any, ...], *, short: bool) -> str:
    """Return a statement of a form, with the first or the last of all alternatives."""
    texts = []
    for part in parts:
        if isinstance(part, Choice):
            texts.append(filled(part.forms[-1 if short else 0], short=short))
        else:
            texts.append(SLOTS.get(part.name, "x") if isinstance(part, Slot) else part)
    return " ".join(filter(None, texts))


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda one: one.form)
def test_statements_of_each_form_run_its_function(statement: Any, *, short: bool) -> None:
    text = filled(compiled(statement.form), short=short)
    for spelled in (text, text.lower().replace(" ", "\n /* a */ ") + " ;"):
        words = Words.of(spelled)
        first = next(one for one in STATEMENTS if matched(one.form, words) is not None)
        assert first.run is statement.run, spelled


@pytest.mark.parametrize(
    ("form", "text", "found"),
    [
        (
            "CREATE {definitions}",
            "CREATE (version INT, m MAP<A, B> )",
            ["version INT", "m MAP<A, B>"],
        ),
        (
            "ADD {definition}",
            "ADD a STRUCT<x: INT, y: INT>, b INT",
            ["a STRUCT<x: INT, y: INT>", "b INT"],
        ),
        ("SET {assignments}", "SET a = b < c, `=` = f(1, '=')", {"a": "b < c", "`=`": "f(1, '=')"}),
        ("SET {assignments}", "SET a = b, c", None),
        ("O {options}", "O (a.b = 'c', 'd' 'e', f = -1)", {"a.b": "c", "d": "e", "f": "-1"}),
        ("IS {text}", "IS 'it''s' ", "it's"),
        ("IS {text}", 'IS "a" -- \'', "a"),
        ("FROM {table}", "FROM `a.b`.c@v3", Table(("a.b", "c"), Version("VERSION", "3"))),
        ("FROM {table}", "FROM a@`x-y`", Table(("a",), Version("VERSION", "'x-y'"))),
        ("FROM {table} {alias}", "FROM a VERSION AS OF 3 where", None),
        ("IF {condition} THEN", "IF CASE WHEN a THEN b END = c THEN", "CASE WHEN a THEN b END = c"),
    ],
)
def test_slots_hold_the_text_of_the_user(form: str, text: str, found: Any) -> None:
    slots = matched(form, Words.of(text))

    name = form.partition("{")[2].partition("}")[0]
    assert (None if slots is None else slots[name]) == found


def test_the_guide_lists_each_statement_with_what_runs_it() -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/spark-sql.md").read_text()
    for one in STATEMENTS:
        assert f"| `{one.form.replace('|', ' / ')}` | `{one.method}` |" in guide
    procedures = ", ".join(f"`{snake(name)}`" for name in PROCEDURES)
    assert procedures in " ".join(guide.split())
