"""Whether Python may look at what a Parquet file says of its columns.

pyarrow ends the process where these parts of the footer are damaged: it does not expect an error of
Arrow when Python asks for one of them. Reading the columns does.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import RawIOBase
from typing import Any

import pyarrow as pa

__all__ = ["can_be_described"]


def can_be_described(footer: Any, groups: Sequence[int], size: int) -> bool:
    """Whether row groups of a footer tell where their columns lie; nothing is read.

    Parameters
    ----------
    footer
        The ``FileMetaData``.
    groups
        Numbers of the row groups.
    size
        Bytes of the file.
    """
    from pyarrow import parquet

    source = _Unread(size)
    file: Any = pa.PythonFile(source, "r")
    try:
        # Reading ahead begins with the places of all columns.
        opened: Any = parquet.ParquetFile(file, metadata=footer, pre_buffer=True)
        next(opened.iter_batches(1, row_groups=groups, use_threads=False), None)
    except (pa.ArrowException, OSError):
        return source.was_asked
    return False  # there is nothing to read


class _Unread(RawIOBase):
    """A file that notes that somebody wants to read it, and refuses."""

    was_asked = False

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> Any:
        self.was_asked = True
        raise OSError(f"{size} bytes are not read")
