"""``LanceTable``: searches for one query and for frames of them, samples, exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import glaive
from glaive.errors import (
    ColumnNotFoundError,
    DatasetExistsError,
    FilterError,
    OptionError,
    SchemaError,
)
from glaive.spark import LanceTable

VECTORS = np.random.default_rng(5).standard_normal((300, 8)).astype(np.float32)
WORDS = ["apple", "pear", "plum"]
ROWS = pa.table(
    {
        "id": range(300),
        "text": [f"{WORDS[n % 3]} number {n}" for n in range(300)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 8),
    }
)


@pytest.fixture
def table(spark: SparkSession, uri: str) -> LanceTable:
    """A table of three fragments."""
    glaive.write_dataset(ROWS, uri, max_rows_per_file=100)
    return LanceTable.forPath(spark, uri)


def test_the_nearest_rows_are_those_that_pylance_finds(
    spark: SparkSession, table: LanceTable, uri: str
) -> None:
    table.createIndex("v", "ivf_flat", num_partitions=2, segments=2)
    for number, use_index in ((42, True), (7, False)):
        nearest = {"column": "v", "q": VECTORS[number], "k": 5, "nprobes": 2}
        expected = lance.dataset(uri).to_table(["id", "_distance"], nearest=nearest).to_pylist()
        found = table.search(VECTORS[number], "v", 5, select=["id"], nprobes=2, use_index=use_index)
        assert found.columns == ["id", "_distance"]
        assert [row.id for row in found.collect()] == [row["id"] for row in expected]
    queries = spark.createDataFrame(
        [("a", VECTORS[3].tolist()), ("none", None), ("b", VECTORS[250].tolist())],
        "name string, w array<float>",
    )
    joined = table.search(queries, "v", 2, query_column="w", filter="id != 250")
    assert joined.columns == ["name", "w", "id", "text", "_distance"]
    rows = {(row.name, row.id): row._distance for row in joined.collect()}  # noqa: SLF001  # its name
    assert len(rows) == 4
    assert rows["a", 3] == 0
    assert ("b", 250) not in rows


def test_queries_that_cannot_be_answered_are_refused(
    spark: SparkSession, table: LanceTable
) -> None:
    with pytest.raises(ColumnNotFoundError, match="vec"):
        table.search(VECTORS[0], "vec")
    with pytest.raises(OptionError, match="one vector"):
        table.search(VECTORS[:2], "v")
    with pytest.raises(OptionError, match="column 'v' has vectors of 8 numbers"):
        table.search(VECTORS[0][:7], "v")
    with pytest.raises(OptionError, match="k: "):
        table.search(VECTORS[0], "v", 0)
    with pytest.raises(OptionError, match="'nprobe': unknown key; did you mean 'nprobes'"):
        table.search(VECTORS[0], "v", nprobe=3)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(FilterError, match="idd"):
        table.search(VECTORS[0], "v", filter="idd > 3")
    queries = spark.createDataFrame([(1, [0.0] * 8)], "id int, v array<float>")
    with pytest.raises(SchemaError, match="columns id are in both"):
        table.search(queries, "v")
    with pytest.raises(ColumnNotFoundError, match=r"Column query does not exist .*query_column"):
        table.searchText(queries, "text")
    with pytest.raises(
        SchemaError, match="column 'v' of the queries: expected strings, found array"
    ):
        table.searchText(queries, "text", query_column="v", select=["text"])
    with pytest.raises(SchemaError, match="column 'id' of the queries: expected arrays of numbers"):
        table.search(queries, "v", query_column="id", select=["text"])


def test_texts_are_found_for_one_query_and_for_many(
    spark: SparkSession, table: LanceTable, uri: str
) -> None:
    table.createIndex("text", "inverted", segments=2)
    expected = lance.dataset(uri).to_table(["id"], full_text_query="pear 76", limit=1)
    (best,) = table.searchText("pear 76", "text", 1, select=["id"]).collect()
    assert [best.id] == expected["id"].to_pylist() == [76]
    queries = spark.createDataFrame([("plum 5",), (None,), ("apple 9",)], "query string")
    found = table.searchText(queries, ["text"], 2, select=["id"]).collect()
    assert {(row.query, row.id) for row in found} >= {("plum 5", 5), ("apple 9", 9)}
    assert len(found) == 4


def test_columns_may_have_the_names_of_what_searches_add(spark: SparkSession, uri: str) -> None:
    added = {"_distance": pa.array([0.5] * 300, pa.float32()), "query_index": range(300)}
    rows = pa.table({**{name: ROWS[name] for name in ROWS.column_names}, **added})
    glaive.write_dataset(rows, uri)
    table = LanceTable.forPath(spark, uri)
    table.createIndex("text", "inverted")
    (best,) = table.searchText("pear 76", "text", 1, select=["id", "_distance"]).collect()
    assert (best.id, best["_distance"]) == (76, 0.5)
    assert best["_score"] > 1
    (nearest,) = table.search(VECTORS[42], "v", 1, select=["id", "query_index"]).collect()
    assert (nearest.id, nearest.query_index, nearest["_distance"]) == (42, 42, 0)
    vectors = [(VECTORS[number].tolist(),) for number in (3, 250, 7)]
    queries = spark.createDataFrame(vectors, "w array<float>").coalesce(1)
    found = table.search(queries, "v", 1, query_column="w", select=["query_index"]).collect()
    assert sorted(row.query_index for row in found) == [3, 7, 250]
    with pytest.raises(SchemaError, match="the table has a column _distance"):
        table.search(VECTORS[42], "v")


def test_a_sample_has_different_rows_and_can_be_repeated(table: LanceTable) -> None:
    first = [row.id for row in table.sample(20, columns=["id"], seed=1).collect()]
    assert len(set(first)) == 20
    assert [row.id for row in table.sample(20, columns=["id"], seed=1).collect()] == first
    assert table.sample(1000).count() == 300
    with pytest.raises(OptionError, match="rows"):
        table.sample(-1)


def test_an_export_in_a_format_of_spark_or_with_a_wrong_option_is_refused(
    table: LanceTable, tmp_path: Path
) -> None:
    path = str(tmp_path / "out")
    with pytest.raises(OptionError, match=r"expected one of parquet, .* with a frame of Spark"):
        table.export("orc", path)
    with pytest.raises(OptionError, match="sep: expected one ASCII character"):
        table.export("csv", path, columns=["id"], sep="")


@pytest.mark.parametrize("name", ["CSV", "Parquet"])
def test_a_format_overwrites_no_file_of_others_however_it_is_spelled(
    table: LanceTable, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "out"
    (folder / "below").mkdir(parents=True)
    mine = [folder / "mine.txt", folder / "below" / "mine.txt"]
    for file in mine:
        file.write_text("mine")
    with pytest.raises(OptionError, match="is not a file of an export"):
        table.export(name, str(folder), "overwrite", columns=["id"])
    other: Any = "Overwrite"
    with pytest.raises(OptionError, match=r"mode: expected one of .*, found 'Overwrite'"):
        table.export(name, str(folder), other, columns=["id"])
    assert [file.read_text() for file in mine] == ["mine", "mine"]


def test_a_table_is_exported_by_tasks(
    spark: SparkSession, table: LanceTable, tmp_path: Path
) -> None:
    path = str(tmp_path / "out.parquet")
    counts = table.export("parquet", path, compression="snappy", job_id="tonight")
    assert counts["num_rows"] == spark.read.parquet(path).count() == 300
    assert table.export("parquet", path, job_id="tonight") == counts
    table.export("json", path, "overwrite", columns=["id"], filter="id < 5")
    assert sorted(row.id for row in spark.read.json(path).collect()) == list(range(5))


def test_a_folder_of_parquet_files_becomes_a_table(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    folder = tmp_path / "files" / "first"
    folder.mkdir(parents=True)
    for start in (0, 100, 200):
        pq.write_table(ROWS.slice(start, 100), folder / f"{start:03}.parquet")
    (folder / "_SUCCESS.parquet").touch()
    with pytest.raises(OptionError, match="no such file"):
        glaive.spark.ingest(spark, tmp_path / "nothing", uri)
    again = {"job_id": "first"}
    assert glaive.spark.ingest(spark, tmp_path / "files", uri, **again).version == 1
    made = lance.dataset(uri)
    assert made.schema == ROWS.schema
    assert made.to_table().sort_by("id") == ROWS
    assert glaive.spark.ingest(spark, tmp_path / "files", uri, **again).version == 1
    with pytest.raises(DatasetExistsError):
        glaive.spark.ingest(spark, tmp_path / "files", uri)
    pq.write_table(ROWS.select(["id"]), folder / "300.parquet")
    with pytest.raises(SchemaError, match=r"300\.parquet"):
        glaive.spark.ingest(spark, tmp_path / "files", uri + ".other")
    assert not LanceTable.isLanceTable(spark, uri + ".other")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("first", "other"),
    [
        (pa.array([{"x": 1}]), pa.array([{"x": 1, "y": 2}])),
        (pa.array([1], pa.date32()), pa.array([5], pa.timestamp("us"))),
        (pa.array([True]), pa.array([2])),
    ],
)
def test_files_whose_values_the_columns_of_the_first_cannot_hold_are_not_converted(
    spark: SparkSession, uri: str, tmp_path: Path, first: Any, other: Any
) -> None:
    pq.write_table(pa.table({"a": first}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": other}), tmp_path / "1.parquet")

    with pytest.raises(SchemaError, match=r"1\.parquet"):
        glaive.spark.ingest(spark, tmp_path, uri)


def test_parquet_files_whose_values_would_be_rounded_are_no_table(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    for name, values in (("a", pa.array([1.5], pa.float32())), ("b", pa.array([0.1]))):
        pq.write_table(pa.table({"x": values}), tmp_path / f"{name}.parquet")
    with pytest.raises(SchemaError, match=r"b\.parquet"):
        glaive.spark.ingest(spark, tmp_path, uri)
