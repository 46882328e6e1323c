"""A driver that is killed before any change of a file that it makes, in every kind of job.

What it leaves is the table before the job, or the one after it. The same job run again makes the
version, or returns the one that was made; then clean-up leaves no stray file. Frames that are
written are committed by a process of Spark: see ``test_commit.py``. Exports make no version: what
they leave are files in a folder, which a mark calls complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.kit.crashes import killed_at_step

import glaive
import glaive.spark
from glaive.dataset.tasks import JOB as COMMITTED_BY
from glaive.errors import DatasetNotFoundError
from glaive.spark import LanceTable
from glaive.table.load import read_transaction

pytestmark = pytest.mark.spark

JOB = "tonight"
ROWS = 24

Row = dict[str, Any]
Work = Callable[[SparkSession, str], object]


def table(spark: SparkSession, uri: str) -> LanceTable:
    return LanceTable.forPath(spark, uri)


def merge(spark: SparkSession, uri: str) -> None:
    source = spark.range(20, 28).selectExpr("id", "id * 2 as n").alias("s")
    builder = table(spark, uri).alias("t").merge(source, "t.id = s.id")
    builder.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute(job_id=JOB)


def merge_by_a_join(spark: SparkSession, uri: str) -> None:
    source = spark.range(20, 28).selectExpr("id", "id * 2 as n").alias("s")
    builder = table(spark, uri).alias("t").merge(source, "t.id = s.id")
    builder.whenMatchedUpdate(set={"n": "s.n + t.n"}).whenNotMatchedInsertAll().execute(job_id=JOB)


def create(spark: SparkSession, uri: str) -> None:
    """The table's place is empty before."""
    source = Path(uri).parent / "parquet"
    if not source.exists():
        source.mkdir()
        for part in range(2):
            pq.write_table(pa.table({"id": [part], "n": [part * 3]}), source / f"{part}.parquet")
    glaive.spark.ingest(spark, str(source), uri, job_id=JOB)


def columns_from(spark: SparkSession, uri: str) -> None:
    frame = spark.range(ROWS).selectExpr("id", "id + 5 as far")
    table(spark, uri).addColumnsFrom(frame, on="id", job_id=JOB)


def columns_by_function(spark: SparkSession, uri: str) -> None:
    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pa.compute.multiply(batch["n"], 2)], ["twice"])

    checkpoint = f"{uri}-checkpoint"
    table(spark, uri).addColumns(twice, None, ["n"], checkpoint=checkpoint, job_id=JOB)


def update_from(spark: SparkSession, uri: str) -> None:
    frame = spark.range(5).selectExpr("id", "id + 50 as n")
    table(spark, uri).updateColumnsFrom(frame, on="id", job_id=JOB)


def replace_on(spark: SparkSession, uri: str) -> None:
    rows = spark.range(100, 103).selectExpr("id", "bigint(1) as n").alias("s")
    table(spark, uri).alias("t").replaceOn(rows, "t.n <=> s.n", job_id=JOB)


def ingest(mode: str, **options: Any) -> Work:
    def run(spark: SparkSession, uri: str) -> None:
        source = Path(uri).parent / "more.parquet"
        if not source.exists():
            pq.write_table(pa.table({"id": [20, 50], "n": [7, 8]}), source)
        glaive.spark.ingest(spark, str(source), uri, mode=mode, job_id=JOB, **options)

    return run


def ingest_aside(spark: SparkSession, uri: str) -> None:
    source = Path(uri).parent / "more.csv"
    source.write_text("id,n\n30,1\nx,2\n31,3\n")
    aside = f"{uri}.bad"
    glaive.spark.ingest(spark, str(source), uri, mode="append", bad_records=aside, job_id=JOB)


# A process of Spark commits writes of frames: tests/spark/test_commit.py kills it.
KINDS: dict[str, Work] = {
    "delete": lambda spark, uri: table(spark, uri).delete("n = 1", job_id=JOB),
    "delete all": lambda spark, uri: table(spark, uri).delete(job_id=JOB),
    "update": lambda spark, uri: table(spark, uri).update("n = 2", {"n": "n + 9"}, job_id=JOB),
    "merge": merge,
    "merge by a join": merge_by_a_join,
    "ingest": create,
    "dropDuplicates": lambda spark, uri: table(spark, uri).dropDuplicates(
        ["n"], order_by="id", job_id=JOB
    ),
    "addColumns": lambda spark, uri: table(spark, uri).addColumns({"m": "n + 1"}, job_id=JOB),
    "addColumns by a function": columns_by_function,
    "addColumnsFrom": columns_from,
    "updateColumnsFrom": update_from,
    "compaction": lambda spark, uri: table(spark, uri).optimize().executeCompaction(job_id=JOB),
    "clustering": lambda spark, uri: table(spark, uri).optimize().executeClusterBy("n", job_id=JOB),
    "clustering of new": lambda spark, uri: (
        table(spark, uri).optimize().executeCompaction(job_id=JOB)
    ),
    "createIndex": lambda spark, uri: table(spark, uri).createIndex("n", "btree", job_id=JOB),
    "publish": lambda spark, uri: table(spark, uri).publish("checked", job_id=JOB),
    "replaceOn": replace_on,
    "ingest append": ingest("append"),
    "ingest overwrite": ingest("overwrite"),
    "ingest merge": ingest("merge", merge_keys="id"),
    "ingest with bad records": ingest_aside,
    "optimizeIndices": lambda spark, uri: table(spark, uri).optimizeIndices(job_id=JOB),
}


CREATING = {"ingest"}
"""Jobs that find no table."""

UNSEEN = {"compaction", "clustering", "clustering of new"}
"""Jobs that change no row and no index.

They reserve ids of fragments with a version before their own, which a killed run may have left.
"""


def rows(uri: str | Path) -> list[Row]:
    """All rows; bad records without the file that they are from."""
    try:
        found: list[Row] = glaive.dataset(uri).to_table().to_pylist()
    except DatasetNotFoundError:
        return []
    for row in found:
        row.pop("file", None)
    return sorted(found, key=repr)


def unindexed_rows(uri: str | Path) -> dict[str, int]:
    """How many rows are in no segment, of each index."""
    try:
        dataset = glaive.dataset(uri)
    except DatasetNotFoundError:
        return {}
    names = [index.name for index in dataset.describe_indices()]
    return {name: dataset.stats.index_stats(name)["num_unindexed_rows"] for name in names}


def state(uri: str | Path) -> tuple[list[Row], dict[str, int]]:
    """What a job may change."""
    return rows(uri), unindexed_rows(uri)


def versions_made(uri: str) -> list[int]:
    """The versions that the job made."""
    try:
        opened = glaive.dataset(uri)
    except DatasetNotFoundError:
        return []
    found = []
    for version in opened.versions():
        manifest = opened.checkout_version(version["version"]).manifest
        transaction = read_transaction(opened.store, manifest)
        if transaction is not None and transaction.properties.get(COMMITTED_BY) == JOB:
            found.append(manifest.version)
    return found


def stray_files(uri: str) -> set[str]:
    """Files of rows, deletions and indices that the newest version does not have."""
    dataset = glaive.dataset(uri)
    fragments = list(dataset.manifest.fragments())
    known = {file.path for fragment in fragments for file in fragment.files}
    known |= {str(UUID(bytes=index.uuid.uuid)) for index in dataset.manifest.indices}
    files = {path.name for path in Path(uri, "data").iterdir()} - known
    deletions = sum(fragment.deletion_file is not None for fragment in fragments)
    found = list(Path(uri).glob("_deletions/*"))
    if len(found) != deletions:
        files |= {path.name for path in found}
    files |= {path.name for path in Path(uri).glob("_indices/*")} - known
    return files | {path.name for path in Path(uri).glob("_versions/*.tmp*")}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A table of several fragments."""
    folder = tmp_path / "base.lance"
    numbers = pa.array(range(ROWS), pa.int64())
    data = pa.table({"id": numbers, "n": pa.array([n % 6 for n in range(ROWS)], pa.int64())})
    glaive.write_dataset(data, str(folder), max_rows_per_file=8, enable_stable_row_ids=True)
    return folder


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            marks=[]
            if kind == "delete"
            else [pytest.mark.slow, pytest.mark.nightly(reason="runs a job for each change")],
        )
        for kind in KINDS
    ],
)
def test_a_driver_killed_before_any_change_loses_and_doubles_nothing(
    spark: SparkSession, base: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "publish":
        table(spark, str(base)).createBranch("checked").update("n = 3", {"n": "n + 30"})
    if kind == "clustering of new":
        glaive.dataset(base).update_config({"glaive.cluster_by": '["n"]'})
    if kind in ("optimizeIndices", "compaction"):
        table(spark, str(base)).createIndex("n", "btree")
    if kind == "optimizeIndices":
        more = pa.table({"id": pa.array([70, 71], pa.int64()), "n": pa.array([1, 9], pa.int64())})
        glaive.write_dataset(more, str(base), mode="append")
    if kind in CREATING:
        shutil.rmtree(base)
        base.mkdir()
    work, before = KINDS[kind], state(base)

    def fresh(name: str) -> str:
        return str(shutil.copytree(base, tmp_path / name / "t.lance"))

    whole = fresh("whole")
    work(spark, whole)
    expected, aside = state(whole), rows(f"{whole}.bad")
    versions = glaive.dataset(whole).version
    assert expected != before or kind in UNSEEN
    killed, step = True, 0
    while killed:
        step += 1
        uri = fresh(f"step{step}")

        def run(at: str = uri) -> None:
            # A thread has a connection of its own to Java; that of this one is the parent's.
            with ThreadPoolExecutor(1) as other:
                other.submit(work, spark, at).result()

        killed = killed_at_step(uri, run, step)
        assert state(uri) in (before, expected)
        made = versions_made(uri)
        work(spark, uri)
        assert (state(uri), rows(f"{uri}.bad")) == (expected, aside), step
        again = glaive.dataset(uri).version - versions
        assert again in ((0, 1) if kind in UNSEEN else (0,)), step
        assert len(versions_made(uri)) == 1, step
        assert made in ([], versions_made(uri)), step
        table(spark, uri).vacuum(0, delete_unverified=True)
        glaive.dataset(uri).validate()
        if kind != "publish":  # its branch keeps files of its own
            assert stray_files(uri) == set(), step
    assert step > 2


def export(spark: SparkSession, uri: str, mode: Any) -> dict[str, int]:
    return table(spark, uri).export("parquet", f"{uri}.out", mode, job_id=JOB)


def exported(uri: str) -> dict[str, list[Row]]:
    """The rows of each file that readers of the folder see."""
    return {
        path.name: pq.read_table(path).to_pylist() for path in Path(f"{uri}.out").glob("*.parquet")
    }


@pytest.mark.slow
@pytest.mark.nightly(reason="runs a job for each change")
@pytest.mark.parametrize("mode", ["errorifexists", "append", "overwrite"])
def test_a_driver_killed_before_any_change_of_an_export_leaves_no_other_files(
    spark: SparkSession, base: Path, tmp_path: Path, mode: Any
) -> None:
    killed, step = True, 0
    expected = rows(base)
    while killed:
        step += 1
        uri = str(shutil.copytree(base, tmp_path / f"step{step}" / "t.lance"))
        before: dict[str, list[Row]] = {}
        if mode != "errorifexists":
            table(spark, uri).export("parquet", f"{uri}.out", filter="n = 0")
            before = exported(uri)

        def run(at: str = uri) -> None:
            with ThreadPoolExecutor(1) as other:
                other.submit(export, spark, at, mode).result()

        killed = killed_at_step(uri, run, step)
        mark = Path(f"{uri}.out", "_SUCCESS")
        whole = mark.exists() and f'"job": "{JOB}"' in mark.read_text()
        assert whole or killed, step
        kept = before if mode == "append" else {}
        for _ in range(2):
            counts = export(spark, uri, mode)
            found = exported(uri)
            own = [row for name in found.keys() - before.keys() for row in found[name]]
            assert sorted(own, key=repr) == expected, step
            assert counts["num_rows"] == len(expected), step
            assert {name: found[name] for name in found.keys() & before.keys()} == kept, step
        names = {path.name for path in mark.parent.iterdir()}
        assert names == {"_SUCCESS", *found}, step
        assert glaive.dataset(uri).version == 1
    assert step > 2
