"""Merges whose source gives other rows when it is made again, as after the loss of an executor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.spark.lance_table.merge import same_keys

SCRIPT = """
import os, random, sys
import psutil, pyarrow as pa
import glaive.spark
from pyspark.sql import functions as F

uri, mark = sys.argv[1:]

def drawn(batches):
    for batch in batches:
        ids = [random.randrange(2000) for _ in range(batch.num_rows)]
        yield pa.record_batch([pa.array(ids, pa.int64())], ["id"])

def dying(value):
    if not os.path.exists(mark):
        open(mark, "w").close()
        psutil.Process().parent().parent().kill()  # the executor
    return value

settings = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.memory": "600m",
    "spark.sql.shuffle.partitions": "2",
}
spark = glaive.spark.session("lost sources", "local-cluster[1,1,1024]", **settings)
source = spark.range(0, 100, 1, 2).mapInArrow(drawn, "id bigint").dropDuplicates(["id"])
source = source.selectExpr("id", "1L as v").alias("s")
merge = glaive.spark.LanceTable.forPath(spark, uri).alias("t").merge(source, "t.id = s.id")
merge = merge.whenMatchedUpdate(None, {"v": F.udf(dying, "bigint")(F.col("s.v"))})
counts = merge.whenNotMatchedInsertAll().execute()
print(counts["num_updated_rows"], counts["num_inserted_rows"])
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly(reason="starts a cluster of its own")
@pytest.mark.spec("rel-9")
def test_a_merge_that_lost_its_source_inserts_no_key_that_is_there(tmp_path: Path) -> None:
    uri, mark = str(tmp_path / "t.lance"), tmp_path / "mark"
    glaive.write_dataset(pa.table({"id": range(1000), "v": [0] * 1000}), uri)
    paths = str(Path(glaive.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, uri, str(mark)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert mark.exists()
    updated, inserted = map(int, done.stdout.split()[-2:])
    rows = glaive.dataset(uri).to_table()
    assert updated > 0
    assert rows.num_rows == len(set(rows["id"].to_pylist())) == 1000 + inserted
    assert sum(rows["v"].to_pylist()) == updated + inserted


def test_keys_are_the_same_in_any_order() -> None:
    keys = pa.table({"a": [1, 2, 2], "b": ["x", "y", "x"]})
    assert same_keys(keys, keys)
    assert same_keys(keys, keys.take([2, 0, 1]))
    assert not same_keys(keys, keys.slice(1))
    assert not same_keys(keys, keys.take([0, 1, 1]))
    assert not same_keys(keys, None)
