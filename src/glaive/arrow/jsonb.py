"""JSON text to JSONB bytes, and back.

Columns of Arrow's JSON type are stored as JSONB, a binary format with an index of the members.
All integers are big-endian. A value is a header word, then an entry word per child, then the
payloads of the children:

========= ==================================== =======================================
header    children                             payloads
========= ==================================== =======================================
``2…``    one scalar                           its own
``8…``    array: its items                     in order
``4…``    object: its keys, then their values  keys in order of their bytes, then values
========= ==================================== =======================================

The other 28 bits of the header are the number of children (0 for a scalar; an object counts
its keys). The upper 4 bits of an entry are the type, the others the size of its payload.

Specification: "JSON" in ``docs/format/jsonb.md``.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any, NoReturn, cast

import pyarrow as pa

from glaive.arrow.chunked import dictionary_encoded
from glaive.errors import CorruptFileError, SchemaError, UnsupportedFeatureError

_SCALAR, _OBJECT, _ARRAY = 0x2000_0000, 0x4000_0000, 0x8000_0000
_NULL, _STRING, _NUMBER, _FALSE, _TRUE, _CONTAINER = (code << 28 for code in range(6))
_TYPE, _SIZE = 0xF000_0000, 0x0FFF_FFFF

_ZERO, _NAN, _INFINITY, _MINUS_INFINITY, _INT, _UINT, _FLOAT = (code << 4 for code in range(7))
_WIDTHS = {1: "b", 2: "h", 4: "i", 8: "q"}
_WORD = struct.Struct(">I")
_DOUBLE = struct.Struct(">Bd")

MAX_DEPTH = 128
"""Levels of nesting that are read and written."""


def encode_jsonb(strings: Any) -> Any:
    """Return JSON strings as JSONB; nulls stay nulls. Members of objects are sorted by key.

    Equal strings are parsed once.

    Raises
    ------
    SchemaError
        A string is invalid JSON or UTF-8, an object has a key twice, or it is nested too deeply.
    """
    # As bytes: strings of a file may be any.
    return _map_distinct(strings.cast(pa.large_binary()), _parse, pa.large_binary())


def decode_jsonb(values: Any, where: object) -> Any:
    """Return JSONB as compact JSON strings; nulls stay nulls.

    Equal values are decoded once.

    Raises
    ------
    CorruptFileError
        Bytes are invalid JSONB.
    UnsupportedFeatureError
        A value has a type that JSON lacks.
    """
    return _map_distinct(values, lambda raw: _Reader(raw, where).text(), pa.string())


def _map_distinct(array: Any, convert: Callable[[Any], object], kind: Any) -> Any:
    """Convert each distinct value."""
    distinct = dictionary_encoded(array)
    converted = pa.array([convert(value) for value in distinct.dictionary.to_pylist()], kind)
    return converted.take(distinct.indices)


def _parse(raw: bytes) -> bytes:
    try:
        value = json.loads(raw.decode(), object_pairs_hook=_object, parse_constant=_no_json)
        entry, payload = _entry(value, 0)
        if entry & _TYPE == _CONTAINER:
            return payload
        return _WORD.pack(_SCALAR) + _WORD.pack(entry) + payload
    except (ValueError, OverflowError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        text = raw.decode(errors="backslashreplace")
        raise SchemaError(
            f"{text[:80]!r} is not JSON that can be stored: {problem}. Correct it, or cast the "
            "column to string, which takes any text."
        ) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a key twice")
    return members


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _entry(value: Any, depth: int) -> tuple[int, bytes]:
    """Return entry word and payload."""
    if value is None:
        return _NULL, b""
    if value is True:
        return _TRUE, b""
    if value is False:
        return _FALSE, b""
    if isinstance(value, str):
        payload, type_code = _utf8(value), _STRING
    elif isinstance(value, int | float):
        payload, type_code = _number(value), _NUMBER
    else:
        payload, type_code = _container(value, depth), _CONTAINER
    if len(payload) > _SIZE:
        raise ValueError(f"a value of {len(payload)} bytes, at most {_SIZE} fit")
    return type_code | len(payload), payload


def _utf8(text: str) -> bytes:
    # UTF-8 lacks lone surrogates: they stay escaped.
    return text.encode("utf-8", "backslashreplace")


def _container(value: list[Any] | dict[str, Any], depth: int) -> bytes:
    if depth == MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list):
        header = _ARRAY | len(value)
        children = [_entry(item, depth + 1) for item in value]
    else:
        header = _OBJECT | len(value)
        members = sorted((_utf8(key), member) for key, member in value.items())
        children = [(_STRING | len(key), key) for key, _ in members]
        children += [_entry(member, depth + 1) for _, member in members]
    words = struct.pack(f">{len(children) + 1}I", header, *[entry for entry, _ in children])
    return b"".join([words, *[payload for _, payload in children]])


def _number(value: Any) -> bytes:
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        value = float(value)
    if isinstance(value, float):
        return _DOUBLE.pack(_FLOAT, value)
    if value == 0:
        return bytes([_ZERO])
    for width in _WIDTHS:
        signed = value < 0
        if -(1 << 8 * width - 1) <= value < 1 << 8 * width:
            number: bytes = value.to_bytes(width, "big", signed=signed)
            return bytes([_INT if signed else _UINT]) + number
    raise ValueError(f"{value} needs more than 64 bits")


BEYOND = "1e999"
"""JSON text of infinity: a number beyond all 64-bit floats, which is read as infinity again."""

_SPECIAL = {_ZERO: "0", _NAN: "null", _INFINITY: BEYOND, _MINUS_INFINITY: f"-{BEYOND}"}


class _Reader:
    """Turns one JSONB value into text."""

    def __init__(self, raw: bytes, where: object) -> None:
        self.raw = raw
        self.where = where
        self.parts: list[str] = []

    def text(self) -> str:
        """Return the text of the value; empty bytes (as in null structs) are null."""
        if not self.raw:
            return "null"
        try:
            self._container(0, len(self.raw), 0)
        except (struct.error, UnicodeDecodeError) as error:
            raise self._wrong("complete values", str(error)) from None
        return "".join(self.parts)

    def _container(self, start: int, stop: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._wrong(f"at most {MAX_DEPTH} levels", "more")
        (header,) = _WORD.unpack_from(self.raw, start)
        count, container = header & _SIZE, header & _TYPE
        children = {_SCALAR: 1, _ARRAY: count, _OBJECT: 2 * count}.get(container)
        if children is None or (container == _SCALAR and (depth or count)):
            raise self._wrong("an object, an array or one scalar", f"header {header:08x}")
        at = start + 4 + 4 * children
        if at > stop:
            raise self._wrong(f"{children} entries", f"{stop - start} bytes")
        entries = struct.unpack_from(f">{children}I", self.raw, start + 4)
        if at + sum(entry & _SIZE for entry in entries) != stop:
            raise self._wrong(f"{stop - at} bytes of payloads", "another size")
        if container == _SCALAR:
            self._value(entries[0], at, depth)
        elif container == _ARRAY:
            self._array(entries, at, depth)
        else:
            self._object(entries, at, depth)

    def _array(self, entries: tuple[int, ...], at: int, depth: int) -> None:
        self.parts.append("[")
        for number, entry in enumerate(entries):
            if number:
                self.parts.append(",")
            at = self._value(entry, at, depth)
        self.parts.append("]")

    def _object(self, entries: tuple[int, ...], at: int, depth: int) -> None:
        count = len(entries) // 2
        value_at = at + sum(entry & _SIZE for entry in entries[:count])
        self.parts.append("{")
        for number, (key, entry) in enumerate(zip(entries[:count], entries[count:], strict=True)):
            if key & _TYPE != _STRING:
                raise self._wrong("keys that are strings", f"entry {key:08x}")
            if number:
                self.parts.append(",")
            at = self._value(key, at, depth)
            self.parts.append(":")
            value_at = self._value(entry, value_at, depth)
        self.parts.append("}")

    def _value(self, entry: int, at: int, depth: int) -> int:
        """Append a value; return where its payload ends."""
        type_code, stop = entry & _TYPE, at + (entry & _SIZE)
        if type_code == _STRING:
            self.parts.append(json.dumps(self.raw[at:stop].decode(), ensure_ascii=False))
        elif type_code == _NUMBER:
            self.parts.append(self._number(self.raw[at:stop]))
        elif type_code == _CONTAINER:
            self._container(at, stop, depth + 1)
        elif type_code in (_NULL, _FALSE, _TRUE) and at == stop:
            self.parts.append({_NULL: "null", _FALSE: "false", _TRUE: "true"}[type_code])
        elif type_code > _CONTAINER:
            raise self._unknown(f"type {type_code >> 28}")
        else:
            raise self._wrong("no payload of null, false and true", f"{stop - at} bytes")
        return stop

    def _number(self, raw: bytes) -> str:
        if not raw:
            raise self._wrong("a number", "0 bytes")
        type_code, width = raw[0] & 0xF0, len(raw) - 1
        if type_code in _SPECIAL and not width:
            return _SPECIAL[type_code]
        if type_code in (_INT, _UINT) and width in _WIDTHS:
            return str(int.from_bytes(raw[1:], "big", signed=type_code == _INT))
        if type_code == _FLOAT:
            return _float_text(cast("float", _DOUBLE.unpack(raw)[1]))
        if type_code > _FLOAT:
            raise self._unknown(f"number of type {type_code >> 4}")
        raise self._wrong(
            "a number of 1, 2, 4 or 8 bytes", f"{width} bytes of type {type_code >> 4}"
        )

    def _wrong(self, expected: str, found: str) -> CorruptFileError:
        return CorruptFileError("JSONB", expected=expected, found=found, where=self.where)

    def _unknown(self, feature: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"JSONB {feature} (in {self.where}) has no equivalent in JSON. Open the data file by "
            "itself: its reader returns the JSONB bytes."
        )


def _float_text(value: float) -> str:
    """Return the shortest digits that round-trip, formatted like the reference; always JSON."""
    if not math.isfinite(value):
        special = _NAN if math.isnan(value) else _INFINITY if value > 0 else _MINUS_INFINITY
        return _SPECIAL[special]
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        return digits
    if exponent != "-05":
        return f"{digits}e{'+' if exponent[0] == '+' else '-'}{exponent[1:].lstrip('0')}"
    sign, digits = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
    return f"{sign}0.0000{digits.replace('.', '')}"
