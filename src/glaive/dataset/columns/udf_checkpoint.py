"""``BatchUDFCheckpoint``: results of a function by fragment and batch, under pylance's name."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from glaive.dataset.columns.checkpoint_file import checkpoint_file, read_batch
from glaive.io.failures import as_store_errors
from glaive.named_tuple import NamedTuple

__all__ = ["BatchUDFCheckpoint"]

# Apart from the tables of Checkpoint, which may be in the same file.
_TABLES = """
CREATE TABLE IF NOT EXISTS kept_batches
    (fragment_id INT, batch_index INT, result BLOB, PRIMARY KEY (fragment_id, batch_index));
CREATE TABLE IF NOT EXISTS kept_fragments (fragment_id INT PRIMARY KEY, data TEXT);
"""


class BatchUDFCheckpoint:
    """Batches and finished fragments in a file (SQLite), kept by hand.

    ``add_columns`` keeps its own results in the same file, by what was computed from which rows.

    Parameters
    ----------
    path
        Created if missing.

    Raises
    ------
    OptionError
        The file cannot be used.
    """

    class BatchInfo(NamedTuple):
        """Which batch: the fragment, and its number within it, from 0 on."""

        fragment_id: int
        batch_index: int

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        with checkpoint_file(self.path, _TABLES):
            pass  # it can be used

    def get_batch(self, info: BatchInfo) -> pa.RecordBatch | None:
        """The batch that was kept; None if there is none.

        Raises
        ------
        OptionError
            What the file has for it is no batch.
        """
        query = "SELECT result FROM kept_batches WHERE fragment_id = ? AND batch_index = ?"
        with checkpoint_file(self.path, _TABLES) as connection:
            row = connection.execute(query, tuple(info)).fetchone()
        return None if row is None else read_batch(row[0], self.path, info)

    def insert_batch(self, info: BatchInfo, batch: pa.RecordBatch) -> None:
        """Keep a batch; one that was kept before is replaced."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        values = (*info, sink.getvalue().to_pybytes())
        with checkpoint_file(self.path, _TABLES) as connection:
            connection.execute("INSERT OR REPLACE INTO kept_batches VALUES (?, ?, ?)", values)

    def get_fragment(self, fragment_id: int) -> str | None:
        """The text that was kept for a fragment; None if there is none."""
        query = "SELECT data FROM kept_fragments WHERE fragment_id = ?"
        with checkpoint_file(self.path, _TABLES) as connection:
            row = connection.execute(query, (fragment_id,)).fetchone()
        return None if row is None else str(row[0])

    def insert_fragment(self, fragment_id: int, fragment: str) -> None:
        """Keep the text of a finished fragment; its batches are no longer needed."""
        with checkpoint_file(self.path, _TABLES) as connection:
            connection.execute(
                "INSERT OR REPLACE INTO kept_fragments VALUES (?, ?)", (fragment_id, fragment)
            )
            connection.execute("DELETE FROM kept_batches WHERE fragment_id = ?", (fragment_id,))

    def cleanup(self) -> None:
        """Delete the file.

        Raises
        ------
        StoreError
            The system refuses, or there is none.
        """
        with as_store_errors(os.fspath(self.path), "delete"):
            Path(self.path).unlink()
