"""Compare the steps of a table's life with Parquet and Delta: ``make bench-spark``.

The tables are lineitem and orders of TPC-H. All steps first run untimed with few rows. Then each
step runs once for each engine, in the order of a user. CPU time includes this process, Java and
all workers.

- Ingests and queries run several times, and the cheapest run counts. Java compiles code during the
  first large ingest, which takes longer than a later ingest.
- Parquet has no changes: a step reads all rows as a frame and writes them again.
- Delta is ``deltalake``, without Spark, if it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

import glaive
import glaive.spark
from benchmarks.tpch_queries import QUERIES

KEYS = ("l_orderkey", "l_linenumber")
ONE_PERCENT = "l_orderkey % 100 = 7"
OTHER_PERCENT = "l_orderkey % 100 = 13"

GOALS = {
    "ingest in tasks": 0.4,
    "ingest of a frame": 1.0,
    "upsert 1 %": 0.2,
    "delete 1 %": 0.2,
    "column by SQL": 0.2,
    "compaction": 0.2,
    "queries": 1.3,
    "bytes of lineitem": 1.15,
}
"""Maximum ratio of glaive's cost to the cost of Parquet on Spark."""

WARM_SCALE = 0.001
"""Scale factor of the tables for untimed steps."""

REPEATED = ("ingest of a frame", "ingest in tasks")
"""Repeatable steps: they write new tables."""

SAMPLE_SECONDS = 0.05
"""Seconds between samples. CPU time of a process after its last sample is lost."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and CPU time in seconds, and the peak of resident memory in bytes."""

    wall: float
    cpu: float
    peak: int


class Processes:
    """The processes of the benchmark: this process, Java and workers, running or ended."""

    def __init__(self) -> None:
        self._own = psutil.Process()
        self._seconds: dict[tuple[int, float], float] = {}
        """CPU time of each process at its last sample, by id and start time: ids are reused."""

    def sample(self) -> int:
        """Record the CPU time of all processes; return bytes of their resident memory."""
        resident = 0
        for process in [self._own, *self._own.children(recursive=True)]:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    # Exclude ended children: they have separate samples.
                    started = (process.pid, process.create_time())
                    self._seconds[started] = times.user + times.system
                    resident += process.memory_info().rss
            except psutil.Error:  # it has ended; its last sample counts
                continue
        return resident

    def cpu(self) -> float:
        """Return the CPU seconds of all processes sampled so far."""
        self.sample()
        return sum(self._seconds.values())


def measured(work: Callable[[], object]) -> Cost:
    """Run work once and return its cost."""
    processes = Processes()
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(SAMPLE_SECONDS):
            peak[0] = max(peak[0], processes.sample())

    cpu, wall = processes.cpu(), time.perf_counter()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    work()
    wall = time.perf_counter() - wall
    done.set()
    watcher.join()
    return Cost(wall, processes.cpu() - cpu, peak[0])


def cheapest(costs: Iterable[Cost]) -> Cost:
    """Return the cost with the least CPU time."""
    return min(costs, key=lambda cost: cost.cpu)


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


class Glaive:
    """Lance, by the tasks of ``LanceTable``."""

    def __init__(self, spark: SparkSession, source: Path, root: Path) -> None:
        self.spark, self.source, self.root = spark, source, root
        self.tables = {name: str(root / f"{name}.lance") for name in ("lineitem", "orders")}

    def table(self) -> Any:
        return glaive.spark.LanceTable.forPath(self.spark, self.tables["lineitem"])

    def steps(self) -> dict[str, Callable[[], object]]:
        return {
            "ingest of a frame": lambda: glaive.spark.write(
                self.spark.read.parquet(str(self.source / "lineitem")), str(self.root / "f.lance")
            ),
            "ingest in tasks": lambda: [
                glaive.spark.ingest(self.spark, str(self.source / name), uri, format="parquet")
                for name, uri in self.tables.items()
            ],
            "upsert 1 %": self.upsert,
            "delete 1 %": lambda: self.table().delete(OTHER_PERCENT),
            "column by SQL": lambda: self.table().addColumns(
                {"l_net": "l_extendedprice * (1 - l_discount)"}
            ),
            "compaction": lambda: self.table().optimize().executeCompaction(),
            "clustering": lambda: self.table().optimize().executeClusterBy("l_shipdate"),
        }

    def upsert(self) -> None:
        changes = self.spark.read.parquet(str(self.source / "changes")).alias("s")
        condition = " and ".join(f"t.{key} = s.{key}" for key in KEYS)
        merge = self.table().alias("t").merge(changes, condition)
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    def query(self, text: str) -> None:
        noop(glaive.spark.sql(self.spark, text, **self.tables))

    def lineitem_bytes(self) -> int:
        return int(glaive.dataset(self.root / "f.lance").manifest.columns.file_bytes)


class Parquet:
    """Parquet by frames of Spark, with zstd: each step writes the table again."""

    def __init__(self, spark: SparkSession, source: Path, root: Path) -> None:
        self.spark, self.source, self.root = spark, source, root
        self.current, self.made = root / "lineitem.0", 0

    def frame(self) -> DataFrame:
        return self.spark.read.parquet(str(self.current))

    def save(self, frame: DataFrame, path: Path) -> None:
        frame.write.option("compression", "zstd").parquet(str(path))

    def rewrite(self, frame: DataFrame) -> None:
        self.made += 1
        target = self.root / f"lineitem.{self.made}"
        self.save(frame, target)
        self.current = target

    def ingest(self) -> None:
        for name, path in (
            ("lineitem", self.root / "lineitem.0"),
            ("orders", self.root / "orders"),
        ):
            self.save(self.spark.read.parquet(str(self.source / name)), path)

    def steps(self) -> dict[str, Callable[[], object]]:
        lineitem = self.spark.read.parquet(str(self.source / "lineitem"))
        return {
            "ingest of a frame": lambda: self.save(lineitem, self.root / "f"),
            "ingest in tasks": self.ingest,
            "upsert 1 %": self.upsert,
            "delete 1 %": lambda: self.rewrite(self.frame().where(f"not ({OTHER_PERCENT})")),
            "column by SQL": lambda: self.rewrite(
                self.frame().selectExpr("*", "l_extendedprice * (1 - l_discount) as l_net")
            ),
            "compaction": lambda: self.rewrite(self.frame().coalesce(2)),
            "clustering": lambda: self.rewrite(
                self.frame().repartitionByRange("l_shipdate").sortWithinPartitions("l_shipdate")
            ),
        }

    def upsert(self) -> None:
        changes = self.spark.read.parquet(str(self.source / "changes"))
        kept = self.frame().join(changes.select(*KEYS), list(KEYS), "left_anti")
        self.rewrite(kept.unionByName(changes))

    def query(self, text: str) -> None:
        self.frame().createOrReplaceTempView("lineitem")
        self.spark.read.parquet(str(self.root / "orders")).createOrReplaceTempView("orders")
        noop(self.spark.sql(text))

    def lineitem_bytes(self) -> int:
        return sum(file.stat().st_size for file in (self.root / "f").glob("*.parquet"))


class Delta:
    """Delta by the package ``deltalake``, without queries: it has another engine than Spark."""

    def __init__(self, source: Path, root: Path) -> None:
        self.source, self.root = source, root
        self.tables = {name: str(root / name) for name in ("lineitem", "orders")}

    def table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.tables["lineitem"])

    def ingest(self, name: str, path: str) -> None:
        import pyarrow.dataset as pads
        from deltalake import write_deltalake

        rows = pads.dataset(self.source / name).scanner().to_reader()
        write_deltalake(path, rows)

    def steps(self) -> dict[str, Callable[[], object]]:
        return {
            "ingest of a frame": partial(self.ingest, "lineitem", str(self.root / "f")),
            "ingest in tasks": self.ingest_all,
            "upsert 1 %": self.upsert,
            "delete 1 %": lambda: self.table().delete(OTHER_PERCENT),
            "compaction": self.compact,
            "clustering": lambda: self.table().optimize.z_order(["l_shipdate"]),
        }

    def ingest_all(self) -> None:
        for name, path in self.tables.items():
            self.ingest(name, path)

    def compact(self) -> None:
        self.table().optimize.compact()

    def upsert(self) -> None:
        import pyarrow.parquet as pq

        condition = " and ".join(f"t.{key} = s.{key}" for key in KEYS)
        merge = self.table().merge(
            pq.read_table(self.source / "changes"), condition, source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def lineitem_bytes(self) -> int:
        return sum(file.stat().st_size for file in (self.root / "f").glob("*.parquet"))


def generate(spark: SparkSession, scale: float, parts: int, source: Path) -> None:
    """Write the tables as Parquet files, and 1 % of lineitem with other prices."""
    tables = "--tables=lineitem,orders"
    command = ["tpchgen-cli", "parquet", "-s", str(scale), tables, f"--parts={parts}"]
    subprocess.run([*command, f"--output-dir={source}"], check=True, capture_output=True)
    changed = spark.read.parquet(str(source / "lineitem")).where(ONE_PERCENT)
    changed = changed.withColumn(
        "l_extendedprice", (changed["l_extendedprice"] + 1).cast("decimal(15,2)")
    )
    changed.write.parquet(str(source / "changes"))


def engines_for(spark: SparkSession, source: Path, root: Path) -> dict[str, Any]:
    """Return all installed engines, with tables below a folder."""
    root.mkdir()
    found: dict[str, Any] = {
        "glaive": Glaive(spark, source, root),
        "Parquet": Parquet(spark, source, root),
    }
    if importlib.util.find_spec("deltalake") is not None:
        (root / "delta").mkdir()
        found["Delta"] = Delta(source, root / "delta")
    return found


def repeated(
    spark: SparkSession, source: Path, root: Path, name: str, repeat: int
) -> list[dict[str, Cost]]:
    """Measure a step several times for each engine, each time in new tables."""
    costs = []
    for turn in range(repeat):
        again = root / f"again {turn}"
        engines = engines_for(spark, source, again)
        costs.append({engine: measured(made.steps()[name]) for engine, made in engines.items()})
        shutil.rmtree(again)
    return costs


def keep_bytecode(folder: Path) -> None:
    """Keep bytecode for workers, as an installed package does.

    With ``PYTHONDONTWRITEBYTECODE``, each worker would compile glaive.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder)


def show(name: str, costs: Mapping[str, Cost]) -> None:
    ours, parquet = costs["glaive"], costs["Parquet"]
    columns = "".join(
        f"{cost.wall:8.1f}{cost.cpu:8.1f}{cost.peak / 1e6:8.0f}" for cost in costs.values()
    )
    print(f"{name:20}{columns}{_ratio(name, ours.cpu / parquet.cpu)}", flush=True)


def _ratio(name: str, ratio: float) -> str:
    goal = GOALS.get(name)
    if goal is None:
        return f"{ratio:8.2f}"
    return f"{ratio:8.2f}  goal {goal:.2f}{'' if ratio <= goal else '  missed'}"


def main() -> None:
    """Print a line for each step, then one for each query."""
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01, help="scale factor of TPC-H")
    parser.add_argument("--parts", type=int, default=4, help="files of each table")
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of ingests and queries; the best counts"
    )
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-spark-"))
    keep_bytecode(root / "bytecode")
    spark = glaive.spark.session(
        master=options.master, **{"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": 4}
    )
    try:
        source = root / "source"
        generate(spark, options.scale, options.parts, source)
        engines = engines_for(spark, source, root / "tables")
        lance, parquet = engines["glaive"], engines["Parquet"]
        if "Delta" not in engines:
            print("Delta is left out: deltalake is not installed")
        # Run all steps once untimed on few rows, to start and warm Java and the workers.
        generate(spark, WARM_SCALE, 2, root / "few")
        for engine in engines_for(spark, root / "few", root / "warm").values():
            for step in engine.steps().values():
                step()
        titles = "".join(f"{name + ': wall s':>16}{'cpu s, MB':>8}" for name in engines)
        print(f"scale factor {options.scale}\n{'':20}{titles}   cpu, glaive / Parquet")
        for name in lance.steps():
            turns = options.repeat - 1 if name in REPEATED else 0
            runs = repeated(spark, source, root, name, turns)
            runs.append(
                {
                    engine: measured(made.steps()[name])
                    for engine, made in engines.items()
                    if name in made.steps()
                }
            )
            show(name, {engine: cheapest(run[engine] for run in runs) for engine in runs[-1]})
        sums = {"glaive": 0.0, "Parquet": 0.0}
        for name, text in QUERIES.items():
            costs = {
                engine: cheapest(measured(partial(made.query, text)) for _ in range(options.repeat))
                for engine, made in (("glaive", lance), ("Parquet", parquet))
            }
            for engine, cost in costs.items():
                sums[engine] += cost.cpu
            show(name, costs)
        print(f"{'queries':20}{_ratio('queries', sums['glaive'] / sums['Parquet'])}")
        size = lance.lineitem_bytes() / parquet.lineitem_bytes()
        print(f"{'bytes of lineitem':20}{_ratio('bytes of lineitem', size)}")
    finally:
        spark.stop()
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
