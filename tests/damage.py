"""Damage for data files of every version: in their bytes, and in the messages they are told by."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.descriptor import FieldDescriptor as Kind

from glaive.format.pb import (
    encodings20_pb2,
    encodings21_pb2,
    encodings23_pb2,
    file2_pb2,
    file_pb2,
    table_pb2,
)
from glaive.format.wire import seal

__all__ = [
    "PAGES",
    "assembled",
    "damaged",
    "data_size",
    "edited",
    "page_message",
    "parts_of",
    "rewritten",
]

_FOOTER = struct.Struct("<QQQIIHH4s")
_SHORT = struct.Struct("<QHH4s")
_PAIR = struct.Struct("<QQ")

PAGES: dict[str, Any] = {
    "lance.encodings.ArrayEncoding": encodings20_pb2.ArrayEncoding,
    "lance.encodings21.PageLayout": encodings21_pb2.PageLayout,
    "lance.encodings23.PlanarLayout": encodings23_pb2.PlanarLayout,
}
_BITS = {Kind.TYPE_INT32: 31, Kind.TYPE_INT64: 63, Kind.TYPE_UINT32: 32, Kind.TYPE_UINT64: 64}
_NUMBERS = [0, 1, 2, 7, 8, 64, 255, 1024, 65_535, 2**31, 2**32 - 1, 2**40, 2**61 + 1, 2**63 - 1]

Change = Callable[[Any, list[Any]], object]


# ------------------------------------------------------------------ messages of 2.x files


def rewritten(raw: bytes, change: Change, *, copies: int = 1) -> bytes:
    """A 2.x file after ``change`` to its descriptor and the metadata of its columns.

    Its data may be there several times, each ``data_size(raw)`` bytes after the one before.
    """
    parts, columns, version = parts_of(raw)
    descriptor = file_pb2.FileDescriptor.FromString(parts[0])
    found: list[Any] = [file2_pb2.ColumnMetadata.FromString(column) for column in columns]
    change(descriptor, found)
    parts[0] = descriptor.SerializeToString()
    start = _FOOTER.unpack(raw[-_FOOTER.size :])[0]
    size = data_size(raw) if copies > 1 else start
    out = bytearray(raw[:start].ljust(size, b"\0") * copies)
    messages = [message.SerializeToString() for message in found]
    return assembled(out, parts, messages, version)


def parts_of(raw: bytes) -> tuple[list[bytes], list[bytes], tuple[int, int]]:
    """The global buffers, the metadata of the columns and the version of a 2.x file."""
    _, columns_at, buffers_at, buffers, columns, major, minor, _ = _FOOTER.unpack(
        raw[-_FOOTER.size :]
    )
    parts = [_part(raw, buffers_at + 16 * at) for at in range(buffers)]
    return parts, [_part(raw, columns_at + 16 * at) for at in range(columns)], (major, minor)


def assembled(
    data: bytearray, buffers: list[bytes], columns: list[bytes], version: tuple[int, int]
) -> bytes:
    """A 2.x file of the bytes of its pages, its global buffers and the metadata of its columns."""
    buffer_table = _append(data, buffers)
    first = len(data)
    column_table = _append(data, columns)
    columns_at = len(data)
    data += column_table
    buffers_at = len(data)
    data += buffer_table
    counts = len(buffers), len(columns)
    return bytes(data + _FOOTER.pack(first, columns_at, buffers_at, *counts, *version, b"LANC"))


def data_size(raw: bytes) -> int:
    """Bytes before the metadata of a 2.x file, up to the next page."""
    start: int = _FOOTER.unpack(raw[-_FOOTER.size :])[0]
    return -(-start // 64) * 64


def _part(raw: bytes, entry: int) -> bytes:
    position, size = _PAIR.unpack_from(raw, entry)
    return raw[position : position + size]


def _append(out: bytearray, parts: list[bytes]) -> bytes:
    table = b""
    for part in parts:
        table += _PAIR.pack(len(out), len(part))
        out += part
    return table


def page_message(page: Any, change: Callable[[Any], object]) -> None:
    """Apply ``change`` to the message that tells the layout of a page."""
    envelope = Envelope.FromString(page.encoding.direct.encoding)
    message = PAGES[envelope.type_url.rsplit("/", 1)[-1]].FromString(envelope.value)
    change(message)
    page.encoding.direct.encoding = seal(envelope.type_url, message.SerializeToString())


# ------------------------------------------------------------------ anything anywhere


def damaged(raw: bytes, rng: np.random.Generator) -> bytes:
    """The file with one to three things wrong, in its bytes or in its messages."""
    legacy = raw[-8:-4] == bytes([0, 0, 2, 0])
    if rng.random() < 0.5:
        return _messages_of_0_1(raw, rng) if legacy else rewritten(raw, _edit_any(rng))
    found = bytearray(raw)
    kind = rng.random()
    for _ in range(int(rng.integers(1, 4))):
        at, size = _place(len(raw), rng), int(rng.choice([1, 1, 2, 4, 8, 64]))
        size = min(size, len(raw) - at)
        if kind < 0.4:
            found[at] ^= 1 << int(rng.integers(8))
        elif kind < 0.7:
            found[at : at + size] = bytes([int(rng.choice([0, 1, 127, 255]))]) * size
        elif kind < 0.85:
            other = min(_place(len(raw), rng), len(raw) - size)
            found[at : at + size] = found[other : other + size]
        else:
            # Cut out of the middle: the footer stays, and points elsewhere.
            del found[min(at, len(found) - 41) : min(at + size, len(found) - 40)]
    return bytes(found)


def _place(size: int, rng: np.random.Generator) -> int:
    if rng.random() < 0.5:
        return int(rng.integers(size))
    return size - 1 - int(rng.integers(min(size, 1500)))


def _edit_any(rng: np.random.Generator) -> Change:
    def change(descriptor: Any, columns: list[Any]) -> None:
        kind = rng.random()
        if kind < 0.1 or not columns:
            edited(descriptor, rng)
            return
        column = columns[int(rng.integers(len(columns)))]
        if kind < 0.2:
            # A file that agrees with itself: only its bytes are too few, or too many.
            rows = int(rng.integers(1 << int(rng.integers(1, 20))))
            descriptor.length = rows
            for one in columns:
                for page in one.pages:
                    page.length = rows
            return
        if kind < 0.3 or not column.pages:
            edited(column, rng)
            return
        page_message(column.pages[0], lambda message: edited(message, rng))

    return change


def _messages_of_0_1(raw: bytes, rng: np.random.Generator) -> bytes:
    position, *version = _SHORT.unpack(raw[-_SHORT.size :])
    (size,) = struct.unpack_from("<I", raw, position)
    metadata = file_pb2.Metadata.FromString(raw[position + 4 : position + 4 + size])
    out = bytearray(raw[:position])
    kind = rng.random()
    if kind < 0.3:
        edited(metadata, rng)
    elif kind < 0.6:
        at = metadata.manifest_position
        (size,) = struct.unpack_from("<I", raw, at)
        manifest = table_pb2.Manifest.FromString(raw[at + 4 : at + 4 + size])
        edited(manifest, rng)
        metadata.manifest_position = len(out)
        part = manifest.SerializeToString()
        out += struct.pack("<I", len(part)) + part
    else:
        entries = max(1, (metadata.manifest_position - metadata.page_table_position) // 8)
        at = metadata.page_table_position + 8 * int(rng.integers(entries))
        (number,) = struct.unpack_from("<q", out, at)
        struct.pack_into("<q", out, at, _other(number, 63, rng) * int(rng.choice([-1, 1, 1, 1])))
    position = len(out)
    part = metadata.SerializeToString()
    out += struct.pack("<I", len(part)) + part + _SHORT.pack(position, *version)
    return bytes(out)


def edited(message: Any, rng: np.random.Generator) -> None:
    """Change one thing anywhere in a message."""
    places = list(_places(message))
    if not places:
        return
    holder, field, at = places[int(rng.integers(len(places)))]
    if field.type == Kind.TYPE_MESSAGE:
        same = [
            getattr(other, one.name)
            for other, one, index in places
            if index is None and one.message_type is field.message_type
        ]
        if rng.random() < 0.4:
            holder.ClearField(field.name)
        else:
            part = same[int(rng.integers(len(same)))].SerializeToString()
            getattr(holder, field.name).ParseFromString(part)
        return
    if at is not None and rng.random() < 0.2:
        del getattr(holder, field.name)[at]
        return
    value: Any = getattr(holder, field.name) if at is None else getattr(holder, field.name)[at]
    if field.type in _BITS:
        value = _other(value, _BITS[field.type], rng)
    elif field.type == Kind.TYPE_ENUM:
        value = int(rng.integers(8))
    elif field.type == Kind.TYPE_BOOL:
        value = not value
    elif field.type == Kind.TYPE_BYTES and value:
        place = int(rng.integers(len(value)))
        value = value[:place] + bytes([int(rng.integers(256))]) + value[place + 1 :]
    elif field.type == Kind.TYPE_STRING:
        kinds = [value[:-1], "int64", "string", "struct", "list", "fixed_size_list:float:4", "null"]
        value = kinds[int(rng.integers(len(kinds)))]
    if at is None:
        setattr(holder, field.name, value)
    else:
        getattr(holder, field.name)[at] = value


def _places(message: Any) -> Iterator[tuple[Any, Any, int | None]]:
    """Each field that is set, with the message that holds it; items of lists one by one."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if not field.is_repeated:
            if field.type != Kind.TYPE_MESSAGE:
                yield message, field, None
            elif message.HasField(field.name):
                yield message, field, None
                yield from _places(value)
        elif field.type != Kind.TYPE_MESSAGE:
            yield from ((message, field, at) for at in range(len(value)))
        elif not field.message_type.GetOptions().map_entry:
            for one in value:
                yield from _places(one)


def _other(number: int, bits: int, rng: np.random.Generator) -> int:
    kind = rng.random()
    if kind < 0.4:
        found = number + int(rng.integers(-3, 4))
    elif kind < 0.6:
        found = number ^ 1 << int(rng.integers(bits))
    elif kind < 0.8:
        found = number * int(rng.integers(2, 1000))
    else:
        found = _NUMBERS[int(rng.integers(len(_NUMBERS)))]
    return int(found) & ((1 << bits) - 1)
