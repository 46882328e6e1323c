"""``glaive scan``: print the rows of a dataset or export them to a Parquet file."""

from __future__ import annotations

from pathlib import Path

import click

from glaive.cli.output import examples, human_count, print_rows


@click.command(
    "scan",
    epilog=examples(
        "glaive scan flights.lance --columns carrier,flight --limit 100",
        "glaive scan flights.lance --json | gzip > flights.jsonl.gz",
        "glaive scan flights.lance --output flights.parquet",
    ),
)
@click.argument("dataset")
@click.option("--columns", help="Columns to read, such as 'carrier,flight'; all when omitted.")
@click.option("--version", type=int, help="The version to read; the newest when omitted.")
@click.option("--offset", type=click.IntRange(min=0), help="Number of rows to skip.")
@click.option("--limit", type=click.IntRange(min=0), help="Maximum number of rows to read.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a Parquet file (zstd) instead of printing.",
)
def command(
    dataset: str,
    *,
    columns: str | None,
    version: int | None,
    offset: int | None,
    limit: int | None,
    as_json: bool,
    output: Path | None,
) -> None:
    """Stream the rows of DATASET, a batch at a time."""
    from glaive.dataset.open import dataset as open_dataset

    names = columns.split(",") if columns else None
    scanner = open_dataset(dataset, version=version).scanner(
        columns=names, offset=offset, limit=limit
    )
    if output is None:
        for batch in scanner.to_batches():
            print_rows(batch, as_json=as_json)
        return
    import pyarrow.parquet as pq

    rows = 0
    with pq.ParquetWriter(output, scanner.projected_schema, compression="zstd") as writer:
        for batch in scanner.to_batches():
            writer.write_batch(batch)
            rows += batch.num_rows
    click.echo(f"{human_count(rows)} rows written to {output}")
