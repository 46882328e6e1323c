"""``glaive schema``: the columns of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from glaive.cli.options import dataset_argument, json_option, opened, version_option
from glaive.cli.output import examples, print_json, print_table

if TYPE_CHECKING:
    import pyarrow as pa


@click.command(
    "schema",
    epilog=examples(
        "glaive schema flights.lance", "glaive schema flights.lance --json | jq -r .name"
    ),
)
@dataset_argument
@version_option
@json_option
def command(
    dataset: str, *, storage_options: tuple[str, ...], version: str | None, as_json: bool
) -> None:
    """Print the columns of DATASET: name, type, nullability, metadata."""
    schema = opened(dataset, version, storage_options).schema
    if as_json:
        for field in schema:
            column = {"name": field.name, "type": str(field.type), "nullable": field.nullable}
            print_json(column | {"metadata": _metadata(field)})
        return
    rows = [
        [
            field.name,
            str(field.type),
            "yes" if field.nullable else "no",
            ", ".join(f"{key}={value}" for key, value in _metadata(field).items()),
        ]
        for field in schema
    ]
    print_table(["column", "type", "nulls", "metadata"], rows)


def _metadata(field: pa.Field) -> dict[str, str]:
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in (field.metadata or {}).items()
    }
