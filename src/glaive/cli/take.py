"""``glaive take``: rows by position."""

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
    "take",
    epilog=examples(
        "glaive take flights.lance 0 7 100000",
        "glaive take flights.lance 12 --columns carrier --json",
    ),
)
@dataset_argument
@click.argument("positions", type=click.IntRange(min=0), nargs=-1, required=True)
@columns_option
@version_option
@json_option
def command(
    dataset: str,
    positions: tuple[int, ...],
    *,
    storage_options: tuple[str, ...],
    columns: str | None,
    version: str | None,
    as_json: bool,
) -> None:
    """Print the rows of DATASET at POSITIONS, counted from 0, in this order."""
    at = opened(dataset, version, storage_options)
    print_rows(at.take(list(positions), names_of(columns)), as_json=as_json)
