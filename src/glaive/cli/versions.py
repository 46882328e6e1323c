"""``glaive versions``: list the versions of a dataset."""

from __future__ import annotations

import click

from glaive.cli.options import dataset_argument, json_option, opened
from glaive.cli.output import examples, human_count, print_json, print_table


@click.command(
    "versions",
    epilog=examples(
        "glaive versions flights.lance", "glaive versions flights.lance --json | jq .version"
    ),
)
@dataset_argument
@json_option
def command(dataset: str, *, storage_options: tuple[str, ...], as_json: bool) -> None:
    """List the versions of DATASET, oldest first. `glaive history` lists their commits."""
    newest = opened(dataset, None, storage_options)
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
            print_json(row)
    else:
        print_table(
            ["version", "timestamp", "rows", "fragments"],
            [
                [row["version"], row["timestamp"], human_count(row["rows"]), row["fragments"]]
                for row in rows
            ],
        )
