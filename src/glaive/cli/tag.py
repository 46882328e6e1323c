"""``glaive tag``: names of versions."""

from __future__ import annotations

import click

from glaive.cli.options import dataset_argument, json_option, opened, version_option
from glaive.cli.output import examples, print_json, print_table, say


@click.command(
    "tag",
    epilog=examples(
        "glaive tag flights.lance",
        "glaive tag flights.lance gold --version 3",
        "glaive tag flights.lance gold --version 4 --move",
        "glaive tag flights.lance gold --delete",
    ),
)
@dataset_argument
@click.argument("name", required=False)
@version_option
@click.option("--move", is_flag=True, help="Move an existing tag to the version.")
@click.option("--delete", is_flag=True, help="Delete the tag; its version stays.")
@json_option
def command(
    dataset: str,
    name: str | None,
    *,
    storage_options: tuple[str, ...],
    version: str | None,
    move: bool,
    delete: bool,
    as_json: bool,
) -> None:
    """List the tags of DATASET; or create, move or delete the tag NAME."""
    if name is None and (version is not None or move or delete):
        raise click.UsageError("NAME is missing: --version, --move and --delete are about one tag")
    at = opened(dataset, version, storage_options)
    if name is None:
        rows = [{"tag": tag, **entry} for tag, entry in at.tags.list_ordered()]
        if as_json:
            for row in rows:
                print_json(row)
        else:
            print_table(
                ["tag", "version", "branch"],
                [[row["tag"], row["version"], row.get("branch") or ""] for row in rows],
            )
        return
    if delete:
        at.tags.delete(name)
    elif move:
        at.tags.update(name, at.version)
    else:
        at.tags.create(name, at.version)
    done = "deleted" if delete else "moved" if move else "created"
    if as_json:
        print_json({"tag": name, "version": None if delete else at.version, "done": done})
    else:
        say(f"tag {name} {done}" + ("" if delete else f": version {at.version}"))
