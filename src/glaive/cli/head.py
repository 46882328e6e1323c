"""``glaive head``: the first rows of a dataset."""

from __future__ import annotations

import click

from glaive.cli.options import (
    columns_option,
    dataset_argument,
    json_option,
    names_of,
    opened,
    version_option,
)
from glaive.cli.output import examples, print_rows


@click.command(
    "head",
    epilog=examples(
        "glaive head flights.lance",
        "glaive head flights.lance -n 3 --columns carrier,flight --json",
    ),
)
@dataset_argument
@click.option("-n", "--rows", default=10, show_default=True, type=click.IntRange(min=0))
@columns_option
@version_option
@json_option
def command(
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    rows: int,
    columns: str | None,
    version: str | None,
    as_json: bool,
) -> None:
    """Print the first rows of DATASET."""
    at = opened(dataset, version, storage_options)
    table = at.scanner(columns=names_of(columns), limit=rows).to_table()
    print_rows(table, as_json=as_json)
