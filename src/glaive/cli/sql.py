"""``glaive sql``: statements over datasets, which run on Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from glaive.cli.options import command, pairs_of
from glaive.cli.output import echo, human_count, print_rows, short_error
from glaive.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_LINES = 1000
"""Statements that the history keeps."""


@command(
    "glaive sql -e 'SELECT carrier, count(*) FROM f GROUP BY carrier' --table f=flights.lance",
    "glaive sql -e 'DELETE FROM lance.`flights.lance` WHERE dep_delay IS NULL'",
    "glaive sql --file upkeep.sql --master spark://host:7077",
    "glaive sql --table f=flights.lance",
    opens=None,
)
@click.option(
    "-e",
    "--execute",
    "texts",
    multiple=True,
    metavar="STATEMENT",
    help="Run this statement; may be repeated.",
)
@click.option(
    "--file",
    type=click.File(encoding="utf-8"),
    help="Run the statements of a file; each ends with a semicolon.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME=DATASET",
    help="A table that statements name; may be repeated.",
)
@click.option(
    "--catalog",
    "catalogues",
    multiple=True,
    metavar="NAME=FOLDER",
    help="A folder of tables, which statements name NAME.table; may be repeated.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Print at most this many rows of each result.",
)
@click.option("--master", help="Spark cluster to run on. Default: this machine.")
@click.option(
    "--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated."
)
def sql(
    *,
    texts: tuple[str, ...],
    file: TextIO | None,
    tables: tuple[str, ...],
    catalogues: tuple[str, ...],
    rows: int,
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run SQL statements over datasets on Spark; see docs/guide/spark-sql.md.

    Statements name a dataset by its path, as lance.`flights.lance`, or by a name of --table. The
    command runs --execute and --file in this order, and stops at the first error. Without these
    options it reads statements from standard input, or from the keyboard.
    """
    from glaive.cli.progress import steps_of_spark

    named: dict[str, Any] = {**pairs_of("--table", tables, "NAME=DATASET")}
    for name, folder in pairs_of("--catalog", catalogues, "NAME=FOLDER").items():
        from glaive.namespace import connect

        named[name] = connect("dir", {"root": folder})
    settings = pairs_of("--conf", conf)
    given = [*texts, *([file.read()] if file is not None else [])]
    if not given and not sys.stdin.isatty():
        given = [sys.stdin.read()]
    with steps_of_spark(to_stderr=True) as steps:
        spark = steps.start_spark(master, "glaive sql", settings)
        if not given:
            _talk(spark, named, rows, as_json=as_json)
        for text in given:
            for statement in _statements(text):
                _run(spark, statement, named, rows, as_json=as_json)


def _statements(text: str) -> Iterator[str]:
    from glaive.spark.grammar import split_statements, words_of

    return (statement for statement in split_statements(text) if words_of(statement))


def _run(
    spark: SparkSession, statement: str, tables: dict[str, Any], rows: int, *, as_json: bool
) -> None:
    """Run a statement and print its first rows."""
    from glaive.spark import sql

    frame = sql(spark, statement, **tables)
    if not frame.columns:
        return
    table = frame.limit(rows + 1).toArrow()
    print_rows(table.slice(0, rows), as_json=as_json)
    if table.num_rows > rows:
        echo(f"The first {human_count(rows)} rows. Print more with --rows", err=True)


# --- Statements from the keyboard -------------------------------------------------------


def _talk(spark: SparkSession, tables: dict[str, Any], rows: int, *, as_json: bool) -> None:
    """Run statements that the user types, until ``exit`` or the end of the input."""
    echo("End a statement with a semicolon. Leave with exit, or Ctrl-D.", err=True)
    typed = ""
    with _history():
        while True:
            try:
                typed += input("     > " if typed else "glaive> ") + "\n"
                if typed.strip().rstrip(";").lower() in ("exit", "quit"):
                    return
                *statements, typed = _typed(typed)
                for statement in statements:
                    _run(spark, statement, tables, rows, as_json=as_json)
            except EOFError:
                echo("", err=True)
                return
            except KeyboardInterrupt:
                echo("", err=True)
                typed = ""
            except Exception as error:  # the next statement may be right
                short = short_error(error)
                if short is None:
                    raise
                typed = ""
                short.show()


def _typed(text: str) -> list[str]:
    """Return the finished statements, and the beginning of the next one or an empty string."""
    from glaive.spark.grammar import split_statements

    if not text.strip():
        return [""]
    try:
        *statements, rest = split_statements(text)
    except OptionError:  # a quote that a later line may close
        return [text]
    return [*statements, rest.lstrip()]


@contextmanager
def _history() -> Iterator[None]:
    """Let keys of the terminal recall lines of earlier sessions; Windows lacks these keys."""
    try:
        import readline
    except ImportError:
        yield
        return
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = state / "glaive" / "sql_history"
    with suppress(OSError):  # a home that is missing or read-only has no history
        readline.read_history_file(path)
    readline.set_history_length(_MAX_LINES)
    try:
        yield
    finally:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            readline.write_history_file(path)
