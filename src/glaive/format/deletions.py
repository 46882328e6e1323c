"""Deletion files: the deleted physical rows of a fragment.

They are a set of 32-bit offsets in one of two encodings. For few rows it is an Arrow IPC file
with one column ``row_id`` (``u32``, not nullable, in any order). For many it is a roaring bitmap in
the portable layout.

Specification: "Deletion files" in ``docs/format``.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending, number_array
from glaive.arrow.chunked import as_numpy
from glaive.dataclass import NamedTuple
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.bitmaps import ranges_of
from glaive.format.wire import parse_bitmap
from glaive.types import Int64s

if TYPE_CHECKING:
    from pyroaring import BitMap


# --- Read Arrow IPC files with one column of 32-bit numbers, as used for deletion files -
#
# Arrow allocates whatever size a compressed buffer states. So the stated sizes are compared with
# the size of the file before Arrow decompresses a record batch. A file is ``ARROW1``, padding,
# messages, a footer, its length, ``ARROW1``. The head of a message is a flatbuffer: tables of
# fields, addressed by a list of offsets.
#
# Specification: "Deletion files" in ``docs/format``.

_MAGIC, _ALIGNMENT = 8, 64
"""Bytes before the first message: the magic, and zeros up to this alignment."""

_MAX_RATIO: Final = 32
"""Maximum compression ratio; distinct numbers have a far lower ratio."""


def read_numbers(data: pa.Buffer, limit: int, where: object) -> NDArray[np.uint32]:
    """Return the numbers of the only column, ``row_id``, in the order of the file.

    Parameters
    ----------
    limit
        Maximum number of values.

    Raises
    ------
    CorruptFileError
        It is another kind of file, has nulls or too many numbers, or its lengths are inconsistent.
    """
    parts, left, allowed_bytes = [np.empty(0, np.uint32)], limit, _MAX_RATIO * data.size
    try:
        count = pa.ipc.open_file(data).num_record_batches
        head = memoryview(data)[: _ALIGNMENT + 1]
        first = next((at for at in range(_MAGIC, len(head), _MAGIC) if head[at]), _MAGIC)
        messages = pa.ipc.MessageReader.open_stream(data.slice(first))
        schema = pa.ipc.read_schema(messages.read_next_message())
        if not schema.equals(_SCHEMA):
            raise _unfit(where, "a column row_id: uint32 not null", schema)
        alone = pa.ipc.IpcReadOptions(use_threads=False)  # threads can take 1 ms to wake up
        batches = pa.ipc.open_stream(data.slice(first), options=alone)
        for _ in range(count):
            allowed_bytes -= _stated_bytes(messages.read_next_message())
            if allowed_bytes < 0:
                raise _unfit(where, "unique numbers", "more bytes than such numbers take")
            numbers = batches.read_next_batch().column(0)
            numbers.validate(full=True)
            left -= len(numbers)
            if left < 0 or numbers.null_count:
                raise _unfit(where, f"at most {limit} without nulls", f"{limit - left}")
            parts.append(as_numpy(numbers))
    except (struct.error, pa.ArrowException, OSError, StopIteration, MemoryError) as error:
        raise _unfit(where, "an Arrow file with lengths within it", error) from error
    return np.concatenate(parts)


def _unfit(where: object, expected: str, found: object) -> CorruptFileError:
    return CorruptFileError(
        "numbers of an Arrow file", expected=expected, found=str(found), where=where
    )


def _stated_bytes(message: Any) -> int:
    """Return bytes to which the compressed buffers of a record batch decompress, as they state."""
    head, body = memoryview(message.metadata), memoryview(message.body)

    def field(table: int, number: int) -> int:
        """Return where a field of a table is; 0 for a missing one."""
        (back,) = struct.unpack_from("<i", head, table)
        (size,) = struct.unpack_from("<H", head, table - back)
        if size < 6 + 2 * number:
            return 0
        (at,) = struct.unpack_from("<H", head, table - back + 4 + 2 * number)
        return table + at if at else 0

    def target(at: int) -> int:
        return at + int(struct.unpack_from("<I", head, at)[0])

    batch = target(field(target(0), 2))
    listed = field(batch, 2)
    if not (listed and field(batch, 3)):  # not compressed
        return 0
    first, total = target(listed), 0
    (count,) = struct.unpack_from("<I", head, first)
    for number in range(count):
        start, size = struct.unpack_from("<qq", head, first + 4 + 16 * number)
        total += max(0, struct.unpack_from("<q", body, start)[0]) if size else 0
    return total


MIN_BITMAP_ROWS: Final = 17
"""Minimum deleted rows of a bitmap; fewer are written to an Arrow file.

Compressed Arrow files of more rows are larger, unless most rows are 65,536 apart. They also take
far longer to write.
"""

MAX_DELETED_ROWS: Final = 1 << 27
"""Limit of deleted rows of a fragment that are listed: they take 9 bytes each meanwhile."""

_SCHEMA: Final = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


class DeletedRuns(NamedTuple):
    """The deleted rows of a fragment as runs; a few bytes may encode billions of rows.

    Parameters
    ----------
    begins, ends
        The first row of each run, and the row after its last one; ascending.
    """

    begins: Int64s
    ends: Int64s

    @classmethod
    def of(cls, offsets: NDArray[np.uint32]) -> Self:
        """Return the runs of ascending offsets, each of them present once."""
        rows = offsets.astype(np.int64)
        is_first = np.ones(len(rows) + 1, np.bool_)
        np.not_equal(rows[1:], rows[:-1] + 1, out=is_first[1:-1])
        return cls(rows[is_first[:-1]], rows[is_first[1:]] + 1)


def decode_deletions(
    data: pa.Buffer, *, bitmap: bool, rows: int, count: int | None = None, where: object
) -> NDArray[np.uint32]:
    """Return deleted offsets, ascending and unique.

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
        The file is invalid, has another number of rows, or an offset is out of range.
    UnsupportedFeatureError
        More than :data:`MAX_DELETED_ROWS` are deleted.

    Notes
    -----
    A few bytes can encode any number of rows, so rows are counted before they are listed.
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
    """Return the deleted rows as runs, however many they are; memory follows from the bytes.

    :func:`decode_deletions`, which lists the rows, describes parameters and errors.
    """
    found = _decode(data, rows, count, where, bitmap=bitmap)
    if isinstance(found, np.ndarray):
        return DeletedRuns.of(found)
    # Roaring bitmaps are uncompressed: each of their bytes stands for four runs at most.
    begins, ends = ranges_of(found, lambda _: None)
    return DeletedRuns(begins.astype(np.int64), ends.astype(np.int64))


def _decode(
    data: pa.Buffer, rows: int, count: int | None, where: object, *, bitmap: bool
) -> NDArray[np.uint32] | BitMap:
    """Return the deleted offsets as they are stored, checked."""
    limit = rows if count is None else min(rows, count)
    found: NDArray[np.uint32] | BitMap
    if bitmap:
        found = parse_bitmap(data.to_pybytes(), "deletion file", where)
        highest = found.max() if found else -1
    else:
        found = ascending(read_numbers(data, limit, where))
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
    with pa.ipc.new_file(sink, _SCHEMA) as writer:
        column = number_array(offsets, pa.uint32())
        writer.write_batch(pa.record_batch([column], schema=_SCHEMA))
    return sink.getvalue().to_pybytes()
