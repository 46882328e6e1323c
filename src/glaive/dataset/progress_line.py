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
from threading import Lock
from typing import Final, TextIO

from glaive.clock import monotonic
from glaive.errors import OptionError

_SECONDS: Final = 0.1
"""Time between two states of the line."""

_CLEAR: Final = "\r\x1b[K"
_CELLS: Final = 24


class ProgressLine:
    """One line, written again and again.

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
        self._label, self._unit, self._stream = label, unit, stream
        self._total, self._done = total, 0
        self._lock = Lock()
        self._began = monotonic()
        self._shown = self._began - _SECONDS

    def advance(self, count: int) -> None:
        """So many more are done; from any thread."""
        with self._lock:
            self._move_to(self._done + count, self._total)

    def move_to(self, done: int, total: int | None) -> None:
        """So many are done, of so many; from any thread."""
        with self._lock:
            self._move_to(done, total)

    def _move_to(self, done: int, total: int | None) -> None:
        self._done, self._total = done, total
        moment = monotonic()
        if moment - self._shown >= _SECONDS:
            self._shown = moment
            self._write(moment - self._began)

    def end(self) -> None:
        """Remove the line."""
        self._stream.write(_CLEAR)
        self._stream.flush()

    def _write(self, seconds: float) -> None:
        text = f"{self._label} {self._done:,}"
        if self._total:
            cells = _CELLS * min(self._done, self._total) // self._total
            bar = "█" * cells + "░" * (_CELLS - cells)
            text = f"{self._label} {bar} {self._done:,} of {self._total:,}"
        self._stream.write(f"{_CLEAR}{text} {self._unit}, {seconds:.0f} s")
        self._stream.flush()


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
