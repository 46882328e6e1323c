"""Commands that print rows: ``head``, ``take``, ``scan``, ``search``, ``count``, ``schema``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glaive.cli.options import SCAN, command, options_of
from glaive.cli.output import KINDS, echo, human_count, print_json, print_records, print_rows

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


@command(
    "glaive count flights.lance",
    "glaive count flights.lance --filter \"carrier = 'UA'\"",
    versioned=True,
)
@options_of(SCAN, "filter")
def count(at: LanceDataset, *, filter: str | None, as_json: bool) -> None:
    """Count the rows of DATASET. The number of all rows comes from the manifest."""
    rows = at.count_rows(filter)
    if as_json:
        print_json({"version": at.version, "rows": rows})
    else:
        echo(rows)


@command(
    "glaive head flights.lance",
    "glaive head flights.lance -n 3 --columns carrier,flight --json",
    versioned=True,
)
@options_of(SCAN, "limit", flags=["-n", "--rows"], default=10, show_default=True)
@options_of(SCAN, "columns")
def head(at: LanceDataset, *, as_json: bool, **how: Any) -> None:
    """Print the first rows of DATASET."""
    print_rows(at.to_table(**how), as_json=as_json)


@command(
    "glaive take flights.lance 0 7 100000",
    "glaive take flights.lance 12 --columns carrier --json",
    versioned=True,
)
@click.argument("positions", type=click.IntRange(min=0), nargs=-1, required=True)
@options_of(SCAN, "columns")
def take(at: LanceDataset, *, positions: tuple[int, ...], columns: Any, as_json: bool) -> None:
    """Print the rows of DATASET at POSITIONS, counted from 0, in this order."""
    print_rows(at.take(list(positions), columns), as_json=as_json)


@command(
    "glaive schema flights.lance",
    "glaive schema flights.lance --json | jq -r .name",
    versioned=True,
)
def schema(at: LanceDataset, *, as_json: bool) -> None:
    """Print the columns of DATASET: name, type, nullability, metadata."""
    rows = [
        {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "metadata": {
                key.decode(errors="replace"): value.decode(errors="replace")
                for key, value in (field.metadata or {}).items()
            },
        }
        for field in at.schema
    ]
    titles = {"name": "column", "type": "type", "nullable": "nulls", "metadata": "metadata"}
    print_records(rows, titles, as_json=as_json)


@command(
    "glaive scan flights.lance --columns carrier,flight --limit 100",
    "glaive scan flights.lance --filter \"carrier = 'UA'\" --order-by flight --json",
    "glaive scan flights.lance --json | gzip > flights.jsonl.gz",
    "glaive scan flights.lance --output flights.parquet",
    versioned=True,
)
@options_of(SCAN, "filter", "order_by", "columns", "offset", "limit")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a Parquet file (zstd) instead of printing.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
def scan(
    at: LanceDataset, *, as_json: bool, output: Path | None, overwrite: bool, **how: Any
) -> None:
    """Print the rows of DATASET, batch by batch, or write them to a file."""
    if output is not None and output.suffix.lower() in KINDS.keys() - {".parquet"}:
        raise click.UsageError(
            f"--output: {output} would be a Parquet file: name it {output.stem}.parquet, or write "
            f"it by: glaive convert {at.uri} {output}"
        )
    if output is not None and output.exists() and not overwrite:
        raise click.ClickException(f"{output} exists; --overwrite replaces it")
    scanner = at.scanner(**how)
    if output is None:
        for batch in scanner.to_batches():
            print_rows(batch, as_json=as_json)
        return
    from glaive.cli.files import write_file

    rows = write_file(scanner.to_reader(), output, "parquet")
    echo(f"{human_count(rows)} rows written to {output}")


@command(
    "glaive search articles.lance winter storm",
    "glaive search articles.lance --column title --text 'winter storm'",
    "glaive search images.lance --column vector --vector '[0.1, 0.7, 0.2]' -k 5",
    "glaive search images.lance --column vector --like 17 --filter \"kind = 'cat'\" --json",
    versioned=True,
)
@click.argument("words", nargs=-1)
@click.option("--column", help="The column to search. Default: the only one of its type.")
@click.option("--text", help="Words to search for, like WORDS. A full-text index makes it faster.")
@click.option("--vector", help="A vector, as a JSON list of numbers.")
@click.option("--like", type=click.IntRange(min=0), help="Search for the vector at this position.")
@options_of(SCAN, "limit", flags=["-k", "--limit"], default=10, show_default=True)
@options_of(SCAN, "filter", "columns")
def search(
    at: LanceDataset,
    *,
    words: tuple[str, ...],
    column: str | None,
    text: str | None,
    vector: str | None,
    like: int | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Search DATASET for WORDS or a vector; the best rows come first, with score or distance."""
    text = " ".join([*words, *filter(None, [text])]) or None
    if sum(one is not None for one in (text, vector, like)) != 1:
        raise click.UsageError("give words, or one of --text, --vector and --like")
    types = ("fixed_size_list",) if text is None else ("string", "large_string")
    column = column or _only_column(at, types)
    if text is None:
        wanted = _numbers(vector) if vector is not None else _vector_of(at, column, like)
        how["nearest"] = {"column": column, "q": wanted, "k": how["limit"]}
    else:
        how["full_text_query"] = {"query": text, "columns": [column]}
    print_rows(at.to_table(prefilter=True, **how), as_json=as_json)


def _only_column(at: LanceDataset, types: tuple[str, ...]) -> str:
    names = [field.name for field in at.schema if str(field.type).startswith(types)]
    if len(names) != 1:
        raise click.UsageError(f"--column: name one of {', '.join(names) or '(no column fits)'}")
    return str(names[0])


def _numbers(text: str) -> list[float]:
    try:
        given = json.loads(text)
        return [float(number) for number in given]
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise click.BadParameter(
            f"expected a JSON list of numbers: {error}", param_hint="--vector"
        ) from error


def _vector_of(at: LanceDataset, column: str, position: int | None) -> list[float]:
    from glaive.arrow.conditions import python_values

    (value,) = python_values(at.take([position], columns=[column])[0])
    if not isinstance(value, list):
        raise click.BadParameter(f"row {position} has no vector in {column}", param_hint="--like")
    return value
