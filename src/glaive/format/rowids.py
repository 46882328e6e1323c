"""Sequences of row ids and of row versions, one entry per physical row of a fragment.

A row id sequence is a list of segments, each in the shortest of five forms:

==================== ============================================================
form                 values
==================== ============================================================
range                ``start`` to ``end``, exclusive
range with holes     the same without the values listed
range with bitmap    bit ``i``, least significant first, says if ``start + i`` is there
sorted array         ascending values: a base and 16- or 32-bit offsets, or 64 bits each
array                the same in any order
==================== ============================================================

Specification: "Row ids" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.pb import table_pb2

__all__ = [
    "concatenate_row_ids",
    "concatenate_versions",
    "count_row_ids",
    "decode_row_ids",
    "decode_segment",
    "decode_versions",
    "encode_row_ids",
    "encode_version_array",
    "encode_versions",
    "segment_bounds",
    "select_row_ids",
    "select_versions",
]

_RANGE_BYTES: Final = 24
"""What a range costs in the comparison of forms."""

_MOST_ROWS: Final = 2**32
"""Rows of a fragment: its part of a row address has 32 bits."""


def decode_row_ids(data: bytes, rows: int, *, where: object) -> NDArray[np.uint64]:
    """Row id of each of ``rows`` physical rows.

    Raises
    ------
    CorruptFileError
        The sequence cannot be parsed or does not hold ``rows`` values.
    """
    segments = _parse(table_pb2.RowIdSequence, data, where).segments
    _check_rows(sum(_length(one, where) for one in segments), rows, "row ids", where)
    parts = [_decode(one, where) for one in segments]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def decode_segment(segment: table_pb2.U64Segment, *, where: object) -> NDArray[np.uint64]:
    """Values of one segment, which :func:`segment_bounds` has checked."""
    return _decode(segment, where)


def segment_bounds(segment: table_pb2.U64Segment, *, where: object) -> tuple[int, int, int]:
    """Lowest value of a segment, the first one after the highest, and the number of values.

    Of a range with values missing the bounds are those of the range.

    Raises
    ------
    CorruptFileError
        Parts of the segment do not fit each other.
    """
    length = _length(segment, where)
    _check_rows(length, length, "row ids", where)
    form = str(segment.WhichOneof("segment"))
    if form not in ("sorted_array", "array"):
        part = getattr(segment, form)
        return part.start, part.end, length
    values = _decode_array(getattr(segment, form))
    if not len(values):
        return 0, 0, 0
    return int(values.min()), min(int(values.max()) + 1, 2**64 - 1), length


def count_row_ids(data: bytes, *, where: object) -> int:
    """Number of row ids in a sequence; 0 for none.

    Raises
    ------
    CorruptFileError
        The sequence cannot be parsed.
    """
    if not data:
        return 0
    return sum(_length(one, where) for one in _parse(table_pb2.RowIdSequence, data, where).segments)


def select_row_ids(data: bytes, rows: int, kept: NDArray[np.uint32], *, where: object) -> bytes:
    """The sequence of the rows at these offsets, ascending: each segment is cut by itself.

    Raises
    ------
    CorruptFileError
        As :func:`decode_row_ids`.
    """
    segments = _parse(table_pb2.RowIdSequence, data, where).segments
    lengths = [_length(one, where) for one in segments]
    _check_rows(sum(lengths), rows, "row ids", where)
    if len(kept) == rows:
        return data
    ends = np.cumsum(lengths)
    cuts = np.searchsorted(kept, np.concatenate([[0], ends]))
    chosen = []
    for one, first, last, end, length in zip(
        segments, cuts[:-1].tolist(), cuts[1:].tolist(), ends.tolist(), lengths, strict=True
    ):
        if last - first == length:
            chosen.append(one)
        elif first < last:
            chosen.append(
                _encode(_decode(one, where)[kept[first:last].astype(np.int64) + length - end])
            )
    return table_pb2.RowIdSequence(segments=chosen).SerializeToString()


def concatenate_row_ids(sequences: Sequence[bytes], *, where: object) -> bytes:
    """One sequence after the other, segment by segment; ranges that continue are joined.

    Raises
    ------
    CorruptFileError
        A sequence cannot be parsed.
    """
    joined: list[Any] = []
    for data in sequences:
        for segment in _parse(table_pb2.RowIdSequence, data, where).segments:
            last = joined[-1] if joined else None
            if (
                last is not None
                and last.WhichOneof("segment") == "range" == segment.WhichOneof("segment")
                and last.range.end == segment.range.start
            ):
                joined[-1] = _range(last.range.start, segment.range.end)
            else:
                joined.append(segment)
    return table_pb2.RowIdSequence(segments=joined).SerializeToString()


def select_versions(data: bytes, rows: int, kept: NDArray[np.uint32], *, where: object) -> bytes:
    """The sequence of the rows at these offsets, ascending.

    Raises
    ------
    CorruptFileError
        As :func:`decode_versions`.
    """
    if len(kept) == rows:
        return data
    return encode_version_array(decode_versions(data, rows, where=where)[kept])


def concatenate_versions(sequences: Sequence[bytes]) -> bytes:
    """One sequence after the other, run by run."""
    return b"".join(sequences)


def encode_row_ids(ids: NDArray[np.uint64] | range) -> bytes:
    """The sequence with these row ids, in the shortest form."""
    segment = _range(ids.start, ids.stop) if isinstance(ids, range) else _encode(ids)
    return table_pb2.RowIdSequence(segments=[segment]).SerializeToString()


def decode_versions(data: bytes, rows: int, *, where: object) -> NDArray[np.uint64]:
    """Dataset version of each of ``rows`` physical rows.

    Raises
    ------
    CorruptFileError
        The sequence cannot be parsed or does not hold ``rows`` values.
    """
    runs = _parse(table_pb2.RowDatasetVersionSequence, data, where).runs
    lengths = [_length(run.span, where) for run in runs]
    _check_rows(sum(lengths), rows, "row versions", where)
    versions = np.array([run.version for run in runs], np.uint64)
    return np.repeat(versions, lengths)


def encode_versions(runs: Sequence[tuple[int, int]]) -> bytes:
    """The sequence of ``(rows, version)`` runs."""
    return table_pb2.RowDatasetVersionSequence(
        runs=[
            table_pb2.RowDatasetVersionRun(span=_range(0, rows), version=version)
            for rows, version in runs
        ]
    ).SerializeToString()


def encode_version_array(versions: NDArray[np.uint64]) -> bytes:
    """The sequence of one version per row, as few runs as there are."""
    if not len(versions):
        return encode_versions([])
    starts = np.concatenate([[0], np.flatnonzero(versions[1:] != versions[:-1]) + 1])
    rows = np.diff(starts, append=len(versions)).tolist()
    return encode_versions(list(zip(rows, versions[starts].tolist(), strict=True)))


def _parse(kind: Any, data: bytes, where: object) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise CorruptFileError(
            kind.DESCRIPTOR.name,
            expected="a protobuf message",
            found=f"{len(data)} bytes that are none",
            where=where,
        ) from error


def _check_rows(found: int, rows: int, what: str, where: object) -> None:
    if rows > _MOST_ROWS:
        raise CorruptFileError(
            what, expected="those of at most 2^32 rows", found=f"{rows}", where=where
        )
    if found != rows:
        raise CorruptFileError(what, expected=f"{rows} values", found=f"{found}", where=where)


# ------------------------------------------------------------------- decoding


def _length(segment: Any, where: object) -> int:
    """Values of a segment; its parts are checked against each other here."""
    form = segment.WhichOneof("segment")
    if form in ("sorted_array", "array"):
        return _array_length(getattr(segment, form), where)
    if form is None:
        raise CorruptFileError(
            "row id segment", expected="one of the five forms", found="none", where=where
        )
    part = getattr(segment, form)
    size = int(part.end) - int(part.start)
    if size < 0:
        raise CorruptFileError(
            "row id range", expected="start ≤ end", found=f"{part.start}..{part.end}", where=where
        )
    if form == "range_with_holes":
        holes = _array_length(part.holes, where)
        if holes > size:
            raise CorruptFileError(
                "holes of a row id range", expected=f"≤ {size}", found=f"{holes}", where=where
            )
        return size - holes
    if form == "range_with_bitmap":
        if len(part.bitmap) != (size + 7) // 8:
            raise CorruptFileError(
                "bitmap of a row id range",
                expected=f"{(size + 7) // 8} bytes",
                found=f"{len(part.bitmap)}",
                where=where,
            )
        return int(_bits(part.bitmap, size).sum())
    return size


def _array_length(array: Any, where: object) -> int:
    form = array.WhichOneof("array")
    if form is None:
        return 0
    width, data = {
        "u16_array": (2, array.u16_array.offsets),
        "u32_array": (4, array.u32_array.offsets),
        "u64_array": (8, array.u64_array.values),
    }[form]
    if len(data) % width:
        raise CorruptFileError(
            "array of row ids",
            expected=f"a multiple of {width} bytes",
            found=f"{len(data)}",
            where=where,
        )
    return len(data) // width


def _decode(segment: Any, where: object) -> NDArray[np.uint64]:
    form = segment.WhichOneof("segment")
    part = getattr(segment, form)
    if form in ("sorted_array", "array"):
        return _decode_array(part)
    if form == "range":
        return np.arange(part.start, part.end, dtype=np.uint64)
    size = int(part.end) - int(part.start)
    if form == "range_with_bitmap":
        kept = np.flatnonzero(_bits(part.bitmap, size)).astype(np.uint64)
        return kept + np.uint64(part.start)
    holes = _decode_array(part.holes)
    inside = (holes >= part.start) & (holes < part.end)
    present = np.ones(size, bool)
    present[(holes[inside] - np.uint64(part.start)).astype(np.int64)] = False
    values = np.flatnonzero(present).astype(np.uint64) + np.uint64(part.start)
    if len(values) != size - len(holes):
        raise CorruptFileError(
            "holes of a row id range",
            expected=f"different values of {part.start}..{part.end}",
            found="others or repeated ones",
            where=where,
        )
    return values


def _bits(bitmap: bytes, size: int) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little", count=size)


def _decode_array(array: Any) -> NDArray[np.uint64]:
    form = array.WhichOneof("array")
    if form is None:
        return np.empty(0, np.uint64)
    part = getattr(array, form)
    if form == "u64_array":
        return np.frombuffer(part.values, "<u8").astype(np.uint64)
    offsets = np.frombuffer(part.offsets, "<u2" if form == "u16_array" else "<u4")
    return offsets.astype(np.uint64) + np.uint64(part.base)


# ------------------------------------------------------------------- encoding


def _range(start: int, stop: int) -> table_pb2.U64Segment:
    segment = table_pb2.U64Segment()
    segment.range.start, segment.range.end = start, stop
    segment.range.SetInParent()
    return segment


def _encode(ids: NDArray[np.uint64]) -> table_pb2.U64Segment:
    if not len(ids):
        return _range(0, 0)
    if np.any(ids[1:] <= ids[:-1]):
        return table_pb2.U64Segment(array=_encode_array(ids))
    start, end = int(ids[0]), int(ids[-1]) + 1
    size, count = end - start, len(ids)
    if size == count:
        return _range(start, end)
    holes, bitmap, array = (
        _RANGE_BYTES + 4 * (size - count),
        _RANGE_BYTES + (size + 7) // 8,
        _RANGE_BYTES + 2 * count,
    )
    segment = table_pb2.U64Segment()
    if array < min(holes, bitmap):
        segment.sorted_array.CopyFrom(_encode_array(ids))
        return segment
    present = np.zeros(size, bool)
    present[(ids - np.uint64(start)).astype(np.int64)] = True
    if holes <= bitmap:
        missing = np.flatnonzero(~present).astype(np.uint64) + np.uint64(start)
        segment.range_with_holes.start, segment.range_with_holes.end = start, end
        segment.range_with_holes.holes.CopyFrom(_encode_array(missing))
    else:
        segment.range_with_bitmap.start, segment.range_with_bitmap.end = start, end
        bits = np.packbits(present, bitorder="little")
        segment.range_with_bitmap.bitmap = bits.tobytes()
    return segment


def _encode_array(values: NDArray[np.uint64]) -> table_pb2.EncodedU64Array:
    array = table_pb2.EncodedU64Array()
    base = int(values.min())
    spread = int(values.max()) - base
    if spread > 0xFFFF_FFFF:
        array.u64_array.values = values.astype("<u8").tobytes()
        return array
    offsets = values - np.uint64(base)
    if spread > 0xFFFF:
        array.u32_array.base, array.u32_array.offsets = base, offsets.astype("<u4").tobytes()
    else:
        array.u16_array.base, array.u16_array.offsets = base, offsets.astype("<u2").tobytes()
    return array
