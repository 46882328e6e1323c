"""Ingests on Spark that merge: tasks write the rows, and others look for their keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import glaive
import glaive.spark
from glaive.errors import SchemaError

pytestmark = pytest.mark.spark

OPTIONS: dict[str, Any] = {"mode": "merge", "merge_keys": "id", "task_bytes": 1}


def files(folder: Path, *parts: pa.Table) -> str:
    folder.mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"{number}.parquet")
    return str(folder)


def rows(start: int, stop: int, version: int) -> pa.Table:
    """Also with types that Spark does not have."""
    ids = np.arange(start, stop)
    return pa.table(
        {
            "id": pa.array(ids, pa.uint64()),
            "version": np.full(len(ids), version, np.int8),
            "v": pa.FixedSizeListArray.from_arrays(np.repeat(ids, 4).astype(np.float16), 4),
        }
    )


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("stable", [False, True])
def test_rows_are_those_of_a_merge_in_one_process(
    spark: SparkSession, tmp_path: Path, *, stable: bool
) -> None:
    source = files(tmp_path / "in", rows(100, 150, 1), rows(190, 230, 2), rows(300, 310, 3))
    ours, theirs = str(tmp_path / "ours.lance"), str(tmp_path / "theirs.lance")
    for uri in (ours, theirs):
        glaive.write_dataset(
            rows(0, 200, 0), uri, max_rows_per_file=60, enable_stable_row_ids=stable
        )

    done = glaive.spark.ingest(spark, source, ours, **OPTIONS, job_id="j")
    expected = glaive.ingest(source, theirs, **OPTIONS)

    assert (done.rows, done.version) == (expected.rows, expected.version) == (100, 2)
    found = glaive.dataset(ours).to_table().sort_by("id")
    assert found.equals(glaive.dataset(theirs).to_table().sort_by("id"))
    # Each of three tasks wrote a file; a process that reads all rows writes one.
    before = len(glaive.dataset(ours, version=1).get_fragments())
    assert len(glaive.dataset(ours).get_fragments()) - before == 3
    again = glaive.spark.ingest(spark, source, ours, **OPTIONS, job_id="j")
    assert (again.version, again.repeated) == (2, True)


def test_several_rows_for_one_row_name_the_key_and_change_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = files(tmp_path / "in", rows(5, 8, 1), rows(7, 9, 2))
    uri = str(tmp_path / "t.lance")
    glaive.write_dataset(rows(0, 200, 0), uri)
    with pytest.raises(SchemaError, match="several rows of the source have id = 7"):
        glaive.spark.ingest(spark, source, uri, **OPTIONS)
    assert glaive.dataset(uri).version == 1
    assert len(list(Path(uri, "data").iterdir())) == 1
