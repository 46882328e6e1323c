"""What a temporary folder could not take, as errors that say which folder, and how to choose it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from glaive.errors import GlaiveError
from glaive.io.failures import from_system

__all__ = ["spilling"]


@contextmanager
def spilling(what: str) -> Iterator[None]:
    """Write to a temporary file, or read it; ``what`` is in it.

    Raises
    ------
    StoreError
        The system failed; the disk may be full.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, GlaiveError):
            raise
        # Arrow's errors have a text of their own.
        plain = OSError(error.errno, os.strerror(error.errno)) if error.errno else error
        where = f"{what} to a file in {_folder()} (TMPDIR chooses the folder)"
        raise from_system(plain, where, "write") from None


def _folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return "a temporary folder"
