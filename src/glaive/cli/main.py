"""The ``glaive`` command and its sub-commands, which other modules have by topic.

A sub-command is imported when it is called, which keeps ``glaive --help`` free of Arrow and Spark.
A ``GlaiveError`` is printed as one line, with indented lines below, and exit code 1.
"""

from __future__ import annotations

import gc
import importlib
import logging
import sys
import traceback
import warnings
from types import TracebackType
from typing import Any

import click

from glaive.cli.output import (
    discard_unprinted,
    echo,
    escape_output,
    examples,
    in_lines,
    public,
    short_error,
)

_MODULES = {
    "rows": {
        "count": "Count the rows of a dataset.",
        "head": "Print the first rows of a dataset.",
        "scan": "Print or export rows of a dataset.",
        "schema": "Print the columns of a dataset.",
        "search": "Search for words, or for the nearest vectors.",
        "take": "Print rows by position.",
    },
    "versions": {
        "branch": "List, create or delete branches.",
        "diff": "Compare two versions of a dataset.",
        "history": "List the commits of a dataset, with operation, rows, tags and message.",
        "ls": "List the datasets in a folder.",
        "namespace": "Serve a directory as a catalogue, or list its tables.",
        "restore": "Make an older version the current one.",
        "show": "Show a dataset on one screen: size, columns, versions, advice.",
        "tag": "List, create, move or delete tags.",
        "versions": "List the versions of a dataset.",
    },
    "maintenance": {
        "adviser": "Compare encodings of each column: bytes, and time to read.",
        "cleanup": "Delete old versions and unused files.",
        "compact": "Merge small files and remove deleted rows.",
        "doctor": "Check the installation: versions, kernels, Java, access to a store.",
        "index": "List, build, update or drop indices.",
        "maintain": "Do the maintenance that pays: compaction, indices, tags, versions.",
        "repair": "Repair a damaged dataset: drop indices, or restore a sound version.",
        "verify": "Check all files of all versions.",
        "warmup": "Compile all kernels, so that later processes start fast.",
    },
    "files": {
        "convert": "Convert between Lance, Parquet, CSV, JSON and Arrow files.",
        "ingest": "Write CSV, JSON, Parquet and other files to a dataset.",
    },
    "inspect": {"inspect": "Show the layout of a file or dataset in bytes."},
    "sql": {"sql": "Run SQL statements over datasets on Spark."},
    "pipeline": {
        "demo": "Convert real files to datasets with Spark, and read them back.",
        "pipeline": "Run the steps of a file on Spark; print plan, status or report.",
    },
}
"""Name and summary of every sub-command, by module."""

COMMANDS = {name: said for commands in _MODULES.values() for name, said in commands.items()}


class _VisibleFormatter(logging.Formatter):
    """Format a message of a log as one line, like errors."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return in_lines(super().format(record))


class Commands(click.Group):
    """A group that imports sub-commands when needed and prints glaive's errors as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name; only this one is imported."""
        if cmd_name not in COMMANDS:
            return None
        home = next(module for module, commands in _MODULES.items() if cmd_name in commands)
        command: click.Command = getattr(importlib.import_module(f"glaive.cli.{home}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the message for an unknown one names the closest."""
        from difflib import get_close_matches

        if not (args[0] in COMMANDS or args[0].startswith("-") or ctx.resilient_parsing):
            close = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list for ``--help`` from names alone."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the sub-command; errors of glaive become short messages."""
        if logging.lastResort is not None:  # prints warnings where nobody has set up logging
            logging.lastResort.setFormatter(_VisibleFormatter())
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, click.exceptions.NoArgsIsHelpError):
            raise
        except Exception as error:
            short = short_error(error, self.get_command(ctx, ctx.invoked_subcommand or ""))
            if short is None:
                raise
            raise short from error


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    click.echo(in_lines(f"Warning: {message}"), err=True)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "glaive ingest flights.csv flights.lance",
        "glaive head flights.lance -n 5",
        "glaive search flights.lance 'new york'",
    ),
)
@click.version_option(package_name="glaive", message="glaive %(version)s")
def cli() -> None:
    """Write, read, search and maintain Lance datasets. Only pipelines and the demo need Spark."""


def print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an unexpected error; escape its message, which may have untrusted names."""
    for part in traceback.format_exception(kind, error, trace):
        for line in part.rstrip("\n").split("\n"):
            echo(public(line), err=True)


def main() -> None:
    """Run the command line; exit silently if the reader of the output pipe has ended."""
    sys.excepthook = print_traceback
    warnings.showwarning = _show_warning
    escape_output()
    try:
        cli(prog_name="glaive")
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:  # of the help, which is printed before a command begins
        echo(public(f"Error: {error}"), err=True)
        sys.exit(1)
    finally:
        discard_unprinted()
        # At its end, the interpreter would search all unfrozen objects for garbage twice: 30 to 50
        # ms of a command.
        gc.freeze()
