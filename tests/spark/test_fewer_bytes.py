"""What is written on Spark takes fewer bytes than what is written locally.

The texts and numbers here are such that zstd saves much of what other encodings leave.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import glaive
import glaive.spark
from glaive.spark import LanceTable

pytestmark = pytest.mark.spark

ROWS = 20_000
_WORDS = np.array(["carefully", "final", "deposits", "sleep", "above", "the", "requests", "among"])
_PICKED = np.random.default_rng(5).integers(0, len(_WORDS), (ROWS, 6))
TABLE = pa.table(
    {
        "id": pa.array(np.arange(ROWS) // 4 * 32 + (1 << 30)),
        "text": pa.array([" ".join(words) for words in _WORDS[_PICKED].tolist()]),
    }
)
FEWER = 0.85
"""What is left of the bytes that a local write takes, at most."""


def size(uri: Path | str) -> int:
    """Bytes of the data files of the newest version."""
    files = [file for part in glaive.dataset(uri).get_fragments() for file in part.data_files()]
    return sum((Path(uri) / "data" / file.path).stat().st_size for file in files)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset that was written locally, in two fragments."""
    uri = tmp_path_factory.mktemp("local") / "local.lance"
    glaive.write_dataset(TABLE, uri, max_rows_per_file=ROWS // 2)
    return uri


@pytest.fixture(scope="module")
def frame(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Return the rows as a frame of one task."""
    path = tmp_path_factory.mktemp("source") / "rows.parquet"
    pq.write_table(TABLE, path)
    return spark.read.parquet(str(path)).coalesce(1)


def test_frames_take_fewer_bytes_unless_options_say_otherwise(
    local: Path, frame: DataFrame, tmp_path: Path
) -> None:
    glaive.spark.write(frame, tmp_path / "fewer")
    assert size(tmp_path / "fewer") < FEWER * size(local)
    glaive.spark.write(frame, tmp_path / "as local", encoding_options={"*": {}})
    assert size(tmp_path / "as local") > 0.95 * size(local)
    glaive.spark.write(frame, tmp_path / "text", encoding_options={"text": {"compression": "none"}})
    assert size(tmp_path / "text") > size(local)
    for name in ("fewer", "as local", "text"):
        assert glaive.dataset(tmp_path / name).to_table() == TABLE


def test_ingests_take_fewer_bytes_unless_options_say_otherwise(
    local: Path, spark: SparkSession, tmp_path: Path
) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    for name, options in (("fewer", None), ("as local", {"compression": "automatic"})):
        glaive.spark.ingest(
            spark, tmp_path / "rows.parquet", tmp_path / name, write_options=options
        )
    assert size(tmp_path / "fewer") < FEWER * size(local)
    assert size(tmp_path / "as local") > 0.95 * size(local)


def test_what_tasks_write_again_takes_fewer_bytes(
    local: Path, spark: SparkSession, tmp_path: Path
) -> None:
    full = size(local)
    for name in ("compacted", "clustered", "as local"):
        LanceTable.forPath(spark, str(local)).shallowClone(str(tmp_path / name))
    table = LanceTable.forPath(spark, str(tmp_path / "compacted"))
    table.optimize().executeCompaction()
    assert size(tmp_path / "compacted") < FEWER * full
    table = LanceTable.forPath(spark, str(tmp_path / "clustered"))
    table.optimize().executeClusterBy("id")
    assert size(tmp_path / "clustered") < FEWER * full
    table = LanceTable.forPath(spark, str(tmp_path / "as local"))
    table.optimize().executeCompaction(compression="automatic")
    assert size(tmp_path / "as local") > 0.95 * full


def test_upserts_and_ingested_files_take_fewer_bytes(
    local: Path, spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    pq.write_table(TABLE, tmp_path / "files" / "rows.parquet")
    glaive.spark.ingest(spark, tmp_path / "files", tmp_path / "converted")
    assert size(tmp_path / "converted") < FEWER * size(local)
    glaive.write_dataset(TABLE.slice(0, 1), tmp_path / "merged")
    table = LanceTable.forPath(spark, str(tmp_path / "merged"))
    merge = table.alias("t").merge(frame.alias("s"), "t.id = s.id + 1")
    merge.whenNotMatchedInsertAll().execute()
    assert size(tmp_path / "merged") < FEWER * size(local)


def test_the_oldest_format_takes_appends_of_frames(frame: DataFrame, tmp_path: Path) -> None:
    glaive.write_dataset(TABLE.slice(0, 10), tmp_path / "old", data_storage_version="0.1")
    glaive.spark.write(frame, tmp_path / "old", mode="append")
    assert glaive.dataset(tmp_path / "old").count_rows() == ROWS + 10
