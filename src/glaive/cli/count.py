"""``glaive count``: the number of rows."""

from __future__ import annotations

import click

from glaive.cli.options import dataset_argument, json_option, opened, version_option
from glaive.cli.output import examples, print_json, say


@click.command(
    "count",
    epilog=examples(
        "glaive count flights.lance", "glaive count flights.lance --filter \"carrier = 'UA'\""
    ),
)
@dataset_argument
@click.option("--filter", "condition", help="Count rows for which this SQL expression is true.")
@version_option
@json_option
def command(
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    condition: str | None,
    version: str | None,
    as_json: bool,
) -> None:
    """Count the rows of DATASET. Without a filter, only the manifest is read."""
    at = opened(dataset, version, storage_options)
    rows = at.count_rows(condition)
    if as_json:
        print_json({"version": at.version, "rows": rows})
    else:
        say(rows)
