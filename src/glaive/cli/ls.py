"""``glaive ls``: the datasets in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from glaive.cli.options import json_option, opened, storage_option, storage_pairs
from glaive.cli.output import examples, human_count, print_json, print_table


@click.command(
    "ls",
    epilog=examples(
        "glaive ls data", "glaive ls s3://bucket/tables --storage-option region=eu-west-1 --json"
    ),
)
@click.argument("folder", default=".")
@storage_option
@json_option
def command(folder: str, *, storage_options: tuple[str, ...], as_json: bool) -> None:
    """List the datasets in FOLDER: names, newest version, rows. One listing, and each manifest."""
    from glaive.errors import GlaiveError

    rows: list[dict[str, Any]] = []
    for name in _folders(folder, storage_pairs(storage_options)):
        row: dict[str, Any] = {"dataset": name}
        try:
            at = opened(f"{folder.rstrip('/')}/{name}", None, storage_options)
            row |= {
                "version": at.version,
                "rows": at.count_rows(),
                "fragments": len(at.fragment_ids()),
                "columns": len(at.schema),
            }
        except GlaiveError as error:
            row |= {"error": str(error).partition(". ")[0]}
        rows.append(row)
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ["dataset", "version", "rows", "fragments", "columns"],
        [
            [
                row["dataset"],
                row.get("version", ""),
                human_count(row["rows"]) if isinstance(row.get("rows"), int) else row["error"],
                row.get("fragments", ""),
                row.get("columns", ""),
            ]
            for row in rows
        ],
    )


def _folders(folder: str, storage: dict[str, str] | None) -> Iterator[str]:
    """Names of folders with versions, in order."""
    from glaive.errors import StoreError
    from glaive.format.paths import VERSIONS
    from glaive.io.uri import open_store

    store = open_store(folder, storage)
    if store.is_local and not Path(store.uri).is_dir():
        raise click.ClickException(f"{folder} is no folder: give one that holds datasets")
    names = store.names("")
    if names is None:  # an object store: its paths show the folders
        parts = (entry.path.split("/") for entry in store.walk(""))
        yield from sorted({path[0] for path in parts if len(path) > 2 and path[1] == VERSIONS})
        return
    for name in sorted(names):
        try:
            inside = store.names(name)
        except StoreError:  # a file, or a folder that may not be read
            continue
        if inside is not None and VERSIONS in inside:
            yield name
