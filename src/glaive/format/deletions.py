"""Deletion files: the deleted physical rows of a fragment.

They are a set of 32-bit offsets in one of two encodings: an Arrow IPC file with one column
``row_id`` (``u32``, not nullable, in any order) for few rows, and a roaring bitmap in the portable
layout for many.

Specification: "Deletion files" in ``docs/format``.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.bitmaps import ranges_of
from glaive.format.wire import parse_bitmap
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

if TYPE_CHECKING:
    from pyroaring import BitMap


# --- Read Arrow IPC files with one column of 32-bit numbers, as used for deletion files -
# Arrow's own reader would allocate whatever lengths a file specifies. Here the number of values,
# and the size of compressed ones, are checked before anything is allocated.
#
# A file consists of ``ARROW1``, padding, messages, a footer, its length, ``ARROW1``. The footer
# and the head of each message are flatbuffers: tables of fields, addressed by a list of offsets.
#
# Specification: "Deletion files" in ``docs/format``.

_MAGIC: Final = b"ARROW1"
_WIDTH: Final = 4
_LENGTH: Final = struct.Struct("<q")
_TAIL: Final = struct.Struct("<i6s")
_BLOCK: Final = struct.Struct("<qi4xq")
_PAIR: Final = struct.Struct("<qq")
_HEAD: Final = struct.Struct("<iI")
_CONTINUED: Final = -1
_BATCH: Final = 3
_INTEGER: Final = 2
_CODECS: Final = {0: "lz4", 1: "zstd"}
_UNCOMPRESSED: Final = -1
"""Instead of a length: this buffer is not compressed."""

_MAX_RATIO: Final = 256
"""Maximum compression ratio: that of distinct numbers is far lower."""

_MAX_PADDING: Final = 64
"""Bytes of padding that a writer may have compressed as well."""


class _Table:
    """A table of a flatbuffer; missing fields are 0."""

    __slots__ = ("_at", "_data", "_fields", "_offsets")

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._offsets = at - self._unpack("<i", at)
        self._fields = (self._unpack("<H", self._offsets) - 4) // 2

    @classmethod
    def first(cls, data: memoryview) -> _Table:
        """The root table of a buffer."""
        (at,) = struct.unpack_from("<I", data, 0)
        return cls(data, at)

    def _unpack(self, form: str, at: int) -> int:
        if at < 0:
            raise struct.error(f"position {at}")
        number: int = struct.unpack_from(form, self._data, at)[0]
        return number

    def _position(self, field: int) -> int:
        at = self._unpack("<H", self._offsets + 4 + 2 * field) if field < self._fields else 0
        return self._at + at if at else 0

    def number(self, field: int, form: str) -> int:
        """A scalar field."""
        at = self._position(field)
        return self._unpack(form, at) if at else 0

    def table(self, field: int) -> _Table | None:
        """A nested table."""
        at = self._position(field)
        return _Table(self._data, at + self._unpack("<I", at)) if at else None

    def items(self, field: int, size: int) -> list[memoryview]:
        """Entries of ``size`` bytes each."""
        at = self._position(field)
        if not at:
            return []
        at += self._unpack("<I", at)
        count = self._unpack("<I", at)
        entries = self._data[at + 4 : at + 4 + count * size]
        if len(entries) != count * size:
            raise struct.error(f"{count} entries of {size} bytes")
        return [entries[start : start + size] for start in range(0, len(entries), size)]

    def tables(self, field: int) -> list[_Table]:
        """Nested tables, in order."""
        at = self._position(field)
        entries = self.items(field, 4)
        first = at + self._unpack("<I", at) + 4 if entries else 0
        return [
            _Table(self._data, start + self._unpack("<I", start))
            for start in range(first, first + 4 * len(entries), 4)
        ]


class _Numbers(NamedTuple):
    """The numbers of one record batch: their count and bytes.

    ``size`` is the size in bytes after decompression with ``codec``, if any.
    """

    length: int
    data: memoryview
    size: int
    codec: Any


def read_numbers(data: pa.Buffer, name: str, most: int, where: object) -> NDArray[np.uint32]:
    """The numbers of the only column, called ``name``, in the order of the file.

    Parameters
    ----------
    most
        Maximum number of values.

    Raises
    ------
    CorruptFileError
        It is no such file, has nulls or too many numbers, or its lengths are inconsistent.
    """
    try:
        batches = list(_batches(memoryview(data), name, most, where))
        parts = [_content(batch, where) for batch in batches]
    except (struct.error, pa.ArrowException, OSError) as error:
        raise _unfit(where, "Arrow file", "lengths within the file", error) from error
    return np.concatenate([np.empty(0, np.uint32), *parts])


def _unfit(where: object, subject: str, expected: str, found: object) -> CorruptFileError:
    return CorruptFileError(subject, expected=expected, found=str(found), where=where)


def _batches(data: memoryview, name: str, most: int, where: object) -> Iterator[_Numbers]:
    footer = _footer(data, where)
    _check_schema(footer.table(1), name, where)
    remaining, budget = most, _MAX_RATIO * len(data)
    for entry in footer.items(3, _BLOCK.size):
        start, head, body = _BLOCK.unpack(entry)
        if min(start, head, body) < 0 or start + head + body > len(data) or head < _HEAD.size:
            raise _unfit(
                where, "record batch", f"bytes within 0..{len(data)}", f"{body} at {start}"
            )
        middle = start + head
        batch = _numbers(data[start:middle], data[middle : middle + body], where)
        remaining, budget = remaining - batch.length, budget - batch.size
        if remaining < 0:
            found = f"{most - remaining} or more"
            raise _unfit(where, "numbers of an Arrow file", f"at most {most}", found)
        if budget < 0:  # many batches with the same bytes
            raise _unfit(where, "numbers of an Arrow file", "unique numbers", "repeated batches")
        yield batch


def _footer(data: memoryview, where: object) -> _Table:
    size, magic = _TAIL.unpack_from(data, max(0, len(data) - _TAIL.size))
    end = len(data) - _TAIL.size
    if magic != _MAGIC or bytes(data[: len(_MAGIC)]) != _MAGIC or not 0 < size <= end:
        raise _unfit(
            where, "Arrow file", "ARROW1, messages, a footer and its length, ARROW1", "other bytes"
        )
    return _Table.first(data[end - size : end])


def _check_schema(schema: _Table | None, name: str, where: object) -> None:
    """Check that there is one non-nullable column of unsigned 32-bit numbers."""
    fields = schema.tables(1) if schema is not None else []
    found: Any = None
    if schema is not None and len(fields) == 1:
        (field,) = fields
        kind = field.table(3)
        text = b"".join(map(bytes, field.items(0, 1))).decode("utf-8", "replace")
        plain = field.table(4) is None and not field.tables(5)  # no dictionary, no children
        nullable, form = field.number(1, "<B"), field.number(2, "<B")
        bits = (0, 0) if kind is None else (kind.number(0, "<i"), kind.number(1, "<B"))
        if plain and (text, form, bits) == (name, _INTEGER, (8 * _WIDTH, 0)) and not nullable:
            if schema.number(0, "<h") == 0:
                return
            found = "big-endian numbers"
        else:
            found = f"column {text!r} of another type"
    expected = f"a column {name}: uint32 not null"
    raise _unfit(where, "Arrow file", expected, found or f"{len(fields)} columns")


def _numbers(head: memoryview, body: memoryview, where: object) -> _Numbers:
    """The numbers of a message, not decoded."""
    continued, size = _HEAD.unpack_from(head, 0)
    if continued != _CONTINUED or size > len(head) - _HEAD.size:
        raise _unfit(where, "record batch", "a message with its length before it", f"{size} bytes")
    message = _Table.first(head[_HEAD.size :])
    batch = message.table(2)
    if message.number(1, "<B") != _BATCH or batch is None:
        raise _unfit(where, "record batch", "a message with one", "another message")
    count = batch.number(0, "<q")
    nodes, buffers = batch.items(1, _PAIR.size), batch.items(2, _PAIR.size)
    if len(nodes) != 1 or len(buffers) != 2:
        raise _unfit(where, "record batch", "one column of numbers", f"{len(buffers)} buffers")
    length, nulls = _PAIR.unpack(nodes[0])
    if count < 0 or length != count or nulls:
        raise _unfit(
            where, "record batch", f"{count} numbers without nulls", f"{length}, {nulls} nulls"
        )
    start, size = _PAIR.unpack(buffers[1])
    if min(start, size) < 0 or start + size > len(body):
        raise _unfit(where, "numbers", f"bytes within 0..{len(body)}", f"{size} at {start}")
    return _within(count, body[start : start + size], batch.table(3), where)


def _within(count: int, data: memoryview, compression: _Table | None, where: object) -> _Numbers:
    """The numbers of a buffer, whose size must match their count."""
    codec, size = None, len(data)
    if compression is not None and size:
        codec = _CODECS.get(compression.number(0, "<b"))
        if codec is None or compression.number(1, "<b"):
            raise _unfit(
                where, "compressed numbers", "LZ4 or Zstandard by buffer", "another compression"
            )
        (size,) = _LENGTH.unpack_from(data, 0)
        data = data[_LENGTH.size :]
        if size == _UNCOMPRESSED:
            codec, size = None, len(data)
    needed = count * _WIDTH
    most = len(data) if codec is None else min(needed + _MAX_PADDING, _MAX_RATIO * len(data))
    if not needed <= size <= most:
        raise _unfit(
            where, "numbers", f"{needed} bytes for {count} of them", f"{size}, in {len(data)} bytes"
        )
    return _Numbers(count, data, size, codec)


def _content(batch: _Numbers, where: object) -> NDArray[np.uint32]:
    data: Any = batch.data
    if batch.codec == "zstd":
        data = pa.Codec(batch.codec).decompress(pa.py_buffer(data), batch.size)
    elif batch.codec is not None:
        # One-shot decompression would leave trailing bytes undefined if a frame is too short.
        data = pa.CompressedInputStream(pa.BufferReader(data), batch.codec).read(batch.size)
    if memoryview(data).nbytes < batch.length * _WIDTH:
        raise _unfit(
            where, "numbers", f"{batch.length * _WIDTH} bytes", f"{memoryview(data).nbytes}"
        )
    return np.frombuffer(data, "<u4", batch.length)


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
