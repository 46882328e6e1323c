"""Rows on disk for as long as a merge needs them: written once, read as views of the file.

The file is in the system's temporary folder (``TMPDIR``) and has no name, so that it is removed
however the process ends. Its format is Arrow's stream format, uncompressed.

Nothing waits in a buffer while rows are asked for: a child that is forked there, and ends, would
write it into the file of its parent.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from glaive.io.mapping import advise, map_file
from glaive.io.spilling import spilling
from glaive.types import ByteRange

__all__ = ["SpilledRows"]

_ROWS: Final = "rows of the source, which exceed memory_limit,"


class SpilledRows:
    """A temporary file of record batches. Close it to release the disk space.

    Raises
    ------
    StoreError
        There is no temporary folder in which files can be made.
    """

    def __init__(self, schema: pa.Schema) -> None:
        with spilling(_ROWS):
            self._file: Any = tempfile.TemporaryFile(prefix="glaive-")  # noqa: SIM115  # closed by close()
        self._writer: Any = pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), schema)
        with spilling(_ROWS):
            self._file.flush()
        self._map: pa.Buffer | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows.

        Raises
        ------
        StoreError
            They could not be written; the disk may be full.
        """
        with spilling(_ROWS):
            self._writer.write_batch(batch)
            self._file.flush()

    def finish(self) -> pa.Table:
        """All rows, as views of the file; no more can be written.

        Raises
        ------
        StoreError
            They could not be written; the disk may be full.
        """
        with spilling(_ROWS):
            self._writer.close()
            self._file.flush()
            self._map = map_file(self._file.fileno(), self._file.tell())
        return pa.ipc.open_stream(pa.BufferReader(self._map)).read_all()

    def let_go(self) -> None:
        """Take the pages of the file out of this process's memory; views stay valid."""
        if self._map is not None:
            advise(self._map, [ByteRange(0, self._map.size)], "dontneed")

    def close(self) -> None:
        """Release the file; its disk space is free once no view is left."""
        self._map = None
        with suppress(OSError):  # rows that were not written yet, which nobody needs
            self._file.close()
