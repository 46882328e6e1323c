"""Parse wire messages, their envelopes (``google.protobuf.Any``) and roaring bitmaps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.descriptor import Descriptor as Descriptor  # noqa: PLC0414  # for annotations
from google.protobuf.descriptor import FieldDescriptor as FieldDescriptor  # noqa: PLC0414  # same
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError as DecodeError  # noqa: PLC0414  # callers catch it
from google.protobuf.message import Message as Message  # noqa: PLC0414  # callers name it
from google.protobuf.unknown_fields import UnknownFieldSet

from glaive.errors import CorruptFileError
from glaive.format.pb import table_pb2

if TYPE_CHECKING:
    from pyroaring import BitMap


M = TypeVar("M", bound=Message)

_LENGTH_DELIMITED: Final = 2
"""Wire type of messages and bytes."""


def parse(message: M, raw: pa.Buffer | bytes | memoryview, subject: str, where: object) -> M:
    """Parse ``raw`` into ``message`` and return it; raises ``CorruptFileError``."""
    try:
        message.ParseFromString(memoryview(raw))  # type: ignore[arg-type]  # takes any buffer
    except DecodeError as error:
        raise CorruptFileError(
            subject, expected="a protobuf message", found=str(error), where=where
        ) from None
    return message


def copy_fields(source: Message, target: Message) -> None:
    """Set the fields of ``target`` that ``source`` has and sets, by name; all are singular."""
    names = target.DESCRIPTOR.fields_by_name
    for field, value in source.ListFields():
        if field.name in names and isinstance(value, Message):
            getattr(target, field.name).CopyFrom(value)
        elif field.name in names:
            setattr(target, field.name, value)


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
    """Return the field numbers that are set in a message of any type."""
    fields: Any = UnknownFieldSet(parse(Empty(), raw, subject, where))
    return frozenset(field.field_number for field in fields)


def delimited(number: int, size: int) -> bytes:
    """Return the bytes before a message, or before other bytes, in a field with this number."""
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
    """Return the bare name of the type and the bytes of the message in an envelope.

    Raises ``DecodeError`` if the envelope is invalid.
    """
    envelope = Envelope.FromString(raw)
    return envelope.type_url.rsplit("/", 1)[-1], envelope.value


# --- Limits of numbers and names in manifests -------------------------------------------
#
# Manifests, transactions and index sections are checked when they are read. Later code can then
# rely on two facts. A row address has room for a fragment id and an offset, and a name leads to a
# file below its folder.
#
# Specification: "Fragments and data files" in ``docs/format``.

MAX_FRAGMENT_ID: Final = 2**32 - 1
"""Highest id of a fragment: the upper half of a row address."""

MAX_FRAGMENT_ROWS: Final = 2**32
"""Maximum rows of a fragment: the range of the lower half of a row address."""

MAX_FIELD_ID: Final = 2**31 - 1
"""Highest id of a field."""

MAX_BASE_PATH: Final = 4096
"""Most characters of a base path, as of any path on Linux; buckets have shorter names. All files
below it may appear in one report, each with the whole path.
"""

_SEPARATOR: Final = r"(?:/|%2[Ff]|%5[Cc])"
_UNFIT: Final = re.compile(
    r"[\x00-\x1f\x7f\\\ud800-\udfff]|^/|//|/$|^$|"
    rf"(?:^|{_SEPARATOR})(?:\.|%2[Ee]){{1,2}}(?:(?:;|%3[Bb])[^/]*)?(?:{_SEPARATOR}|$)"
)
"""Invalid parts of a name: control characters, halves of surrogate pairs, and the separator of
another system. Also paths that are absolute, lead upwards or name a folder.

Some file systems of fsspec make addresses of web servers from names as they are. There dots and
slashes may be written with ``%``, and ``;`` may end the name.
"""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*").fullmatch
"""Nearly all names match this pattern, which is much faster to check."""


def is_file_name(name: str) -> bool:
    """Return whether a name leads to a file below the folder it is joined to, on any system."""
    return bool(_PLAIN(name)) or not _UNFIT.search(name)


def check_file_name(name: str, subject: str, where: object) -> str:
    """Check that a name from a file or a row leads to a file below its folder; returns it.

    Must be called for every such name before it is joined to a path.

    Raises
    ------
    CorruptFileError
        It is absolute, leads upwards, names a folder, or has backslashes or control characters.
    """
    if is_file_name(name):
        return name
    raise CorruptFileError(
        subject,
        expected="a path below its folder, without '.', '..', backslashes or control characters",
        found=f"{name!r:.300}",
        where=where,
    )


def check_ending(name: str, ending: str, subject: str, where: object) -> None:
    """Check that a name ends as writers name such files.

    A folder of a dataset may be a link to any other folder of this machine, whose files have other
    names.

    Raises
    ------
    CorruptFileError
        It has another ending.
    """
    if not name.endswith(ending):
        raise CorruptFileError(
            subject, expected=f"a name that ends in {ending}", found=f"{name!r:.300}", where=where
        )


def check_base_paths(bases: Iterable[table_pb2.BasePath], where: object) -> None:
    """Check that each base path is at most as long as a system allows.

    Raises
    ------
    CorruptFileError
        One is longer.
    """
    for base in bases:
        if len(base.path) > MAX_BASE_PATH:
            raise CorruptFileError(
                f"base path {base.id}",
                expected=f"at most {MAX_BASE_PATH} characters",
                found=f"{len(base.path)} ({base.path[:100]!r}…)",
                where=where,
            )
