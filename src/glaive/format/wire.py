"""Parse wire messages, their envelopes (``google.protobuf.Any``) and roaring bitmaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from glaive.errors import CorruptFileError

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = [
    "DecodeError",
    "delimited",
    "field_numbers",
    "field_values",
    "parse",
    "parse_bitmap",
    "seal",
    "unseal",
]

M = TypeVar("M", bound=Message)
T = TypeVar("T", int, bytes)

_LENGTH_DELIMITED: Final = 2
"""Wire type of messages and bytes."""

_WIRE_TYPES: Final[dict[type, int]] = {int: 0, bytes: _LENGTH_DELIMITED}


def parse(message: M, raw: pa.Buffer | bytes | memoryview, subject: str, where: object) -> M:
    """Parse ``raw`` into ``message`` and return it; raises ``CorruptFileError``."""
    try:
        message.ParseFromString(memoryview(raw))  # type: ignore[arg-type]  # takes any buffer
    except DecodeError as error:
        raise CorruptFileError(
            subject, expected="a protobuf message", found=str(error), where=where
        ) from None
    return message


def parse_bitmap(raw: bytes, subject: str, where: object) -> BitMap:
    """Parse a roaring bitmap in the portable layout; raises ``CorruptFileError``."""
    from pyroaring import BitMap

    try:
        return BitMap.deserialize(raw)
    except (ValueError, IndexError) as error:
        raise CorruptFileError(
            subject, expected="a roaring bitmap", found=str(error), where=where
        ) from error


def field_numbers(raw: bytes, subject: str, where: object) -> frozenset[int]:
    """Field numbers that are set in a message of any type."""
    fields: Any = UnknownFieldSet(parse(Empty(), raw, subject, where))
    return frozenset(field.field_number for field in fields)


def field_values(raw: bytes, number: int, kind: type[T], subject: str, where: object) -> list[T]:
    """The values of a field, in order, of a message of any type: integers, or bytes.

    As for a field of this kind, which others that have its number are not.
    """
    fields: Any = UnknownFieldSet(parse(Empty(), raw, subject, where))
    wanted = number, _WIRE_TYPES[kind]
    return [field.data for field in fields if (field.field_number, field.wire_type) == wanted]


def delimited(number: int, size: int) -> bytes:
    """What precedes the bytes of a message, or of others, in a field with this number."""
    made = bytearray()
    for value in (number << 3 | _LENGTH_DELIMITED, size):
        rest = value
        while rest > 0x7F:
            made.append(rest & 0x7F | 0x80)
            rest >>= 7
        made.append(rest)
    return bytes(made)


def seal(url: str, message: bytes) -> bytes:
    """Put a serialised message into an envelope with its type URL."""
    return Envelope(type_url=url, value=message).SerializeToString()


def unseal(raw: bytes) -> tuple[str, bytes]:
    """The name, without URL prefix, and the bytes of the message in an envelope.

    Raises ``DecodeError`` if the bytes are no envelope.
    """
    envelope = Envelope.FromString(raw)
    return envelope.type_url.rsplit("/", 1)[-1], envelope.value
