"""JSON text into JSONB bytes, and back.

Columns of Arrow's JSON type are stored as JSONB, a binary form in which members can be found
without parsing. All numbers are big-endian. A value is a header word, then an entry word per
child, then the payloads of the children:

========= ==================================== =======================================
header    children                             payloads
========= ==================================== =======================================
``2…``    the one scalar                       its own
``8…``    array: its items                     in order
``4…``    object: its keys, then their values  keys in order of their bytes, then values
========= ==================================== =======================================

The other 28 bits of the header are the number of children (0 for a scalar; an object counts
its keys). The upper 4 bits of an entry are the type, the others the bytes of its payload.

Specification: "JSON" in ``docs/format/jsonb.md``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, NoReturn, cast

import pyarrow as pa

from glaive.errors import CorruptFileError, SchemaError, UnsupportedFeatureError

__all__ = ["decode_jsonb", "encode_jsonb"]

_SCALAR, _OBJECT, _ARRAY = 0x2000_0000, 0x4000_0000, 0x8000_0000
_NULL, _STRING, _NUMBER, _FALSE, _TRUE, _CONTAINER = (kind << 28 for kind in range(6))
_TYPE, _SIZE = 0xF000_0000, 0x0FFF_FFFF

_ZERO, _NAN, _INFINITY, _MINUS_INFINITY, _INT, _UINT, _FLOAT = (kind << 4 for kind in range(7))
_WIDTHS = {1: "b", 2: "h", 4: "i", 8: "q"}
_WORD = struct.Struct(">I")
_DOUBLE = struct.Struct(">Bd")

MAX_DEPTH = 128
"""Levels of nesting that are read and written."""


def encode_jsonb(texts: Any) -> Any:
    """JSON texts as JSONB; nulls stay nulls. Members of objects are put in order.

    Equal texts are parsed once.

    Raises
    ------
    SchemaError
        A text is no JSON, an object has a key twice, or it is nested too deeply.
    """
    return _each(texts, _parse, pa.large_binary())


def decode_jsonb(values: Any, where: object) -> Any:
    """JSONB as JSON texts without white space; nulls stay nulls.

    Equal values are decoded once.

    Raises
    ------
    CorruptFileError
        Bytes are no JSONB.
    UnsupportedFeatureError
        A value has a type that JSON does not have.
    """
    return _each(values, lambda raw: _Reader(raw, where).text(), pa.string())


def _each(array: Any, convert: Callable[[Any], object], kind: Any) -> Any:
    """Convert each distinct value."""
    distinct = array.dictionary_encode()
    made = pa.array([convert(value) for value in distinct.dictionary.to_pylist()], kind)
    return made.take(distinct.indices)


# --------------------------------------------------------------------------- encode


def _parse(text: str) -> bytes:
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_json)
        return _document(value)
    except (ValueError, OverflowError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SchemaError(
            f"{text[:80]!r} is no JSON that can be kept: {problem}. Correct it, or cast the column "
            "to string, which takes any text."
        ) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("an object has a key twice")
    return made


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _document(value: Any) -> bytes:
    kind, payload = _entry(value, 0)
    if kind & _TYPE == _CONTAINER:
        return payload
    return _WORD.pack(_SCALAR) + _WORD.pack(kind) + payload


def _entry(value: Any, depth: int) -> tuple[int, bytes]:
    """Entry word and payload."""
    if value is None:
        return _NULL, b""
    if value is True:
        return _TRUE, b""
    if value is False:
        return _FALSE, b""
    if isinstance(value, str):
        payload, kind = _utf8(value), _STRING
    elif isinstance(value, int | float):
        payload, kind = _number(value), _NUMBER
    else:
        payload, kind = _container(value, depth), _CONTAINER
    if len(payload) > _SIZE:
        raise ValueError(f"a value of {len(payload)} bytes, at most {_SIZE} fit")
    return kind | len(payload), payload


def _utf8(text: str) -> bytes:
    # Halves of surrogate pairs have no UTF-8: they stay the escapes they were.
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
    words = struct.pack(f">{len(children) + 1}I", header, *[kind for kind, _ in children])
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


# --------------------------------------------------------------------------- decode

_SPECIAL = {_ZERO: "0", _NAN: "NaN", _INFINITY: "Infinity", _MINUS_INFINITY: "-Infinity"}


class _Reader:
    """One JSONB value being turned into text."""

    def __init__(self, raw: bytes, where: object) -> None:
        self.raw = raw
        self.where = where
        self.pieces: list[str] = []

    def text(self) -> str:
        """The text of the value; no bytes, as below structs that are null, are null."""
        if not self.raw:
            return "null"
        try:
            self._container(0, len(self.raw), 0)
        except (struct.error, UnicodeDecodeError) as error:
            raise self._wrong("complete values", str(error)) from None
        return "".join(self.pieces)

    def _container(self, start: int, stop: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._wrong(f"at most {MAX_DEPTH} levels", "more")
        (header,) = _WORD.unpack_from(self.raw, start)
        count, kind = header & _SIZE, header & _TYPE
        children = {_SCALAR: 1, _ARRAY: count, _OBJECT: 2 * count}.get(kind)
        if children is None or (kind == _SCALAR and (depth or count)):
            raise self._wrong("an object, an array or one scalar", f"header {header:08x}")
        at = start + 4 + 4 * children
        if at > stop:
            raise self._wrong(f"{children} entries", f"{stop - start} bytes")
        entries = struct.unpack_from(f">{children}I", self.raw, start + 4)
        if at + sum(entry & _SIZE for entry in entries) != stop:
            raise self._wrong(f"{stop - at} bytes of payloads", "others")
        if kind == _SCALAR:
            self._value(entries[0], at, depth)
        elif kind == _ARRAY:
            self._array(entries, at, depth)
        else:
            self._object(entries, at, depth)

    def _array(self, entries: tuple[int, ...], at: int, depth: int) -> None:
        self.pieces.append("[")
        for number, entry in enumerate(entries):
            if number:
                self.pieces.append(",")
            at = self._value(entry, at, depth)
        self.pieces.append("]")

    def _object(self, entries: tuple[int, ...], at: int, depth: int) -> None:
        count = len(entries) // 2
        value_at = at + sum(entry & _SIZE for entry in entries[:count])
        self.pieces.append("{")
        for number, (key, entry) in enumerate(zip(entries[:count], entries[count:], strict=True)):
            if key & _TYPE != _STRING:
                raise self._wrong("keys that are strings", f"entry {key:08x}")
            if number:
                self.pieces.append(",")
            at = self._value(key, at, depth)
            self.pieces.append(":")
            value_at = self._value(entry, value_at, depth)
        self.pieces.append("}")

    def _value(self, entry: int, at: int, depth: int) -> int:
        """Append a value; return where its payload ends."""
        kind, stop = entry & _TYPE, at + (entry & _SIZE)
        if kind == _STRING:
            self.pieces.append(json.dumps(self.raw[at:stop].decode(), ensure_ascii=False))
        elif kind == _NUMBER:
            self.pieces.append(self._number(self.raw[at:stop]))
        elif kind == _CONTAINER:
            self._container(at, stop, depth + 1)
        elif kind in (_NULL, _FALSE, _TRUE) and at == stop:
            self.pieces.append({_NULL: "null", _FALSE: "false", _TRUE: "true"}[kind])
        elif kind > _CONTAINER:
            raise self._unknown(f"type {kind >> 28}")
        else:
            raise self._wrong("no payload of null, false and true", f"{stop - at} bytes")
        return stop

    def _number(self, raw: bytes) -> str:
        if not raw:
            raise self._wrong("a number", "0 bytes")
        kind, width = raw[0] & 0xF0, len(raw) - 1
        if kind in _SPECIAL and not width:
            return _SPECIAL[kind]
        if kind in (_INT, _UINT) and width in _WIDTHS:
            return str(int.from_bytes(raw[1:], "big", signed=kind == _INT))
        if kind == _FLOAT:
            return _float_text(cast("float", _DOUBLE.unpack(raw)[1]))
        if kind > _FLOAT:
            raise self._unknown(f"number of type {kind >> 4}")
        raise self._wrong("a number of 1, 2, 4 or 8 bytes", f"{width} bytes of type {kind >> 4}")

    def _wrong(self, expected: str, found: str) -> CorruptFileError:
        return CorruptFileError("JSONB", expected=expected, found=found, where=self.where)

    def _unknown(self, what: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"JSONB {what} (in {self.where}) has no form in JSON. Read the file by itself: its "
            "reader gives the bytes as they are."
        )


def _float_text(value: float) -> str:
    """The shortest digits that give the number back, as the reference writes them."""
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        return digits
    if exponent != "-05":
        return f"{digits}e{'+' if exponent[0] == '+' else '-'}{exponent[1:].lstrip('0')}"
    sign, digits = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
    return f"{sign}0.0000{digits.replace('.', '')}"
