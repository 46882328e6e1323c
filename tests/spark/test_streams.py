"""Streams of Spark from and to datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import glaive
import glaive.spark
from glaive.errors import OptionError
from glaive.spark.failures import find_glaive_error

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def ids(uri: str | Path) -> list[int]:
    return sorted(glaive.dataset(str(uri)).to_table()["id"].to_pylist())


def read(spark: SparkSession, uri: str | Path, **options: Any) -> DataFrame:
    return spark.readStream.format("lance").options(**options).load(str(uri))


def write(frame: DataFrame, uri: str | Path, checkpoint: Path, **options: Any) -> None:
    """Run a query until it has read all there is."""
    mode = options.pop("mode", "append")
    writer = frame.writeStream.format("lance").outputMode(mode).options(**options)
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(uri))
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


@pytest.fixture
def source(tmp_path: Path) -> glaive.LanceDataset:
    """Two versions, of three rows each."""
    table = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]})
    uri = str(tmp_path / "source.lance")
    glaive.write_dataset(table, uri, enable_stable_row_ids=True)
    more = pa.table({"id": [4, 5, 6], "text": ["d", "e", "f"]})
    return glaive.write_dataset(more, uri, mode="append")


@pytest.mark.nightly(reason="another stream")
def test_a_stream_copies_a_dataset_and_follows_it(
    spark: SparkSession, source: glaive.LanceDataset, tmp_path: Path
) -> None:
    target, checkpoint = tmp_path / "target.lance", tmp_path / "checkpoint"
    write(read(spark, source.uri, maxFilesPerTrigger=1), target, checkpoint)
    assert ids(target) == [1, 2, 3, 4, 5, 6]
    assert glaive.dataset(str(target)).version == 2

    source.insert(pa.table({"id": [7], "text": ["g"]}))
    write(read(spark, source.uri), target, checkpoint)

    assert ids(target) == [1, 2, 3, 4, 5, 6, 7]
    assert glaive.dataset(str(target)).version == 3


def test_a_batch_whose_acknowledgement_was_lost_is_not_written_again(
    spark: SparkSession, source: glaive.LanceDataset, tmp_path: Path
) -> None:
    target, checkpoint = tmp_path / "target.lance", tmp_path / "checkpoint"
    write(read(spark, source.uri), target, checkpoint)
    for acknowledged in (checkpoint / "commits").iterdir():
        acknowledged.unlink()  # as if Spark had crashed after the commit
    source.insert(pa.table({"id": [7], "text": ["g"]}))

    write(read(spark, source.uri), target, checkpoint)

    assert ids(target) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.nightly(reason="another stream")
def test_counts_of_a_stream_replace_those_before(
    spark: SparkSession, source: glaive.LanceDataset, tmp_path: Path
) -> None:
    target, checkpoint = tmp_path / "target.lance", tmp_path / "checkpoint"
    counts = read(spark, source.uri).selectExpr("id % 2 as id").groupBy("id").count()
    before = pa.table({"id": [7], "count": [7]})
    glaive.write_dataset(before, str(target))

    write(counts, target, checkpoint, mode="complete", queryName="counts")

    found = glaive.dataset(str(target)).to_table().sort_by("id").to_pylist()
    assert found == [{"id": 0, "count": 3}, {"id": 1, "count": 3}]


def test_changes_are_applied_by_key_to_another_dataset(
    spark: SparkSession, source: glaive.LanceDataset, tmp_path: Path
) -> None:
    target, checkpoint = tmp_path / "target.lance", tmp_path / "checkpoint"
    for _ in range(2):
        feed = read(spark, source.uri, readChangeFeed=True, preimages=False)
        rows = feed.where("_change_type <> 'delete'").select("id", "text")
        write(rows, target, checkpoint, merge_keys="id")
        source.update({"text": "'new'"}, where="id > 4")

    found = glaive.dataset(str(target)).to_table().sort_by("id")["text"].to_pylist()
    assert found == ["a", "b", "c", "d", "new", "new"]


def test_a_change_feed_is_a_frame(spark: SparkSession, source: glaive.LanceDataset) -> None:
    source.delete("id = 1")
    source.update({"text": "'new'"}, where="id = 2")
    reader = spark.read.format("lance").option("readChangeFeed", "true")

    frame = reader.option("startingVersion", 3).option("columns", "id,_rowid").load(source.uri)

    assert [(field.name, field.dataType.simpleString()) for field in frame.schema][2:] == [
        ("_change_type", "string"),
        ("_commit_version", "bigint"),
        ("_commit_timestamp", "timestamp"),
    ]
    rows = frame.orderBy("_commit_version", "_change_type").collect()
    assert [(row["id"], row["_rowid"], row["_change_type"]) for row in rows] == [
        (1, 0, "delete"),
        (2, 1, "update_postimage"),
        (2, 1, "update_preimage"),
    ]


def test_changes_are_read_with_named_arguments(
    spark: SparkSession, source: glaive.LanceDataset
) -> None:
    source.update({"text": "'new'"}, where="id = 2")
    source.delete("id = 1")

    net = glaive.spark.read_changes(spark, source.uri, 1, 3, columns=["text"], net=True)

    assert sorted(row["text"] for row in net.collect()) == ["a", "c", "d", "e", "f", "new"]
    with pytest.raises(OptionError, match="the newest version is 4"):
        glaive.spark.read_changes(spark, source.uri, 5)


def test_what_a_stream_cannot_do_is_an_error_of_glaive(
    spark: SparkSession, source: glaive.LanceDataset, tmp_path: Path
) -> None:
    source.delete("id = 1")
    frame = read(spark, source.uri, startingVersion=3)

    with pytest.raises(Exception, match="deletes rows") as failed:
        write(frame, tmp_path / "target.lance", tmp_path / "checkpoint")

    found = find_glaive_error(str(failed.value))
    assert found is not None
    assert "ignoreDeletes" in str(found)
