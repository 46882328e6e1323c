"""Decode messages of the Protocol Buffers wire format, one level at a time.

Substrait nests three messages for each operator, and runtimes stop at a hundred levels. Here
nested messages are decoded on demand, so that the caller limits the depth.
"""

from __future__ import annotations

import struct

from glaive.errors import FilterError

__all__ = [
    "Message",
    "Raw",
    "as_bytes",
    "as_float",
    "as_int",
    "as_message",
    "as_text",
    "read_message",
]

Raw = int | bytes | memoryview
Message = dict[int, list[Raw]]
"""Values by field number, in their order: varints as integers, others as bytes."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_COPIED = 256
"""Longer values are views: copies of messages in messages take time by the square of the levels."""

_WORD = (1 << 64) - 1
"""Varints may have 70 bits; others keep the lowest 64, too."""


def read_message(raw: Raw) -> Message:
    """Decode a message.

    Raises
    ------
    FilterError
        The bytes are not a message.
    """
    if isinstance(raw, int):
        raise FilterError("the Substrait bytes are damaged: a number instead of a message")
    raw = memoryview(raw)
    message: Message = {}
    at, end = 0, len(raw)
    while at < end:
        key, at = _varint(raw, at)
        wire_type = key & 7
        value: Raw
        if wire_type == _VARINT:
            value, at = _varint(raw, at)
        else:
            size, at = _size(raw, at, wire_type)
            value = raw[at : at + size]
            if size <= _COPIED:
                value = bytes(value)
            at += size
            if at > end:
                raise FilterError("the Substrait bytes are damaged: they end within a value")
        message.setdefault(key >> 3, []).append(value)
    return message


def _size(raw: memoryview, at: int, wire_type: int) -> tuple[int, int]:
    if wire_type == _BYTES:
        return _varint(raw, at)
    if wire_type == _FIXED64:
        return 8, at
    if wire_type == _FIXED32:
        return 4, at
    raise FilterError(f"the Substrait bytes are damaged: there is no wire type {wire_type}")


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(raw) and shift < 64:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _WORD, at
        shift += 7
    raise FilterError("the Substrait bytes are damaged: a varint is not terminated")


def as_message(message: Message, number: int) -> Message:
    """The message in a field; an empty one if it is absent."""
    values = message.get(number)
    return read_message(values[-1]) if values else {}


def as_int(message: Message, number: int, default: int = 0) -> int:
    """The signed integer in a field."""
    values = message.get(number)
    if not values:
        return default
    value = values[-1]
    if not isinstance(value, int):
        raise FilterError("the Substrait bytes are damaged: a number was expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def as_bytes(message: Message, number: int) -> bytes:
    """The bytes in a field."""
    values = message.get(number)
    value = values[-1] if values else b""
    if isinstance(value, int):
        raise FilterError("the Substrait bytes are damaged: bytes were expected")
    return bytes(value)


def as_text(message: Message, number: int) -> str:
    """The string in a field."""
    try:
        return as_bytes(message, number).decode()
    except UnicodeDecodeError:
        raise FilterError("the Substrait bytes are damaged: a string is not UTF-8") from None


def as_float(message: Message, number: int) -> float:
    """The float of 4 or 8 bytes in a field."""
    raw = as_bytes(message, number)
    if not raw:
        return 0.0
    if len(raw) not in (4, 8):
        raise FilterError(f"the Substrait bytes are damaged: a float of {len(raw)} bytes")
    value: float = struct.unpack("<d" if len(raw) == 8 else "<f", raw)[0]
    return value
