"""The ``glaive`` command: a list of sub-commands, each in a file of its own.

A sub-command is imported when it is called, so that ``glaive --help`` does not wait for Arrow
or Spark. Errors glaive reports on purpose end in one line and exit code 1.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from glaive.cli.output import examples
from glaive.errors import GlaiveError

__all__ = ["COMMANDS", "Commands", "cli", "main"]

COMMANDS = {
    "demo": "Turn real files into datasets with Spark, and read them back.",
    "head": "Print the first rows of a dataset.",
    "ingest": "Turn CSV, JSON or Parquet files into a dataset, with Spark.",
    "inspect": "Show how a file or dataset is laid out, to the byte.",
    "scan": "Print or export rows of a dataset.",
    "schema": "Print the columns of a dataset.",
    "versions": "List the versions of a dataset.",
    "warmup": "Compile all kernels, so that later processes start fast.",
}
"""Name and first line of help of every sub-command; the code is in the module of that name."""


class Commands(click.Group):
    """Imports a sub-command when it is needed, and turns glaive's errors into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name; only this one is imported."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"glaive.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list for ``--help`` without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the sub-command; an error of glaive becomes a message, not a traceback."""
        try:
            return super().invoke(ctx)
        except GlaiveError as error:
            notes = getattr(error, "__notes__", [])
            raise click.ClickException(" ".join([str(error), *notes])) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
                raise
            # Below its first line Spark prints the stacks of two machines.
            first = str(error).strip().partition("\n")[0]
            raise click.ClickException(f"Spark: {first}") from error


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "glaive demo", "glaive ingest flights.csv flights.lance", "glaive head flights.lance -n 5"
    ),
)
@click.version_option(package_name="glaive", message="glaive %(version)s")
def cli() -> None:
    """Lance datasets: write them with Spark, look into them, read them."""


def main() -> None:
    """Run the command line; where the reader of a pipe has gone, end quietly."""
    try:
        cli(prog_name="glaive")
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
