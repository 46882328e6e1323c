"""The file in which results of functions are kept: a database of SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import pyarrow as pa

from glaive.arrow.invalid_values import check_arrays
from glaive.errors import OptionError
from glaive.io.object_path import check_root
from glaive.io.sqlite import connect_checked, has_tables

__all__ = ["checkpoint_file", "read_batch"]

_WAIT_SECONDS = 5.0
"""How long to wait for another process that is writing."""

_OWN: Final = frozenset({"batches", "files", "kept_batches", "kept_fragments"})
"""Tables that checkpoints have."""


@contextmanager
def checkpoint_file(path: str | os.PathLike[str], tables: str) -> Iterator[sqlite3.Connection]:
    """A connection to the file, created if missing; what was done with it is committed at the end.

    ``tables`` are the statements that make the tables, if they are not there yet.

    Raises
    ------
    OptionError
        The file cannot be used, or is a database of something else: a checkpoint is deleted in the
        end.
    """
    check_root(os.fsdecode(path), is_local=True)
    try:
        with closing(connect_checked(path, _WAIT_SECONDS, "DEFERRED")) as connection, connection:
            _refuse_others(connection, path)
            if not has_tables(connection, tables):
                connection.executescript(tables)
            yield connection
    # Messages of SQLite cite a damaged file, which may have any bytes.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise OptionError(
            f"checkpoint_file {path}: {error}. Choose another file, or delete this one."
        ) from error


def _refuse_others(connection: sqlite3.Connection, path: str | os.PathLike[str]) -> None:
    query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    for (name,) in connection.execute(query):
        if str(name).lower() not in _OWN and not str(name).startswith("sqlite_"):
            raise OptionError(
                f"checkpoint_file {path}: it is a database with other tables, such as "
                f"{name!r:.60}, which would be deleted with it. Choose another file"
            )


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
        check_arrays(batch)
    except (pa.ArrowException, OSError, StopIteration, TypeError, ValueError) as error:
        raise OptionError(
            f"checkpoint_file {path}: the result for {subject} cannot be read ({error}). Delete "
            "the file to start over."
        ) from error
    return batch
