"""Deletion files: which physical rows of a fragment are gone.

Two forms hold the same set of 32-bit offsets: an Arrow IPC file with one column ``row_id``
(``u32``, not nullable, in any order) for few of them, and a roaring bitmap in the portable
layout for many.

Specification: "Deletion files" in ``docs/format``.
"""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError

__all__ = ["BITMAP_FROM", "decode_deletions", "encode_deletions"]

BITMAP_FROM: Final = 5000
"""Deleted rows from which on a file is a bitmap instead of an Arrow file."""

_SCHEMA: Final = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def decode_deletions(
    data: pa.Buffer, *, bitmap: bool, rows: int, where: object
) -> NDArray[np.uint32]:
    """Deleted offsets, ascending, each once.

    Parameters
    ----------
    data
        The whole file.
    bitmap
        Whether it is a roaring bitmap, else an Arrow file.
    rows
        Physical rows of the fragment; every offset is below.

    Raises
    ------
    CorruptFileError
        The file cannot be parsed or names a row the fragment does not have.
    """
    if bitmap:
        return _from_bitmap(data, rows, where)
    offsets = _from_arrow(data, where)
    if len(offsets):
        _check_highest(int(offsets[-1]), rows, where)
    return offsets


def encode_deletions(offsets: NDArray[np.uint32], *, bitmap: bool) -> bytes:
    """File content for ascending offsets: a roaring bitmap or an Arrow file."""
    if bitmap:
        from pyroaring import BitMap

        # Of all that pyroaring takes, an array is by far the quickest.
        numbers = array("I", offsets.astype(np.uint32).tobytes())
        serialized: bytes = BitMap(numbers).serialize()
        return serialized
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        column = pa.array(offsets, pa.uint32())
        writer.write_batch(pa.record_batch([column], schema=_SCHEMA))
    return sink.getvalue().to_pybytes()


def _from_arrow(data: pa.Buffer, where: object) -> NDArray[np.uint32]:
    try:
        reader = pa.ipc.open_file(pa.BufferReader(data))
        if reader.schema.equals(_SCHEMA):
            table = reader.read_all()
            table.validate()
            return np.unique(table.column(0).to_numpy())
        found = str(reader.schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(
            "deletion file", expected="an Arrow file", found=str(error), where=where
        ) from error
    raise CorruptFileError(
        "deletion file", expected="a column row_id: uint32 not null", found=found, where=where
    )


def _from_bitmap(data: pa.Buffer, rows: int, where: object) -> NDArray[np.uint32]:
    from pyroaring import BitMap

    try:
        bitmap = BitMap.deserialize(data.to_pybytes())
    except (ValueError, IndexError) as error:
        raise CorruptFileError(
            "deletion file", expected="a roaring bitmap", found=str(error), where=where
        ) from error
    if bitmap:
        # Few bytes can stand for billions of rows: look before making them.
        _check_highest(bitmap.max(), rows, where)
    return np.asarray(bitmap.to_array(), dtype=np.uint32)


def _check_highest(highest: int, rows: int, where: object) -> None:
    if highest >= rows:
        raise CorruptFileError(
            "deleted rows", expected=f"offsets below {rows}", found=f"{highest}", where=where
        )
