"""Files of SQLite that somebody else may have written.

SQLite believes a file. A view or a trigger in the place of a table computes anything for any time,
and a journal may name another file of this machine, which is deleted once the journal was rolled
back. So a journal that names one is refused, which is written only where several databases are
changed at once, and tables have to be those that this library makes. So is a log, to which SQLite
writes even to read, that is another file as well.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from contextlib import suppress
from typing import Final, Literal

from glaive.io.mapped import READING

_NAMES_ANOTHER: Final = bytes.fromhex("d9d505f920a163d7")
"""How a journal ends that names another file, before which its own is not complete."""

_OF_LOG: Final = ("-wal", "-shm")
"""Ends of the names of files that SQLite writes to, even where it only reads, once a file says that
it has a write-ahead log. No file of this library has one.
"""

_STEPS: Final = 200_000_000
"""Steps of a statement, some seconds: damaged trees of pages may have any number of rows."""

_TABLE: Final = re.compile(r"CREATE TABLE IF NOT EXISTS ((\w+)[^;]*?)\s*(?:;|$)")
"""A statement: what is stored of it, and the name of the table."""


def connect_checked(
    path: str | os.PathLike[str], timeout: float, isolation_level: Literal["DEFERRED"] | None = None
) -> sqlite3.Connection:
    """Connect to a file, which is created if missing.

    Parameters
    ----------
    path
        The file.
    timeout
        Seconds to wait for another process that writes.
    isolation_level
        As for ``sqlite3.connect``.

    Raises
    ------
    sqlite3.Error
        It cannot be opened, or it or its journal is no file; or the journal names another one, or
        cannot be read; or a file of its log has another name as well.
    """
    real = os.path.realpath(path)
    _refuse_device(real)
    _refuse_shared_log(real)
    journal = f"{real}-journal"
    if _end_of(journal, len(_NAMES_ANOTHER)) == _NAMES_ANOTHER:
        raise sqlite3.DatabaseError(
            f"{journal} names another file, which would be deleted; no journal of this file does"
        )
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=isolation_level)
    connection.set_progress_handler(_stop, _STEPS)
    return connection


def has_tables(connection: sqlite3.Connection, statements: str) -> bool:
    """Whether a file has the tables that some statements make; those that it has are no others.

    Parameters
    ----------
    connection
        To the file.
    statements
        ``CREATE TABLE IF NOT EXISTS`` for each table, with a semicolon in between.

    Raises
    ------
    sqlite3.DatabaseError
        A table is a view, has a trigger, or is not as the statement would make it.
    """
    known = True
    for stored, name in _TABLE.findall(statements):
        found = connection.execute(
            "SELECT sql FROM sqlite_master WHERE lower(tbl_name) = ? AND sql IS NOT NULL", (name,)
        ).fetchall()
        if found and [str(sql).strip() for (sql,) in found] != [f"CREATE TABLE {stored}"]:
            raise sqlite3.DatabaseError(f"its table {name} is not one that glaive made")
        known = known and bool(found)
    return known


def _end_of(path: str, size: int) -> bytes:
    """The last bytes of a file; none if there is no such file, or it cannot be read.

    Raises
    ------
    sqlite3.DatabaseError
        It is something else, such as a pipe, which SQLite would wait for; or the system fails.
    """
    try:
        fd = os.open(path, READING)
    except OSError:  # SQLite cannot open it either, and says so
        return b""
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            raise sqlite3.DatabaseError(f"{path} is no file")
        os.lseek(fd, max(0, state.st_size - size), os.SEEK_SET)
        return os.read(fd, size)
    except OSError as error:
        raise sqlite3.DatabaseError(f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)


def _refuse_device(path: str) -> None:
    """Refuse what is no file, such as a disk: SQLite would write to it as to a new file.

    It is not opened: a process that closes a file lets go of all locks that it has on it.
    """
    with suppress(OSError):  # there is none, or SQLite cannot open it either
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise sqlite3.DatabaseError(f"{path} is no file")


def _refuse_shared_log(path: str) -> None:
    """Refuse files of a log that are other files of this machine, too: their bytes would change."""
    for end in _OF_LOG:
        with suppress(OSError):  # there is none
            if os.lstat(f"{path}{end}").st_nlink > 1:
                raise sqlite3.DatabaseError(
                    f"{path}{end} has another name as well, and would be written to. Delete it"
                )


def _stop() -> bool:
    return True
