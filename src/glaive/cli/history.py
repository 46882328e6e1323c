"""``glaive history``: the commits of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import dataset_argument, json_option, opened
from glaive.cli.output import examples, human_count, print_json, print_table

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


MESSAGE = "__lance_commit_message"


@click.command(
    "history",
    epilog=examples(
        "glaive history flights.lance", "glaive history flights.lance -n 3 --json | jq .operation"
    ),
)
@dataset_argument
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(min=1))
@json_option
def command(dataset: str, *, storage_options: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List the newest commits of DATASET, the newest first."""
    rows = commits_of(opened(dataset, None, storage_options), limit)
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ["version", "timestamp", "operation", "rows", "fragments", "tags", "message"],
        [
            [
                row["version"],
                row["timestamp"],
                row["operation"],
                human_count(row["rows"]),
                human_count(row["fragments"]),
                ", ".join(row["tags"]),
                row["message"],
            ]
            for row in rows
        ],
    )


def commits_of(newest: LanceDataset, limit: int) -> list[dict[str, Any]]:
    """Facts about the newest versions, the newest first; a few requests each."""
    tags: dict[int, list[str]] = {}
    for tag, entry in newest.tags.list().items():
        if not entry.get("branch"):
            tags.setdefault(entry["version"], []).append(tag)
    found = []
    for version in reversed(newest.versions()[-limit:]):
        at = newest.checkout_version(version["version"])
        commit = at.read_transaction(at.version)
        made = None if commit is None else commit.operation
        name = "" if made is None else getattr(made, "name", type(made).__name__)
        properties = (commit.transaction_properties if commit is not None else None) or {}
        found.append(
            {
                "version": at.version,
                "timestamp": version["timestamp"].isoformat(timespec="milliseconds"),
                "operation": "".join(word[:1].upper() + word[1:] for word in name.split("_")),
                "rows": at.count_rows(),
                "fragments": len(at.fragment_ids()),
                "tags": sorted(tags.get(at.version, [])),
                "message": properties.get(MESSAGE, ""),
            }
        )
    return found
