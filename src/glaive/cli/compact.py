"""``glaive compact``: merge small files."""

from __future__ import annotations

from dataclasses import asdict

import click

from glaive.cli.options import dataset_argument, json_option, opened
from glaive.cli.output import examples, human_count, print_json, say


@click.command(
    "compact",
    epilog=examples(
        "glaive compact flights.lance",
        "glaive compact flights.lance --rows-per-fragment 4000000 --json",
    ),
)
@dataset_argument
@click.option(
    "--rows-per-fragment", type=click.IntRange(min=1), help="Rows of a fragment to aim at."
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads that rewrite fragments.")
@json_option
def command(
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    rows_per_fragment: int | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Merge small neighbouring fragments of DATASET and remove deleted rows, as a new version."""
    at = opened(dataset, None, storage_options)
    before = at.version
    metrics = at.optimize.compact_files(
        target_rows_per_fragment=rows_per_fragment, num_threads=threads
    )
    if as_json:
        print_json({"version": at.version, **asdict(metrics)})
    elif at.version == before:
        say("nothing to do")
    else:
        say(
            f"version {at.version}: {human_count(metrics.fragments_removed)} fragments became "
            f"{human_count(metrics.fragments_added)}"
        )
