"""A register of manifests in an SQLite file, for one machine or machines with a shared disk."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from glaive.errors import GlaiveError, ObjectNotFoundError, StoreError
from glaive.io.failures import as_store_errors
from glaive.io.sqlite import connect_checked, has_tables
from glaive.table.manifest_store.protocol import ManifestEntry

__all__ = ["SqliteManifestStore"]

_CREATE = """
CREATE TABLE IF NOT EXISTS manifests (
    base_uri TEXT NOT NULL,
    version INTEGER NOT NULL,
    path TEXT NOT NULL,
    size INTEGER,
    e_tag TEXT,
    PRIMARY KEY (base_uri, version)
) WITHOUT ROWID
"""
_WAIT_SECONDS = 30.0
"""How long to wait for another process that is writing."""


class SqliteManifestStore:
    """Entries in one file, created on the first write. Can be shared by many datasets.

    Local datasets are identified by their path relative to the file, so that both can be moved
    together, whichever links lead to them; others by their URI.

    Parameters
    ----------
    path
        The file. On a network mount, file locks must work.

    Notes
    -----
    Uses a rollback journal next to the file rather than a write-ahead log, which needs shared
    memory. A commit takes two transactions with fsync: a few milliseconds, tens on a busy disk.
    Each call opens the file, about 0.1 ms, so that forks and threads share no connection.
    """

    __slots__ = ("path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()

    def __repr__(self) -> str:
        return f"SqliteManifestStore({str(self.path)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (SqliteManifestStore, (str(self.path),))

    def get(self, root: str, version: int) -> ManifestEntry | None:
        """The entry of a version; ``None`` if there is none."""
        return self._one(root, "version = ?", version)

    def latest(self, root: str) -> ManifestEntry | None:
        """The entry with the highest version; ``None`` if there are no entries."""
        return self._one(root, "version >= ? ORDER BY version DESC LIMIT 1", 0)

    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Add an entry atomically; ``False`` if the version has one."""
        with self._connected(write=True) as connection:
            added = connection.execute(
                "INSERT INTO manifests VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (self._key(root), entry.version, entry.path, entry.size, entry.e_tag),
            )
            return added.rowcount == 1

    def put_if_exists(self, root: str, entry: ManifestEntry) -> None:
        """Replace the entry of a version that has one."""
        with self._connected(write=True) as connection:
            changed = connection.execute(
                "UPDATE manifests SET path = ?, size = ?, e_tag = ? "
                "WHERE base_uri = ? AND version = ?",
                (entry.path, entry.size, entry.e_tag, self._key(root), entry.version),
            )
            if changed.rowcount != 1:
                raise ObjectNotFoundError(
                    f"{self.path} has no version {entry.version} of {root}: the entry was deleted "
                    "during the commit."
                )

    def drop(self, root: str) -> None:
        """Delete all entries of a dataset, if any."""
        key = self._key(root)
        if self._is_there():
            with self._connected(write=True) as connection:
                connection.execute("DELETE FROM manifests WHERE base_uri = ?", (key,))

    def _key(self, root: str) -> str:
        key = root
        if "://" not in root:
            folder = Path(os.path.realpath(self.path)).parent
            key = os.path.relpath(os.path.realpath(root), folder).replace(os.sep, "/")
        try:
            key.encode()
        except UnicodeEncodeError:
            raise StoreError(
                f"the manifest store {self.path} cannot have entries of {root!r}: SQLite keeps no "
                "names that are not UTF-8. Rename the folder, or use manifest_store='sqlite'."
            ) from None
        return key

    def _is_there(self) -> bool:
        with as_store_errors(str(self.path), "look up"):
            return self.path.exists()

    def _one(self, root: str, where: str, number: int) -> ManifestEntry | None:
        key = self._key(root)
        if not self._is_there():
            return None
        with self._connected(write=False) as connection:
            # Another process may have created the file, but not yet the table.
            if not has_tables(connection, _CREATE):
                return None
            row = connection.execute(
                "SELECT version, path, size, e_tag FROM manifests "  # noqa: S608  # both parts are constants
                f"WHERE base_uri = ? AND {where}",
                (key, number),
            ).fetchone()
            if row is None:
                return None
            version, path, size, e_tag = row
            if not (isinstance(version, int) and isinstance(path, str)):  # columns take any type
                raise sqlite3.DatabaseError(f"its entry {row!r:.200} is no version and path")
        return ManifestEntry(version=version, path=path, size=size, e_tag=e_tag)

    @contextmanager
    def _connected(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction that is committed at the end."""
        try:
            if write:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(connect_checked(self.path, _WAIT_SECONDS)) as connection:
                connection.execute("PRAGMA journal_mode = PERSIST")
                connection.execute("PRAGMA synchronous = NORMAL")
                if write:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute(_CREATE)
                    has_tables(connection, _CREATE)
                yield connection
                if write:
                    connection.execute("COMMIT")
        # Messages of SQLite cite a damaged file, which may have any bytes.
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            if isinstance(error, GlaiveError):
                raise
            raise StoreError(
                f"the manifest store {self.path} failed: {error}. Check the file, its permissions "
                "and the free space, then try again."
            ) from None
