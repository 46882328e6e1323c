"""Files that are loaded once with the workers of Spark, and by ``COPY INTO``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.kit.crashes import left_by_kills

import glaive
import glaive.spark
from glaive.errors import OptionError

pytestmark = pytest.mark.spark


def add(folder: Path, *numbers: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        pq.write_table(pa.table({"n": [number], "m": [1]}), folder / f"{number}.parquet")


def read_by_pylance(uri: Path) -> list[int]:
    return sorted(lance.dataset(str(uri)).to_table()["n"].to_pylist())


@pytest.mark.parametrize("options", [{}, {"merge_keys": "n"}])
def test_each_load_reads_the_files_that_are_new(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    folder, uri = tmp_path / "in", tmp_path / "t.lance"
    add(folder, 1, 2, 3)
    assert glaive.spark.load(spark, folder, uri, task_bytes=1, **options).files == 3
    assert glaive.spark.load(spark, folder, uri, **options).files == 0
    add(folder, 4)
    assert glaive.spark.load(spark, folder, uri, **options).rows == 1
    assert glaive.ingest(folder, uri, mode="append", once=True).files == 0
    assert read_by_pylance(uri) == [1, 2, 3, 4]


def test_loads_at_the_same_time_read_each_file_once(spark: SparkSession, tmp_path: Path) -> None:
    folder, uri = tmp_path / "in", tmp_path / "t.lance"
    add(folder, *range(20))
    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(lambda _: glaive.spark.load(spark, folder, uri), range(3)))
    assert sorted(one.files for one in done) == [0, 0, 20]
    assert read_by_pylance(uri) == list(range(20))


@pytest.mark.slow
@pytest.mark.parametrize("exists", [False, True])
def test_a_driver_killed_before_any_change_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, *, exists: bool
) -> None:
    folder, begun = tmp_path / "in", tmp_path / "begun" / "t.lance"
    add(folder, 1, 2)
    expected = [1, 2, 3]
    if exists:
        glaive.write_dataset(pa.table({"n": [0], "m": [0]}), begun)
        expected = [0, 1, 2, 3]
    run = partial(glaive.spark.load, spark, folder, begun)
    left = left_by_kills(begun, run, tmp_path / "left")
    add(folder, 3)
    for uri in left:
        glaive.spark.load(spark, folder, uri)
        assert read_by_pylance(uri) == expected, uri
        assert glaive.spark.load(spark, folder, uri).files == 0
    assert len(left) > 4


def test_copy_into_loads_the_files_that_are_new(spark: SparkSession, tmp_path: Path) -> None:
    folder, uri = tmp_path / "in", tmp_path / "t.lance"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.csv").write_text(f"n;s\n{number};x\n")
    (folder / "b[1].csv").write_text("n;s;more\n9;x;1\n")

    def copy(rest: str, of: str = "CSV") -> int:
        text = f"COPY INTO lance.`{uri}` FROM '{folder}' FILEFORMAT = {of} {rest}"
        row = glaive.spark.sql(spark, text).first()
        assert row is not None
        assert row.num_affected_rows == row.num_inserted_rows
        return int(row.num_inserted_rows)

    options = "FORMAT_OPTIONS ('sep' = ';', 'header' = 'true', 'inferSchema' = 'true')"
    assert copy(f"FILES = ('0.csv', '1.csv') {options}") == 2
    assert copy(f"PATTERN = '[0-9].csv' {options}") == 2
    assert copy(f"FILES = ('b[1].csv') {options} COPY_OPTIONS ('mergeSchema' = 'true')") == 1
    assert copy(options) == 0
    assert read_by_pylance(uri) == [0, 1, 2, 3, 9]
    with pytest.raises(OptionError, match="force"):
        copy("COPY_OPTIONS ('force' = 'true')")
    with pytest.raises(OptionError, match="xlsx"):
        copy("", of="XLSX")


def test_an_overwrite_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path / "in", 1)
    with pytest.raises(OptionError, match="mode='append'"):
        glaive.spark.load(spark, tmp_path / "in", tmp_path / "t.lance", mode="overwrite")


def test_a_delta_table_is_converted_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    source, uri = tmp_path / "delta", tmp_path / "t.lance"
    rows = pa.table({"n": list(range(6)), "day": ["a b", "a b", None, "ü", "c/d", "c/d"]})
    deltalake.write_deltalake(str(source), rows, partition_by=["day"])
    deltalake.DeltaTable(str(source)).delete("n = 1")
    glaive.spark.ingest(spark, source, uri, format="delta")
    assert read_by_pylance(uri) == [0, 2, 3, 4, 5]
    found = glaive.dataset(uri).to_table(filter="day = 'c/d'")
    assert sorted(found["n"].to_pylist()) == [4, 5]
