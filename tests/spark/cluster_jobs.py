"""A driver: every kind of job once, each compared with what a list of rows says.

``python cluster_jobs.py ADDRESS URI [NAME=VALUE ...]`` with settings of Spark. Prints the name of
each job before it begins, and ``done`` at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import glaive
import glaive.spark
from glaive.errors import CommitConflictError
from glaive.spark import LanceTable

COUNT = 2000


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
        frame = glaive.spark.read(self.spark, self.uri, columns=["id", "n"])
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

    def vacuum(self) -> None:
        self.table.vacuum(0, delete_unverified=True)
        glaive.dataset(self.uri).validate()


KINDS: tuple[Callable[[Jobs], Any], ...] = (
    Jobs.write,
    Jobs.delete,
    Jobs.update,
    Jobs.merge,
    Jobs.merge_by_source,
    Jobs.drop_duplicates,
    Jobs.add_columns,
    Jobs.columns_from,
    Jobs.compact,
    Jobs.cluster_by,
    Jobs.index,
    Jobs.publish,
    Jobs.read,
    Jobs.overwrite,
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
