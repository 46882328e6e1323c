"""Deletion files: the deleted physical rows of a fragment.

They are a set of 32-bit offsets in one of two encodings: an Arrow IPC file with one column
``row_id`` (``u32``, not nullable, in any order) for few rows, and a roaring bitmap in the portable
layout for many.

Specification: "Deletion files" in ``docs/format``.
"""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import ascending
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.arrow_numbers import read_numbers
from glaive.format.wire import parse_bitmap

__all__ = ["BITMAP_FROM", "MAX_DELETED_ROWS", "decode_deletions", "encode_deletions"]

BITMAP_FROM: Final = 5000
"""Minimum deleted rows of a bitmap; fewer are written to an Arrow file."""

MAX_DELETED_ROWS: Final = 1 << 27
"""Limit of deleted rows per fragment: they take 9 bytes each while their file is read."""

_PLAIN_UNTIL: Final = 16
"""Maximum deleted rows of an Arrow file without compression.

Up to 20 rows its file is never larger than with zstd, whatever the offsets: a frame and the length
before it take more bytes than are saved. Making a context of zstd takes longer than all else.
"""

_SCHEMA: Final = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def decode_deletions(
    data: pa.Buffer, *, bitmap: bool, rows: int, count: int | None = None, where: object
) -> NDArray[np.uint32]:
    """Deleted offsets, ascending and unique.

    Parameters
    ----------
    data
        The contents of the file.
    bitmap
        Whether it is a roaring bitmap; otherwise an Arrow file.
    rows
        Physical rows of the fragment: the upper bound of offsets.
    count
        Deleted rows according to the manifest; ``None`` in old datasets.

    Raises
    ------
    CorruptFileError
        The file cannot be parsed, has another number of rows, or an offset is out of range.
    UnsupportedFeatureError
        The number of deleted rows exceeds the limit of this reader.

    Notes
    -----
    A few bytes can stand for any number of rows: they are counted before they are decoded.
    """
    most = rows if count is None else min(rows, count)
    if bitmap:
        offsets = _from_bitmap(data, rows, most, where)
    else:
        offsets = ascending(read_numbers(data, "row_id", most, where))
        if len(offsets):
            _check_highest(int(offsets[-1]), rows, where)
    if count is not None and len(offsets) != count:
        raise _miscounted(f"{count}", len(offsets), where)
    return offsets


def encode_deletions(offsets: NDArray[np.uint32], *, bitmap: bool) -> bytes:
    """Encode ascending offsets as a roaring bitmap or an Arrow file."""
    if bitmap:
        from pyroaring import BitMap

        # An array is by far the fastest input of pyroaring.
        numbers = array("I", offsets.astype(np.uint32).tobytes())
        serialized: bytes = BitMap(numbers).serialize()
        return serialized
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if len(offsets) > _PLAIN_UNTIL else None)
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        column = pa.array(offsets, pa.uint32())
        writer.write_batch(pa.record_batch([column], schema=_SCHEMA))
    return sink.getvalue().to_pybytes()


def _from_bitmap(data: pa.Buffer, rows: int, most: int, where: object) -> NDArray[np.uint32]:
    bitmap = parse_bitmap(data.to_pybytes(), "deletion file", where)
    if bitmap:
        _check_highest(bitmap.max(), rows, where)
    if len(bitmap) > most:
        raise _miscounted(f"at most {most}", len(bitmap), where)
    if len(bitmap) > MAX_DELETED_ROWS:
        raise UnsupportedFeatureError(
            f"{len(bitmap)} rows of one fragment are deleted (in {where}); this reader supports "
            f"at most {MAX_DELETED_ROWS}. Compact the dataset with the library that wrote it."
        )
    return np.asarray(bitmap.to_array(), dtype=np.uint32)


def _miscounted(expected: str, found: int, where: object) -> CorruptFileError:
    return CorruptFileError("deleted rows", expected=expected, found=f"{found}", where=where)


def _check_highest(highest: int, rows: int, where: object) -> None:
    if highest >= rows:
        raise CorruptFileError(
            "deleted rows", expected=f"offsets below {rows}", found=f"{highest}", where=where
        )
