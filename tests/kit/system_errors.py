"""Let calls of the operating system fail from some moment on, as if a disk were full.

Only for local directories. Unlike a limit of the process, this can begin at each single call of an
operation, and end again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["CALLS", "FailingCalls", "failing_from"]

CALLS: Final = ("open", "write", "writev", "fsync", "close", "link", "replace", "mkdir", "makedirs")
"""Functions of ``os`` that change a directory or a file, or open or close one."""


class FailingCalls:
    """How many calls there were below a directory, and which of them fail.

    Parameters
    ----------
    root
        Calls with a path below it count, and those with files that were opened there.
    error
        The number of the error, such as ``errno.ENOSPC``.
    at
        The first call that fails, from 1; all later ones fail as well.
    """

    def __init__(self, root: str, error: int, at: int) -> None:
        self.root, self.error, self.at = root, error, at
        self.count = 0
        self._open: dict[int, bool] = {}  # whether to be written

    @property
    def failed(self) -> bool:
        """Whether any call failed."""
        return self.count >= self.at

    def wrap(self, name: str, real: Any) -> Any:
        """A function of ``os`` that fails when it is time to."""

        def call(*arguments: Any, **options: Any) -> Any:
            first = arguments[0]
            if isinstance(first, int):
                path = "" if first not in self._open else self.root
            else:
                path = os.fspath(first)
            below = path.startswith(self.root)
            changes = True
            if name == "open":
                changes = bool(arguments[1] & (os.O_WRONLY | os.O_RDWR))
            elif name == "close":  # network file systems report here what they could not write
                changes = self._open.pop(first, False)
                real(first)
            if below and changes:
                self.count += 1
                if self.count >= self.at:
                    raise OSError(self.error, os.strerror(self.error), path or None)
            if name == "close":
                return None
            result = real(*arguments, **options)
            if name == "open" and below:
                self._open[result] = changes
            return result

        return call


@contextmanager
def failing_from(root: str, error: int, at: int) -> Iterator[FailingCalls]:
    """Let calls of this process below a directory fail from the ``at``-th on while the block runs.

    Replaces functions of ``os`` meanwhile: those that change something. Deletions succeed, as they
    do on full disks.
    """
    calls = FailingCalls(root, error, at)
    before: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in CALLS}
    for name, real in before.items():
        setattr(os, name, calls.wrap(name, real))
    try:
        yield calls
    finally:
        for name, real in before.items():
            setattr(os, name, real)
