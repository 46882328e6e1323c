"""``glaive restore``: an older version becomes the current one."""

from __future__ import annotations

import click

from glaive.cli.options import dataset_argument, json_option, opened
from glaive.cli.output import examples, print_json, say


@click.command(
    "restore",
    epilog=examples("glaive restore flights.lance 3", "glaive restore flights.lance gold"),
)
@dataset_argument
@click.argument("version")
@json_option
def command(dataset: str, version: str, *, storage_options: tuple[str, ...], as_json: bool) -> None:
    """Commit a new version of DATASET with the content of VERSION, a number or tag.

    Versions in between stay. Nothing is copied.
    """
    at = opened(dataset, version, storage_options)
    old = at.version
    at.restore()
    if as_json:
        print_json({"restored": old, "version": at.version})
    else:
        say(f"version {at.version} has the content of version {old}")
