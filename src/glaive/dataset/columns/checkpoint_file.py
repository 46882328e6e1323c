"""The file in which results of functions are kept: a database of SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from glaive.errors import OptionError

__all__ = ["checkpoint_file", "read_batch"]


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


def read_batch(data: object, path: object, subject: object) -> pa.RecordBatch:
    """The batch that is stored in a file; checked, as its offsets may be anything.

    Raises
    ------
    OptionError
        It is none; ``subject`` says of what it is.
    """
    try:
        if not isinstance(data, bytes):
            raise TypeError(f"expected bytes, found {type(data).__name__}")
        with pa.ipc.open_stream(data) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
    except (pa.ArrowException, OSError, StopIteration, TypeError, ValueError) as error:
        raise OptionError(
            f"checkpoint_file {path}: the result for {subject} cannot be read ({error}). Delete "
            "the file to start over."
        ) from error
    return batch
