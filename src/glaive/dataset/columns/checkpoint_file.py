"""The file in which results of functions are kept: a database of SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.exported import exported_metadata
from glaive.arrow.invalid_values import check_arrays
from glaive.errors import OptionError
from glaive.format.extension_metadata import without_unfit
from glaive.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME
from glaive.io.object_path import check_root
from glaive.io.sqlite import connect_checked, has_tables

__all__ = ["checkpoint_file", "read_batch"]

_WAIT_SECONDS = 5.0
"""How long to wait for another process that is writing."""

_REMEDIES: Final = {
    sqlite3.SQLITE_BUSY: "wait until the other process that has it open has ended",
    sqlite3.SQLITE_FULL: "free some space and try again",
}
"""What to do about a file that is as it should be, by the code of SQLite."""

_OWN: Final = frozenset({"batches", "files", "kept_batches", "kept_fragments"})
"""Tables that checkpoints have."""

_PREFIX: Final = 8
"""Bytes before a message, at most: a mark, and its length."""

_NAME: Final = EXTENSION_NAME.encode()
_OTHER_NAME: Final = _NAME.lower()
_OF_TYPES: Final = {_OTHER_NAME: EXTENSION_NAME, EXTENSION_METADATA.encode(): EXTENSION_METADATA}


@contextmanager
def checkpoint_file(path: str | os.PathLike[str], tables: str) -> Iterator[sqlite3.Connection]:
    """A connection to the file, created if missing; what was done with it is committed at the end.

    ``tables`` are the statements that make the tables, if they are not there yet.

    Raises
    ------
    OptionError
        The file cannot be used, or is a database of something else: a checkpoint is deleted in the
        end. Or a number or a text that is looked for, or kept, is none that SQLite has.
    """
    check_root(os.fsdecode(path), is_local=True)
    try:
        with closing(connect_checked(path, _WAIT_SECONDS, "DEFERRED")) as connection, connection:
            _refuse_others(connection, path)
            if not has_tables(connection, tables):
                connection.executescript(tables)
            yield connection
    except (OverflowError, UnicodeEncodeError) as error:
        raise OptionError(f"checkpoint_file {path}: no value that it can hold: {error}") from error
    # Messages of SQLite cite a damaged file, which may have any bytes.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest is of extended codes
        remedy = f"Choose another file, or {_REMEDIES.get(code, 'delete this one')}."
        raise OptionError(f"checkpoint_file {path}: {error}. {remedy}") from error


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
        _check_types(data)
        with pa.ipc.open_stream(data) as reader:
            batch = reader.read_next_batch()
        check_arrays(batch)
    except (pa.ArrowException, EOFError, OSError, StopIteration, TypeError, ValueError) as error:
        raise OptionError(
            f"checkpoint_file {path}: the result for {subject} cannot be read ({error}). Delete "
            "the file to start over."
        ) from error
    return batch


def _check_types(data: bytes) -> None:
    """Refuse extension types that Arrow is not given from files: it makes them while it reads.

    Raises
    ------
    ValueError
        There is one whose parameters do not fit, or are neither text nor JSON.
    """
    head = data[: _PREFIX + pa.ipc.read_message(data).metadata.size]
    # By another name of the same length, it is metadata like any other.
    schema = pa.ipc.read_schema(pa.py_buffer(head.replace(_NAME, _OTHER_NAME)))
    if any(key == _OTHER_NAME for key, _ in exported_metadata(schema)):
        raise ValueError("the schema itself has an extension type, which no schema is of")
    ahead: list[pa.Field[Any]] = [*schema]
    while ahead:
        field = ahead.pop()
        pairs = exported_metadata(field)
        said = {_OF_TYPES[key]: value for key, value in pairs if key in _OF_TYPES}
        repeated = len(said) < sum(key in _OF_TYPES for key, _ in pairs)
        if EXTENSION_NAME in said and (repeated or without_unfit(said, field.type) != said):
            raise ValueError(f"column {field.name!r:.60} has an extension type of unfit parameters")
        ahead += _members(field.type)


def _members(kind: Any) -> list[pa.Field[Any]]:
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    return [kind.field(at) for at in range(kind.num_fields)]
