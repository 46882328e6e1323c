"""``glaive schema``: the columns of a dataset."""

from __future__ import annotations

import json

import click

from glaive.cli.output import examples, print_table


@click.command(
    "schema",
    epilog=examples(
        "glaive schema flights.lance", "glaive schema flights.lance --json | jq -r .name"
    ),
)
@click.argument("dataset")
@click.option("--version", type=int, help="The version to look at; the newest when omitted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per column.")
def command(dataset: str, *, version: int | None, as_json: bool) -> None:
    """Print the columns of DATASET: name, type, whether nulls may occur, metadata."""
    from glaive.dataset.open import dataset as open_dataset

    columns = [
        {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "metadata": {
                key.decode(errors="replace"): value.decode(errors="replace")
                for key, value in (field.metadata or {}).items()
            },
        }
        for field in open_dataset(dataset, version=version).schema
    ]
    if as_json:
        for column in columns:
            click.echo(json.dumps(column))
    else:
        print_table(
            ["column", "type", "nulls", "metadata"],
            [
                [
                    column["name"],
                    column["type"],
                    "yes" if column["nullable"] else "no",
                    ", ".join(f"{key}={value}" for key, value in column["metadata"].items()),
                ]
                for column in columns
            ],
        )
