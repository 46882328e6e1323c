"""``glaive versions``: list the versions of a dataset."""

from __future__ import annotations

import json

import click

from glaive.cli.output import examples, human_count, print_table


@click.command(
    "versions",
    epilog=examples(
        "glaive versions flights.lance", "glaive versions flights.lance --json | jq .version"
    ),
)
@click.argument("dataset")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per version.")
def command(dataset: str, *, as_json: bool) -> None:
    """List the versions of DATASET, oldest first."""
    from glaive.dataset.open import dataset as open_dataset

    newest = open_dataset(dataset)
    rows = []
    for version in newest.versions():
        opened = newest.checkout_version(version["version"])
        rows.append(
            {
                "version": version["version"],
                "timestamp": version["timestamp"].isoformat(timespec="milliseconds"),
                "rows": opened.count_rows(),
                "fragments": len(opened.get_fragments()),
            }
        )
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        print_table(
            ["version", "timestamp", "rows", "fragments"],
            [
                [row["version"], row["timestamp"], human_count(row["rows"]), row["fragments"]]
                for row in rows
            ],
        )
