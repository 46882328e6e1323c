"""``LanceTable``: new columns, columns from frames, duplicates and indices, by tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import glaive
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError, UnsupportedFeatureError
from glaive.spark import LanceTable

RANDOM = np.random.default_rng(3)
VECTORS = RANDOM.standard_normal((400, 8)).astype(np.float32)
ROWS = pa.table(
    {
        "id": range(400),
        "n": [n % 7 for n in range(400)],
        "text": [f"word{n % 5} all" for n in range(400)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 8),
    }
)


@pytest.fixture
def table(spark: SparkSession, uri: str) -> LanceTable:
    """A table of four fragments without the rows 7, 107, …"""
    glaive.write_dataset(ROWS, uri, max_rows_per_file=100).delete("id % 100 = 7")
    return LanceTable.forPath(spark, uri)


KEPT = [n for n in range(400) if n % 100 != 7]


def column(uri: str, name: str) -> dict[int, Any]:
    rows = lance.dataset(uri).to_table(["id", name])
    assert rows == glaive.dataset(uri).to_table(["id", name])
    return dict(zip(rows["id"].to_pylist(), rows[name].to_pylist(), strict=True))


def test_columns_are_computed_by_tasks(table: LanceTable, uri: str) -> None:
    assert table.addColumns({"twice": "id * 2"}) == {"version": 3, "num_fragments": 4}
    assert column(uri, "twice") == {n: n * 2 for n in KEPT}
    with pytest.raises(SchemaError, match="exists"):
        table.addColumns({"twice": "id"})
    given: Any
    for given in ({"TWICE": "id"}, pa.schema([("TWICE", pa.int8())])):
        with pytest.raises(SchemaError, match="'TWICE' differs from the column 'twice'"):
            table.addColumns(given)
    with pytest.raises(OptionError, match="functions only"):
        table.addColumns({"more": "id"}, read_columns=["id"])
    assert table.addColumns(pa.schema([("later", pa.int8())]))["num_fragments"] == 0
    assert set(column(uri, "later").values()) == {None}


def test_a_function_goes_on_where_it_was_stopped(
    table: LanceTable, uri: str, tmp_path: Path
) -> None:
    calls, checkpoint = tmp_path / "calls", tmp_path / "checkpoint"
    calls.mkdir()
    schema = pa.schema([("square", pa.int64())])

    def square(batch: pa.RecordBatch, *, fail_at: int | None = None) -> pa.RecordBatch:
        ids = batch.column("id")
        first = ids[0].as_py()
        if first == fail_at:
            raise RuntimeError("stopped")
        (calls / str(first)).touch(exist_ok=False)
        return pa.record_batch([pc.multiply(ids, ids)], schema=schema)

    def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
        return square(batch, fail_at=300)

    again = {"schema": schema, "read_columns": ["id"], "checkpoint": checkpoint}
    with pytest.raises(Exception, match="stopped"):
        table.addColumns(failing, **again)
    assert glaive.dataset(uri).version == 2
    finished = len(list(checkpoint.iterdir()))
    assert finished
    for path in calls.iterdir():
        path.unlink()
    assert table.addColumns(square, **again)["version"] == 3
    assert len(list(calls.iterdir())) == 4 - finished
    assert column(uri, "square") == {n: n * n for n in KEPT}
    assert not list(checkpoint.iterdir())


@pytest.mark.nightly(reason="another change of columns on Spark")
def test_columns_come_from_a_frame_by_key(table: LanceTable, spark: SparkSession, uri: str) -> None:
    frame = spark.range(90, 130).selectExpr("id", "concat('f', id) label", "array(1f, 2f) w")
    counts = table.addColumnsFrom(frame.repartition(3), "id", vector_columns=["w:2"])
    assert counts == {"version": 3, "num_fragments": 2}
    expected = {n: f"f{n}" if 90 <= n < 130 else None for n in KEPT}
    assert column(uri, "label") == expected
    assert lance.dataset(uri).schema.field("w").type == pa.list_(pa.float32(), 2)
    newer = spark.range(95, 101).selectExpr("id", "concat('g', id) label")
    assert table.updateColumnsFrom(newer, ["id"]) == {"version": 4, "num_updated_rows": 6}
    assert column(uri, "label") == expected | {n: f"g{n}" for n in range(95, 101)}
    with pytest.raises(SchemaError, match="several rows of the frame"):
        table.updateColumnsFrom(newer.union(newer), "id")
    with pytest.raises(ColumnNotFoundError, match="key"):
        table.addColumnsFrom(frame.withColumnRenamed("id", "key"), "key")
    assert glaive.dataset(uri).version == 4


def test_all_but_one_of_equal_rows_are_deleted(table: LanceTable, uri: str) -> None:
    assert table.dropDuplicates(["n"], keep="last", order_by="-id")["num_deleted_rows"] == 389
    assert sorted(column(uri, "n").items()) == [(n, n) for n in range(7)]
    assert table.dropDuplicates()["num_deleted_rows"] == 0
    with pytest.raises(ColumnNotFoundError, match="m"):
        table.dropDuplicates(["m"])
    with pytest.raises(ColumnNotFoundError, match=r"Column idd .*did you mean 'id'"):
        table.dropDuplicates("n", order_by="idd")


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_rows_with_other_blobs_are_no_duplicates(
    spark: SparkSession, uri: str, version: str
) -> None:
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), blob])
    for value in (b"aa", b"bb", b"bb", b"", None, None):  # each in a file, at the same place
        rows = pa.table([[1], [value]], schema=schema)
        glaive.write_dataset(rows, uri, mode="append", data_storage_version=version)
    table = LanceTable.forPath(spark, uri)
    assert table.dropDuplicates()["num_deleted_rows"] == 2
    left = glaive.dataset(uri).to_table(blob_handling="all_binary")
    assert left["b"].to_pylist() == [b"aa", b"bb", b"", None]
    assert table.dropDuplicates(["b"])["num_deleted_rows"] == 0
    assert table.dropDuplicates("id", "last")["num_deleted_rows"] == 3


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_rows_are_not_matched_by_the_places_of_blobs(
    spark: SparkSession, uri: str, tmp_path: Path, version: str
) -> None:
    other = str(tmp_path / "other.lance")
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), blob])
    for place, value in ((uri, b"aa"), (other, b"bb")):
        rows = pa.table([[1], [value]], schema=schema)
        glaive.write_dataset(rows, place, data_storage_version=version)
    table = LanceTable.forPath(spark, uri).alias("t")
    frame = glaive.spark.read(spark, other)
    matched = r"column 'b'.*cannot be matched by values of a blob"
    with pytest.raises(UnsupportedFeatureError, match=matched):
        table.merge(frame.alias("s"), "s.b = t.b").whenMatchedDelete().execute()
    with pytest.raises(UnsupportedFeatureError, match=matched):
        table.updateColumnsFrom(frame, "b")
    with pytest.raises(UnsupportedFeatureError, match=matched):
        table.addColumnsFrom(frame.withColumnRenamed("id", "other"), "b")
    with pytest.raises(UnsupportedFeatureError, match=matched):
        glaive.dataset(uri).merge_insert("b")
    assert glaive.dataset(uri).version == 1


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize(
    ("keep", "order", "expected"),
    [
        ("first", "time", [None, 1]),
        ("last", "time", [3, 2]),
        ("first", "time DESC", [3, 2]),
        ("last", "time desc", [None, 1]),
        ("first", "time asc nulls last", [2, 1]),
        ("last", "time nulls last", [None, 2]),
        ("last", "time desc nulls first", [2, 1]),
        ("first", "-time desc nulls first", [None, 1]),
    ],
)
def test_the_row_that_stays_is_told_as_in_order_by(
    spark: SparkSession, uri: str, keep: Any, order: str, expected: list[int | None]
) -> None:
    rows = {"key": ["a", "a", "a", "b", "b"], "time": [3, 2, None, 1, 2]}
    glaive.write_dataset(pa.table(rows), uri)
    LanceTable.forPath(spark, uri).dropDuplicates("key", keep, order)
    by_key = lance.dataset(uri).to_table().sort_by("key")
    assert by_key.to_pydict() == {"key": ["a", "b"], "time": expected}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", ["btree", "bitmap", "zonemap"])
def test_an_index_is_built_by_tasks(table: LanceTable, uri: str, kind: str) -> None:
    counts = table.createIndex("n", kind, segments=2)
    assert (counts["num_segments"], counts["num_indexed_fragments"]) == (2, 4)
    (index,) = table.indices().collect()
    assert (index.name, index.num_rows_indexed, index.num_segments) == ("n_idx", 396, 2)
    by_pylance = lance.dataset(uri).scanner(["id"], filter="n = 3")
    assert "ScalarIndex" in by_pylance.explain_plan()
    expected = [n for n in range(400) if n % 7 == 3 and n % 100 != 7]
    assert sorted(by_pylance.to_table()["id"].to_pylist()) == expected
    with pytest.raises(OptionError, match="already exists"):
        table.createIndex("n", kind, replace=False)
    table.dropIndex("n_idx")
    assert table.indices().count() == 0


def test_a_vector_index_of_several_segments_shares_its_model(table: LanceTable, uri: str) -> None:
    table.createIndex("v", "ivf_flat", num_partitions=4, segments=3)
    query = VECTORS[42]
    nearest = {"column": "v", "q": query, "k": 10}
    exact = glaive.dataset(uri).to_table(["id"], nearest=nearest | {"use_index": False})
    everywhere = nearest | {"nprobes": 4}
    found = glaive.dataset(uri).to_table(["id"], nearest=everywhere)
    by_pylance = lance.dataset(uri).to_table(["id"], nearest=everywhere)
    assert found["id"] == exact["id"] == by_pylance["id"]
