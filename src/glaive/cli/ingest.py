"""``glaive ingest``: CSV, JSON or Parquet files into a dataset, with Spark."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from glaive.cli.output import examples, human_count

if TYPE_CHECKING:
    from glaive.spark.api import SaveMode

MODES = ["errorifexists", "ignore", "append", "overwrite"]


@click.command(
    "ingest",
    epilog=examples(
        "glaive ingest flights.csv flights.lance --null NA",
        "glaive ingest 'logs/*.jsonl.gz' logs.lance --mode append",
        "glaive ingest items.parquet items.lance --vector embedding:128:float16",
        "glaive ingest s3a://in/2026/ s3://out/t.lance --format csv --master spark://host:7077",
    ),
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("dataset")
@click.option(
    "--format",
    type=click.Choice(["csv", "json", "parquet"]),
    help="Derived from the file names when omitted.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="errorifexists",
    show_default=True,
    help="What to do if the dataset exists.",
)
@click.option("--schema", help="Columns and types, such as 'id bigint, at timestamp'.")
@click.option(
    "--infer/--no-infer",
    default=True,
    help="CSV without schema: infer types, or read strings.",
)
@click.option("--null", help="CSV: the string that means null, such as NA.")
@click.option(
    "--vector",
    "vectors",
    multiple=True,
    metavar="COLUMN:DIM[:TYPE]",
    help="Store an array column as fixed-size vectors; may be repeated.",
)
@click.option("--master", help="Such as spark://host:7077; all cores of this machine when omitted.")
@click.option(
    "--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated."
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of Spark's reader, such as sep=;; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("--verbose", is_flag=True, help="Show the log of Spark.")
def command(
    sources: tuple[str, ...],
    dataset: str,
    *,
    format: str | None,  # the name of the option
    mode: str,
    schema: str | None,
    infer: bool,
    null: str | None,
    vectors: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    options: tuple[str, ...],
    as_json: bool,
    verbose: bool,
) -> None:
    """Write the rows of SOURCE... as one new version of DATASET.

    SOURCE is a file, a directory, a glob pattern or a URI that Spark reads. One Spark job does
    the work, on all local cores or on a cluster, and commits the version atomically at its end.
    """
    from rich.console import Console

    from glaive.cli.progress import Steps, start_spark
    from glaive.dataset.open import dataset as open_dataset
    from glaive.spark import read_files, write
    from glaive.spark.files import format_of

    format = format or format_of(sources)  # fails before Spark starts
    steps = Steps(Console(stderr=True))
    started = time.perf_counter()
    settings = {"spark.log.level": "WARN" if verbose else "ERROR"} | _pairs("--conf", conf)
    log = None if verbose else _new_log()
    spark = start_spark(steps, master, "glaive ingest", log, settings)
    try:
        frame = steps.run(
            "Open the sources",
            lambda: read_files(
                spark,
                sources,
                format=format,
                schema=schema,
                infer=infer,
                null=null,
                options=_pairs("--option", options),
            ),
        )
        steps.run(
            f"Write {dataset}",
            lambda: write(frame, dataset, cast("SaveMode", mode), vector_columns=vectors),
        )
    finally:
        spark.stop()
        if log is not None:
            log.unlink(missing_ok=True)
    written = open_dataset(dataset)
    seconds = time.perf_counter() - started
    rows = written.count_rows()
    if as_json:
        summary = {"dataset": dataset, "version": written.version, "rows": rows}
        click.echo(json.dumps(summary | {"seconds": round(seconds, 3)}))
    else:
        click.echo(
            f"{dataset}: version {written.version}, {human_count(rows)} rows, {seconds:.1f} s"
        )


def _new_log() -> Path:
    """Create a file that only this user can access, with an unpredictable name."""
    handle, name = tempfile.mkstemp(prefix="glaive-ingest-", suffix=".log")
    os.close(handle)
    return Path(name)


def _pairs(option: str, arguments: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise click.BadParameter(f"expected KEY=VALUE, found {argument!r}", param_hint=option)
        pairs[key] = value
    return pairs
