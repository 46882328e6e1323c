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

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.arrow_numbers import read_numbers

__all__ = ["BITMAP_FROM", "MOST_DELETED", "decode_deletions", "encode_deletions"]

BITMAP_FROM: Final = 5000
"""Deleted rows from which on a file is a bitmap instead of an Arrow file."""

MOST_DELETED: Final = 1 << 27
"""Deleted rows of one fragment at most: they take 20 bytes each when the fragment is read."""

_SCHEMA: Final = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def decode_deletions(
    data: pa.Buffer, *, bitmap: bool, rows: int, count: int | None = None, where: object
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
    count
        Deleted rows as the manifest has them; ``None`` in old datasets, where only the file tells.

    Raises
    ------
    CorruptFileError
        The file cannot be parsed, holds another number of rows, or names a row that the fragment
        does not have.
    UnsupportedFeatureError
        More rows are deleted than this reader holds.

    Notes
    -----
    A few bytes can stand for any number of rows: they are counted before they are made.
    """
    most = rows if count is None else min(rows, count)
    if bitmap:
        offsets = _from_bitmap(data, rows, most, where)
    else:
        offsets = read_numbers(data, "row_id", most, where)
        if not (offsets[1:] > offsets[:-1]).all():
            offsets = np.unique(offsets)
        if len(offsets):
            _check_highest(int(offsets[-1]), rows, where)
    if count is not None and len(offsets) != count:
        raise _miscounted(f"{count}", len(offsets), where)
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


def _from_bitmap(data: pa.Buffer, rows: int, most: int, where: object) -> NDArray[np.uint32]:
    from pyroaring import BitMap

    try:
        bitmap = BitMap.deserialize(data.to_pybytes())
    except (ValueError, IndexError) as error:
        raise CorruptFileError(
            "deletion file", expected="a roaring bitmap", found=str(error), where=where
        ) from error
    if bitmap:
        _check_highest(bitmap.max(), rows, where)
    if len(bitmap) > most:
        raise _miscounted(f"at most {most}", len(bitmap), where)
    if len(bitmap) > MOST_DELETED:
        raise UnsupportedFeatureError(
            f"{len(bitmap)} rows of one fragment are deleted (in {where}); this reader holds "
            f"{MOST_DELETED} at most. Compact the dataset with the library that wrote it."
        )
    return np.asarray(bitmap.to_array(), dtype=np.uint32)


def _miscounted(expected: str, found: int, where: object) -> CorruptFileError:
    return CorruptFileError("deleted rows", expected=expected, found=f"{found}", where=where)


def _check_highest(highest: int, rows: int, where: object) -> None:
    if highest >= rows:
        raise CorruptFileError(
            "deleted rows", expected=f"offsets below {rows}", found=f"{highest}", where=where
        )
