"""``glaive schema``: the columns of a dataset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from glaive.cli.output import examples, print_table

if TYPE_CHECKING:
    import pyarrow as pa


@click.command(
    "schema",
    epilog=examples(
        "glaive schema flights.lance", "glaive schema flights.lance --json | jq -r .name"
    ),
)
@click.argument("dataset")
@click.option("--version", type=int, help="The version to read; the newest when omitted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per column.")
def command(dataset: str, *, version: int | None, as_json: bool) -> None:
    """Print the columns of DATASET: name, type, nullability, metadata."""
    from glaive.dataset.open import dataset as open_dataset

    schema = open_dataset(dataset, version=version).schema
    if as_json:
        for field in schema:
            column = {"name": field.name, "type": str(field.type), "nullable": field.nullable}
            click.echo(json.dumps(column | {"metadata": _metadata(field)}))
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
