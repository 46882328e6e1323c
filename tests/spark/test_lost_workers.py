"""Workers that are killed: what the driver says, and what running the job again does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import glaive
import glaive.spark
from glaive.errors import JobError
from glaive.spark import LanceTable
from glaive.spark.failures import naming_job

pytestmark = pytest.mark.spark


def dying(mark: Path) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that kills its process while a file is there."""

    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        if mark.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return pa.record_batch([pa.compute.multiply(batch["id"], 2)], ["id"])

    return double


def test_a_job_that_lost_its_workers_says_what_it_left(spark: SparkSession, tmp_path: Path) -> None:
    uri, mark = str(tmp_path / "t.lance"), tmp_path / "mark"
    glaive.write_dataset(pa.table({"id": [1, 2, 3]}), uri)
    table, double = LanceTable.forPath(spark, uri), dying(mark)

    def add() -> dict[str, int]:
        schema = pa.schema({"twice": pa.int64()})
        return table.addColumns(
            lambda batch: double(batch).rename_columns(["twice"]), schema, job_id="tonight"
        )

    mark.touch()
    message = (
        r"^job tonight on .*t\.lance: the cluster lost it: .*Python worker exited unexpectedly.*"
        r"Nothing was committed.*vacuum removes them.*job_id='tonight'"
    )
    with pytest.raises(JobError, match=message):
        add()
    assert glaive.dataset(uri).version == 1
    mark.unlink()
    assert add()["version"] == 2
    assert add()["version"] == 2
    assert glaive.dataset(uri).to_table()["twice"].to_pylist() == [2, 4, 6]


def test_a_write_that_lost_its_workers_is_no_version(spark: SparkSession, tmp_path: Path) -> None:
    uri, mark = str(tmp_path / "t.lance"), tmp_path / "mark"
    double = dying(mark)

    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(double, batches)

    mark.touch()
    frame = spark.range(3).mapInArrow(doubled, "id bigint")
    with pytest.raises(JobError, match=r"job .* on .*t\.lance: .* run it again$"):
        glaive.spark.write(frame, uri)
    assert not LanceTable.isLanceTable(spark, uri)
    mark.unlink()
    assert glaive.spark.write(frame, uri) == 1


LOST = """\
An error occurred while calling o1.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 1.0 failed \
4 times, most recent failure: Lost task 3.3 in stage 1.0 (TID 9) (10.0.0.7 executor 2): \
ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: exit code 137.
\tat x.y.Z
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Exception: Python worker exited unexpectedly (crashed).", "Python worker exited"),
        (LOST, r"ExecutorLostFailure .* exit code 137 \(on 10\.0\.0\.7 executor 2\)"),
        ("x\nJob 7 cancelled because SparkContext was shut down\n\tat", "Job 7 cancelled because"),
        ("(java.io.IOException) Stream closed\n\nJVM stack", r"the processes of its Python exited"),
        ("o1.save.\n: java.io.IOException: Broken pipe\n\tat", "the processes of its Python"),
        ("Cannot call methods on a stopped SparkContext.", "on a stopped SparkContext"),
        ("(org.x.Y) [INVALID_HANDLE.SESSION_CLOSED] The handle 0 is invalid.", r"The handle 0 is"),
        ("[NO_ACTIVE_SESSION] No active Spark session found.", "No active Spark session found"),
        ("Cannot invoke RPC: Channel closed!", "Channel closed!"),
        ("<x of RPC>\n\tstatus = StatusCode.UNAVAILABLE\n", "may still go on with it. Nothing was"),
    ],
)
def test_the_reason_is_that_of_spark(text: str, reason: str) -> None:
    expected = pytest.raises(JobError, match=rf"the cluster lost it: .*{reason}")
    with expected, naming_job("j", "t.lance", named=True):
        raise RuntimeError(text)


def test_a_job_of_several_commits_does_not_say_that_there_is_none() -> None:
    expected = pytest.raises(JobError, match=r"exit code 137 .*\. Some may be there; files")
    with expected, naming_job("j", "t.lance", named=True, made="Some may be there"):
        raise RuntimeError(LOST)


@pytest.mark.parametrize("text", ["no", LOST + "Traceback (most recent call last):\n ValueError"])
def test_errors_of_code_stay_what_they_are(text: str) -> None:
    with pytest.raises(ArithmeticError), naming_job("j", "t.lance", named=True):
        raise ArithmeticError(text)
