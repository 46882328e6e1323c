"""Batches of a first pass in a temporary file, for later passes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any
from weakref import finalize

import pyarrow as pa

from glaive.forks import Origin
from glaive.io.failures import as_store_errors


class BatchCache:
    """Iterate over it: the first complete pass writes a file, later ones read it.

    A pass that ends early leaves no file; the next one begins again. A child that is forked amid a
    pass leaves the file of its parent as it is.

    Parameters
    ----------
    read
        Begins a pass.
    folder
        Where the file is; default: a temporary folder, deleted with the object.
    """

    def __init__(
        self, read: Callable[[], Iterator[pa.RecordBatch]], folder: str | None = None
    ) -> None:
        self._read = read
        with as_store_errors(folder or "a temporary folder (TMPDIR chooses it)", "write"):
            self._folder = Path(folder or tempfile.mkdtemp(prefix="glaive-batches-"))
        self._temporary = (
            finalize(self, _delete, self._folder, os.getpid()) if folder is None else None
        )
        self._file: Path | None = None
        self._origin = Origin()
        self._is_empty = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._file is not None:
            with as_store_errors(f"{self._file}", "read"):
                source = pa.memory_map(str(self._file))
            with source:
                yield from pa.ipc.open_stream(source)
            return
        if self._is_empty:
            return
        with as_store_errors(f"{self._folder}", "write"):
            self._folder.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(dir=self._folder, suffix=".arrow")
        file: Any = os.fdopen(number, "wb")
        path, stream = Path(name), pa.PythonFile(file, mode="w")
        origin, complete = Origin(), False
        try:
            writer: pa.RecordBatchStreamWriter | None = None
            for batch in self._read():
                with as_store_errors(name, "write"):
                    writer = writer or pa.ipc.new_stream(stream, batch.schema)
                    writer.write(batch)
                    file.flush()  # a child that ends would write what waits, too
                yield batch
            with as_store_errors(name, "write"):
                if writer is not None:
                    writer.close()
                file.close()
            complete = writer is not None
        finally:
            _end(file)
            if not complete and origin.is_here:
                path.unlink(missing_ok=True)
        if complete:
            self._file, self._origin = path, origin
        else:
            self._is_empty = True

    def delete(self) -> None:
        """Delete the file, and the folder if it is a temporary one; a fork those of its own."""
        self._is_empty = False
        if self._file is not None and self._origin.is_here:
            with as_store_errors(f"{self._file}", "delete"):
                self._file.unlink(missing_ok=True)
        self._file = None
        if self._temporary is not None:
            self._temporary()


def _end(file: Any) -> None:
    """Close a file; where its last bytes do not fit either, the error before says so."""
    with suppress(OSError):
        file.close()


def _delete(folder: Path, owner: int) -> None:
    """Delete a temporary folder; not in a child that was forked, since its parent still reads."""
    if os.getpid() == owner:
        rmtree(folder, ignore_errors=True)
