"""Datasets as frames and frames as datasets, in a classic session."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.columns import table

import glaive
import glaive.spark
from glaive.errors import (
    ColumnNotFoundError,
    DatasetExistsError,
    DatasetNotFoundError,
    FilterError,
    NotFoundError,
    OptionError,
    SchemaError,
    StoreError,
)
from glaive.spark import LanceTable

pytestmark = pytest.mark.spark


def numbers(spark: SparkSession, rows: int = 1000, partitions: int = 2) -> DataFrame:
    return spark.range(0, rows, 1, partitions).selectExpr(
        "id", "concat('n', id) as name", "array(float(id), float(-id)) as emb"
    )


def stored(uri: str) -> pa.Table:
    return glaive.dataset(uri).to_table()


def ids(uri: str) -> list[int]:
    return sorted(stored(uri)["id"].to_pylist())


# --- all types ------------------------------------------------------------------------------


def test_all_types_survive_reading_and_writing(spark: SparkSession, tmp_path: Path) -> None:
    original = table()
    glaive.write_dataset(original, str(tmp_path / "a"))

    frame = glaive.spark.read(spark, str(tmp_path / "a"), allow_truncation=True)
    glaive.spark.write(frame, str(tmp_path / "b"))

    copied = stored(str(tmp_path / "b"))
    assert copied.schema.equals(original.schema)
    assert copied.equals(original)


def test_json_is_appended_merged_and_kept(spark: SparkSession, uri: str) -> None:
    rows = pa.table({"id": [1, 2], "j": pa.array(['{"a":1}', None], pa.json_())})
    glaive.write_dataset(rows, uri)
    more = spark.sql("select 3L as id, parse_json('{\"a\": 7}') as j")
    glaive.spark.write(more, uri, mode="append")
    changes = spark.sql("""select * from values (2L, '{"a":8}'), (4L, '{"a":9}') as s(id, j)""")
    target = LanceTable.forPath(spark, uri).alias("t")
    merge = target.merge(changes.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    target.updateColumnsFrom(spark.sql("""select 1L as id, '{"a":6}' as j"""), "id")
    read = glaive.spark.read(spark, uri)
    glaive.spark.write(read.union(read).dropDuplicates(["id"]), uri, mode="overwrite")

    found = lance.dataset(uri)
    assert found.schema.field("j").type == pa.json_()
    assert found.to_table(filter="json_get_int(j, 'a') between 6 and 9").num_rows == 4


@pytest.mark.nightly(reason="another way to read with Spark")
def test_metadata_survives_select_filter_join_and_cache(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = pa.table(
        {"id": [1, 2, 3], "v": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float16(), 2))}
    )
    glaive.write_dataset(made, str(tmp_path / "a"))

    frame = glaive.spark.read(spark, str(tmp_path / "a"))
    joined = frame.where("id > 1").join(spark.range(10), "id").select("v", "id").cache()
    glaive.spark.write(joined, str(tmp_path / "b"))

    assert stored(str(tmp_path / "b")).schema.field("v").type == pa.list_(pa.float16(), 2)


def test_vectors_are_declared_by_option(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark), uri, vector_columns={"emb": "2:float16"})

    assert stored(uri).schema.field("emb").type == pa.list_(pa.float16(), 2)
    assert stored(uri)["emb"].to_pylist()[7] == [7.0, -7.0]


def test_a_schema_given_decides_the_types(spark: SparkSession, uri: str) -> None:
    wanted = pa.schema(
        [("name", pa.large_string()), ("id", pa.uint32()), ("emb", pa.list_(pa.float32(), 2))]
    )

    glaive.spark.write(numbers(spark), uri, arrow_schema=wanted)

    assert stored(uri).schema.equals(wanted)


# --- save modes -----------------------------------------------------------------------------


def test_each_write_is_one_version(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, partitions=4), uri)
    glaive.spark.write(numbers(spark, 10), uri, mode="append")
    glaive.spark.write(numbers(spark, 5), uri, mode="overwrite")

    assert [version["version"] for version in glaive.dataset(uri).versions()] == [1, 2, 3]
    assert [glaive.dataset(uri, version=n).count_rows() for n in (1, 2, 3)] == [1000, 1010, 5]


def test_an_existing_dataset_is_an_error_by_default(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3), uri)

    with pytest.raises(DatasetExistsError, match=r"append.*overwrite"):
        glaive.spark.write(numbers(spark, 4), uri)

    assert ids(uri) == [0, 1, 2]


def test_ignore_leaves_an_existing_dataset_alone(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3), uri, mode="ignore")
    glaive.spark.write(numbers(spark, 4), uri, mode="ignore")

    assert ids(uri) == [0, 1, 2]
    assert glaive.dataset(uri).version == 1


def test_spark_s_own_writer_appends_creates_and_overwrites(spark: SparkSession, uri: str) -> None:
    numbers(spark, 3).write.format("lance").mode("append").save(uri)
    numbers(spark, 4).write.format("lance").mode("append").save(uri)
    assert ids(uri) == [0, 0, 1, 1, 2, 2, 3]

    numbers(spark, 2).write.format("glaive").mode("overwrite").save(uri)
    assert ids(uri) == [0, 1]


def test_an_overwrite_may_read_what_it_replaces(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 10), uri)

    glaive.spark.write(glaive.spark.read(spark, uri).where("id % 2 = 0"), uri, mode="overwrite")

    assert ids(uri) == [0, 2, 4, 6, 8]


def test_a_key_that_is_overwritten_stays_not_null(spark: SparkSession, uri: str) -> None:
    """Spark's columns may all be null; pylance refuses a table of which the key may be."""
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=key)])
    glaive.write_dataset(pa.table({"id": [1, 2, 3]}, schema), uri)

    read = glaive.spark.read(spark, uri).where("id > 1")
    for frame in (read, numbers(spark, 2).select("id")):
        glaive.spark.write(frame, uri, mode="overwrite")
        assert glaive.dataset(uri).schema == schema
    with pytest.raises(SchemaError, match="not nullable"):
        glaive.spark.write(spark.sql("SELECT CAST(NULL AS BIGINT) AS id"), uri, mode="overwrite")
    assert ids(uri) == [0, 1]


def test_an_overwrite_may_change_the_columns(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 10), uri)
    glaive.spark.write(spark.range(2).selectExpr("string(id) as other"), uri, mode="overwrite")

    assert stored(uri).schema.names == ["other"]
    assert glaive.dataset(uri, version=1).schema.names == ["id", "name", "emb"]


def test_a_frame_without_rows_creates_an_empty_dataset(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 0), uri)

    assert glaive.dataset(uri).count_rows() == 0
    assert glaive.spark.read(spark, uri).collect() == []
    assert glaive.dataset(uri).schema.names == ["id", "name", "emb"]


def test_appending_no_rows_makes_no_version(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3), uri)
    glaive.spark.write(numbers(spark, 0), uri, mode="append")

    assert glaive.dataset(uri).version == 1


def test_writing_works_from_any_thread(spark: SparkSession, uri: str) -> None:
    thread = Thread(target=glaive.spark.write, args=(numbers(spark, 3), uri))
    thread.start()
    thread.join()

    assert ids(uri) == [0, 1, 2]


@pytest.mark.nightly(reason="another way to read with Spark")
def test_relative_paths_are_those_of_this_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    glaive.spark.write(numbers(spark, 3), Path("t.lance"))
    glaive.spark.register_view(spark, "relative", "t.lance")

    assert (tmp_path / "t.lance" / "data").is_dir()
    assert glaive.spark.read(spark, "t.lance").count() == 3
    assert spark.table("relative").count() == 3


def test_files_are_cut_at_the_rows_asked_for(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 1000, partitions=1), uri, max_rows_per_file=300)

    assert [one.count_rows() for one in glaive.dataset(uri).get_fragments()] == [300, 300, 300, 100]


def test_a_new_dataset_takes_its_format_and_row_ids_from_options(
    spark: SparkSession, uri: str
) -> None:
    glaive.spark.write(
        numbers(spark, 3), uri, data_storage_version="2.1", enable_stable_row_ids=True
    )
    glaive.spark.write(numbers(spark, 3), uri, mode="append")

    made = glaive.dataset(uri)
    assert made.data_storage_version == "2.1"
    assert made.has_stable_row_ids
    assert made.to_table(columns=["id"], with_row_id=True)["_rowid"].to_pylist() == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]


def test_a_place_that_cannot_be_written_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match=r"file/t\.lance"):
        glaive.spark.write(numbers(spark, 3), str(tmp_path / "file" / "t.lance"))


def test_an_unknown_mode_or_format_is_refused(spark: SparkSession, uri: str) -> None:
    with pytest.raises(OptionError, match="mode: expected one of 'errorifexists'"):
        glaive.spark.write(numbers(spark, 3), uri, mode="upsert")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(OptionError, match=r"9\.9"):
        glaive.spark.write(numbers(spark, 3), uri, data_storage_version="9.9")


# --- appending --------------------------------------------------------------------------------


def test_an_append_goes_by_name_and_takes_the_types_of_the_dataset(
    spark: SparkSession, uri: str
) -> None:
    made = pa.table(
        {
            "name": pa.array(["a"], pa.large_string()),
            "id": pa.array([1], pa.uint8()),
            "emb": pa.array([[0.5, 1]], pa.list_(pa.float16(), 2)),
        }
    )
    glaive.write_dataset(made, uri)

    glaive.spark.write(numbers(spark, 3), uri, mode="append")

    assert stored(uri).schema.equals(made.schema)
    assert ids(uri) == [0, 1, 1, 2]


def test_a_column_too_many_is_refused_before_anything_is_written(
    spark: SparkSession, uri: str
) -> None:
    glaive.spark.write(numbers(spark, 3), uri)

    with pytest.raises(SchemaError, match=r"'nam'.*did you mean 'name'"):
        glaive.spark.write(numbers(spark, 3).withColumnRenamed("name", "nam"), uri, mode="append")


def test_a_missing_column_is_refused_with_the_remedy(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3), uri)

    with pytest.raises(SchemaError, match=r"lacks columns .*: name.*lit\(None\)"):
        glaive.spark.write(numbers(spark, 3).drop("name"), uri, mode="append")


def test_a_type_that_never_fits_is_refused(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3), uri)

    with pytest.raises(SchemaError, match="'id' should be int64, found string"):
        glaive.spark.write(
            numbers(spark, 3).selectExpr("string(id) as id", "name", "emb"), uri, mode="append"
        )


def test_a_value_that_does_not_fit_leaves_nothing_visible(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset(pa.table({"id": pa.array([1], pa.uint8())}), uri)

    with pytest.raises(SchemaError, match=r"column 'id'.*not in range: 0 to 255"):
        glaive.spark.write(spark.range(290, 301), uri, mode="append")

    assert glaive.dataset(uri).version == 1


@pytest.mark.nightly(reason="another error of Spark's writer")
def test_a_vector_of_another_length_names_the_column(spark: SparkSession, uri: str) -> None:
    with pytest.raises(
        SchemaError, match="column 'emb': expected lists of 3 items, found one of 2"
    ):
        glaive.spark.write(numbers(spark, 3), uri, vector_columns={"emb": 3})

    assert not glaive_exists(uri)


def glaive_exists(uri: str) -> bool:
    try:
        glaive.dataset(uri)
    except DatasetNotFoundError:
        return False
    return True


# --- reading ----------------------------------------------------------------------------------


def test_columns_come_in_the_order_asked_for(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3), uri)

    assert glaive.spark.read(spark, uri, columns=["name", "id"]).columns == ["name", "id"]
    plain = spark.read.format("lance").option("columns", "emb,id").load(uri)
    assert plain.columns == ["emb", "id"]
    assert plain.where("id = 2").collect()[0]["emb"] == [2.0, -2.0]


@pytest.mark.nightly(reason="another way to read with Spark")
def test_earlier_versions_are_read_by_number(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3), uri)
    glaive.spark.write(numbers(spark, 4), uri, mode="append")

    assert glaive.spark.read(spark, uri, version=1).count() == 3
    assert spark.read.format("lance").option("version", 1).load(uri).count() == 3
    assert glaive.spark.read(spark, uri).count() == 7


def test_earlier_versions_are_read_by_tag_branch_and_time(spark: SparkSession, uri: str) -> None:
    first = glaive.write_dataset(pa.table({"id": [1]}), uri)
    first.tags.create("one", 1)
    branch = first.create_branch("aside", 1)
    glaive.write_dataset(pa.table({"id": [7, 8]}), branch, mode="append")
    glaive.write_dataset(pa.table({"id": [2]}), uri, mode="append")
    later = glaive.dataset(uri).versions()[1]["timestamp"]

    def count(**options: Any) -> int:
        return glaive.spark.read(spark, uri, **options).count()

    assert count(tag="one") == 1
    assert count(branch="aside") == 3
    assert count(branch="aside", version=1) == 1
    assert count(asof=later) == 1
    plain = spark.read.format("lance").option("versionAsOf", 1).load(uri)
    assert plain.count() == 1


def test_filters_and_expressions_are_evaluated_by_the_read(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark), uri)

    frame = glaive.spark.read(
        spark,
        uri,
        columns={"twice": "id * 2", "name": "name"},
        filter="id >= 990",
        with_row_id=True,
    )

    assert frame.columns == ["twice", "name", "_rowid"]
    assert sorted(row.twice for row in frame.collect()) == list(range(1980, 2000, 2))
    assert dict(frame.dtypes)["_rowid"] == "bigint"
    assert spark.read.format("lance").option("filter", "id < 5").load(uri).count() == 5


def test_a_frame_keeps_the_version_it_was_made_with(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3), uri)
    frame = glaive.spark.read(spark, uri)

    glaive.spark.write(numbers(spark, 4), uri, mode="append")

    assert frame.count() == 3
    assert glaive.spark.read(spark, uri).count() == 7


def test_a_schema_the_user_gives_chooses_and_converts_columns(
    spark: SparkSession, uri: str
) -> None:
    glaive.spark.write(numbers(spark, 3), uri)

    frame = spark.read.format("lance").schema("name string, id int").load(uri)

    assert sorted(frame.collect()) == [("n0", 0), ("n1", 1), ("n2", 2)]


@pytest.mark.nightly(reason="another way to read with Spark")
def test_large_fragments_are_read_by_several_tasks(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset(pa.table({"id": np.arange(100_000)}), uri)

    frame = glaive.spark.read(spark, uri, split_bytes=200_000, batch_size=1000)

    assert frame.rdd.getNumPartitions() == 4
    assert [row.id for row in frame.collect()] == list(range(100_000))


def test_small_fragments_share_a_task(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset(pa.table({"id": np.arange(1000)}), uri, max_rows_per_file=10)

    frame = glaive.spark.read(spark, uri)

    assert frame.rdd.getNumPartitions() == 1
    assert [row.id for row in frame.collect()] == list(range(1000))


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"columns": ["nmae"]}, ColumnNotFoundError, "did you mean 'name'"),
        ({"filter": "nmae = 'n1'"}, ColumnNotFoundError, "did you mean 'name'"),
        ({"filter": "id >"}, FilterError, "expected"),
        ({"columns": {"a": "id +"}}, FilterError, "expected"),
        ({"tag": "none"}, NotFoundError, "none"),
        ({"columns": ["id", "id"]}, SchemaError, "more than once"),
        ({"version": 9}, NotFoundError, "version 9 of"),
        ({"batch_size": 0}, OptionError, "batch_size"),
    ],
)
def test_wrong_requests_are_refused_when_the_frame_is_made(
    spark: SparkSession, uri: str, options: dict[str, object], error: type[Exception], message: str
) -> None:
    glaive.spark.write(numbers(spark, 3), uri)

    with pytest.raises(error, match=message):
        glaive.spark.read(spark, uri, **options)  # type: ignore[arg-type]  # wrong on purpose


def test_a_place_without_a_dataset_is_named(spark: SparkSession, uri: str) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"t\.lance"):
        glaive.spark.read(spark, uri)


def test_spark_s_own_reader_names_an_unknown_option(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3), uri)

    with pytest.raises(Exception, match=r"OptionError: option 'colums'.*did you mean columns"):
        spark.read.format("lance").option("colums", "id").load(uri)


@pytest.mark.nightly(reason="another error of Spark's writer")
def test_times_below_a_microsecond_are_refused_unless_told_otherwise(
    spark: SparkSession, uri: str
) -> None:
    glaive.write_dataset(pa.table({"t": pa.array([1001], pa.timestamp("ns"))}), uri)

    with pytest.raises(Exception, match=r"column 't'.*allow_truncation"):
        glaive.spark.read(spark, uri).collect()

    frame = glaive.spark.read(spark, uri, allow_truncation=True)
    assert frame.collect()[0]["t"].microsecond == 1


def test_a_data_file_that_is_gone_is_named(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3, partitions=1), uri)
    (file,) = Path(uri, "data").iterdir()
    file.unlink()

    with pytest.raises(Exception, match=f"DataFileMissingError: .*{file.name}"):
        glaive.spark.read(spark, uri).collect()


# --- SQL --------------------------------------------------------------------------------------


def test_views_serve_sql_in_both_directions(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3), uri)
    glaive.spark.register_view(spark, "it's a `view`", uri)
    name = "`it's a ``view```"

    spark.sql(f"INSERT INTO {name} SELECT id + 10, name, emb FROM {name} WHERE id = 2")
    assert ids(uri) == [0, 1, 2, 12]

    glaive.spark.register_view(spark, "it's a `view`", uri)  # it had the version before
    spark.sql(f"INSERT OVERWRITE {name} SELECT id, name, emb FROM {name} WHERE id < 2")
    assert ids(uri) == [0, 1]


@pytest.mark.spec("rel-27")
def test_variables_of_the_process_are_no_part_of_the_place_or_name_of_a_view(
    spark: SparkSession, tmp_path: Path
) -> None:
    # A catalogue chooses both. "$" and "{" are only variables to the text of a statement.
    uri = str(tmp_path / "${env:PATH}")
    glaive.spark.write(numbers(spark, 3), uri)
    glaive.spark.register_view(spark, "v", uri)
    assert spark.table("v").count() == 3
    with pytest.raises(OptionError, match=r"'\$\{env:PATH\}': Spark replaces"):
        glaive.spark.register_view(spark, "${env:PATH}", uri)


def test_a_view_has_its_options_whatever_literals_mean_in_the_session(
    spark: SparkSession, uri: str
) -> None:
    glaive.spark.write(numbers(spark, 3), uri)
    spark.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    try:
        glaive.spark.register_view(spark, "v", uri, columns={"next": "id + 1"})
        assert sorted(row.next for row in spark.table("v").collect()) == [1, 2, 3]
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")


def test_a_view_shows_the_version_it_was_made_with(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(numbers(spark, 3), uri)
    glaive.spark.register_view(spark, "v", uri)
    glaive.spark.write(numbers(spark, 4), uri, mode="append")
    assert spark.table("v").count() == 3

    glaive.spark.register_view(spark, "v", uri)
    assert spark.table("v").count() == 7
    glaive.spark.register_view(spark, "v", uri, version=1)
    assert spark.table("v").count() == 3


def test_a_join_of_two_datasets(spark: SparkSession, tmp_path: Path) -> None:
    glaive.spark.write(numbers(spark, 5), str(tmp_path / "l"))
    glaive.spark.write(spark.range(3).selectExpr("id", "id * 2 as twice"), str(tmp_path / "r"))
    glaive.spark.register_view(spark, "l", str(tmp_path / "l"), columns=["id", "name"])
    glaive.spark.register_view(spark, "r", str(tmp_path / "r"))

    rows = spark.sql("SELECT name, twice FROM l JOIN r USING (id) ORDER BY name").collect()

    assert rows == [("n0", 0), ("n1", 2), ("n2", 4)]


def test_a_view_without_a_path_says_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"OptionError.*no path"):
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW v USING lance OPTIONS (columns 'id')")
