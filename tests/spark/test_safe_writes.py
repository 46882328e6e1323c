"""Writes that lose nothing: conflicts, types, options, and what belongs to one version."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that everybody has for it

import glaive
import glaive.spark
from glaive.errors import (
    ColumnNotFoundError,
    CommitConflictError,
    OptionError,
    RefNotFoundError,
    SchemaError,
)
from glaive.spark import frame_writing

pytestmark = pytest.mark.spark

VECTOR = pa.list_(pa.float32(), 2)


def vectors(uri: str, rows: int = 10) -> str:
    emb = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2.0 * rows), pa.float32()), 2)
    glaive.write_dataset(pa.table({"id": range(rows), "emb": emb}), uri)
    return uri


def kind(uri: str, column: str = "emb") -> pa.DataType:
    return glaive.dataset(uri).schema.field(column).type


def ids(uri: str) -> list[int]:
    return sorted(glaive.dataset(uri).to_table()["id"].to_pylist())


# --- conflicts --------------------------------------------------------------------------------


def doubled(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("id * 2 as id", "emb")


def test_an_overwrite_by_a_frame_of_the_dataset_loses_no_commit_of_others(
    spark: SparkSession, uri: str
) -> None:
    frame = doubled(glaive.spark.read(spark, vectors(uri)))
    glaive.write_dataset(glaive.dataset(uri).to_table(limit=1), uri, mode="append")

    with pytest.raises(CommitConflictError, match=r"made from version 1.*would be lost"):
        glaive.spark.write(frame, uri, mode="overwrite")
    assert glaive.dataset(uri).count_rows() == 11

    again = doubled(glaive.spark.read(spark, uri))
    assert glaive.spark.write(again, uri, mode="overwrite") == 3
    assert ids(uri) == sorted([2 * number for number in range(10)] + [0])


def test_a_column_with_the_name_of_an_attribute_hides_no_source(
    spark: SparkSession, uri: str
) -> None:
    glaive.write_dataset(pa.table({"id": [1, 2], "_plan": [3, 4]}), uri)
    frame = glaive.spark.read(spark, uri)
    glaive.write_dataset(pa.table({"id": [5], "_plan": [6]}), uri, mode="append")

    with pytest.raises(CommitConflictError, match=r"made from version 1.*would be lost"):
        glaive.spark.write(frame, uri, mode="overwrite")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("way", ["load", "view", "changes"])
def test_reads_of_spark_itself_have_the_version_that_they_read(
    spark: SparkSession, uri: str, way: str
) -> None:
    glaive.spark.write(spark.range(3), uri)
    if way == "load":
        frame = spark.read.format("lance").load(uri)
    elif way == "view":
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING lance OPTIONS (path '{uri}')")
        frame = spark.table("seen")
    else:
        frame = glaive.spark.read_changes(spark, uri, 1).select("id")
    glaive.write_dataset(glaive.dataset(uri).to_table(limit=1), uri, mode="append")

    with pytest.raises(CommitConflictError, match=r"made from version 1.*would be lost"):
        glaive.spark.write(frame, uri, mode="overwrite")
    assert glaive.spark.write(frame, uri, mode="overwrite", expected_version=2) == 3


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize(
    "query",
    [
        "select id from more where id not in (select id from t)",
        "select id from more where id > (select min(id) from t)",
        "select id from more where not exists (select 1 from t where t.id = more.id)",
    ],
)
@pytest.mark.parametrize("registered", [True, False], ids=["view", "query"])
def test_a_query_within_an_expression_reads_the_dataset_as_well(
    spark: SparkSession, uri: str, query: str, *, registered: bool
) -> None:
    vectors(uri)
    spark.range(5, 15).createOrReplaceTempView("more")
    if registered:
        glaive.spark.register_view(spark, "t", uri)
        frame = spark.sql(query)
    else:
        frame = glaive.spark.sql(spark, query, t=uri)
    glaive.write_dataset(glaive.dataset(uri).to_table(limit=1), uri, mode="append")

    with pytest.raises(CommitConflictError, match=r"made from version 1.*would be lost"):
        glaive.spark.write(frame, uri, mode="overwrite")


def test_other_overwrites_replace_what_is_there(spark: SparkSession, uri: str) -> None:
    vectors(uri)
    other = spark.range(3)

    assert glaive.spark.write(other, uri, mode="overwrite") == 2
    with pytest.raises(CommitConflictError, match=r"at version 2.*from version 1"):
        glaive.spark.write(other, uri, mode="overwrite", expected_version=1)
    assert glaive.spark.write(other, uri, mode="overwrite", expected_version=2) == 3


def test_an_insert_overwrite_replaces_the_version_of_its_view(
    spark: SparkSession, uri: str
) -> None:
    glaive.spark.write(spark.range(3), uri)
    glaive.spark.register_view(spark, "numbers", uri)
    spark.sql("INSERT INTO numbers SELECT id + 3 FROM numbers")

    with pytest.raises(Exception, match=r"at version 2.*from version 1"):
        spark.sql("INSERT OVERWRITE numbers SELECT * FROM numbers WHERE id > 0")
    glaive.spark.register_view(spark, "numbers", uri)
    spark.sql("INSERT OVERWRITE numbers SELECT * FROM numbers WHERE id > 0")

    assert ids(uri) == [1, 2, 3, 4, 5]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("part", [{"filter": "id > 5"}, {"limit": 2}, {"columns": ["id"]}])
def test_a_view_of_a_part_of_a_dataset_is_not_overwritten(
    spark: SparkSession, uri: str, part: dict[str, Any]
) -> None:
    glaive.spark.write(spark.range(9).selectExpr("id", "id as n"), uri)
    glaive.spark.register_view(spark, "part", uri, **part)

    with pytest.raises(Exception, match=rf"option {next(iter(part))}: an overwrite replaces all"):
        spark.sql("INSERT OVERWRITE part SELECT * FROM part WHERE id = 1")

    assert ids(uri) == list(range(9))


# --- types ------------------------------------------------------------------------------------


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("way", ["dropDuplicates", "groupBy", "union", "new"])
def test_vectors_stay_vectors(spark: SparkSession, tmp_path: Path, way: str) -> None:
    source, target = vectors(str(tmp_path / "a")), str(tmp_path / "b")
    frame = glaive.spark.read(spark, source)
    new = spark.range(2).selectExpr("id", "array(1f, float(id)) as emb")
    made = {
        "dropDuplicates": frame.dropDuplicates(["id"]),
        "groupBy": frame.groupBy("id").agg(F.first("emb").alias("emb")),
        "union": new.union(frame),
        "new": new,
    }[way]

    glaive.spark.write(made, source, mode="overwrite")
    assert kind(source) == VECTOR
    if way != "new":  # of which nobody has said that these are vectors
        glaive.spark.write(made, target)
        assert kind(target) == VECTOR


@pytest.mark.nightly(reason="more errors of Spark's writer")
def test_a_kept_type_that_values_do_not_fit_is_named(spark: SparkSession, uri: str) -> None:
    longer = spark.range(2).selectExpr("id", "array(1f, 2f, 3f) as emb")

    with pytest.raises(SchemaError, match=r"'emb': expected lists of 2 items.*vector_columns"):
        glaive.spark.write(longer, vectors(uri), mode="overwrite")

    glaive.spark.write(longer, uri, mode="overwrite", vector_columns={"emb": 3})
    assert kind(uri) == pa.list_(pa.float32(), 3)


# --- options ----------------------------------------------------------------------------------


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"vector_columns": {"zz": 3}}, SchemaError, "vector column 'zz:3'"),
        ({"vector_columns": {"emb": 3}}, OptionError, r"stores column 'emb' as .*\[2\].*\[3\]"),
        ({"arrow_schema": pa.schema([("id", "int8"), ("emb", VECTOR)])}, OptionError, "'id' as"),
        ({"enable_stable_row_ids": True}, OptionError, "created without stable row ids"),
        ({"blob_columns": ["zz"]}, ColumnNotFoundError, "zz"),
        ({"replace_where": "id = 1"}, OptionError, "replace_where: only for mode overwrite"),
        ({"overwrite_schema": False}, OptionError, "overwrite_schema: only for mode overwrite"),
        ({"expected_version": 1}, OptionError, "expected_version: only for mode overwrite"),
        ({"branch": "dev"}, RefNotFoundError, "dev"),
    ],
)
def test_options_without_effect_are_refused(
    spark: SparkSession, uri: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    rows = spark.range(2).selectExpr("id", "array(1f, 2f) as emb")

    with pytest.raises(error, match=message):
        glaive.spark.write(rows, vectors(uri), mode="append", **options)
    assert glaive.dataset(uri).version == 1


def test_an_overwrite_may_keep_the_columns(spark: SparkSession, uri: str) -> None:
    vectors(uri)
    rows = spark.range(2).selectExpr("array(1f, 2f) as emb", "int(id) as id")

    glaive.spark.write(rows, uri, mode="overwrite", overwrite_schema=False)
    assert glaive.dataset(uri).schema.names == ["id", "emb"]
    assert kind(uri, "id") == pa.int64()
    with pytest.raises(SchemaError, match="'more' is not a column"):
        glaive.spark.write(
            rows.withColumn("more", F.lit(1)), uri, mode="overwrite", overwrite_schema=False
        )


# --- blobs ------------------------------------------------------------------------------------


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_are_written_and_read(spark: SparkSession, tmp_path: Path, version: str) -> None:
    uri, copy = str(tmp_path / "a"), str(tmp_path / "b")
    frame = spark.range(4).selectExpr("id", "if(id = 2, null, cast(repeat('x', id) as binary)) b")
    glaive.spark.write(frame, uri, blob_columns=["b"], data_storage_version=version)
    glaive.spark.write(frame, uri, mode="append")
    values = [b"", b"x", None, b"xxx"] * 2

    described = glaive.spark.read(spark, uri)
    assert described.schema["b"].dataType.typeName() == "struct"
    with pytest.raises(SchemaError, match=r"where blobs are.*blobs='bytes'"):
        glaive.spark.write(described, copy)

    read = glaive.spark.read(spark, uri, blobs="bytes")
    found = [None if row.b is None else bytes(row.b) for row in read.collect()]
    assert sorted(map(str, found)) == sorted(map(str, values))
    glaive.spark.write(read, copy, data_storage_version=version)
    assert glaive.dataset(copy).read_blobs("b", indices=[1])[0][1] == b"x"


# --- one version ------------------------------------------------------------------------------


def test_rows_that_match_a_filter_are_replaced_in_one_version(
    spark: SparkSession, uri: str
) -> None:
    glaive.spark.write(spark.range(10).selectExpr("id", "id % 2 as day"), uri)
    new = spark.range(100, 103).selectExpr("id", "bigint(1) as day")

    assert glaive.spark.write(new, uri, mode="overwrite", replace_where="day = 1") == 2
    assert ids(uri) == [0, 2, 4, 6, 8, 100, 101, 102]

    with pytest.raises(SchemaError, match=r"replace_where: .* do not match 'day = 0'"):
        glaive.spark.write(new, uri, mode="overwrite", replace_where="day = 0")
    assert glaive.dataset(uri).version == 2


def test_a_transaction_of_an_application_is_applied_once(spark: SparkSession, uri: str) -> None:
    for number, version in ((1, 1), (1, 1), (2, 2), (1, 2)):
        mode: Any = "append" if glaive_exists(uri) else "errorifexists"
        assert glaive.spark.write(spark.range(3), uri, mode=mode, txn=("job", number)) == version
    spark.range(3).write.format("lance").mode("append").options(
        txnAppId="job", txnVersion="2"
    ).save(uri)
    for wrong in (("job",), "job", ("job", "3")):
        with pytest.raises(OptionError, match="txn: expected an application and a number"):
            glaive.spark.write(spark.range(3), uri, mode="append", txn=wrong)  # type: ignore[arg-type]  # that is tested

    assert ids(uri) == [0, 0, 1, 1, 2, 2]


def test_a_named_job_writes_once_whatever_is_cleaned_up(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(spark.range(2), uri)
    append = partial(glaive.spark.write, spark.range(7, 8), uri, mode="append")
    assert append(job_id="monday") == 2
    spark.range(8, 9).write.format("lance").mode("append").option("job_id", "tuesday").save(uri)
    dataset = glaive.dataset(uri)
    dataset.delete("id = 0")
    dataset.cleanup_old_versions(retain_versions=1)
    assert append(job_id="monday") == 2
    spark.range(8, 9).write.format("lance").mode("append").option("job_id", "tuesday").save(uri)
    assert ids(uri) == [1, 7, 8]
    assert glaive.dataset(uri).version == 4


def glaive_exists(uri: str) -> bool:
    return Path(uri).exists()


def test_columns_are_added_by_an_append(spark: SparkSession, uri: str) -> None:
    vectors(uri, rows=2)
    more = spark.range(2, 4).selectExpr("id", "string(id) as name")

    glaive.spark.write(more, uri, mode="append", merge_schema=True)

    found = glaive.dataset(uri).to_table()
    assert found["name"].to_pylist() == [None, None, "2", "3"]
    assert found["emb"].to_pylist()[1:] == [[2.0, 3.0], None, None]


def test_names_are_matched_as_the_session_matches_them(spark: SparkSession, uri: str) -> None:
    start = pa.table({"id": [1], "userCode": ["a"], "s": [{"inner": 1}]})
    glaive.write_dataset(start, uri)
    other = spark.sql("select named_struct('INNER', 2L) as S, 'nine' as USERCODE, 9L as ID")
    append = partial(glaive.spark.write, other, uri, mode="append")

    append()
    append(merge_schema=True)
    other.write.format("lance").mode("append").save(uri)
    nines = glaive.dataset(uri).to_table()
    assert nines.schema == start.schema
    assert nines.slice(1).to_pylist() == [{"id": 9, "userCode": "nine", "s": {"inner": 2}}] * 3
    glaive.spark.write(other, uri, mode="overwrite", replace_where="id = 9")
    assert glaive.dataset(uri).count_rows() == 2
    glaive.spark.write(other, uri, mode="overwrite", overwrite_schema=False)
    assert glaive.dataset(uri).to_table() == nines.slice(1, 1)

    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(SchemaError, match="'S' is not a column"):
            append()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_branch_is_written(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(spark.range(3), uri)
    glaive.dataset(uri).create_branch("dev")

    version = glaive.spark.write(spark.range(3, 5), uri, mode="append", branch="dev")

    assert glaive.spark.read(spark, uri, branch="dev").count() == 5
    assert glaive.dataset(uri, version=("dev", version)).count_rows() == 5
    assert glaive.dataset(uri).count_rows() == 3


def test_rows_are_clustered(spark: SparkSession, uri: str) -> None:
    shuffled = spark.range(1000).orderBy(F.rand(1))

    glaive.spark.write(shuffled, uri, cluster_by=["id"])

    stored = glaive.dataset(uri).to_table()["id"].to_numpy()
    assert (np.diff(stored) == 1).all()


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("name", ["a`b", "*", "`id`", "a b"])
def test_rows_are_clustered_by_a_column_of_any_name(
    spark: SparkSession, uri: str, name: str
) -> None:
    shuffled = spark.range(100).orderBy(F.rand(1)).select("id", (-F.col("id")).alias(name))

    glaive.spark.write(shuffled, uri, cluster_by=[name])

    stored = glaive.dataset(uri).to_table()["id"].to_numpy()
    assert (np.diff(stored) == -1).all()


def test_rows_cannot_be_clustered_by_a_column_that_they_do_not_have(
    spark: SparkSession, uri: str
) -> None:
    with pytest.raises(ColumnNotFoundError, match=r"idd .*in the frame"):
        glaive.spark.write(spark.range(3), uri, cluster_by=["idd"])
    assert not glaive.spark.LanceTable.isLanceTable(spark, uri)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("mark", [" ", "\n"])
def test_a_value_with_the_words_of_an_error_does_not_make_a_failed_write_pass_for_done(
    spark: SparkSession, uri: str, mark: str
) -> None:
    values = spark.createDataFrame(
        [("1",), (f":{mark}glaive.errors.DatasetExistsError: no",)], "s string"
    )
    numbers = values.select(F.col("s").cast("bigint").alias("id"))

    with pytest.raises(Exception, match="cannot be cast"):
        glaive.spark.write(numbers, uri, mode="ignore")


# --- batches that Java sends to Python ----------------------------------------------------


def stored(spark: SparkSession, tmp_path: Path, *columns: str) -> DataFrame:
    spark.range(5).selectExpr(*columns).write.parquet(str(tmp_path / "rows"))
    return spark.read.parquet(str(tmp_path / "rows"))


NUMBERS = ("id", "cast(id as decimal(9,2)) as d", "current_date() as day")


@pytest.mark.parametrize(
    ("columns", "then", "spared"),
    [
        (NUMBERS, "id + 1 as id", True),
        (NUMBERS, "array(id) as a", False),
        (NUMBERS, "cast('x' as binary) as b", False),
        (("cast(id as string) as s",), "s as `a``b`", True),
        (("timestamp '+12000-01-01' as t", "'x' as s"), "*", True),
        (("repeat('x', 3000) as s",), "s", False),
        (("cast(id as string) as s",), "first(s) as s", False),
    ],
)
def test_spark_measures_batches_unless_rows_are_short(
    spark: SparkSession,
    uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: tuple[str, ...],
    then: str,
    spared: bool,
) -> None:
    frame = stored(spark, tmp_path, *columns).selectExpr(then)
    limit = "spark.sql.execution.arrow.maxBytesPerBatch"
    seen: list[str | None] = []

    def save(writer: DataFrameWriter, path: str) -> None:
        seen.append(spark.sparkContext.getLocalProperty(limit))
        saved(writer, path)

    saved = DataFrameWriter.save
    monkeypatch.setattr(DataFrameWriter, "save", save)
    monkeypatch.setattr(frame_writing, "_LARGE_FRAME", 1)
    glaive.spark.write(frame, uri)
    assert seen == [str(2**31 - 1) if spared else None]
    assert spark.sparkContext.getLocalProperty(limit) is None
    assert glaive.dataset(uri).count_rows() == frame.count()


def test_only_large_frames_of_files_and_ranges_have_rows_known_as_short(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = stored(spark, tmp_path, "cast(id as string) as s")
    is_short = frame_writing._has_short_rows  # noqa: SLF001  # the step under test
    assert not is_short(frame)
    monkeypatch.setattr(frame_writing, "_LARGE_FRAME", 1)
    assert is_short(frame)
    assert is_short(spark.range(3))
    assert not is_short(spark.range(3).mapInArrow(lambda batches: batches, "id long"))
    assert not is_short(frame.where("s > '1'"))
    spark.conf.set(frame_writing._BATCH_ROWS, 0)  # noqa: SLF001  # no limit of rows
    try:
        assert not is_short(frame)
    finally:
        spark.conf.unset(frame_writing._BATCH_ROWS)  # noqa: SLF001  # as above


def test_a_setting_of_a_session_has_precedence_for_batches(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (pa.record_batch({"rows": [batch.num_rows]}) for batch in batches)

    def written() -> list[int]:
        with frame_writing._short_batches(frame):  # noqa: SLF001  # the step under test
            return [row.rows for row in frame.mapInArrow(sizes, "rows long").collect()]

    limit, frame = frame_writing._BATCH_BYTES, spark.range(3).coalesce(1)  # noqa: SLF001  # its name
    monkeypatch.setattr(frame_writing, "_has_short_rows", lambda _: True)
    monkeypatch.setitem(frame_writing._SHORT_BATCHES, limit, "1")  # noqa: SLF001  # as above
    assert written() == [1, 1, 1]
    spark.conf.set(limit, "64m")
    try:
        assert written() == [3]
    finally:
        spark.conf.unset(limit)
