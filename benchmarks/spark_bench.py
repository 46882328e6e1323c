"""Measure the ``lance`` source in Spark: ``python -m benchmarks.spark_bench``.

The baseline of reads is the minimum for a Python source: it passes memory-mapped Arrow files of
the same columns to Spark. The baseline of writes is Spark's Parquet writer (zstd) on the same
frame. All runs are interleaved in one session; the table has medians.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import glaive
import glaive.spark

DIMENSION = 128
FILES = 4
NARROW = ["id", "x", "s"]
GOALS = {"read, 3 columns": 1.2, "read, all columns": 1.2, "write": 1.0}


class ArrowReader(DataSourceReader):
    """A reader that yields the batches of Arrow files, one task per file."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(Path(self.directory).iterdir())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with pa.memory_map(partition.value) as source:
            file = pa.ipc.open_file(source)
            for number in range(file.num_record_batches):
                yield file.get_batch(number)


class ArrowFiles(DataSource):
    """Arrow IPC files as a frame: the minimum cost of a Python source."""

    @classmethod
    def name(cls) -> str:
        return "arrow_files"

    def schema(self) -> str:
        return self.options["ddl"]

    def reader(self, schema: object) -> DataSourceReader:
        return ArrowReader(self.options["path"])


# Pickle the classes of this module by value: workers cannot import it.
for _class in (ArrowReader, ArrowFiles):
    _class.__module__ = "__main__"


def table(rows: int) -> pa.Table:
    rng = np.random.default_rng(0)
    vectors = pa.array(rng.random(rows * DIMENSION, np.float32))
    return pa.table(
        {
            "id": pa.array(rng.permutation(rows)),
            "x": pa.array(rng.random(rows)),
            "s": pa.array([f"customer-{n % 5000:05d}-{n}" for n in range(rows)]),
            "v": pa.FixedSizeListArray.from_arrays(vectors, DIMENSION),
        }
    )


def prepare(root: Path, rows: int) -> None:
    made = table(rows)
    lists = pa.ListArray.from_arrays(
        np.arange(rows + 1, dtype=np.int32) * DIMENSION, made["v"].combine_chunks().flatten()
    )
    plain = made.set_column(3, "v", lists)
    glaive.write_dataset(made, str(root / "t.lance"), max_rows_per_file=-(-rows // FILES))
    for name, columns in (("narrow", NARROW), ("wide", plain.column_names)):
        (root / name).mkdir()
        for part in range(FILES):
            start = rows * part // FILES
            piece = plain.select(columns).slice(start, rows * (part + 1) // FILES - start)
            with pa.ipc.new_file(root / name / f"{part}.arrow", piece.schema) as sink:
                sink.write_table(piece, max_chunksize=16_384)
    (root / "parquet").mkdir()
    for part in range(FILES):
        start = rows * part // FILES
        piece = plain.slice(start, rows * (part + 1) // FILES - start)
        pq.write_table(piece, root / "parquet" / f"{part}.parquet", compression="none")


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def arrow(spark: SparkSession, directory: Path, ddl: str) -> DataFrame:
    return spark.read.format("arrow_files").option("ddl", ddl).load(str(directory))


def comparisons(
    spark: SparkSession, root: Path
) -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
    """Return pairs by name: glaive's run and its baseline."""
    uri = str(root / "t.lance")
    narrow, wide = "id long, x double, s string", "id long, x double, s string, v array<float>"
    frame = spark.read.parquet(str(root / "parquet"))

    def write_ours() -> None:
        glaive.spark.write(
            frame, str(root / "out.lance"), "overwrite", vector_columns={"v": DIMENSION}
        )

    def write_parquet() -> None:
        frame.write.option("compression", "zstd").mode("overwrite").parquet(str(root / "out"))

    return {
        "read, 3 columns": (
            lambda: noop(glaive.spark.read(spark, uri, columns=NARROW)),
            lambda: noop(arrow(spark, root / "narrow", narrow)),
        ),
        "read, all columns": (
            lambda: noop(glaive.spark.read(spark, uri)),
            lambda: noop(arrow(spark, root / "wide", wide)),
        ),
        "write": (write_ours, write_parquet),
    }


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--only", default="", help="part of a name")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="spark-bench-"))
    spark = glaive.spark.session(master=options.master, **{"spark.log.level": "ERROR"})
    spark.dataSource.register(ArrowFiles)
    try:
        prepare(root, options.rows)
        print(
            f"{'':20} {'glaive':>8} {'baseline':>9} {'ratio':>6} {'goal':>5}   (seconds, medians)"
        )
        for name, pair in comparisons(spark, root).items():
            if options.only not in name:
                continue
            times = [[seconds(work) for work in pair] for _ in range(options.repeat + 1)][1:]
            ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
            ratio = statistics.median(one / other for one, other in times)
            goal = GOALS[name]
            missed = "  missed" if ratio > goal else ""
            print(f"{name:20} {ours:8.2f} {theirs:9.2f} {ratio:6.2f} {goal:5.1f}{missed}")
    finally:
        spark.stop()
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
