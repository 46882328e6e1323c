"""What a temporary folder could not take, as errors that say which one, and how to choose it."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager

from glaive.io.failures import as_store_errors

__all__ = ["spilling"]


def spilling(what: str) -> AbstractContextManager[None]:
    """Write to a temporary file, or read it; ``what`` is in it.

    Raises
    ------
    StoreError
        The system failed; the disk may be full.
    """
    return as_store_errors(f"{what} to a file in {_folder()} (TMPDIR chooses the folder)", "write")


def _folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return "a temporary folder"
