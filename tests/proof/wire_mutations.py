"""Changes of protobuf messages that keep them messages: fields are removed, doubled, swapped, set.

Works on bytes alone, at any depth, without knowing the message. A change of a byte mostly ends in
bytes that cannot be parsed; these can, and say something else.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from glaive.format.pb import table_pb2

__all__ = ["mutate_manifest", "mutate_message", "section_of", "with_section"]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_NUMBERS = [0, 1, 2, 3, 7, 127, 128, 255, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**47]
_NUMBERS += [2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
_TEXTS = [b"", b"\0", b"a", b"../../x", b"/etc/passwd", b"a.b.c", b"\xff\xfe", b"x" * 300]
_DEEPEST = 12


class _Field(NamedTuple):
    number: int
    kind: int
    payload: bytes
    """Without the length before it; a varint as it is written."""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int] | None:
    number = shift = 0
    while at < len(data) and shift < 70:
        number |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return number, at
        shift += 7
    return None


def _parsed(data: bytes) -> list[_Field] | None:
    """The fields of a message; None if the bytes are none."""
    fields: list[_Field] = []
    at = 0
    while at < len(data):
        tag = _read_varint(data, at)
        if tag is None or tag[0] >> 3 == 0:
            return None
        (number, at), kind = tag, tag[0] & 7
        if kind == _VARINT:
            value = _read_varint(data, at)
            if value is None:
                return None
            start, at = at, value[1]
        elif kind in (_FIXED64, _FIXED32):
            start, at = at, at + (8 if kind == _FIXED64 else 4)
        elif kind == _LENGTH:
            size = _read_varint(data, at)
            if size is None:
                return None
            start = size[1]
            at = start + size[0]
        else:
            return None
        if at > len(data):
            return None
        fields.append(_Field(number >> 3, kind, data[start:at]))
    return fields


def _joined(fields: list[_Field]) -> bytes:
    parts = []
    for number, kind, payload in fields:
        parts.append(_varint(number << 3 | kind))
        if kind == _LENGTH:
            parts.append(_varint(len(payload)))
        parts.append(payload)
    return b"".join(parts)


def mutate_message(data: bytes, rng: random.Random, depth: int = 0) -> bytes:
    """The message with one thing changed, in it or in a message within."""
    fields = _parsed(data)
    if not fields:
        return _other_bytes(data, rng)
    at = rng.randrange(len(fields))
    number, kind, payload = fields[at]
    choice = rng.random()
    if choice < 0.08:
        del fields[at]
    elif choice < 0.16:
        fields.insert(rng.randrange(len(fields) + 1), fields[at])
    elif choice < 0.22:
        other = rng.randrange(len(fields))
        fields[at], fields[other] = fields[other], fields[at]
    elif choice < 0.26:
        fields[at] = _Field(rng.choice([number + 1, max(1, number - 1), 500]), kind, payload)
    elif choice < 0.30:
        fields.append(_Field(rng.randrange(1, 20), _VARINT, _varint(rng.choice(_NUMBERS))))
    elif kind == _VARINT:
        fields[at] = _Field(number, kind, _other_number(payload, rng))
    elif kind in (_FIXED64, _FIXED32):
        fields[at] = _Field(number, kind, rng.randbytes(len(payload)))
    elif depth < _DEEPEST and _parsed(payload) and rng.random() < 0.85:
        fields[at] = _Field(number, kind, mutate_message(payload, rng, depth + 1))
    else:
        fields[at] = _Field(number, kind, _other_bytes(payload, rng))
    return _joined(fields)


def _other_number(payload: bytes, rng: random.Random) -> bytes:
    read = _read_varint(payload, 0)
    number = 0 if read is None else read[0]
    if rng.random() < 0.5:
        return _varint(rng.choice(_NUMBERS))
    return _varint((number + rng.choice([-2, -1, 1, 2, 100])) % 2**64)


def _other_bytes(data: bytes, rng: random.Random) -> bytes:
    choice = rng.random()
    if choice < 0.3 or not data:
        return rng.choice(_TEXTS)
    if choice < 0.5:
        return data[: rng.randrange(len(data))]
    if choice < 0.6:
        return data + data
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _sized(message: bytes) -> bytes:
    return len(message).to_bytes(4, "little") + message


def mutate_manifest(data: bytes, rng: random.Random) -> bytes:
    """A manifest file with its message, or one of the sections before it, changed."""
    position = int.from_bytes(data[-16:-8], "little")
    size = int.from_bytes(data[position : position + 4], "little")
    if len(data) < 16 or position + 4 + size != len(data) - 16:
        return _other_bytes(data, rng)
    before, message = data[:position], data[position + 4 : position + 4 + size]
    if rng.random() < 0.3:  # a section: what comes first keeps its place
        first = int.from_bytes(before[:4], "little")
        section = mutate_message(before[4 : 4 + first], rng)
        if len(section) <= first and 4 + first <= len(before):
            section += b"\x7a" + _varint(max(0, first - len(section) - 2)) if first else b""
            section = section[:first].ljust(first, b"\0")
            return before[:4] + section + data[4 + first :]
    return before + _sized(mutate_message(message, rng)) + data[-16:]


def section_of(data: bytes) -> bytes:
    """The index section of a manifest file."""
    start = _message(data).index_section
    return data[start + 4 : start + 4 + int.from_bytes(data[start : start + 4], "little")]


def with_section(data: bytes, section: bytes) -> bytes:
    """A manifest file with another index section."""
    manifest = _message(data)
    manifest.index_section = len(data)
    before = data + _sized(section)
    footer = len(before).to_bytes(8, "little") + data[-8:]
    return before + _sized(manifest.SerializeToString()) + footer


def _message(data: bytes) -> table_pb2.Manifest:
    position = int.from_bytes(data[-16:-8], "little")
    size = int.from_bytes(data[position : position + 4], "little")
    return table_pb2.Manifest.FromString(data[position + 4 : position + 4 + size])
