"""Whether Python may look at what a Parquet file says of its columns.

pyarrow ends the process where these parts of the footer are damaged: it does not expect an error of
Arrow when Python asks for one of them. Reading the columns does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from glaive.ingestion.sources import RangeFile
from glaive.types import ByteRange

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

    source: Any = _Unread(size)  # of a reader, all that is asked
    file: Any = pa.PythonFile(RangeFile(source), "r")
    try:
        # Reading ahead begins with the places of all columns.
        opened: Any = parquet.ParquetFile(file, metadata=footer, pre_buffer=True)
        next(opened.iter_batches(1, row_groups=groups, use_threads=False), None)
    except (pa.ArrowException, OSError):
        return bool(source.was_asked)
    return False  # there is nothing to read


class _Unread:
    """A source of bytes that notes that somebody wants them, and refuses."""

    was_asked = False

    def __init__(self, size: int) -> None:
        self.size = size

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        self.was_asked = True
        raise OSError(f"{ranges} are not read")

    def close(self) -> None:
        """Nothing is open."""
