"""``glaive ingest``: files of other formats into a dataset."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from glaive.cli.options import names_of, pairs_of, storage_option, storage_pairs
from glaive.cli.output import examples, number_of, public, say

if TYPE_CHECKING:
    from glaive.ingestion import DriftRule, IngestMode, IngestResult

MODES = ["create", "append", "overwrite", "merge"]


class _FormatName(click.ParamType):
    """The name of a format; those that exist are looked up when they are needed."""

    name = "format"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """All names, for the help."""
        return f"[{'|'.join(_formats())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, if there is such a format."""
        if value not in _formats():
            self.fail(f"{value!r} is not one of {', '.join(_formats())}.", param, ctx)
        return str(value)


def _formats() -> list[str]:
    from glaive.ingestion import FORMATS

    return list(FORMATS)


@click.command(
    "ingest",
    epilog=examples(
        "glaive ingest flights.csv flights.lance --null NA",
        "glaive ingest 'logs/**/*.jsonl.gz' logs.lance --mode append --job-id logs-2026-11",
        "glaive ingest items.parquet items.lance --vector embedding:128:float16",
        "glaive ingest photos/ photos.lance --format images --bad-records broken.lance",
        "glaive ingest s3://in/2026/ s3://out/t.lance --format csv --master spark://host:7077",
    ),
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("dataset")
@storage_option
@click.option("--format", type=_FormatName(), help="Derived from the file names when omitted.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="create",
    show_default=True,
    help="What to do with a dataset that exists.",
)
@click.option("--merge-keys", help="For merge: the columns that identify a row, such as 'id'.")
@click.option("--schema", help="Columns and types, such as 'id bigint, at timestamp'.")
@click.option("--null", help="CSV: the text that means null, such as NA.")
@click.option(
    "--vector",
    "vectors",
    multiple=True,
    metavar="COLUMN:DIM[:TYPE]",
    help="Store a column of lists as fixed-size vectors; may be repeated.",
)
@click.option(
    "--schema-drift",
    type=click.Choice(["fail", "widen", "add"]),
    default="fail",
    show_default=True,
    help="Columns that differ between files: an error, wider types, or added columns too.",
)
@click.option(
    "--bad-records", metavar="DATASET", help="Put records that cannot be read aside, not fail."
)
@click.option("--job-id", help="Name of the job: the same command again goes on where it stopped.")
@click.option(
    "--master", help="Run on this Spark, such as spark://host:7077; else in this process."
)
@click.option(
    "--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated."
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the format, such as sep=;; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(
    sources: tuple[str, ...],
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    format: str | None,  # the name of the option
    mode: str,
    merge_keys: str | None,
    schema: str | None,
    null: str | None,
    vectors: tuple[str, ...],
    schema_drift: str,
    bad_records: str | None,
    job_id: str | None,
    master: str | None,
    conf: tuple[str, ...],
    options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the rows of SOURCE... as one new version of DATASET.

    SOURCE is a file, a folder, a pattern (** matches across folders) or a URI of an object store.
    The work is cut into tasks, which run on the cores of this machine or on Spark; one commit at
    their end makes the version.
    """
    reader_options: dict[str, object] = dict(pairs_of("--option", options))
    if null is not None:
        reader_options["null"] = null
    keywords: dict[str, Any] = {
        "format": format,
        "mode": cast("IngestMode", mode),
        "schema": schema,
        "vectors": vectors,
        "schema_drift": cast("DriftRule", schema_drift),
        "merge_keys": names_of(merge_keys),
        "job_id": job_id,
        "bad_records": bad_records,
        "reader_options": reader_options,
        "storage_options": storage_pairs(storage_options),
    }
    started = time.perf_counter()
    if master is not None or conf:
        result = _on_spark(list(sources), dataset, master, pairs_of("--conf", conf), keywords)
    else:
        result = _here(list(sources), dataset, keywords)
    seconds, shown = time.perf_counter() - started, public(dataset)
    if as_json:
        summary = {
            "dataset": shown,
            "version": result.version,
            "rows": result.rows,
            "files": result.files,
            "bad_records": result.bad_records,
            "job_id": result.job_id,
            "repeated": result.repeated,
            "seconds": round(seconds, 3),
        }
        say(json.dumps(summary))
    elif result.repeated:
        say(f"{shown}: job {result.job_id} was done before: version {result.version}")
    else:
        aside = f", {number_of(result.bad_records, 'bad record')}" if result.bad_records else ""
        say(
            f"{shown}: version {result.version}, {number_of(result.rows, 'row')} from "
            f"{number_of(result.files, 'file')}{aside}, {seconds:.1f} s"
        )


def _here(sources: list[str], dataset: str, keywords: dict[str, Any]) -> IngestResult:
    """Run the tasks in this process, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from glaive.ingestion import ingest

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bars:
        bar = bars.add_task(f"Write {escape(public(dataset))}", total=None)

        def progress(done: int, count: int) -> None:
            bars.update(bar, completed=done, total=count)

        return ingest(sources, dataset, progress=progress, **keywords)


def _on_spark(
    sources: list[str],
    dataset: str,
    master: str | None,
    conf: dict[str, str],
    keywords: dict[str, Any],
) -> IngestResult:
    """Run the tasks on Spark, without its log."""
    from rich.console import Console

    from glaive.cli.progress import Steps, start_spark
    from glaive.io.failures import spilling
    from glaive.spark import ingest

    steps = Steps(Console(stderr=True))
    settings = {"spark.log.level": "ERROR"} | conf
    with spilling("the log of Spark"):
        handle, log = tempfile.mkstemp(prefix="glaive-ingest-", suffix=".log")  # of this user alone
    os.close(handle)
    spark = start_spark(steps, master, "glaive ingest", Path(log), settings)
    try:
        return steps.run(f"Write {dataset}", lambda: ingest(spark, sources, dataset, **keywords))
    finally:
        spark.stop()
        Path(log).unlink(missing_ok=True)
