"""Compare the steps of a table's life with Parquet and Delta: ``make bench-spark``.

The tables are lineitem and orders of TPC-H. All steps and queries first run untimed with few rows.
Then each step runs once for each engine, in the order of a user. CPU time includes this process,
Java and all workers.

- Ingests and queries run several times, the engines in turn, and the cheapest run counts. Java
  compiles code during the first large ingest, which takes longer than a later ingest.
- Parquet has no changes: a step reads all rows as a frame and writes them again.
- Delta is ``deltalake``, without Spark, if it is installed.
- Steps of a single engine have no ratio, such as indices and searches.

``--keep`` writes the page ``docs/figures-spark.md``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import glaive
import glaive.spark
from benchmarks.tpch_queries import QUERIES

KEYS = ("l_orderkey", "l_linenumber")
ONE_PERCENT = "l_orderkey % 100 = 7"
OTHER_PERCENT = "l_orderkey % 100 = 13"
PUBLISHED = "l_orderkey % 100 = 29"

GOALS = {
    "ingest in tasks": 0.4,
    "ingest of a frame": 1.0,
    "upsert 1 %": 0.2,
    "delete 1 %": 0.2,
    "column by SQL": 0.2,
    "compaction": 0.2,
    "queries": 1.0,
    "bytes of lineitem": 1.0,
}
"""Maximum ratio of glaive's cost to the cost of Parquet on Spark."""

WARM_SCALE = 0.001
"""Scale factor of the tables for untimed steps."""

TITLES = {
    "ingest of a frame": "write a frame of `lineitem`",
    "ingest in tasks": "ingest `lineitem` and `orders`",
    "column by SQL": "add a column by SQL",
    "index of a key": "build an index of a key",
    "publish 1 %": "update 1 % on a branch and publish it",
    "stream of files": "append the files of `orders` by a stream",
    "vectors": "write `vectors`",
    "vector index": "build a vector index",
}
"""How the page calls steps whose names need an explanation."""

MEMORY = (
    "Peaks of resident memory. Pages that several processes share count in each of them. The "
    "engines share processes. So the memory of a step includes memory that an earlier engine still "
    "holds."
)
"""What the table of memory shows."""

REPEATED = ("ingest of a frame", "ingest in tasks")
"""Repeatable steps: they write new tables."""

DIMENSION = 128
"""Numbers of a vector of the table ``vectors``."""

SEARCHES = 1000
"""Rows of the frame of the search join."""

SAMPLE_SECONDS = 0.05
"""Seconds between samples. CPU time of a process after its last sample is lost."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and CPU time in seconds, and peaks of resident memory in bytes.

    Pages that several processes share count in each of them.
    """

    wall: float
    cpu: float
    driver: int
    """This process and its Java process."""
    workers: int
    """Executors and their Python processes."""


class Processes:
    """The processes of the benchmark: this process, Java and workers, running or ended."""

    def __init__(self) -> None:
        self._own = psutil.Process()
        self._seconds: dict[tuple[int, float], float] = {}
        """CPU time of each process at its last sample, by id and start time: ids are reused."""
        self._works: dict[tuple[int, float], bool] = {}

    def sample(self) -> tuple[int, int]:
        """Record the CPU time of all processes; return resident bytes of driver and workers."""
        resident = [0, 0]
        for process in [self._own, *self._own.children(recursive=True)]:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    # Exclude ended children: they have separate samples.
                    started = (process.pid, process.create_time())
                    self._seconds[started] = times.user + times.system
                    if started not in self._works:
                        self._works[started] = _is_worker(process)
                    resident[self._works[started]] += process.memory_info().rss
            except psutil.Error:  # it has ended; its last sample counts
                continue
        return resident[0], resident[1]

    def cpu(self) -> float:
        """Return the CPU seconds of all processes sampled so far."""
        self.sample()
        return sum(self._seconds.values())


def _is_worker(process: psutil.Process) -> bool:
    command = " ".join(process.cmdline())
    return "CoarseGrainedExecutorBackend" in command or "pyspark.daemon" in command


def measured(work: Callable[[], object]) -> Cost:
    """Run work once and return its cost."""
    processes = Processes()
    driver, workers = ([resident] for resident in processes.sample())
    done = threading.Event()

    def watch() -> None:
        while not done.wait(SAMPLE_SECONDS):
            for peak, now in zip((driver, workers), processes.sample(), strict=True):
                peak[0] = max(peak[0], now)

    cpu, wall = processes.cpu(), time.perf_counter()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    work()
    wall = time.perf_counter() - wall
    done.set()
    watcher.join()
    return Cost(wall, processes.cpu() - cpu, driver[0], workers[0])


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
            "index of a key": lambda: self.table().createIndex("l_orderkey", "btree"),
            "clustering": lambda: self.table().optimize().executeClusterBy("l_shipdate"),
            "vacuum": lambda: self.table().vacuum(0),
            "publish 1 %": self.publish,
            "stream of files": lambda: stream_files(
                self.spark, self.source, self.root, "lance", str(self.root / "streamed.lance")
            ),
            "vectors": lambda: glaive.spark.write(
                self.spark.read.parquet(str(self.source / "vectors")),
                str(self.vectors),
                vector_columns={"vector": DIMENSION},
            ),
            "vector index": lambda: self.vector_table().createIndex("vector", "ivf_pq"),
            "search join": self.search,
        }

    @property
    def vectors(self) -> Path:
        return self.root / "vectors.lance"

    def vector_table(self) -> Any:
        return glaive.spark.LanceTable.forPath(self.spark, str(self.vectors))

    def search(self) -> None:
        queries = self.spark.read.parquet(str(self.source / "vectors")).limit(SEARCHES)
        queries = queries.withColumnRenamed("id", "query")
        noop(self.vector_table().search(queries, "vector", 10, nprobes=8))

    def publish(self) -> None:
        self.table().createBranch("checked")
        self.table().forBranch("checked").update(PUBLISHED, {"l_comment": "'checked'"})
        self.table().publish("checked")

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
            "stream of files": lambda: stream_files(
                self.spark, self.source, self.root, "parquet", str(self.root / "streamed")
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
            "clustering": lambda: self.table().optimize.z_order(
                ["l_shipdate"], max_spill_size=4 << 30
            ),
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


class Fragments:
    """A table of many fragments of ten rows, as small appends leave them."""

    def __init__(self, spark: SparkSession, root: Path, count: int) -> None:
        self.spark, self.uri, self.rows = spark, str(root / "fragments.lance"), 10 * count

    def table(self) -> Any:
        return glaive.spark.LanceTable.forPath(self.spark, self.uri)

    def steps(self) -> dict[str, Callable[[], object]]:
        return {
            "write fragments": self.write,
            "read all rows": lambda: noop(glaive.spark.read(self.spark, self.uri)),
            "read a range": lambda: noop(
                glaive.spark.read(self.spark, self.uri, filter="id between 1000 and 1100")
            ),
            "upsert 1,000 rows": self.upsert,
            "delete 1,000 rows": lambda: self.table().delete(f"id % {self.rows // 1000} = 7"),
            "index": lambda: self.table().createIndex("id", "btree"),
            "compaction": lambda: self.table().optimize().executeCompaction(),
            "vacuum": lambda: self.table().vacuum(0),
        }

    def write(self) -> None:
        rows = pa.table({"id": range(self.rows), "text": [f"row {i}" for i in range(self.rows)]})
        glaive.write_dataset(rows, self.uri, max_rows_per_file=10)

    def upsert(self) -> None:
        step = self.rows // 1000
        changes = self.spark.range(0, self.rows, step).selectExpr("id", "'changed' as text")
        merge = self.table().alias("t").merge(changes.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    def check(self) -> None:
        """Raise unless the table has the rows that the steps leave."""
        dataset = glaive.dataset(self.uri)
        found = dataset.count_rows(), dataset.count_rows("text = 'changed'")
        if found != (self.rows - 1000, 1000):
            raise RuntimeError(f"{self.uri}: {found[0]} rows, {found[1]} of them changed")


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
    rows = spark.range(0, max(round(200_000 * scale), SEARCHES), 1, parts)
    rows.mapInArrow(vectors, "id bigint, vector array<float>").write.parquet(
        str(source / "vectors")
    )


def vectors(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Return rows of this number with vectors in 500 clusters."""
    centres = np.random.default_rng(7).normal(size=(500, DIMENSION)).astype(np.float32)
    for batch in batches:
        ids = batch.column(0).to_numpy()
        random = np.random.default_rng(int(ids[0]))
        noise = random.normal(scale=0.3, size=(len(ids), DIMENSION)).astype(np.float32)
        values = centres[random.integers(0, 500, len(ids))] + noise
        lists = pa.FixedSizeListArray.from_arrays(values.ravel(), DIMENSION)
        yield pa.record_batch(
            [batch.column(0), lists.cast(pa.list_(pa.float32()))], ["id", "vector"]
        )


def stream_files(spark: SparkSession, source: Path, root: Path, form: str, target: str) -> None:
    """Append the files of orders by a stream, one file for each batch."""
    files = spark.readStream.schema(spark.read.parquet(str(source / "orders")).schema)
    rows = files.option("maxFilesPerTrigger", 1).parquet(str(source / "orders"))
    writer = rows.writeStream.format(form).option("compression", "zstd")
    if form == "lance":
        writer = rows.writeStream.format(form)
    writer = writer.option("checkpointLocation", str(root / f"{form}.checkpoint"))
    writer.trigger(availableNow=True).start(target).awaitTermination()


def stream_for(spark: SparkSession, root: Path, seconds: float) -> str:
    """Append 1,000 rows a second to a table that compacts itself; say how batches changed."""
    target = str(root / "steady.lance")
    glaive.write_dataset(
        pa.table(
            {"timestamp": pa.array([], pa.timestamp("us", "UTC")), "value": pa.array([], "int64")}
        ),
        target,
    ).update_config({"glaive.auto_compact": "true"})
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    query = (
        rows.writeStream.format("lance")
        .option("checkpointLocation", str(root / "steady.checkpoint"))
        .trigger(processingTime="1 second")
        .start(target)
    )
    processes, memory = Processes(), []
    cpu, begun = processes.cpu(), time.perf_counter()
    while time.perf_counter() - begun < seconds:
        if query.awaitTermination(min(5.0, seconds)):
            raise RuntimeError("the stream ended")
        memory.append(sum(processes.sample()))
    query.stop()
    used = processes.cpu() - cpu
    batches = [each for each in query.recentProgress if each.numInputRows]
    dataset = glaive.dataset(target)
    values = dataset.to_table(columns=["value"])["value"].to_numpy()
    if not np.array_equal(np.sort(values), np.arange(len(values))):
        raise RuntimeError(f"{target}: rows are lost or doubled")
    tenth = max(1, len(batches) // 10)
    first, last = (
        np.median([each.durationMs["triggerExecution"] for each in part])
        for part in (batches[:tenth], batches[-tenth:])
    )
    return (
        f"A stream of {seconds:,.0f} s at 1,000 rows a second wrote {len(values):,} rows, each "
        f"once, in {len(batches):,} batches. The table has {dataset.version:,} versions and "
        f"{len(dataset.get_fragments()):,} fragments. The stream took {used:,.0f} s of CPU. The "
        f"median batch took {first:.0f} ms in the first tenth of the batches, and {last:.0f} ms in "
        f"the last tenth. Resident memory was {memory[len(memory) // 10] / 1e6:,.0f} MB after a "
        f"tenth of the time, and {memory[-1] / 1e6:,.0f} MB at the end."
    )


def engines_for(
    spark: SparkSession, source: Path, root: Path, wanted: Iterable[str]
) -> dict[str, Any]:
    """Return the wanted engines that are installed, with tables below a folder."""
    root.mkdir()
    made: dict[str, Callable[[], Any]] = {
        "glaive": lambda: Glaive(spark, source, root),
        "Parquet": lambda: Parquet(spark, source, root),
    }
    if importlib.util.find_spec("deltalake") is not None:
        (root / "delta").mkdir()
        made["Delta"] = lambda: Delta(source, root / "delta")
    return {name: made[name]() for name in wanted if name in made}


def run_step(engines: Mapping[str, Any], name: str) -> dict[str, Cost]:
    """Measure a step once for each engine that has it."""
    return {
        engine: measured(made.steps()[name])
        for engine, made in engines.items()
        if name in made.steps()
    }


def keep_bytecode(folder: Path) -> None:
    """Keep bytecode for workers, as an installed package does.

    With ``PYTHONDONTWRITEBYTECODE``, each worker would compile glaive.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder)


def _ratio(name: str, ratio: float) -> str:
    goal = GOALS.get(name)
    if goal is None:
        return f"{ratio:.2f}"
    return f"{ratio:.2f} (goal {goal:.2f}{'' if ratio <= goal else ', missed'})"


@dataclass
class Page:
    """The figures of a run, printed as they come."""

    titles: str
    engines: list[str]
    steps: dict[str, tuple[str, Mapping[str, Cost]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def step(self, name: str, costs: Mapping[str, Cost]) -> None:
        both = "glaive" in costs and "Parquet" in costs
        ratio = _ratio(name, costs["glaive"].cpu / costs["Parquet"].cpu) if both else "–"
        self.steps[name] = ratio, costs
        print(f"{name}: {ratio}, {costs}", flush=True)

    def note(self, line: str) -> None:
        self.notes.append(f"- {line}")
        print(line, flush=True)

    def table(
        self,
        engines: Iterable[str],
        figures: Mapping[str, Callable[[Cost], str]],
        *,
        alone: bool = False,
        ratios: bool = False,
    ) -> str:
        """Return a table of the steps of several engines, or of the steps of glaive alone."""
        head = ["step", *(f"{engine}: {title}" for engine in engines for title in figures)]
        lines = [head, ["---"] * len(head)]
        for name, (ratio, costs) in self.steps.items():
            if (costs.keys() == {"glaive"}) is alone:
                found = [(costs.get(engine), one) for engine in engines for one in figures.values()]
                cells = ["–" if cost is None else one(cost) for cost, one in found]
                lines.append([TITLES.get(name, name), *cells, *([ratio] if ratios else [])])
        if ratios:
            lines[0].append("CPU of glaive / Parquet")
            lines[1].append("---")
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def keep(self) -> None:
        target = Path(__file__).resolve().parent.parent / "docs" / "figures-spark.md"
        parts = [self.titles, "Results:", "\n".join(self.notes)]
        parts += ["## Time", self.table(self.engines, _TIME, ratios=True)]
        parts += ["## Memory", MEMORY, self.table(self.engines, _MEMORY)]
        parts += ["## Steps of glaive alone"]
        parts += [self.table(["glaive"], {**_TIME, **_MEMORY}, alone=True)]
        target.write_text("\n\n".join(parts) + "\n")


_TIME: Mapping[str, Callable[[Cost], str]] = {
    "CPU s": lambda cost: f"{cost.cpu:.1f}",
    "wall s": lambda cost: f"{cost.wall:.1f}",
}
_MEMORY: Mapping[str, Callable[[Cost], str]] = {
    "driver MB": lambda cost: f"{cost.driver / 1e6:,.0f}",
    "workers MB": lambda cost: f"{cost.workers / 1e6:,.0f}",
}


def _repeated(times: int) -> str:
    if times == 1:
        return "Each step ran once, after an untimed run with few rows."
    return f"Ingests and queries ran {times} times, and the run with the least CPU counts."


def _titles(options: argparse.Namespace) -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return (
        "# Figures on Spark\n\n"
        f"Steps of the life of TPC-H tables at scale factor {options.scale:g}, at commit {commit} "
        f"({time.strftime('%Y-%m-%d')}). Most steps use `lineitem`, which has about "
        f"{6 * options.scale:,.3g} million rows. Q1 to Q21 are queries of TPC-H.\n\n"
        f"- Setup: Spark {version('pyspark')} with the master `{options.master}`, Python "
        f"{platform.python_version()}, {os.cpu_count()} cores.\n"
        "- CPU is the processor time of the driver, its Java process and all workers.\n"
        "- A goal is the largest ratio that glaive should have to Parquet.\n"
        "- A dash means that we did not measure the engine.\n"
        "- Parquet has no changes: each change reads and writes the whole table. Delta is "
        "`deltalake`, which runs without Spark.\n"
        f"- `vectors` has {max(round(200_000 * options.scale), SEARCHES):,} vectors of "
        f"{DIMENSION} numbers. The search join finds the 10 nearest vectors for each of "
        f"{SEARCHES:,} rows.\n"
        f"- Steps with {options.fragments:,} fragments use a table with ten rows per fragment.\n"
        f"- {_repeated(options.repeat)}\n"
        f'- `make bench-spark ARGS="{" ".join(sys.argv[1:])}"` writes this page.'
    )


def main() -> None:
    """Print a line for each step, then one for each query."""
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01, help="scale factor of TPC-H")
    parser.add_argument("--parts", type=int, default=4, help="files of each table")
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of ingests and queries; the best counts"
    )
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--engines", default="glaive,Parquet,Delta", help="engines to compare")
    parser.add_argument("--stream", type=float, default=10, help="seconds of the steady stream")
    parser.add_argument("--fragments", type=int, default=1000, help="fragments of ten rows")
    parser.add_argument("--keep", action="store_true", help="write the page of figures")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-spark-"))
    keep_bytecode(root / "bytecode")
    settings = {
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": 4,
        "spark.sql.streaming.numRecentProgressUpdates": 100_000,
        "spark.executor.memory": "2g",
        "spark.driver.memory": "2g",
    }
    spark = glaive.spark.session(master=options.master, **settings)
    try:
        source = root / "source"
        generate(spark, options.scale, options.parts, source)
        wanted = options.engines.split(",")
        engines = engines_for(spark, source, root / "tables", wanted)
        # Run all steps and queries untimed on few rows, to start and warm Java and the workers.
        generate(spark, WARM_SCALE, 2, root / "few")
        for name, engine in engines_for(spark, root / "few", root / "warm", wanted).items():
            for step in engine.steps().values():
                step()
            for text in QUERIES.values() if name != "Delta" else ():
                engine.query(text)
        page = Page(_titles(options), list(engines))
        for name in dict.fromkeys(name for made in engines.values() for name in made.steps()):
            turns = options.repeat - 1 if name in REPEATED else 0
            runs = [run_step(engines, name)]
            for turn in range(turns):
                again = root / f"again {turn}"
                runs.append(run_step(engines_for(spark, source, again, wanted), name))
                shutil.rmtree(again)
            page.step(name, {engine: cheapest(run[engine] for run in runs) for engine in runs[0]})
        asked = {name: made for name, made in engines.items() if name != "Delta"}
        sums = dict.fromkeys(asked, 0.0)
        for name, text in QUERIES.items():
            turns = [
                {engine: measured(partial(made.query, text)) for engine, made in asked.items()}
                for _ in range(options.repeat)
            ]
            costs = {engine: cheapest(turn[engine] for turn in turns) for engine in asked}
            for engine, cost in costs.items():
                sums[engine] += cost.cpu
            page.step(name, costs)
        if len(sums) == 2:
            lance, parquet = engines["glaive"], engines["Parquet"]
            size = lance.lineitem_bytes() / parquet.lineitem_bytes()
            cpu = sums["glaive"] / sums["Parquet"]
            page.note(f"CPU of all queries, glaive / Parquet: {_ratio('queries', cpu)}")
            page.note(f"Bytes of `lineitem`, glaive / Parquet: {_ratio('bytes of lineitem', size)}")
        if options.fragments:
            many = Fragments(spark, root, options.fragments)
            for name in many.steps():
                page.step(
                    f"{name}: {options.fragments:,} fragments", run_step({"glaive": many}, name)
                )
            many.check()
        page.note(stream_for(spark, root, options.stream))
        if options.keep:
            page.keep()
    finally:
        spark.stop()
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
