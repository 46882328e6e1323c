"""Streams that stop at any point between their first file, the commit and the checkpoint.

A query runs once, and before each change of a file that its tasks and its commits make, the
dataset and the checkpoint are copied: what a machine would find that lost all processes of Spark
at this moment. From each copy the query starts again, when its source has one more row.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType
from tests.kit.crashes import before_changes, killed_at_step
from tests.spark.test_kill_walk import stray_files
from tests.spark.test_stream_sink import Query, rows

import glaive
from glaive.errors import DatasetNotFoundError
from glaive.spark import LanceTable
from glaive.spark.source import LanceDataSource
from glaive.spark.stream_sink import LanceStreamWriter

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


# --- the sink without Spark: its first batch, and compaction after a batch ------------------------


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("kind", ["append", "complete", "merge"])
def test_a_crash_of_the_first_batch_at_any_step_loses_and_doubles_nothing(
    tmp_path: Path, kind: str
) -> None:
    options = {"merge_keys": "id"} if kind == "merge" else {}
    step, killed = 0, True
    while killed:
        step += 1
        uri = str(tmp_path / f"{step}.lance")
        query = Query(uri, tmp_path / "c", complete=kind == "complete", **options)

        def first(query: Query = query) -> None:
            query.run(0, [[(1, "a")], [(2, "b")]])

        killed = killed_at_step(uri, first, step)
        try:
            assert rows(uri) in ([], [(1, "a"), (2, "b")])
        except DatasetNotFoundError:
            assert killed
        first()
        assert rows(uri) == [(1, "a"), (2, "b")], step
        version = glaive.dataset(uri).version
        first()
        assert glaive.dataset(uri).version == version == (2 if kind == "merge" else 1)
    assert step > 6


def test_a_crash_while_small_files_are_compacted_loses_and_doubles_nothing(
    uri: str, tmp_path: Path
) -> None:
    query = Query(uri, tmp_path / "c")
    query.run(0, [[(1, "a")]])
    glaive.dataset(uri).update_config({"glaive.auto_compact": "2"})
    step, killed, moments = 0, True, set()
    while killed:
        step += 1
        killed = killed_at_step(uri, lambda: query.run(1, [[(2, "b")]]), step)
        moments.add((len(rows(uri)), glaive.dataset(uri).manifest.num_fragments))
        query.run(1, [[(2, "b")]])
        assert rows(uri) == [(1, "a"), (2, "b")], step
        glaive.dataset(uri, version=2).restore()
    assert moments == {(1, 1), (2, 2), (2, 1)}, "before the batch, between, and after compaction"


# --- queries of Spark -----------------------------------------------------------------------------


class Places:
    """The dataset that a query writes, its checkpoint, and copies of both."""

    def __init__(self, folder: Path) -> None:
        self.target, self.checkpoint = folder / "target.lance", folder / "checkpoint"
        self.both = (self.target, self.checkpoint)
        self.copies = folder / "copies"
        self.copies.mkdir()

    def copy(self) -> None:
        """Keep what is there, unless the last copy has it."""
        found = [self._content(place) for place in self.both]
        for last in sorted(self.copies.iterdir())[-1:]:
            if found == [self._content(last / place.name) for place in self.both]:
                return
        made = self.copies / f"{len(list(self.copies.iterdir())):03}"
        for place in self.both:
            if place.exists():
                shutil.copytree(place, made / place.name)

    @staticmethod
    def _content(place: Path) -> dict[str, bytes]:
        files = [path for path in place.rglob("*") if path.is_file()]
        return {str(path.relative_to(place)): path.read_bytes() for path in files}

    def restore(self, copy: Path) -> None:
        """Take a copy back."""
        for place in self.both:
            shutil.rmtree(place, ignore_errors=True)
            if (copy / place.name).exists():
                shutil.copytree(copy / place.name, place)


def test_a_file_that_another_of_the_same_size_replaces_gets_a_copy(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.checkpoint.mkdir()
    for text in ("old", "old", "new"):
        (places.checkpoint / "0").write_text(text)
        places.copy()
    copies = [copy / "checkpoint" / "0" for copy in sorted(places.copies.iterdir())]
    assert [copy.read_text() for copy in copies] == ["old", "new"]


def copying(places: Places) -> type[LanceDataSource]:
    """The source, whose sinks keep copies before and after each step.

    Spark sends classes that are made in a function to its workers by value.
    """

    class CopyingWriter(LanceStreamWriter):
        def write(  # type: ignore[override]  # as in LanceStreamWriter
            self, iterator: Iterator[pa.RecordBatch]
        ) -> WriterCommitMessage:
            with before_changes(str(places.target), places.copy):
                return super().write(iterator)

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
            with before_changes(str(places.target), places.copy):
                super().commit(messages, batchId)
            places.copy()  # committed, and the checkpoint does not know it

    class Copying(LanceDataSource):
        @classmethod
        def name(cls) -> str:
            return "copying"

        def streamWriter(self, schema: StructType, overwrite: bool) -> CopyingWriter:
            writer: Any = super().streamWriter(schema, overwrite)
            return CopyingWriter(writer.job, writer.options, writer.app_id)

    return Copying


Start = Callable[[SparkSession, DataFrame, Places, bool], Any]
"""Starts a query from a frame; whether it keeps copies."""


def to_sink(mode: str = "append", **options: str) -> Start:
    def start(spark: SparkSession, frame: DataFrame, places: Places, copies: bool) -> Any:
        if copies:
            spark.dataSource.register(copying(places))
        writer = frame.coalesce(1).writeStream.format("copying" if copies else "lance")
        writer = writer.outputMode(mode).options(**options)
        writer = writer.option("checkpointLocation", str(places.checkpoint))
        return writer.trigger(availableNow=True).start(str(places.target))

    return start


def to_function(apply: Callable[[SparkSession, DataFrame, int, str], object]) -> Start:
    def start(spark: SparkSession, frame: DataFrame, places: Places, copies: bool) -> Any:
        def each(batch: DataFrame, number: int) -> None:
            if not copies:
                apply(spark, batch, number, str(places.target))
                return
            places.copy()
            with before_changes(str(places.target), places.copy):
                apply(spark, batch, number, str(places.target))
            places.copy()

        writer = frame.writeStream.foreachBatch(each)
        writer = writer.option("checkpointLocation", str(places.checkpoint))
        return writer.trigger(availableNow=True).start()

    return start


def merge_in_tasks(spark: SparkSession, batch: DataFrame, number: int, uri: str) -> None:
    """The recipe of ``docs/guide/streams.md``."""
    clauses = LanceTable.forPath(spark, uri).alias("t").merge(batch.alias("s"), "t.id = s.id")
    clauses.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute(txn=("merges", number))


def append_once(spark: SparkSession, batch: DataFrame, number: int, uri: str) -> None:
    del spark
    glaive.spark.write(batch, uri, mode="append", txn=("my pipeline", number))


IDS = [1, 2, 3, 4]
KINDS: dict[str, tuple[Start, list[int]]] = {
    "append": (to_sink(), IDS),
    "merge": (to_sink(merge_keys="id"), IDS),
    "complete": (to_sink("complete"), [0, 1]),
    "a merge in foreachBatch": (to_function(merge_in_tasks), IDS),
    "an append in foreachBatch": (to_function(append_once), IDS),
}


def ids(places: Places) -> list[int]:
    try:
        found: Any = glaive.dataset(places.target).to_table()["id"].to_pylist()
    except DatasetNotFoundError:
        return []
    return sorted(found)


@contextmanager
def ended(query: Any) -> Iterator[None]:
    """Wait for a query."""
    try:
        assert query.awaitTermination(600)
        yield
    finally:
        query.stop()


@pytest.mark.nightly(reason="starts a query for each change of a file")
@pytest.mark.parametrize("kind", KINDS)
def test_a_query_goes_on_from_any_point_between_write_commit_and_checkpoint(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    source, places = tmp_path / "source.lance", Places(tmp_path)
    for first in (1, 3):  # a batch each
        table = pa.table({"id": [first, first + 1], "n": [first, first]})
        glaive.write_dataset(table, source, mode="append")
    start, expected = KINDS[kind]
    if "foreachBatch" in kind:
        glaive.write_dataset(pa.table({"id": [0], "n": [0]}).slice(1), places.target)

    def run(copies: bool = False) -> None:
        reader = spark.readStream.format("lance").option("maxFilesPerTrigger", 1)
        frame = reader.load(str(source))
        if kind == "complete":
            frame = frame.selectExpr("id % 2 as id").groupBy("id").count()
        with ended(start(spark, frame, places, copies)):
            pass

    run(copies=True)
    assert ids(places) == expected
    version = glaive.dataset(places.target).version + 1
    more = pa.table({"id": [5], "n": [5]})
    glaive.write_dataset(more, source, mode="append")
    expected = expected if kind == "complete" else [*expected, 5]
    copies = sorted(places.copies.iterdir())
    moments = set()
    for copy in copies:
        places.restore(copy)
        begun, acknowledged = (
            len(list((places.checkpoint / name).glob("[0-9]*"))) for name in ("offsets", "commits")
        )
        moments.add((begun, acknowledged, len(ids(places))))
        run()
        assert ids(places) == expected, copy.name
        dataset = glaive.dataset(places.target)
        if kind != "append and compact":  # a later batch compacts what a crash left
            assert dataset.version == version, copy.name
        if kind == "complete":
            assert sorted(dataset.to_table()["count"].to_pylist()) == [2, 3], copy.name
        dataset.validate()
        LanceTable.forPath(spark, str(places.target)).vacuum(0, delete_unverified=True)
        assert stray_files(str(places.target)) == set(), copy.name
    # Each batch was met before and after its commit; none was acknowledged then.
    assert {begun - acknowledged for begun, acknowledged, _ in moments} == {1}
    assert {begun for begun, *_ in moments} == {1, 2}
    if kind != "complete":
        for batch in (1, 2):
            counts = {found for begun, _, found in moments if begun == batch}
            assert counts == {2 * batch - 2, 2 * batch}
    before = glaive.dataset(places.target).version
    run()  # all is acknowledged
    assert (ids(places), glaive.dataset(places.target).version) == (expected, before)
