"""``BlobColumn``: the values of a binary column as files, one after the other."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from glaive.errors import SchemaError

__all__ = ["BlobColumn", "BlobIterator"]


class BlobIterator(Iterator["IO[bytes] | None"]):
    """Files over the values of a binary column; None for nulls."""

    def __init__(self, binary_iter: Iterator[pa.Scalar]) -> None:
        self.binary_iter = binary_iter

    def __next__(self) -> IO[bytes] | None:
        value = next(self.binary_iter)
        if not value.is_valid:
            return None
        return io.BytesIO(value.as_py())


class BlobColumn:
    """A binary column whose values are read as files: iterate over it.

    Values lie in memory. For large ones use a blob column, and ``take_blobs``.

    Parameters
    ----------
    blob_column
        Array or chunked array of binary or large_binary.

    Raises
    ------
    SchemaError
        It is none.
    """

    def __init__(self, blob_column: pa.Array | pa.ChunkedArray) -> None:
        if not isinstance(blob_column, pa.Array | pa.ChunkedArray):
            raise SchemaError(
                "Expected a pyarrow.Array or pyarrow.ChunkedArray, "
                f"got {type(blob_column).__name__}"
            )
        kind = blob_column.type
        if not pa.types.is_binary(kind) and not pa.types.is_large_binary(kind):
            raise SchemaError(f"Expected a binary array, got {kind}")
        self.blob_column = blob_column

    def __iter__(self) -> BlobIterator:
        return BlobIterator(iter(self.blob_column))
