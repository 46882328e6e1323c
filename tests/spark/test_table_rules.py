"""Rules of a table: statements that set them, and writers of Spark that apply them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

import glaive
import glaive.spark
from glaive.errors import ColumnNotFoundError, CommitConflictError, GlaiveError, SchemaError
from glaive.spark import LanceTable
from glaive.spark.options import Options
from glaive.spark.writer import LanceArrowWriter, plan_job

CREATE = """
CREATE OR REPLACE TABLE lance.`{uri}` (
  id bigint NOT NULL, price double COMMENT 'in euros' DEFAULT 1 + 1.5,
  amount int DEFAULT 3 NOT NULL,
  total double GENERATED ALWAYS AS (price * amount), CONSTRAINT positive CHECK (price > 0),
  CHECK (amount < 100 OR (price = 1 AND id > 7)))
"""


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a table with a rule of each kind, and a row."""
    place = tmp_path_factory.mktemp("rules") / "t.lance"
    glaive.spark.sql(spark, CREATE.format(uri=place))
    glaive.spark.sql(spark, "INSERT INTO t VALUES (1, 1.0, 2, 2.0)", t=str(place))
    return place


@pytest.fixture
def uri(made: Path, tmp_path: Path) -> str:
    """Return the path of a copy of the table."""
    return str(shutil.copytree(made, tmp_path / "t.lance"))


def rows_of(uri: str) -> list[tuple[Any, ...]]:
    """Return the rows as pylance reads them, by id."""
    table = lance.dataset(uri).to_table(columns=["id", "price", "amount", "total"]).sort_by("id")
    return [tuple(row.values()) for row in table.to_pylist()]


FIRST = (1, 1.0, 2, 2.0)

MERGE = (
    "MERGE INTO t USING (SELECT 1L AS id, 4D AS price) s ON t.id = s.id WHEN MATCHED THEN UPDATE "
    "SET *"
)

Write = Callable[[DataFrame, str], object]


def _sql(frame: DataFrame, uri: str) -> None:
    frame.createOrReplaceTempView("new_rows")
    columns = ", ".join(frame.columns)
    query = f"INSERT INTO t ({columns}) SELECT * FROM new_rows"  # names of columns
    glaive.spark.sql(frame.sparkSession, query, t=uri)


def _frame(frame: DataFrame, uri: str) -> None:
    glaive.spark.write(frame, uri, mode="append")


def _source(frame: DataFrame, uri: str) -> None:
    frame.write.format("lance").mode("append").save(uri)


def _replace_where(frame: DataFrame, uri: str) -> None:
    glaive.spark.write(frame, uri, mode="overwrite", replace_where="id >= 2")


def _merged(frame: DataFrame, uri: str) -> Any:
    target = LanceTable.forPath(frame.sparkSession, uri).alias("t")
    return target.merge(frame.alias("s"), "t.id = s.id")


def _insert(frame: DataFrame, uri: str) -> None:
    merge = (
        LanceTable.forPath(frame.sparkSession, uri)
        .alias("t")
        .merge(frame.alias("s"), "t.id = s.id")
    )
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


def _insert_by_join(frame: DataFrame, uri: str) -> None:
    merge = (
        LanceTable.forPath(frame.sparkSession, uri)
        .alias("t")
        .merge(frame.alias("s"), "t.id = s.id")
    )
    values: Any = {name: f"s.{name}" for name in frame.columns}
    merge.whenNotMatchedInsert("s.id > 0", values).whenMatchedDelete("s.id < 0").execute()


WRITERS = [_sql, _frame, _source, _replace_where, _insert, _insert_by_join]


@pytest.mark.spark
@pytest.mark.parametrize("write", WRITERS)
def test_writers_apply_rules(spark: SparkSession, uri: str, write: Write) -> None:
    write(spark.createDataFrame([(2,), (3,)], "id bigint"), uri)
    assert rows_of(uri) == [FIRST, (2, 2.5, 3, 7.5), (3, 2.5, 3, 7.5)]
    for values, columns, message in (
        ((4, -1.0), "id bigint, price double", r"'positive' \(price > 0\) is broken by row 0"),
        ((4, 100), "id bigint, amount int", "'check_2'"),
        ((4, 1.0, 3.5), "id bigint, price double, total double", "generated column 'total'"),
    ):
        with pytest.raises(GlaiveError if write is not _source else Exception, match=message):
            write(spark.createDataFrame([values], columns), uri)
    assert len(rows_of(uri)) == 3


@pytest.mark.spark
def test_streams_apply_rules(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    source = tmp_path / "source.lance"
    glaive.write_dataset({"id": [2, 3]}, source)
    stream = spark.readStream.format("lance").load(str(source))

    def run(rows: DataFrame) -> None:
        place = str(tmp_path / "checkpoint")
        writer = rows.writeStream.format("lance").option("checkpointLocation", place)
        writer.trigger(availableNow=True).start(uri).awaitTermination()

    run(stream)
    assert rows_of(uri) == [FIRST, (2, 2.5, 3, 7.5), (3, 2.5, 3, 7.5)]
    glaive.write_dataset({"id": [4]}, source, mode="append")
    with pytest.raises(Exception, match="'positive'"):
        run(stream.withColumn("price", F.lit(-1.0)))
    assert len(rows_of(uri)) == 3


@pytest.mark.spark
@pytest.mark.parametrize(
    ("statement", "row"),
    [
        ("UPDATE t SET price = 5 WHERE id = 1", (1, 5.0, 2, 10.0)),
        ("UPDATE t SET amount = DEFAULT, price = default", (1, 2.5, 3, 7.5)),
        (MERGE.replace("*", "amount = amount + 1"), (1, 1.0, 3, 3.0)),
        (MERGE, (1, 4.0, 2, 8.0)),
    ],
)
def test_changes_compute_generated_columns(
    spark: SparkSession, uri: str, statement: str, row: tuple[Any, ...]
) -> None:
    glaive.spark.sql(spark, statement, t=uri)
    assert rows_of(uri) == [row]
    glaive.dataset(uri).validate()
    with pytest.raises(SchemaError, match="'positive'"):
        glaive.spark.sql(spark, "UPDATE t SET price = -price WHERE id = 1", t=uri)


@pytest.mark.spark
def test_statements_change_rules(spark: SparkSession, uri: str) -> None:
    def run(statement: str) -> None:
        glaive.spark.sql(spark, statement, t=uri)

    run("ALTER TABLE t DROP CONSTRAINT positive")
    run("ALTER TABLE t DROP CONSTRAINT IF EXISTS positive")
    run("ALTER TABLE t ALTER COLUMN price SET DEFAULT -7")
    run("ALTER TABLE t ALTER COLUMN amount DROP DEFAULT")
    run("ALTER TABLE t ALTER COLUMN amount DROP NOT NULL")
    run("INSERT INTO t (id) VALUES (2)")
    assert rows_of(uri) == [FIRST, (2, -7.0, None, None)]
    run("ALTER TABLE t ADD CONSTRAINT small CHECK (id < 5)")
    with pytest.raises(SchemaError, match="'small'"):
        run("INSERT INTO t (id) VALUES (5)")
    with pytest.raises(SchemaError, match="'small'"):
        run("INSERT OVERWRITE t (id) VALUES (5)")
    run("INSERT OVERWRITE t (id, amount) VALUES (3, 2)")
    assert rows_of(uri) == [(3, -7.0, 2, -14.0)]
    run("CREATE OR REPLACE TABLE t (id bigint DEFAULT 9, x int)")
    run("INSERT INTO t (x) VALUES (5)")
    assert lance.dataset(uri).to_table().to_pylist() == [{"id": 9, "x": 5}]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sequence", "given", "then"), [("5 INCREMENT BY 3", 12, 17), ("0 INCREMENT BY -2", -6, -8)]
)
def test_a_synchronised_identity_column_numbers_after_all_values(
    spark: SparkSession, tmp_path: Path, sequence: str, given: int, then: int
) -> None:
    uri = str(tmp_path / "t.lance")

    def run(statement: str) -> None:
        glaive.spark.sql(spark, statement, t=uri)

    made = f"GENERATED BY DEFAULT AS IDENTITY (START WITH {sequence})"
    run(f"CREATE TABLE t (id bigint {made}, x bigint)")
    run("ALTER TABLE t ALTER COLUMN id SYNC IDENTITY")
    glaive.dataset(uri).insert({"id": [given], "x": [1]})
    run("ALTER TABLE t ALTER COLUMN id SYNC IDENTITY")
    version = glaive.dataset(uri).version
    run("ALTER TABLE t ALTER COLUMN id SYNC IDENTITY")
    assert glaive.dataset(uri).version == version
    glaive.dataset(uri).insert({"x": [2]})
    assert lance.dataset(uri).to_table()["id"].to_pylist() == [given, then]
    with pytest.raises(SchemaError, match="'x' does not number rows"):
        run("ALTER TABLE t ALTER COLUMN x SYNC IDENTITY")


@pytest.mark.spark
def test_methods_change_rules(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    columns = "id bigint DEFAULT 4, twice bigint GENERATED ALWAYS AS (id * 2)"
    glaive.spark.sql(spark, f"CREATE TABLE t ({columns})", t=uri)
    table = LanceTable.forPath(spark, uri)
    table.addConstraint("even", "id % 2 = 0")
    glaive.dataset(uri).insert({"id": [2]})
    with pytest.raises(SchemaError, match="'even'"):
        glaive.dataset(uri).insert({"id": [3]})
    table.dropConstraint("even")
    table.alterColumn("twice", generated=False)
    glaive.dataset(uri).insert({"id": [3]})
    table.alterColumn("twice", default="8")
    glaive.dataset(uri).insert({"id": [5]})
    found = lance.dataset(uri).to_table().to_pydict()
    assert found == {"id": [2, 3, 5], "twice": [4, None, 8]}


@pytest.mark.spark
@pytest.mark.parametrize("stable", [False, True])
def test_frames_replace_rows_with_equal_values(
    spark: SparkSession, tmp_path: Path, stable: bool
) -> None:
    uri = str(tmp_path / "t.lance")
    rows = {"day": [1, 1, 2, None], "x": [1, 2, 3, 4]}
    made = glaive.write_dataset(rows, uri, enable_stable_row_ids=stable)
    made.alter_columns({"path": "x", "default": "0"})
    table = LanceTable.forPath(spark, uri)
    new = spark.createDataFrame([(1, 5), (3, 6), (None, 7)], "DAY bigint, x bigint")
    for _ in range(2):
        counts = table.replaceUsing(new, "Day", job_id="days")
        assert (counts["num_deleted_rows"], counts["num_inserted_rows"]) == (2, 3)
    counts = table.alias("t").replaceOn(new.select("day").alias("s"), "t.day <=> s.day")
    assert (counts["num_deleted_rows"], counts["num_inserted_rows"]) == (4, 3)
    found = lance.dataset(uri).to_table()
    pairs = sorted(zip(*found.to_pydict().values(), strict=True), key=str)
    assert pairs == [(1, 0), (2, 3), (3, 0), (None, 0)]
    glaive.dataset(uri).validate()


@pytest.mark.spark
@pytest.mark.parametrize("way", ["function", "source"])
def test_overwrites_replace_rows_with_the_values_of_columns(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    uri = str(tmp_path / "t.lance")
    rows = {"day": [1, 1, 2, None], "zone": ["a", "b", "a", "a"], "x": [1, 2, 3, 4]}
    glaive.write_dataset(rows, uri)

    def replace(new: list[tuple[Any, ...]], columns: str) -> list[tuple[Any, ...]]:
        frame = spark.createDataFrame(new, "day bigint, zone string, x bigint")
        if way == "function":
            names = columns.split(",")
            glaive.spark.write(frame, uri, mode="overwrite", replace_using=names)
        else:
            writer = frame.write.format("lance").mode("overwrite")
            writer.option("replaceUsing", columns).save(uri)
        table = lance.dataset(uri).to_table(columns=["day", "zone", "x"]).sort_by("x")
        return [tuple(row.values()) for row in table.to_pylist()]

    rest = [(2, "a", 3), (None, "a", 4)]
    assert replace([(1, "a", 5), (1, "c", 6)], "day,zone") == [
        (1, "b", 2),
        *rest,
        (1, "a", 5),
        (1, "c", 6),
    ]
    assert replace([(1, "z", 7), (None, "y", 8)], "day") == [*rest, (1, "z", 7), (None, "y", 8)]
    assert replace([], "day") == [*rest, (1, "z", 7), (None, "y", 8)]
    with pytest.raises(
        ColumnNotFoundError if way == "function" else Exception, match="replace_using"
    ):
        replace([(1, "z", 7)], "days")


IDENTITY = """
CREATE TABLE t (
  key bigint GENERATED ALWAYS AS IDENTITY (START WITH 100 INCREMENT BY 10), id bigint NOT NULL,
  row bigint GENERATED BY DEFAULT AS IDENTITY)
"""


@pytest.mark.spark
@pytest.mark.parametrize("write", WRITERS)
def test_tasks_number_rows(spark: SparkSession, tmp_path: Path, write: Write) -> None:
    uri = str(tmp_path / "t.lance")
    glaive.spark.sql(spark, IDENTITY, t=uri)
    for start in (2, 50):
        write(spark.range(start, start + 40, numPartitions=3), uri)
    table = lance.dataset(uri).to_table()
    keys: list[Any] = table["key"].to_pylist()
    rows: list[Any] = table["row"].to_pylist()
    assert len(set(keys)) == table.num_rows
    assert rows == [(key - 90) // 10 for key in keys]
    assert min(rows) == 1 or write is _replace_where
    glaive.dataset(uri).validate()
    with pytest.raises(GlaiveError if write is not _source else Exception, match="ALWAYS"):
        write(spark.createDataFrame([(200, 7)], "id bigint, key bigint"), uri)
    frame = spark.createDataFrame([(201, -7), (202, None)], "id bigint, row bigint")
    write(frame, uri)
    found = lance.dataset(uri).to_table(filter="id in (201, 202)").to_pylist()
    assert min(row["row"] for row in found) == -7
    glaive.dataset(uri).validate()


@pytest.mark.spark
@pytest.mark.parametrize("keys", [{}, {"merge_keys": "id"}], ids=["append", "upsert"])
def test_streams_number_rows(spark: SparkSession, tmp_path: Path, keys: dict[str, str]) -> None:
    uri, source = str(tmp_path / "t.lance"), tmp_path / "source.lance"
    glaive.spark.sql(spark, IDENTITY, t=uri)
    for start in (0, 10):
        glaive.write_dataset({"id": range(start, start + 12)}, source, mode="append")
        rows = spark.readStream.format("lance").load(str(source))
        writer = rows.writeStream.format("lance").options(**keys)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(uri).awaitTermination()
    table = lance.dataset(uri).to_table()
    assert table.num_rows == (22 if keys else 24)
    assert len(set(table["key"].to_pylist())) == table.num_rows
    glaive.dataset(uri).validate()


@pytest.mark.spark
def test_frames_written_at_once_get_different_numbers(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    glaive.spark.sql(spark, IDENTITY, t=uri)
    frame = spark.range(40)
    late = plan_job(frame.schema, Options(uri=uri), overwrite=False)
    _insert(spark.range(100, 103), uri)
    writer = LanceArrowWriter(late)
    message = writer.write(iter(pa.table({"id": [1, 2]}).to_batches()))
    with pytest.raises(CommitConflictError, match="another writer has committed values"):
        writer.commit([message])
    again = LanceArrowWriter(plan_job(frame.schema, Options(uri=uri), overwrite=False))
    message = again.write(iter(pa.table({"id": [3, 4]}).to_batches()))
    for _ in range(2):  # Spark may not have got the answer to the first call
        again.commit([message])
    _frame(frame, uri)
    table = lance.dataset(uri).to_table()
    assert (table.num_rows, len(set(table["key"].to_pylist()))) == (45, 45)


@pytest.mark.spark
def test_updates_and_overwrites_keep_numbering(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")

    def run(statement: str) -> list[tuple[Any, ...]]:
        glaive.spark.sql(spark, statement, t=uri)
        table = lance.dataset(uri).to_table(columns=["id", "key", "row"]).sort_by("id")
        return [tuple(row.values()) for row in table.to_pylist()]

    key = "key bigint GENERATED ALWAYS AS IDENTITY (START WITH 5 INCREMENT BY -1)"
    row = "row bigint GENERATED BY DEFAULT AS IDENTITY"
    assert not run(f"CREATE TABLE t ({key}, {row}, id bigint)")
    assert run("INSERT INTO t (id) SELECT /*+ COALESCE(1) */ id FROM range(2)") == [
        (0, 5, 1),
        (1, 4, 2),
    ]
    assert run("UPDATE t SET id = id + 10, row = 9 WHERE id = 1") == [(0, 5, 1), (11, 4, 9)]
    with pytest.raises(SchemaError, match="'key' is GENERATED ALWAYS"):
        run("UPDATE t SET key = 1")
    assert run("INSERT OVERWRITE t (id) VALUES (7)") == [(7, 3, 3)]
    run("CREATE OR REPLACE TABLE t (id bigint, key bigint GENERATED ALWAYS AS IDENTITY, row int)")
    assert run("INSERT INTO t (id) VALUES (7)") == [(7, 1, None)]
    with pytest.raises(SchemaError, match="'more'"):
        run("ALTER TABLE t ADD COLUMN more bigint GENERATED ALWAYS AS IDENTITY")


@pytest.mark.spark
def test_default_is_a_value_of_statements(spark: SparkSession, uri: str) -> None:
    def run(statement: str) -> list[tuple[Any, ...]]:
        glaive.spark.sql(spark, statement, t=uri)
        return rows_of(uri)[1:]

    wide = "INSERT INTO t VALUES (2, DEFAULT, 1 + 3, DEFAULT), (3, 5.0, default, DEFAULT)"
    assert run(wide) == [(2, 2.5, 4, 10.0), (3, 5.0, 3, 15.0)]
    run("DELETE FROM t WHERE id > 1")
    assert run("INSERT INTO t (amount, id) VALUES (DEFAULT, 4)") == [(4, 2.5, 3, 7.5)]
    assert run("UPDATE t SET total = DEFAULT, amount = 5 WHERE id = 4") == [(4, 2.5, 5, 12.5)]
    assert run("UPDATE t SET total = DEFAULT WHERE id = 4") == [(4, 2.5, 5, 12.5)]
    merge = MERGE.partition("WHEN")[0].replace("1L", "6L") + "WHEN NOT MATCHED THEN INSERT "
    merge += "(id, price, amount, total) VALUES (s.id, DEFAULT, DEFAULT, DEFAULT)"
    assert run(merge)[1:] == [(6, 2.5, 3, 7.5)]
    replaced = run("INSERT INTO t REPLACE USING (id) VALUES (6, 1.0, DEFAULT, DEFAULT)")
    assert replaced[1:] == [(6, 1.0, 3, 3.0)]
    with pytest.raises(SchemaError, match=r"'total' .* total = None"):
        run("INSERT INTO t VALUES (7, 1.0, 1, 1.0), (8, 1.0, 1, DEFAULT)")
    with pytest.raises(SchemaError, match=r"4 columns .* get 2 values in a row with DEFAULT"):
        run("INSERT INTO t VALUES (7, DEFAULT)")
    glaive.dataset(uri).validate()


@pytest.mark.spark
def test_rows_of_the_table_get_null_in_a_column_with_a_default(
    spark: SparkSession, uri: str
) -> None:
    for definition in ("x int DEFAULT 7", "y string DEFAULT 'new'"):
        glaive.spark.sql(spark, f"ALTER TABLE t ADD COLUMN {definition}", t=uri)
    with pytest.raises(SchemaError, match="uses the columns price"):
        glaive.spark.sql(spark, "ALTER TABLE t ADD COLUMN z double DEFAULT price", t=uri)
    glaive.spark.sql(spark, "INSERT INTO t (id) VALUES (2)", t=uri)
    table = lance.dataset(uri).to_table(columns=["id", "x", "y"]).sort_by("id")
    assert table.to_pydict() == {"id": [1, 2], "x": [None, 7], "y": [None, "new"]}


@pytest.mark.spark
@pytest.mark.parametrize("scd", [1, 2])
def test_changes_of_a_feed_apply_rules(spark: SparkSession, tmp_path: Path, scd: Any) -> None:
    uri = str(tmp_path / "t.lance")
    history = ", valid_from bigint, valid_to bigint, is_current boolean" if scd == 2 else ""
    columns = (
        "key bigint GENERATED ALWAYS AS IDENTITY, id bigint NOT NULL, ts bigint, price double, "
        f"amount int DEFAULT 3, total double GENERATED ALWAYS AS (price * amount){history}, "
        "CONSTRAINT positive CHECK (price > 0)"
    )
    glaive.spark.sql(spark, f"CREATE TABLE t ({columns})", t=uri)
    table = LanceTable.forPath(spark, uri)

    def apply(*changes: tuple[int, int, str, float | None]) -> list[tuple[Any, ...]]:
        feed = spark.createDataFrame(changes, "id bigint, ts bigint, op string, price double")
        table.applyChanges(feed, "id", "ts", "op = 'd'", scd=scd)
        found = lance.dataset(uri).to_table(filter="is_current" if scd == 2 else None)
        assert len(set(found["key"].to_pylist())) == found.num_rows
        glaive.dataset(uri).validate()
        rows = found.select(["id", "price", "amount", "total"]).sort_by("id").to_pylist()
        return [tuple(row.values()) for row in rows]

    assert apply((1, 1, "u", 1.0), (2, 1, "u", 2.0)) == [(1, 1.0, 3, 3.0), (2, 2.0, 3, 6.0)]
    changes = ((1, 3, "u", 5.0), (2, 3, "d", None), (3, 1, "u", 7.0), (1, 2, "u", 4.0))
    for _ in range(2):
        assert apply(*changes) == [(1, 5.0, 3, 15.0), (3, 7.0, 3, 21.0)]
    version = table.version
    with pytest.raises(SchemaError, match="'positive'"):
        apply((1, 4, "u", -1.0), (4, 1, "u", 1.0))
    assert table.version == version


@pytest.mark.spark
def test_tasks_without_rows_count(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    glaive.spark.sql(spark, IDENTITY, t=uri)
    _frame(spark.range(1), uri)
    for _ in range(3):
        rows = spark.range(0, 8, 1, 4).where("id >= 6").alias("s")
        merge = LanceTable.forPath(spark, uri).alias("t").merge(rows, "t.id > s.id + 100")
        merge.whenNotMatchedInsertAll().execute()
    table = lance.dataset(uri).to_table()
    assert (table.num_rows, len(set(table["key"].to_pylist()))) == (7, 7)
    glaive.dataset(uri).validate()
