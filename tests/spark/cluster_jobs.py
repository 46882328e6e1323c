"""A driver: every kind of job once, each compared with what a list of rows says.

``python cluster_jobs.py ADDRESS URI [NAME=VALUE ...]`` with settings of Spark. Prints the name of
each job before it begins, and ``done`` at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import glaive
import glaive.spark
from glaive.errors import CommitConflictError, SchemaError
from glaive.spark import LanceTable

COUNT = 2000
FILES = 6
QUERIES = 40


HIDDEN = "MARKED"
"""A key that nothing may show."""


class Jobs:
    """A table, and the rows that it should have, by id."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self.spark, self.uri = spark, uri
        self.rows: dict[int, tuple[int, str]] = {}

    @property
    def table(self) -> LanceTable:
        return LanceTable.forPath(self.spark, self.uri)

    def check(self) -> None:
        found = glaive.dataset(self.uri).to_table(["id", "n", "text"]).to_pylist()
        assert len(found) == len(self.rows), (len(found), len(self.rows))
        assert {row["id"]: (row["n"], row["text"]) for row in found} == self.rows

    def write(self) -> None:
        frame = self.spark.range(0, COUNT, 1, 8).selectExpr(
            "id", "id % 7 as n", "concat('t', id % 50) as text"
        )
        glaive.spark.write(frame, self.uri, enable_stable_row_ids=True)
        self.rows = {number: (number % 7, f"t{number % 50}") for number in range(COUNT)}

    def ingest(self) -> None:
        folder = self._parquet("files", COUNT + 100)
        options: dict[str, Any] = {"mode": "append", "job_id": "files", "task_bytes": 1}
        first = glaive.spark.ingest(self.spark, str(folder), self.uri, **options)
        again = glaive.spark.ingest(self.spark, str(folder), self.uri, **options)
        assert (first.rows, first.repeated, again.repeated) == (FILES * 100, False, True)
        assert first.version == again.version
        numbers = range(COUNT + 100, COUNT + 100 + FILES * 100)
        self.rows |= {number: (number % 7, "file") for number in numbers}

    def ingest_merge(self) -> None:
        first = COUNT + 300  # most of these rows are there
        folder = self._parquet("merged", first)
        options: dict[str, Any] = {"mode": "merge", "merge_keys": "id", "task_bytes": 1}
        done = glaive.spark.ingest(self.spark, str(folder), self.uri, job_id="merged", **options)
        again = glaive.spark.ingest(self.spark, str(folder), self.uri, job_id="merged", **options)
        assert (done.rows, done.repeated, again.repeated) == (FILES * 100, False, True)
        self.rows |= {at: (at % 7, "file") for at in range(first, first + FILES * 100)}

    def ingest_folder(self) -> None:
        converted = f"{self.uri}.converted"
        source = str(self._parquet("parquet", 0))
        files = {"max_rows_per_file": 50}
        glaive.spark.ingest(self.spark, source, converted, write_options=files)
        found = glaive.dataset(converted).to_table().sort_by("id")
        assert found.equals(pq.read_table(source).sort_by("id"))

    def _parquet(self, name: str, start: int) -> Path:
        """A folder of files of 100 rows each, with ids from a number on."""
        folder = Path(f"{self.uri}.{name}")
        folder.mkdir()
        for number in range(FILES):
            ids = np.arange(100) + start + number * 100
            rows = pa.table({"id": ids, "n": ids % 7, "text": ["file"] * 100})
            pq.write_table(rows, folder / f"{number}.parquet")
        return folder

    def delete(self) -> None:
        self.table.delete("n = 6")
        self.rows = {number: row for number, row in self.rows.items() if row[0] != 6}

    def update(self) -> None:
        self.table.update("n = 5", {"n": "n + 100"})
        for number, (n, text) in self.rows.items():
            if n == 5:
                self.rows[number] = (105, text)

    def merge(self) -> None:
        source = self.spark.range(COUNT - 50, COUNT + 50, 1, 4).selectExpr(
            "id", "id * 2 as n", "'new' as text"
        )
        merge = self.table.alias("t").merge(source.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        self.rows |= {number: (number * 2, "new") for number in range(COUNT - 50, COUNT + 50)}

    def merge_by_source(self) -> None:
        source = self.spark.range(0, 10**6).selectExpr("id + 20 as id").alias("s")
        merge = self.table.alias("t").merge(source, "t.id = s.id")
        merge.whenNotMatchedBySourceDelete().execute()
        self.rows = {number: row for number, row in self.rows.items() if number >= 20}

    def drop_duplicates(self) -> None:
        kept: dict[tuple[int, str], int] = {}
        for number in sorted(self.rows):
            kept.setdefault(self.rows[number], number)
        self.table.dropDuplicates(["n", "text"], order_by="id")
        self.rows = {number: self.rows[number] for number in kept.values()}

    def add_columns(self) -> None:
        def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.record_batch([pa.compute.multiply(batch["n"], 2)], ["twice"])

        self.table.addColumns({"more": "n + 1"})
        self.table.addColumns(twice, read_columns=["n"])
        read = glaive.dataset(self.uri).to_table(["n", "more", "twice"]).to_pylist()
        assert all((row["more"], row["twice"]) == (row["n"] + 1, row["n"] * 2) for row in read)

    def columns_from(self) -> None:
        frame = self.spark.range(COUNT * 2).selectExpr("id", "id + 5 as far")
        self.table.addColumnsFrom(frame, on="id")
        read = glaive.dataset(self.uri).to_table(["id", "far"]).to_pylist()
        assert all(row["far"] == row["id"] + 5 for row in read)

    def update_columns_from(self) -> None:
        frame = self.spark.range(0, COUNT * 2, 2).selectExpr("id", "id * 3 as far")
        self.table.updateColumnsFrom(frame, on="id")
        read = glaive.dataset(self.uri).to_table(["id", "far"]).to_pylist()
        assert {row["id"] % 2 for row in read} == {0, 1}
        for row in read:
            assert row["far"] == (row["id"] + 5 if row["id"] % 2 else row["id"] * 3)

    def compact(self) -> None:
        assert self.table.optimize().executeCompaction()["fragments_removed"] > 1

    def cluster_by(self) -> None:
        self.table.optimize().executeClusterBy("n", target_rows_per_fragment=100)

    def index(self) -> None:
        self.table.createIndex("n", "btree")
        for n in (105, 3):
            expected = sum(row[0] == n for row in self.rows.values())
            assert glaive.dataset(self.uri).count_rows(f"n = {n}") == expected

    def publish(self) -> None:
        self.table.createBranch("checked").update("n = 3", {"text": "'three'"})
        self.table.publish("checked")
        for number, (n, _) in self.rows.items():
            if n == 3:
                self.rows[number] = (n, "three")

    def read(self) -> None:
        given = {"azure_storage_account_key": HIDDEN}
        glaive.spark.register_view(self.spark, "hidden", self.uri, storage_options=given)
        assert self.spark.sql("select 1 from hidden").count() == len(self.rows)
        columns = ["id", "n"]
        frame = glaive.spark.read(self.spark, self.uri, columns=columns, storage_options=given)
        (total,) = frame.selectExpr("sum(n)").collect()
        assert total[0] == sum(row[0] for row in self.rows.values())

    def overwrite(self) -> None:
        """A query's frame says which version it read, also where it came back from a server."""
        copy = f"{self.uri}.copy"
        glaive.write_dataset(glaive.dataset(self.uri).to_table(["id"]), copy)
        frame = glaive.spark.sql(self.spark, "select id + 1 as id from t", t=copy)
        glaive.write_dataset(pa.table({"id": [-1]}), copy, mode="append")
        try:
            glaive.spark.write(frame.dropDuplicates(), copy, mode="overwrite")
        except CommitConflictError:
            assert glaive.dataset(copy).count_rows() == len(self.rows) + 1
        else:
            raise AssertionError("an overwrite removed rows that its frame had not read")

    def export(self) -> None:
        folder = f"{self.uri}.out"
        columns = ["id", "n", "text"]
        counts = self.table.export("parquet", folder, columns=columns, job_id="out")
        assert counts == self.table.export("parquet", folder, columns=columns, job_id="out")
        assert len(list(Path(folder).iterdir())) == counts["num_files"] + 1
        found = pq.read_table(folder).to_pylist()
        assert len(found) == counts["num_rows"]
        assert {row["id"]: (row["n"], row["text"]) for row in found} == self.rows

    def search(self) -> None:
        """A frame of vectors joined with the nearest rows, by an index and without one."""
        vectors = np.random.default_rng(7).standard_normal((400, 8)).astype(np.float32)
        places = f"{self.uri}.places"
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8)
        texts = [f"word{number} of {number % 9}" for number in range(400)]
        rows = pa.table({"place": range(400), "v": column, "words": texts})
        glaive.write_dataset(rows, places, max_rows_per_file=100)
        table = LanceTable.forPath(self.spark, places)
        table.createIndex("v", "ivf_flat", num_partitions=4, segments=2)
        asked = [(number, vectors[number].tolist()) for number in range(QUERIES)]
        frame = self._spread(self.spark.createDataFrame(asked, "number int, q array<float>"))
        for use_index in (True, False):
            options: dict[str, Any] = {"use_index": use_index, "nprobes": 4}
            found = table.search(frame, "v", 3, query_column="q", select=["place"], **options)
            pairs = [(row["number"], row["place"]) for row in found.collect()]
            assert sorted(pairs) == sorted(_nearest(vectors, 3)), use_index

    def search_text(self) -> None:
        """A frame of words joined with the rows that have them."""
        table = LanceTable.forPath(self.spark, f"{self.uri}.places")
        table.createIndex("words", "inverted", segments=2)
        asked = [(number, f"word{number}") for number in range(QUERIES)]
        frame = self._spread(self.spark.createDataFrame(asked, "number int, query string"))
        found = table.searchText(frame, "words", 3, select=["place"]).collect()
        pairs = [(row["number"], row["place"]) for row in found]
        assert sorted(pairs) == [(number, number) for number in range(QUERIES)]

    def _spread(self, frame: DataFrame) -> DataFrame:
        return frame.repartition(4)

    def stream(self) -> None:
        """A dataset as a source, in batches of a file, appended to another one."""
        source, target = self._source(), f"{self.uri}.appended"
        self._run(source, target)
        glaive.write_dataset(glaive.dataset(source).to_table(), source, mode="append")
        self._run(source, target)
        found = glaive.dataset(target).to_table(["id"])["id"].to_pylist()
        assert sorted(found) == sorted([*range(90)] * 2)

    def stream_upserts(self) -> None:
        """Batches that repeat keys; the later value is left."""
        source, target = f"{self.uri}.source", f"{self.uri}.merged"
        later = pa.table({"id": range(60, 120), "n": [2] * 60})
        glaive.write_dataset(later, source, mode="append")
        self._run(source, target, merge_keys="id")
        found = glaive.dataset(target).to_table().sort_by("id").to_pylist()
        assert found == [{"id": at, "n": 1 if at < 60 else 2} for at in range(120)]

    def _source(self) -> str:
        source = f"{self.uri}.source"
        glaive.write_dataset(
            pa.table({"id": range(90), "n": [1] * 90}), source, max_rows_per_file=30
        )
        return source

    def _run(self, source: str, target: str, **options: str) -> None:
        """Run a query until it has read all there is."""
        frame = self.spark.readStream.format("lance").option("maxFilesPerTrigger", 1).load(source)
        writer = frame.writeStream.format("lance").options(**options)
        writer = writer.option("checkpointLocation", f"{target}.checkpoint")
        query = writer.trigger(availableNow=True).start(target)
        assert query.awaitTermination(900)
        query.stop()

    def optimize_indices(self) -> None:
        """Rows that other jobs moved since are indexed again, by the workers."""
        assert self._unindexed_rows() > 0
        made = self.table.optimizeIndices(num_indices_to_merge=0, segments=2, job_id="indices")
        assert self.table.optimizeIndices(job_id="indices") == made == self.table.version
        assert self._unindexed_rows() == 0
        for n in (105, 3):
            expected = sum(row[0] == n for row in self.rows.values())
            assert glaive.dataset(self.uri).count_rows(f"n = {n}") == expected

    def _unindexed_rows(self) -> int:
        rows: int = glaive.dataset(self.uri).stats.index_stats("n_idx")["num_unindexed_rows"]
        return rows

    def vacuum(self) -> None:
        self.table.vacuum(0, delete_unverified=True)
        glaive.dataset(self.uri).validate()

    def rules(self) -> None:
        """Statements, frames, merges and feeds of changes number and check rows of a table."""
        uri = f"{self.uri}.rules"

        def run(statement: str) -> Any:
            return glaive.spark.sql(self.spark, statement, r=uri)

        run(
            "CREATE TABLE r (key bigint GENERATED ALWAYS AS IDENTITY, id bigint NOT NULL, "
            "price double DEFAULT 2, twice double GENERATED ALWAYS AS (price * 2), "
            "CONSTRAINT positive CHECK (price > 0))"
        )
        run("INSERT INTO r VALUES (DEFAULT, -2, DEFAULT, DEFAULT), (DEFAULT, -1, 1.5, DEFAULT)")
        ids = self.spark.range(0, 1000, 1, 4)
        glaive.spark.write(ids, uri, mode="append")
        run("UPDATE r SET price = DEFAULT WHERE id = -1")
        table = LanceTable.forPath(self.spark, uri)
        source = self.spark.range(990, 1010).selectExpr("id", "double(7) as price").alias("s")
        merge = table.alias("r").merge(source, "r.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        run("ALTER TABLE r ADD COLUMN ts bigint")
        feed = source.selectExpr("id + 15 as id", "price", "bigint(1) as ts")
        table.applyChanges(feed, "id", "ts")
        found = glaive.dataset(uri)
        found.validate()
        rows = found.to_table(["key", "id", "twice"]).to_pydict()
        assert sorted(rows["id"]) == [-2, -1, *range(1025)]
        assert len(set(rows["key"])) == 1027
        expected = [14.0 if number >= 990 else 4.0 for number in rows["id"]]
        assert rows["twice"] == expected
        with suppress(SchemaError):
            run("INSERT INTO r (id, price) VALUES (2000, -1)")
        assert found.latest_version == found.version
        assert "positive" in run("SHOW CREATE TABLE r").first()[0]
        assert "Filter" in run("EXPLAIN SELECT id FROM r WHERE price > id").first()[0]
        joined = "SELECT a.id FROM r a JOIN r b ON a.id = b.id WHERE a.id BETWEEN 3 AND 6"
        assert len(run(joined).collect()) == 4
        assert "id among 4 keys of " in run(f"EXPLAIN {joined}").first()[0]


def _nearest(vectors: Any, k: int) -> list[tuple[int, int]]:
    """Each query with its nearest rows, as NumPy finds them."""
    pairs = []
    for number in range(QUERIES):
        distances = ((vectors - vectors[number]) ** 2).sum(axis=1)
        pairs += [(number, int(at)) for at in np.argsort(distances)[:k]]
    return pairs


KINDS: tuple[Callable[[Jobs], Any], ...] = (
    Jobs.write,
    Jobs.ingest,
    Jobs.ingest_merge,
    Jobs.ingest_folder,
    Jobs.delete,
    Jobs.update,
    Jobs.merge,
    Jobs.merge_by_source,
    Jobs.drop_duplicates,
    Jobs.add_columns,
    Jobs.columns_from,
    Jobs.update_columns_from,
    Jobs.compact,
    Jobs.cluster_by,
    Jobs.index,
    Jobs.publish,
    Jobs.read,
    Jobs.overwrite,
    Jobs.export,
    Jobs.search,
    Jobs.search_text,
    Jobs.stream,
    Jobs.stream_upserts,
    Jobs.optimize_indices,
    Jobs.rules,
    Jobs.vacuum,
)


def main() -> None:
    address, uri, *settings = sys.argv[1:]
    conf: dict[str, Any] = dict(setting.split("=", 1) for setting in settings)
    where = "remote" if address.startswith("sc://") else "master"
    spark = glaive.spark.session("cluster jobs", **{where: address}, **conf)
    jobs = Jobs(spark, uri)
    for kind in KINDS:
        print(kind.__name__, flush=True)
        kind(jobs)
        jobs.check()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
