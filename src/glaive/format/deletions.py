"""Deletion files: the deleted physical rows of a fragment.

They are a set of 32-bit offsets in one of two encodings: an Arrow IPC file with one column
``row_id`` (``u32``, not nullable, in any order) for few rows, and a roaring bitmap in the portable
layout for many.

Specification: "Deletion files" in ``docs/format``.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import ascending
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.arrow_numbers import read_numbers
from glaive.format.bitmaps import ranges_of
from glaive.format.wire import parse_bitmap
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = [
    "BITMAP_FROM",
    "MAX_DELETED_ROWS",
    "DeletedRuns",
    "decode_deletions",
    "decode_runs",
    "encode_deletions",
]

BITMAP_FROM: Final = 5000
"""Minimum deleted rows of a bitmap; fewer are written to an Arrow file."""

MAX_DELETED_ROWS: Final = 1 << 27
"""Limit of deleted rows of a fragment that are listed: they take 9 bytes each meanwhile."""

_PLAIN_UNTIL: Final = 16
"""Maximum deleted rows of an Arrow file without compression.

Up to 20 rows its file is never larger than with zstd, whatever the offsets: a frame and the length
before it take more bytes than are saved. Making a context of zstd takes longer than all else.
"""

_SCHEMA: Final = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


class DeletedRuns(NamedTuple):
    """The deleted rows of a fragment as runs, of which a few bytes may stand for billions of rows.

    Parameters
    ----------
    begins, ends
        The first row of each run, and the row behind its last one; ascending.
    """

    begins: Int64s
    ends: Int64s

    @classmethod
    def of(cls, offsets: NDArray[np.uint32]) -> Self:
        """The runs of ascending offsets, each of which is there once."""
        first = np.zeros(min(len(offsets), 1), np.int64)
        first = np.concatenate((first, np.flatnonzero(np.diff(offsets) != 1) + 1))
        begins = offsets[first].astype(np.int64)
        return cls(begins, begins + np.diff(first, append=len(offsets)))


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
        There are more than :data:`MAX_DELETED_ROWS`.

    Notes
    -----
    A few bytes can stand for any number of rows: they are counted before they are listed.
    """
    found = _decode(data, rows, count, where, bitmap=bitmap)
    if len(found) > MAX_DELETED_ROWS:
        raise UnsupportedFeatureError(
            f"{len(found)} rows of one fragment are deleted (in {where}); this reader lists "
            f"at most {MAX_DELETED_ROWS}. Compact the dataset first."
        )
    return found if isinstance(found, np.ndarray) else np.asarray(found.to_array(), np.uint32)


def decode_runs(
    data: pa.Buffer, *, bitmap: bool, rows: int, count: int | None = None, where: object
) -> DeletedRuns:
    """The deleted rows as runs, however many they are; memory follows from the bytes.

    Parameters and errors are those of :func:`decode_deletions`, which lists the rows.
    """
    found = _decode(data, rows, count, where, bitmap=bitmap)
    if isinstance(found, np.ndarray):
        return DeletedRuns.of(found)
    # A file is not compressed: each of its bytes stands for four runs at most.
    begins, ends = ranges_of(found, lambda _: None)
    return DeletedRuns(begins.astype(np.int64), ends.astype(np.int64))


def _decode(
    data: pa.Buffer, rows: int, count: int | None, where: object, *, bitmap: bool
) -> NDArray[np.uint32] | BitMap:
    """The deleted offsets as they are stored, checked."""
    most = rows if count is None else min(rows, count)
    found: NDArray[np.uint32] | BitMap
    if bitmap:
        found = parse_bitmap(data.to_pybytes(), "deletion file", where)
        highest = found.max() if found else -1
    else:
        found = ascending(read_numbers(data, "row_id", most, where))
        highest = int(found[-1]) if len(found) else -1
    if highest >= rows:
        raise CorruptFileError(
            "deleted rows", expected=f"offsets below {rows}", found=f"{highest}", where=where
        )
    if count is not None and len(found) != count:
        raise CorruptFileError(
            "deleted rows", expected=f"{count}", found=f"{len(found)}", where=where
        )
    return found


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
