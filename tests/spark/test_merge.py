"""``LanceTable.merge``: Delta's clauses, against what a dictionary of rows says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

import glaive
from glaive.dataset.merging.source import MergeClauses
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.spark import LanceTable
from glaive.spark.lance_table.merge import equalities
from glaive.spark.merging import SmallMerge
from glaive.table.load import read_transaction
from glaive.table.operations.update import hash_keys, key_filter, may_share_keys

VECTOR = pa.list_(pa.float32(), 2)
ROWS = pa.table(
    {
        "id": pa.array(range(20), pa.int64()),
        "n": pa.array(range(20), pa.int32()),
        "text": [f"t{n}" for n in range(20)],
        "v": pa.array([[n, n] for n in range(20)], VECTOR),
    }
)


@pytest.fixture
def table(spark: SparkSession, uri: str) -> LanceTable:
    """A table of two fragments with stable row ids."""
    glaive.write_dataset(ROWS, uri, max_rows_per_file=10, enable_stable_row_ids=True)
    return LanceTable.forPath(spark, uri).alias("t")


@pytest.fixture
def changes(spark: SparkSession) -> DataFrame:
    """Rows 18 to 21, with other numbers and texts."""
    return spark.range(18, 22).selectExpr(
        "id", "cast(id * 10 as int) n", "concat('s', id) text", "array(1f, 2f) v"
    )


def seen(uri: str) -> dict[int, dict[str, Any]]:
    by_pylance = lance.dataset(uri).to_table()
    assert by_pylance == glaive.dataset(uri).to_table()
    rows = by_pylance.to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row.pop("id"): row for row in rows}


def before() -> dict[int, dict[str, Any]]:
    return {row.pop("id"): row for row in ROWS.to_pylist()}


def changed(number: int) -> dict[str, Any]:
    return {"n": number * 10, "text": f"s{number}", "v": [1.0, 2.0]}


def test_rows_are_updated_and_inserted(table: LanceTable, changes: DataFrame, uri: str) -> None:
    ids = {row["id"]: row["_rowid"] for row in _with_ids(uri)}
    merge = table.merge(changes.alias("s"), "t.id = s.id")
    counts = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute(job_id="day-1")
    assert counts == {
        "version": 2,
        "num_inserted_rows": 2,
        "num_updated_rows": 2,
        "num_deleted_rows": 0,
    }
    assert seen(uri) == before() | {number: changed(number) for number in range(18, 22)}
    assert ids.items() <= {row["id"]: row["_rowid"] for row in _with_ids(uri)}.items()
    again = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute(job_id="day-1")
    assert (again, glaive.dataset(uri).version) == (counts, 2)


def test_a_transaction_of_an_application_is_merged_once_also_after_a_clean_up(
    table: LanceTable, changes: DataFrame, uri: str
) -> None:
    merge = table.merge(changes.alias("s"), "t.id = s.id").whenMatchedUpdate(set={"n": "t.n + 1"})
    assert merge.execute(txn=("stream", 3))["num_updated_rows"] == 2
    table.update("id = 0", {"n": "7"})
    table.vacuum(0)

    for number in (3, 2):
        assert merge.execute(txn=("stream", number)) == {"version": 3}
    assert merge.execute(txn=("stream", 4))["version"] == 4
    assert [seen(uri)[number]["n"] for number in (17, 18, 19)] == [17, 20, 21]
    with pytest.raises(OptionError, match="txn: expected an application and a number"):
        merge.execute(txn="stream")  # type: ignore[arg-type]  # that is tested


def _with_ids(uri: str) -> list[dict[str, Any]]:
    return glaive.dataset(uri).to_table(["id"], with_row_id=True).to_pylist()


@pytest.mark.nightly(reason="another merge on Spark")
def test_the_first_clause_whose_condition_holds_applies(
    table: LanceTable, changes: DataFrame, uri: str
) -> None:
    counts = (
        table.merge(changes.alias("s"), F.col("t.id") == F.col("s.id"))
        .whenMatchedDelete("s.id = 18")
        .whenMatchedUpdate(set={"n": "t.n + s.n", "text": F.upper("t.text")})
        .whenNotMatchedInsert("s.id > 20", {"id": "s.id", "text": "'new'"})
        .whenNotMatchedBySourceUpdate("t.id < 2", {"n": "-t.n"})
        .whenNotMatchedBySourceDelete("t.id between 5 and 7")
        .execute()
    )
    assert counts["num_updated_rows"] == 3
    assert (counts["num_inserted_rows"], counts["num_deleted_rows"]) == (1, 4)
    expected = before()
    for number in (5, 6, 7, 18):
        del expected[number]
    expected[1]["n"] = -1
    expected[19] |= {"n": 19 + 190, "text": "T19"}
    expected[21] = {"n": None, "text": "new", "v": None}
    assert seen(uri) == expected


def test_any_condition_may_join(table: LanceTable, spark: SparkSession, uri: str) -> None:
    limits = spark.createDataFrame([(3, 5)], "low int, high int").alias("s")
    merge = table.merge(limits, "t.n >= s.low and t.n < s.high")
    assert merge.whenMatchedDelete().execute()["num_deleted_rows"] == 2
    assert sorted(set(before()) - set(seen(uri))) == [3, 4]


def test_source_rows_that_change_the_same_row_are_an_error_or_ranked(
    table: LanceTable, changes: DataFrame, uri: str
) -> None:
    repeated = changes.union(changes.withColumn("n", F.lit(7))).repartition(3).alias("s")
    merge = table.merge(repeated, "t.ID = s.Id")
    with pytest.raises(SchemaError, match=r"several rows .* change the row with id = 1[89]"):
        merge.whenMatchedUpdateAll().execute()
    assert glaive.dataset(uri).version == 1
    assert merge.whenMatchedDelete().execute()["num_deleted_rows"] == 2
    ranked = merge.onDuplicateSource("first", by="n").whenNotMatchedInsertAll()
    assert ranked.execute()["num_inserted_rows"] == 4
    assert {seen(uri)[number]["n"] for number in range(18, 22)} == {7}
    with pytest.raises(OptionError, match="equalities"):
        table.merge(repeated, F.expr("t.id = s.id")).onDuplicateSource(
            "last", by="n"
        ).whenMatchedDelete().execute()


def test_columns_of_the_source_are_added_where_that_is_allowed(
    table: LanceTable, changes: DataFrame, uri: str
) -> None:
    wider = changes.drop("v").withColumn("more", F.lit(1.5)).alias("s")
    merge = table.merge(wider, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll()
    with pytest.raises(ColumnNotFoundError, match=r"lacks columns of .*: v"):
        merge.execute()
    assert merge.withSchemaEvolution().execute()["num_updated_rows"] == 2
    rows = seen(uri)
    assert rows[18] == {"n": 180, "text": "s18", "v": [18, 18], "more": 1.5}
    assert rows[21] == {"n": 210, "text": "s21", "v": None, "more": 1.5}
    assert rows[3]["more"] is None


def test_merges_that_cannot_be_are_refused_before_a_row_is_written(
    table: LanceTable, changes: DataFrame, uri: str
) -> None:
    merge = table.merge(changes.alias("s"), "t.id = s.id")
    with pytest.raises(OptionError, match="no clauses"):
        merge.execute()
    with pytest.raises(OptionError, match="set: expected"):
        merge.whenMatchedUpdate()
    with pytest.raises(ColumnNotFoundError, match="prize"):
        merge.whenMatchedUpdate(set={"prize": "1"}).execute()
    for clause in (
        merge.whenMatchedUpdate(set={"text": "'x'", "TEXT": "'y'"}),
        merge.whenNotMatchedInsert(values={"id": "1", "text": "'x'", "t.Text": "'y'"}),
    ):
        with pytest.raises(OptionError, match="column 'text' gets two values"):
            clause.execute()
    with pytest.raises(OptionError, match="column 'text' gets two values"):
        table.update(set={"Text": "'x'", "text": "'y'"})
    wider = table.merge(changes.selectExpr("*", "1 as Id").alias("s"), "t.n = s.n")
    with pytest.raises(SchemaError, match=r"'Id' differs from .* 'id' .* but case"):
        wider.withSchemaEvolution().whenNotMatchedInsertAll().execute()
    with pytest.raises(ColumnNotFoundError, match=r"Column s\.tex .*did you mean '[st]\.text'"):
        merge.whenMatchedUpdate(set={"text": "s.tex"}).execute()
    with pytest.raises(ColumnNotFoundError, match=r"Column t\.tex .* t\.id, t\.n, t\.text, t\.v"):
        table.merge(changes.alias("s"), "t.tex = s.id").whenMatchedDelete().execute()
    with pytest.raises(OptionError, match=r"t\.\*"):
        merge.whenMatchedDelete("size(array(t.*)) > 2").execute()
    with pytest.raises(SchemaError, match="'v'"):
        merge.whenMatchedUpdate(set={"v": "'word'"}).execute()
    with pytest.raises(SchemaError, match="'v'"):
        merge.whenMatchedUpdate(set={"v": "array(1f)"}).execute()
    assert glaive.dataset(uri).version == 1


def test_a_worker_that_dies_in_a_merge_loses_and_doubles_nothing(
    table: LanceTable, changes: DataFrame, uri: str, tmp_path: Path
) -> None:
    died = tmp_path / "died"

    def die_once(text: str) -> str:
        if text == "s20" and not died.exists():
            died.touch()
            os._exit(1)  # not an exception: the process ends
        return text

    dying = F.udf(die_once, "string", useArrow=False)
    rows = changes.coalesce(1).alias("s")
    values: Any = {"id": "s.id", "text": dying("s.text")}
    merge = table.merge(rows, "t.id = s.id").whenMatchedUpdate(set=values)
    counts = merge.whenNotMatchedInsert(values=values).execute()
    assert died.exists()
    assert (counts["num_updated_rows"], counts["num_inserted_rows"]) == (2, 2)
    assert {number: row["text"] for number, row in seen(uri).items() if number > 16} == {
        17: "t17",
        **{number: f"s{number}" for number in range(18, 22)},
    }
    table.vacuum(0, delete_unverified=True)
    named = {row.path for row in table.files().collect()}
    kept = {path.relative_to(uri).as_posix() for path in Path(uri).glob("data/*")}
    assert kept == {path for path in named if path.startswith("data/")}


@pytest.mark.parametrize(
    ("condition", "pairs", "complete"),
    [
        ("t.id = s.id", [("id", "id")], True),
        ("s.`key` == T.id AND t.day=s.d", [("id", "key"), ("day", "d")], True),
        ("t.id = s.id and t.day between 1 and 3", [("id", "id")], False),
        ("t.id = s.id and s.text <> ' or t.n = s.n and '", [("id", "id")], False),
        ("t.id = s.id and (t.n = s.n or t.n is null)", [("id", "id")], False),
        ("t.id = s.id or t.n = s.n and t.text = s.text", [], False),
        ("t.n <=> s.n and not t.id = s.id", [], False),
        ("t.id = t.n and s.id = s.n", [], False),
        ("t.id = s.id -- and so on", [], False),
        (r"t.id = s.id and s.text <> r'\' or t.n = s.n and s.text <> ''", [], False),
        (r't.id = s.id and s."a\" = 1 or t.n = s.n and s."b" = 2', [], False),
        ("t.id = s.id and ${more}", [], False),
        (r"t.`a\b` = s.id and s.text <> 'it''s'", [], False),
        ("t.`a``b` = s.`or ``` and `t`.id=s.`.`", [("a`b", "or `"), ("id", ".")], True),
    ],
)
def test_keys_are_found_in_conditions(
    condition: str, pairs: list[tuple[str, str]], complete: bool
) -> None:
    found, all_of_it = equalities(condition, "t")
    assert ([(pair.column, pair.other) for pair in found], all_of_it) == (pairs, complete)
    assert equalities(condition, None) == ([], False)


def test_an_or_behind_a_raw_text_that_ends_in_a_backslash_is_seen(
    spark: SparkSession, uri: str
) -> None:
    glaive.write_dataset({"id": [1, 2, 3], "n": [10, 20, 30]}, uri)
    source = spark.createDataFrame([(1, 99, "a"), (7, 20, "")], "id long, n long, text string")
    condition = r"t.id = s.id and s.text <> r'\' or t.n = s.n and s.text = ''"
    merge = LanceTable.forPath(spark, uri).alias("t").merge(source.alias("s"), condition)
    merge.whenMatchedUpdate(set={"n": "s.n + t.id"}).execute()
    found = glaive.dataset(uri).to_table().sort_by("id").to_pylist()
    assert found == [{"id": 1, "n": 100}, {"id": 2, "n": 22}, {"id": 3, "n": 30}]


@pytest.mark.nightly(reason="another merge on Spark")
def test_keys_of_other_types_match_as_spark_compares_them(spark: SparkSession, uri: str) -> None:
    rows = pa.table(
        {
            "n": pa.array([-1, 2, 300], pa.int32()),
            "small": pa.array([255, 2, 3], pa.uint8()),
            "text": pa.array(["a", "b ", None], pa.large_string()),
        }
    )
    glaive.write_dataset(rows, uri, max_rows_per_file=1)
    table = LanceTable.forPath(spark, uri).alias("t")
    source = spark.sql(
        "SELECT * FROM VALUES (CAST(-1 AS BIGINT), CAST(-1 AS TINYINT), 'a'), "
        "(4294967295L, 2Y, 'b'), (NULL, NULL, NULL), (300L, 3Y, NULL) AS v(n, small, text)"
    ).alias("s")
    for column in ("n", "small", "text"):
        expected = (
            table.toDF().alias("t").join(source, F.col(f"t.{column}") == F.col(f"s.{column}"))
        )
        merge = table.merge(source, f"t.{column} = s.{column}")
        counts = merge.whenMatchedUpdate(set={"n": "t.n"}).execute()
        assert counts["num_updated_rows"] == expected.count()


def test_a_merge_by_the_primary_key_says_which_keys_it_inserted(
    spark: SparkSession, changes: DataFrame, uri: str
) -> None:
    key = pa.field(
        "id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}
    )
    schema = pa.schema([key, *list(ROWS.schema)[1:]])
    glaive.write_dataset(ROWS.cast(schema), uri)
    table = LanceTable.forPath(spark, uri).alias("t")
    merge = table.merge(changes.alias("s"), "t.id = s.id and s.n > 0").whenNotMatchedInsertAll()
    assert merge.execute()["num_inserted_rows"] == 2

    made = glaive.dataset(uri)
    transaction = read_transaction(made.store, made.manifest)
    assert transaction is not None
    message = transaction.operation.to_wire()
    ids = list(message.inserted_rows.field_ids)
    for number, inserted in ((18, False), (20, True), (21, True)):
        one = key_filter(ids, hash_keys([pa.array([number])]))
        assert may_share_keys(message.inserted_rows, one) == inserted


SOURCE = """SELECT * FROM VALUES
    (2L, 20, 'x'), (300L, 5, 'far'), (NULL, 6, 'none'), (NULL, 7, NULL), (-1L, 8, 'low'),
    (9L, 90, 'new'), (9L, 91, 'twice'), (3L, 30, NULL) AS v(key, n, text)"""


def test_one_task_does_what_a_join_does(spark: SparkSession, uri: str) -> None:
    rows = pa.table({"key": pa.array([1, 2, 3, None], pa.uint8()), "n": [1, 2, 3, 4]})
    rows = rows.append_column("text", pa.array(["a", "b", "c", "d"]))
    found = {}
    for name, condition in (("one task", None), ("a join", "true")):
        glaive.write_dataset(rows, f"{uri}.{name}", max_rows_per_file=2)
        table = LanceTable.forPath(spark, f"{uri}.{name}").alias("t")
        source = spark.sql(SOURCE).where("key is null or key between 0 and 255").alias("s")
        merge = table.merge(source, "s.key = t.key").whenMatchedUpdateAll(condition)
        counts = merge.whenNotMatchedInsertAll().execute()
        table_rows = glaive.dataset(f"{uri}.{name}").to_table().to_pylist()
        counts.pop("version")
        found[name] = counts, sorted(map(repr, table_rows))
    assert found["one task"] == found["a join"]
    assert found["one task"][0]["num_inserted_rows"] == 4


def test_rows_of_the_source_that_share_a_key_are_deletions_of_one_row(
    table: LanceTable, spark: SparkSession, uri: str
) -> None:
    source = spark.sql(SOURCE).alias("s")
    merge = table.merge(source, "t.id = s.key").whenMatchedDelete()
    assert merge.execute()["num_deleted_rows"] == 3
    assert not {2, 3, 9} & seen(uri).keys()


def test_a_task_gives_up_a_source_that_is_too_large(uri: str) -> None:
    glaive.write_dataset(ROWS, uri)
    batch = pa.record_batch({"id": [1] * 2, "text": ["x" * (1 << 20)] * 2})
    task = SmallMerge(1, ("id", "text"), MergeClauses(on=("id",), insert=True))
    before_it = sorted(Path(uri).rglob("*"))
    read = iter([batch] * 100)
    assert task.execute(glaive.dataset(uri), read) is None
    assert len([*read]) > 50
    assert sorted(Path(uri).rglob("*")) == before_it


def test_columns_that_are_set_may_have_the_name_of_the_table(
    table: LanceTable, changes: DataFrame, uri: str
) -> None:
    merge = table.merge(changes.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set={"t.n": "s.n + t.n", "`T`.`text`": "'set'"}).execute()

    assert seen(uri)[18] == before()[18] | {"n": 198, "text": "set"}
    merge.whenMatchedUpdate(set={"`text`": "'quoted'"}).execute()
    assert seen(uri)[18]["text"] == "quoted"
    with pytest.raises(ColumnNotFoundError, match=r"s\.n"):
        merge.whenMatchedUpdate(set={"s.n": "1"}).execute()
