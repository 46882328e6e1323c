"""``glaive branch``: lines of versions beside the main one."""

from __future__ import annotations

import click

from glaive.cli.options import dataset_argument, json_option, opened, version_option
from glaive.cli.output import examples, print_json, print_table, say


@click.command(
    "branch",
    epilog=examples(
        "glaive branch flights.lance",
        "glaive branch flights.lance trial --version 3",
        "glaive branch flights.lance trial --delete",
    ),
)
@dataset_argument
@click.argument("name", required=False)
@version_option
@click.option("--delete", is_flag=True, help="Delete the branch with its versions.")
@json_option
def command(
    dataset: str,
    name: str | None,
    *,
    storage_options: tuple[str, ...],
    version: str | None,
    delete: bool,
    as_json: bool,
) -> None:
    """List the branches of DATASET; or create or delete the branch NAME."""
    if name is None and (version is not None or delete):
        raise click.UsageError("NAME is missing: --version and --delete are about one branch")
    at = opened(dataset, version, storage_options)
    if name is None:
        rows = [{"branch": branch, **entry} for branch, entry in at.branches.list_ordered()]
        if as_json:
            for row in rows:
                print_json(row)
        else:
            print_table(
                ["branch", "from", "version"],
                [
                    [row["branch"], row["parent_branch"] or "main", row["parent_version"]]
                    for row in rows
                ],
            )
        return
    if delete:
        at.branches.delete(name)
    else:
        at.create_branch(name, at.version)
    done = "deleted" if delete else "created"
    if as_json:
        print_json({"branch": name, "done": done})
    else:
        say(f"branch {name} {done}" + ("" if delete else f" from version {at.version}"))
