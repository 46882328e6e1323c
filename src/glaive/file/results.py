"""The rows that the reader of a file was asked for."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

__all__ = ["ReaderResults"]


class ReaderResults:
    """The requested rows: as a table, or as batches that are decoded when needed.

    Parameters
    ----------
    reader
        The rows in batches of the requested size.
    whole
        The same rows in fewer batches, for a table; those of ``reader`` when omitted.
    """

    def __init__(
        self, reader: pa.RecordBatchReader, whole: Iterable[pa.RecordBatch] | None = None
    ) -> None:
        self.reader = reader
        self._whole = reader if whole is None else whole

    def to_batches(self) -> pa.RecordBatchReader:
        """The batches, each decoded when the reader reaches it."""
        return self.reader

    def to_table(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(list(self._whole), self.reader.schema)
