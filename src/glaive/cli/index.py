"""``glaive index``: list, build, update or drop indices."""

from __future__ import annotations

from typing import Any

import click

from glaive.cli.options import dataset_argument, json_option, opened
from glaive.cli.output import examples, human_count, print_json, print_table

VECTOR_KINDS = "IVF_"


@click.command(
    "index",
    epilog=examples(
        "glaive index flights.lance",
        "glaive index flights.lance --column carrier --kind BITMAP",
        "glaive index images.lance --column vector --kind IVF_PQ --metric cosine",
        "glaive index flights.lance --update",
        "glaive index flights.lance --drop carrier_idx",
    ),
)
@dataset_argument
@click.option("--column", help="Build an index over this column.")
@click.option("--kind", default="BTREE", show_default=True, help="Such as BTREE, FTS or IVF_PQ.")
@click.option("--name", help="Name of the index; the column with _idx when omitted.")
@click.option("--metric", default="L2", show_default=True, help="Of vectors: L2, cosine or dot.")
@click.option("--replace", is_flag=True, help="Replace an index of this name.")
@click.option("--update", is_flag=True, help="Bring all indices up to date with new rows.")
@click.option("--drop", metavar="NAME", help="Drop an index.")
@json_option
def command(
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    column: str | None,
    kind: str,
    name: str | None,
    metric: str,
    replace: bool,
    update: bool,
    drop: str | None,
    as_json: bool,
) -> None:
    """List the indices of DATASET, with rows that they do not cover; or change one."""
    if sum([column is not None, update, drop is not None]) > 1:
        raise click.UsageError("give one of --column, --update and --drop")
    at = opened(dataset, None, storage_options)
    if column is not None and kind.upper().startswith(VECTOR_KINDS):
        at.create_index(column, kind.upper(), name, metric, replace)
    elif column is not None:
        at.create_scalar_index(column, kind.upper(), name, replace=replace)
    elif update:
        at.optimize.optimize_indices()
    elif drop is not None:
        at.drop_index(drop)
    rows: list[dict[str, Any]] = [
        {
            "index": one.name,
            "kind": one.index_type,
            "columns": list(one.field_names),
            "rows": one.num_rows_indexed,
            "rows_not_covered": at.count_rows() - one.num_rows_indexed,
        }
        for one in at.describe_indices()
    ]
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ["index", "kind", "columns", "rows", "not covered"],
        [
            [
                row["index"],
                row["kind"],
                ", ".join(row["columns"]),
                human_count(row["rows"]),
                human_count(max(row["rows_not_covered"], 0)),
            ]
            for row in rows
        ],
    )
