"""A column by a function on a cluster: killed half way, run again, nothing is computed twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import glaive
from glaive.errors import JobError
from glaive.spark import LanceTable

pytestmark = pytest.mark.spark

FRAGMENTS = 6
ROWS = 4

MODEL = """
import functools
import os
import signal
import time
from pathlib import Path

import pyarrow as pa

FOLDER = Path({folder!r})
calls = []


@functools.cache
def model():
    with (FOLDER / "loads").open("a") as log:
        log.write(f"{{os.getpid()}}\\n")
    return [0.5, 0.25]


def embed(batch):
    weights = model()
    calls.append(batch["id"][0].as_py())
    with (FOLDER / "calls").open("a") as log:
        log.write(f"{{calls[-1]}}\\n")
    if calls[-1] == 8 and (FOLDER / "broken").exists():
        for _ in range(3000):
            if len(list((FOLDER / "checkpoint").glob("*.json"))) == {others}:
                break
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)
    vectors = [[number * weight for weight in weights] for number in batch["id"].to_pylist()]
    return pa.record_batch([pa.array(vectors, pa.list_(pa.float32(), 2))], ["embedding"])
"""


def test_fragments_that_are_finished_are_not_computed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = MODEL.format(folder=str(tmp_path), others=FRAGMENTS - 1)
    (tmp_path / "backfill_model.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    spark.addArtifacts(str(tmp_path / "backfill_model.py"), pyfile=True)
    from backfill_model import embed  # type: ignore[import-not-found]  # written above

    uri = str(tmp_path / "t.lance")
    ids = pa.table({"id": pa.array(range(FRAGMENTS * ROWS), pa.int64())})
    glaive.write_dataset(ids, uri, max_rows_per_file=ROWS)
    table = LanceTable.forPath(spark, uri)
    schema = pa.schema({"embedding": pa.list_(pa.float32(), 2)})

    def backfill() -> dict[str, int]:
        checkpoint = tmp_path / "checkpoint"
        return table.addColumns(embed, schema, ["id"], checkpoint=checkpoint, job_id="backfill")

    # Each of the two attempts of a task is killed in the third fragment, once another task, on
    # the other core, is through with the last three.
    (tmp_path / "broken").touch()
    with pytest.raises(JobError, match="Python worker exited unexpectedly"):
        backfill()
    assert glaive.dataset(uri).version == 1
    (tmp_path / "broken").unlink()
    assert backfill() == {"version": 2, "num_fragments": FRAGMENTS}
    assert backfill() == {"version": 2, "num_fragments": FRAGMENTS}

    calls = Counter((tmp_path / "calls").read_text().split())
    assert calls == {"0": 1, "4": 1, "8": 3, "12": 1, "16": 1, "20": 1}
    loads = (tmp_path / "loads").read_text().split()
    assert len(set(loads)) == len(loads)
    vectors = glaive.dataset(uri).to_table()["embedding"].to_pylist()
    assert vectors == [[number / 2, number / 4] for number in range(FRAGMENTS * ROWS)]
    assert list((tmp_path / "checkpoint").glob("*.json")) == []
