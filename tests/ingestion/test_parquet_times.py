"""Times of Parquet files, which some writers store as INT96."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import glaive
from glaive.ingestion.job import ingest

SPARK = {"org.apache.spark.sql.parquet.row.metadata": "{}"}
FAR = [datetime(1500, 1, 1), datetime(2026, 1, 1, 5, 0, 0, 1), datetime(9999, 12, 31), None]  # noqa: DTZ001  # files have no zone


def written(folder: Path, times: pa.Array, metadata: dict[str, str]) -> str:
    folder.mkdir()
    rows = pa.table({"at": times, "in": pa.StructArray.from_arrays([times], ["at"])})
    legacy = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    with pq.ParquetWriter(folder / "a.parquet", rows.schema, **legacy) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(metadata)
    return str(folder)


def test_times_of_spark_that_are_far_from_now_stay_what_they_are(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    ingest(written(tmp_path / "files", pa.array(FAR, pa.timestamp("us")), SPARK), uri)

    rows = glaive.dataset(uri).to_table()

    assert rows.schema.field("at").type == pa.timestamp("us")
    assert rows["at"].to_pylist() == FAR
    assert rows["in"].to_pylist() == [{"at": time} for time in FAR]


def test_other_writers_keep_their_nanoseconds(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    times = pa.array([1_767_243_600_000_000_001, None], pa.timestamp("ns"))
    ingest(written(tmp_path / "files", times, {}), uri)

    assert glaive.dataset(uri).to_table()["at"].combine_chunks().equals(times)
