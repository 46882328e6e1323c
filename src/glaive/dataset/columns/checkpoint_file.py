"""The file in which results of functions are kept: a database of SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from glaive.errors import OptionError

__all__ = ["checkpoint_file"]


@contextmanager
def checkpoint_file(path: str | os.PathLike[str]) -> Iterator[sqlite3.Connection]:
    """A connection to the file, created if missing; what was done with it is committed at the end.

    Raises
    ------
    OptionError
        The file cannot be used.
    """
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            yield connection
    except sqlite3.Error as error:
        raise OptionError(
            f"checkpoint_file {path}: {error}. Choose another file, or delete this one."
        ) from error
