"""``glaive head``: the first rows of a dataset."""

from __future__ import annotations

import click

from glaive.cli.output import examples, print_rows


@click.command(
    "head",
    epilog=examples(
        "glaive head flights.lance",
        "glaive head flights.lance -n 3 --columns carrier,flight --json",
    ),
)
@click.argument("dataset")
@click.option("-n", "--rows", default=10, show_default=True, type=click.IntRange(min=0))
@click.option("--columns", help="Columns to print, such as 'carrier,flight'; all when omitted.")
@click.option("--version", type=int, help="The version to read; the newest when omitted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
def command(
    dataset: str, *, rows: int, columns: str | None, version: int | None, as_json: bool
) -> None:
    """Print the first rows of DATASET."""
    from glaive.dataset.open import dataset as open_dataset

    names = columns.split(",") if columns else None
    table = open_dataset(dataset, version=version).scanner(columns=names, limit=rows).to_table()
    print_rows(table, as_json=as_json)
