"""A line of the terminal that says how far a long work is: ``progress=True``.

Rows are noted where all of them pass, when they are written or found (:func:`note_rows`) and when
an index reads them: whatever writes or builds has a line without passing it on. Where the standard
error is no terminal, as in jobs and in tests, nothing is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

from glaive.errors import OptionError


class ProgressLine:
    """One line, drawn by ``rich``.

    Parameters
    ----------
    label
        What is done: ``write``.
    unit
        What is counted: ``rows``.
    stream
        A terminal.
    total
        How many there are, if known.
    """

    def __init__(self, label: str, unit: str, stream: TextIO, total: int | None = None) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        counts = MofNCompleteColumn(separator=" of "), TextColumn(unit)
        columns = TextColumn("{task.description}"), BarColumn(24), *counts, TimeElapsedColumn()
        self._bars = Progress(*columns, console=Console(file=stream), transient=True)
        self._task = self._bars.add_task(escape(label), total=total)
        self._bars.start()

    def advance(self, count: int) -> None:
        """So many more are done; from any thread."""
        self._bars.advance(self._task, count)

    def move_to(self, done: int, total: int | None) -> None:
        """So many are done, of so many; from any thread."""
        self._bars.update(self._task, completed=done, total=total)

    def end(self) -> None:
        """Remove the line."""
        self._bars.stop()


_LINE: ContextVar[ProgressLine | None] = ContextVar("line of the terminal", default=None)


def current_line() -> ProgressLine | None:
    """The line of the work that goes on in this thread, if one is shown."""
    return _LINE.get()


def note_rows(count: int) -> None:
    """So many rows were written, or found for a change."""
    line = _LINE.get()
    if line is not None:
        line.advance(count)


@contextmanager
def showing(
    progress: object, label: str, total: int | None = None, unit: str = "rows"
) -> Iterator[None]:
    """Show a line during a block, if ``progress`` is True and standard error is a terminal.

    A work within another one has the line of the outer one.

    Raises
    ------
    OptionError
        ``progress`` is neither True nor False nor None.
    """
    if progress is not None and not isinstance(progress, bool):
        raise OptionError(f"progress: expected True or False, found {progress!r:.80}")
    stream = sys.stderr
    if not progress or _LINE.get() is not None or stream is None or not stream.isatty():
        yield
        return
    line = ProgressLine(label, unit, stream, total)
    before = _LINE.set(line)
    try:
        yield
    finally:
        _LINE.reset(before)
        line.end()
