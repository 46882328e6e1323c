"""``glaive scan``: print the rows of a dataset or export them to a Parquet file."""

from __future__ import annotations

from pathlib import Path

import click

from glaive.cli.convert import KINDS
from glaive.cli.options import (
    columns_option,
    dataset_argument,
    json_option,
    names_of,
    opened,
    version_option,
)
from glaive.cli.output import examples, human_count, print_rows, replacing, say


@click.command(
    "scan",
    epilog=examples(
        "glaive scan flights.lance --columns carrier,flight --limit 100",
        "glaive scan flights.lance --filter \"carrier = 'UA'\" --order-by flight --json",
        "glaive scan flights.lance --json | gzip > flights.jsonl.gz",
        "glaive scan flights.lance --output flights.parquet",
    ),
)
@dataset_argument
@click.option("--filter", "condition", help="Rows for which this SQL expression is true.")
@click.option("--order-by", help="Columns to sort by, such as 'carrier,flight'.")
@columns_option
@version_option
@click.option("--offset", type=click.IntRange(min=0), help="Number of rows to skip.")
@click.option("--limit", type=click.IntRange(min=0), help="Maximum number of rows to read.")
@json_option
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a Parquet file (zstd) instead of printing.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
def command(
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    condition: str | None,
    order_by: str | None,
    columns: str | None,
    version: str | None,
    offset: int | None,
    limit: int | None,
    as_json: bool,
    output: Path | None,
    overwrite: bool,
) -> None:
    """Stream the rows of DATASET, a batch at a time."""
    if output is not None and output.suffix.lower() in KINDS.keys() - {".parquet"}:
        raise click.UsageError(
            f"--output: {output} would be a Parquet file: name it {output.stem}.parquet, or write "
            f"it by: glaive convert {dataset} {output}"
        )
    if output is not None and output.exists() and not overwrite:
        raise click.ClickException(f"{output} exists; --overwrite replaces it")
    scanner = opened(dataset, version, storage_options).scanner(
        columns=names_of(columns),
        filter=condition,
        offset=offset,
        limit=limit,
        order_by=names_of(order_by),
    )
    if output is None:
        for batch in scanner.to_batches():
            print_rows(batch, as_json=as_json)
        return
    import pyarrow.parquet as pq

    rows, schema = 0, scanner.projected_schema
    with (
        replacing(output) as unfinished,
        pq.ParquetWriter(unfinished, schema, compression="zstd") as writer,
    ):
        for batch in scanner.to_batches():
            writer.write_batch(batch)
            rows += batch.num_rows
    say(f"{human_count(rows)} rows written to {output}")
