"""``glaive versions``: which versions of a dataset there are."""

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
        at = newest.checkout_version(version["version"])
        rows.append(
            {
                "version": version["version"],
                "timestamp": version["timestamp"].isoformat(timespec="milliseconds"),
                "rows": at.count_rows(),
                "fragments": len(at.get_fragments()),
            }
        )
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        print_table(
            ["version", "timestamp", "rows", "fragments"],
            [[r["version"], r["timestamp"], human_count(r["rows"]), r["fragments"]] for r in rows],
        )
