"""Files of this process that could not be written or read: errors that name them, and `TMPDIR`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from glaive.errors import GlaiveError
from glaive.io.failures import from_system

__all__ = ["naming", "spilling"]


def spilling(what: str) -> AbstractContextManager[None]:
    """Write to a temporary file, or read it; ``what`` is in it. Errors as for :func:`naming`."""
    return naming(f"{what} to a file in {_folder()} (TMPDIR chooses the folder)", "write")


@contextmanager
def naming(place: str, action: str) -> Iterator[None]:
    """Work with a file of this process; ``action`` is a verb, such as ``read``.

    Raises
    ------
    StoreError
        The system failed; the disk may be full. Names the place.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, GlaiveError):
            raise
        # Arrow's errors have a text of their own.
        plain = OSError(error.errno, os.strerror(error.errno)) if error.errno else error
        raise from_system(plain, place, action) from None


def _folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return "a temporary folder"
