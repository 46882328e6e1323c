"""``glaive search``: texts by their words, or nearest vectors."""

from __future__ import annotations

import json
from typing import Any

import click

from glaive.cli.options import (
    columns_option,
    dataset_argument,
    json_option,
    names_of,
    opened,
    version_option,
)
from glaive.cli.output import examples, print_rows


@click.command(
    "search",
    epilog=examples(
        "glaive search articles.lance winter storm",
        "glaive search articles.lance --column title --text 'winter storm'",
        "glaive search images.lance --column vector --vector '[0.1, 0.7, 0.2]' -k 5",
        "glaive search images.lance --column vector --like 17 --filter \"kind = 'cat'\" --json",
    ),
)
@dataset_argument
@click.argument("words", nargs=-1)
@click.option("--column", help="The column to search in; the only one of its kind when omitted.")
@click.option("--text", help="Words to search for, as WORDS; a full-text index makes it quicker.")
@click.option("--vector", help="A vector, as a JSON list of numbers.")
@click.option("--like", type=click.IntRange(min=0), help="Position of a row whose vector is taken.")
@click.option("-k", "--limit", default=10, show_default=True, type=click.IntRange(min=1))
@click.option("--filter", "condition", help="Search rows for which this SQL expression is true.")
@columns_option
@version_option
@json_option
def command(
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    words: tuple[str, ...],
    column: str | None,
    text: str | None,
    vector: str | None,
    like: int | None,
    limit: int,
    condition: str | None,
    columns: str | None,
    version: str | None,
    as_json: bool,
) -> None:
    """Search DATASET for WORDS or a vector; the best rows come first, with score or distance."""
    text = " ".join([*words, text]) if words and text else " ".join(words) or text
    if sum(one is not None for one in (text, vector, like)) != 1:
        raise click.UsageError("give words, or one of --text, --vector and --like")
    at = opened(dataset, version, storage_options)
    types = ("fixed_size_list",) if text is None else ("string", "large_string")
    column = column or _only_column(at, types)
    options: dict[str, Any] = {"columns": names_of(columns), "filter": condition, "limit": limit}
    if text is not None:
        query = {"query": text, "columns": [column]}
        found = at.scanner(full_text_query=query, prefilter=True, **options)
    else:
        wanted = _numbers(vector) if vector is not None else _vector_of(at, column, like)
        found = at.scanner(
            nearest={"column": column, "q": wanted, "k": limit}, prefilter=True, **options
        )
    print_rows(found.to_table(), as_json=as_json)


def _only_column(at: Any, types: tuple[str, ...]) -> str:
    names = [field.name for field in at.schema if str(field.type).startswith(types)]
    if len(names) != 1:
        raise click.UsageError(f"--column: name one of {', '.join(names) or 'none that would do'}")
    return str(names[0])


def _numbers(text: str) -> list[float]:
    try:
        given = json.loads(text)
        return [float(number) for number in given]
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise click.BadParameter(
            f"expected a JSON list of numbers: {error}", param_hint="--vector"
        ) from error


def _vector_of(at: Any, column: str, position: int | None) -> list[float]:
    from glaive.arrow.conditions import python_values

    (value,) = python_values(at.take([position], columns=[column])[0])
    if not isinstance(value, list):
        raise click.BadParameter(f"row {position} has no vector in {column}", param_hint="--like")
    return value
