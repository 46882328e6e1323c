"""Parsing wire messages, and the envelopes (``google.protobuf.Any``) some travel in."""

from __future__ import annotations

from typing import Any, TypeVar

import pyarrow as pa
from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from glaive.errors import CorruptFileError

__all__ = ["DecodeError", "field_numbers", "parse", "seal", "unseal"]

M = TypeVar("M", bound=Message)


def parse(message: M, raw: pa.Buffer | bytes, what: str, where: object) -> M:
    """Fill ``message`` from its bytes and return it; damage is a ``CorruptFileError``."""
    try:
        message.ParseFromString(memoryview(raw))  # type: ignore[arg-type]  # takes any buffer
    except DecodeError as error:
        raise CorruptFileError(
            what, expected="a protobuf message", found=str(error), where=where
        ) from None
    return message


def field_numbers(raw: bytes, what: str, where: object) -> frozenset[int]:
    """Numbers of the fields that a message of whatever type has."""
    found: Any = UnknownFieldSet(parse(Empty(), raw, what, where))
    return frozenset(one.field_number for one in found)


def seal(url: str, message: bytes) -> bytes:
    """Put a serialised message into an envelope that says what it is."""
    return Envelope(type_url=url, value=message).SerializeToString()


def unseal(raw: bytes) -> tuple[str, bytes]:
    """Return the name of the message in an envelope, without what stands before it, and its bytes.

    Raises ``DecodeError`` for what is not an envelope.
    """
    envelope = Envelope.FromString(raw)
    return envelope.type_url.rsplit("/", 1)[-1], envelope.value
