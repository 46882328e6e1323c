"""``glaive show``: a dataset on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import dataset_argument, json_option, opened, version_option
from glaive.cli.output import (
    examples,
    human_bytes,
    human_count,
    number_of,
    print_json,
    print_table,
    public,
    say,
)

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

SMALL_ROWS = 100_000
MANY = 32
SHOWN_COLUMNS = 30


@click.command(
    "show",
    epilog=examples("glaive show flights.lance", "glaive show flights.lance --json | jq .advice"),
)
@dataset_argument
@version_option
@json_option
def command(
    dataset: str, *, storage_options: tuple[str, ...], version: str | None, as_json: bool
) -> None:
    """Show DATASET on one screen: version, rows, bytes by column, indices, tags, advice.

    Reads the manifest, the metadata of the data files, and where blobs lie; no values.
    """
    at = opened(dataset, version, storage_options)
    facts = _facts(at)
    if as_json:
        print_json(facts)
        return
    say(f"{facts['uri']}  version {facts['version']} of {facts['latest_version']}")
    say(
        f"{number_of(facts['rows'], 'row')}, {human_count(facts['deleted_rows'])} deleted, in "
        f"{number_of(facts['fragments'], 'fragment')}; {human_bytes(facts['bytes'])}; format "
        f"{facts['format']}; changed {facts['timestamp']}"
    )
    total = max(facts["bytes"], 1)
    print_table(
        ["column", "type", "bytes", "share"],
        [
            [
                one["column"],
                one["type"],
                human_bytes(one["bytes"]),
                "█" * round(20 * one["bytes"] / total),
            ]
            for one in facts["columns"][:SHOWN_COLUMNS]
        ],
    )
    if len(facts["columns"]) > SHOWN_COLUMNS:
        say(f"and {len(facts['columns']) - SHOWN_COLUMNS} smaller columns")
    for name in ("indices", "tags", "branches"):
        say(f"{name}: {', '.join(map(str, facts[name])) or 'none'}")
    for line in facts["advice"]:
        say(f"advice: {line}")


def _facts(at: LanceDataset) -> dict[str, Any]:
    sizes = {one.id: one.bytes_on_disk for one in at.stats.data_stats().fields}
    schema = at.schema  # made again each time, with a look at all columns
    columns: list[dict[str, Any]] = [
        {
            "column": field.name,
            "type": str(schema.field(field.name).type),
            "bytes": sum(sizes.get(one, 0) for one in _ids(field)) + _blob_bytes(at, field),
        }
        for field in at.lance_schema.fields
    ]
    columns.sort(key=lambda one: -one["bytes"])
    stats = at.stats.dataset_stats(SMALL_ROWS)
    facts = {
        "uri": public(at.uri),
        "version": at.version,
        "latest_version": at.latest_version,
        "timestamp": at.get_version()["timestamp"].isoformat(timespec="seconds"),
        "format": at.data_storage_version,
        "rows": at.count_rows(),
        "deleted_rows": stats["num_deleted_rows"],
        "fragments": stats["num_fragments"],
        "small_fragments": stats["num_small_files"],
        "bytes": sum(one["bytes"] for one in columns),
        "versions": len(at.versions()),
        "columns": columns,
        "indices": [one.name for one in at.describe_indices()],
        "tags": sorted(at.tags.list()),
        "branches": sorted(at.branches.list()),
    }
    return {**facts, "advice": _advice(facts)}


def _blob_bytes(at: LanceDataset, field: Any) -> int:
    """Bytes of the blobs of a column that the dataset holds, by their descriptions."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from glaive.format.blobs import EXTERNAL, is_blob

    if not (is_blob(field) or field.is_blob_v2):
        return 0
    total = 0
    for batch in at.to_batches(columns=[field.name]):
        described: Any = batch.column(0)
        if not pa.types.is_struct(described.type):  # values, as in format 0.1
            return 0
        sizes = pc.struct_field(described, "size")
        if field.is_blob_v2:
            sizes = sizes.filter(
                pc.not_equal(pc.struct_field(described, "kind"), pa.scalar(EXTERNAL))
            )
        total += pc.sum(sizes).as_py() or 0
    return total


def _ids(field: Any) -> list[int]:
    return [field.id, *(one for child in field.children for one in _ids(child))]


def _advice(facts: dict[str, Any]) -> list[str]:
    found = []
    if facts["small_fragments"] >= MANY:
        found.append(
            f"{human_count(facts['small_fragments'])} small files: run `glaive compact` on it"
        )
    if facts["deleted_rows"] * 10 > facts["rows"]:
        found.append("more than a tenth of the rows are deleted: run `glaive compact` on it")
    if facts["versions"] >= 10 * MANY:
        found.append(
            f"{human_count(facts['versions'])} versions are kept: run "
            "`glaive cleanup --dry-run` on it"
        )
    return found
