"""Output of commands: tables or JSON lines."""

from __future__ import annotations

import base64
import codecs
import datetime as dt
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from glaive.errors import GlaiveError

if TYPE_CHECKING:
    import pyarrow as pa


KINDS = {
    ".arrow": "arrow",
    ".csv": "csv",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".json": "json",
    ".jsonl": "json",
    ".lance": "lance",
    ".ndjson": "json",
    ".parquet": "parquet",
}
"""Formats of files by the ends of their names."""

PIPE_WIDTH = 200


_CONTROLS = (*range(32), *range(127, 160), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F))
_HIDDEN = {
    code: f"\\x{code:02x}" if code < 32 else f"\\u{code:04x}"  # JSON knows the second form only
    for code in (*_CONTROLS, *range(0x2066, 0x206A))
} | {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}


def visible(text: str) -> str:
    """Return a text in one line, with escaped control characters."""
    return text.translate(_HIDDEN)


def in_lines(text: object) -> str:
    """Return a message for a terminal: only its indented lines stay lines."""
    return "\n  ".join(map(visible, public(text).split("\n  ")))


def public(text: object) -> str:
    """Remove the passwords and keys of URLs from a message or a location.

    Values of rows are shown as they are.
    """
    return GlaiveError.without_secrets(str(text))


def short_error(
    error: Exception, command: click.Command | None = None
) -> click.ClickException | None:
    """Return an error as a short message of a command; ``None`` for an unexpected error."""
    if isinstance(error, (GlaiveError, OSError)):
        message = " ".join([str(error), *getattr(error, "__notes__", [])])
        return click.ClickException(in_lines(_with_options(message, command)))
    if isinstance(error, click.UsageError):  # what the caller wrote, or a shell found: show *
        return click.UsageError(in_lines(error.format_message()), error.ctx)
    if type(error) is click.ClickException:
        return click.ClickException(in_lines(error.message))
    if isinstance(error, UnicodeEncodeError):
        return click.ClickException(
            in_lines(f"{error.object!r:.200} is not UTF-8: Arrow has no such names. Rename it")
        )
    if type(error).__module__ == "pyarrow.lib":
        return click.ClickException(in_lines(str(error).partition("\n")[0]))
    if type(error).__module__.partition(".")[0] in ("pyspark", "py4j"):
        # The lines after the first are the stack traces of Java and Python.
        first = str(error).strip().partition("\n")[0]
        return click.ClickException(in_lines(f"Spark: {first}"))
    return None


def _with_options(message: str, command: click.Command | None) -> str:
    """Replace arguments of Python in a message by options of a command: ``mode='append'``."""
    head, line, excerpt = message.partition("\n")
    head = re.sub(r"reader_options=\{'(\w+)': ('[^']*')\}", r"\1=\2", head)
    for option in command.params if command is not None else ():
        if isinstance(option, click.Option):
            flag = option.opts[-1]
            head = re.sub(rf"\b{option.name}=(?=')", f"{flag} ", head)
            head = re.sub(rf"\b{option.name}=(True\b)?", flag, head)
    return f"{head}{line}{excerpt}"


def escape_output() -> None:
    """Escape characters that the encoding of an output stream lacks.

    Examples are a terminal in Latin-1, or a pipe on Windows. Bytes in file names that are invalid
    UTF-8 are escaped, too: a terminal might obey them.
    """
    codecs.register_error("glaive.cli", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="glaive.cli")


def discard_unprinted() -> None:
    """Discard output that failed, as on a full disk, before the process ends.

    Otherwise the interpreter would try again, print a second error, and choose the exit code.
    """
    output: TextIO | None = sys.stdout
    if output is None:
        return
    try:
        output.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output.fileno())
            os.close(nowhere)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


def echo(text: object, *, err: bool = False) -> None:
    """Print a line; escape control characters."""
    click.echo(visible(str(text)), err=err)


def examples(*lines: str) -> str:
    """Return an epilog for a command's help, with line breaks that click keeps."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@contextmanager
def replacing(path: Path, *, or_itself: bool = False) -> Iterator[Path]:
    """Yield a temporary file in the folder of ``path``, which replaces it when the block ends.

    The name of the temporary file is random, which defeats prepared symlinks. An ``OSError`` that
    lacks a file name is an error of this file. Pipes and devices such as ``/dev/stdout`` stay: with
    ``or_itself`` the block writes to them, otherwise they are refused.
    """
    from glaive.io.local_sink import temporary_path

    folder = Path(os.path.realpath(path.absolute().parent))
    special = any(map(folder.is_relative_to, ("/dev", "/proc")))
    in_memory = folder.is_relative_to("/dev/shm")  # noqa: S108  # what the caller names
    replaced = not ((special and not in_memory) or (path.exists() and not path.is_file()))
    if not replaced and not or_itself:
        raise click.ClickException(f"{path} cannot be replaced. Name a regular file")
    unfinished = Path(temporary_path(str(path.absolute()))) if replaced else path
    try:
        yield unfinished
        if replaced:
            unfinished.replace(path)
    except OSError as error:
        own = error.errno is not None and error.filename in (None, str(unfinished))
        if not own or isinstance(error, GlaiveError | BrokenPipeError):
            raise
        from glaive.io.failures import from_system  # loads NumPy: too slow for --help

        # Arrow and Python leave out which file they were writing.
        plain = OSError(error.errno, os.strerror(error.errno or 0))
        raise from_system(plain, str(path), "write") from error
    finally:
        if replaced:
            unfinished.unlink(missing_ok=True)


def human_count(count: int) -> str:
    """Return 336776 as ``336,776``."""
    return f"{count:,}"


def number_of(count: int, noun: str) -> str:
    """Return ``1 file``, or ``1,000 files``."""
    return f"{human_count(count)} {noun}{'s' * (count != 1)}"


def human_bytes(count: float) -> str:
    """Return 3145728 as ``3.1 MB`` (decimal units)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def json_line(value: object) -> str:
    """Return one line of JSON; numbers that JSON lacks become null."""
    return json.dumps(_finite(value), default=_plain, ensure_ascii=False, allow_nan=False)


def print_json(value: object) -> None:
    """Print one line of JSON; see :func:`json_line`."""
    echo(json_line(value))


def print_facts(facts: Mapping[str, object], *, as_json: bool) -> None:
    """Print names and values, one pair per line; or one JSON object."""
    if as_json:
        print_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        echo(f"{name.replace('_', ' '):<{width}}  {_cell(name, value) or 'none'}")


def print_records(
    rows: Sequence[Mapping[str, Any]], titles: Sequence[str] | Mapping[str, str], *, as_json: bool
) -> None:
    """Print rows as JSON, or the keys with a title as a table."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    named = titles if isinstance(titles, Mapping) else {title: title for title in titles}
    print_table([*named.values()], [[_cell(key, row.get(key)) for key in named] for row in rows])


def _cell(key: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, int) and "version" not in key:
        return human_bytes(value) if "bytes" in key else human_count(value)
    return str(value)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns; numbers are right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, title in enumerate(titles):
        numbers = all(_is_number(row[position]) for row in cells)
        table.add_column(
            Text(visible(title)), justify="right" if numbers else "left", overflow="fold"
        )
    for row in cells:
        table.add_row(*[Text(visible(str(cell))) for cell in row])
    Console(width=width_of_output()).print(table)


def width_of_output() -> int | None:
    """Return the width of tables; ``None`` for the width of the terminal.

    If standard output is closed, its stream is ``None``.
    """
    output: TextIO | None = sys.stdout
    return None if output is not None and output.isatty() else PIPE_WIDTH


def print_rows(batch: pa.Table | pa.RecordBatch, *, as_json: bool) -> None:
    """Print rows as JSON lines, or as a table with long values truncated."""
    if as_json:
        from glaive.arrow.conditions import exact_rows

        for row in exact_rows(batch):
            print_json(row)
    else:
        from glaive.dataset.stats import short_texts

        columns = list(map(short_texts, batch.columns))
        rows = [[column[at] for column in columns] for at in range(batch.num_rows)]
        print_table(list(batch.schema.names), rows)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) or (
        isinstance(cell, str)
        and cell[:1].isdecimal()
        and cell.replace(",", "").replace(".", "").isdecimal()
    )


def _finite(value: Any) -> Any:
    """Replace infinities and NaN by ``None``, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> object:
    """Convert a value for JSON: times to ISO 8601, bytes to base64, others to strings."""
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)  # decimals among others
