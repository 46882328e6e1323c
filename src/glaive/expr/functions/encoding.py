"""Encode bytes as text, and back: hexadecimal with numpy, base64 row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from glaive.errors import FilterError
from glaive.expr.functions.coercion import BINARY, TEXT, signature
from glaive.expr.functions.registry import function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import constant_name
from glaive.expr.rows import map_rows
from glaive.expr.sizes import bytes_of, check_bytes

__all__ = ["hex_text"]

_NAMES = ("base64", "base64pad", "hex")
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_NIBBLES = np.full(256, 255, np.uint8)
_NIBBLES[_DIGITS] = np.arange(16)
_NIBBLES[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


def _text_type(counted: Any) -> Any:
    return pa.large_string() if pa.types.is_large_binary(counted[0]) else pa.string()


def hex_text(values: Any) -> Any:
    """Return bytes as strings of hexadecimal digits; large binary as large strings."""
    check_bytes("hexadecimal text", 2 * bytes_of(values, len(values)), len(values), values.type)
    raw, offsets = _parts(values)
    digits = _DIGITS[np.stack([raw >> 4, raw & 15], axis=1)].ravel()
    return _array_of(digits, offsets * 2, pa.large_string(), _text_type([values.type]), values)


@function("encode", takes=signature(BINARY, TEXT, result=_text_type))
def _encode(values: Any, encoding: Any) -> Any:
    import base64

    name, kind = constant_name("encode: the encoding", encoding, _NAMES), _text_type([values.type])
    if name == "hex":
        return hex_text(values)

    def encoded(raw: bytes) -> str:
        text = base64.b64encode(raw).decode()
        return text if name == "base64pad" else text.rstrip("=")

    return map_rows(kind, encoded, values)


@function("decode", takes=signature(BINARY, TEXT, result=lambda counted: counted[0]))
def _decode(values: Any, encoding: Any) -> Any:
    import base64

    if constant_name("decode: the encoding", encoding, _NAMES) == "hex":
        return _decode_hex(values)

    def decoded(raw: bytes) -> bytes:
        try:
            bare = raw.rstrip(b"=")
            content = base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
        except ValueError:
            content = None
        # Bits after the last byte must be zero; padding may be omitted.
        if content is None or not base64.b64encode(content).startswith(raw):
            raise FilterError(f"decode: {raw[:40]!r} is not base64")
        return content

    return map_rows(values.type, decoded, values)


def _decode_hex(values: Any) -> Any:
    raw, offsets = _parts(values)
    nibbles = _NIBBLES[raw]
    if np.any(np.diff(offsets) % 2) or np.any(nibbles == 255):
        odd = pc.not_equal(pc.bit_wise_and(pc.binary_length(values), 1), 0)
        odd_values = values.filter(pc.fill_null(odd, False))
        problem = (
            "an odd number of digits" if len(odd_values) else "a character that is not a digit"
        )
        raise FilterError(f"decode: not hexadecimal: a value has {problem}")
    pairs = nibbles.reshape(-1, 2)
    return _array_of(
        pairs[:, 0] << 4 | pairs[:, 1], offsets // 2, pa.large_binary(), values.type, values
    )


def _parts(values: Any) -> tuple[Any, Any]:
    """Bytes of all values in one array, and the bounds of each; nulls are empty."""
    filled = pc.fill_null(values, pa.scalar(b"", values.type)).cast(pa.large_binary())
    _, offsets, data = filled.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(filled) + 1, filled.offset * 8)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return raw[bounds[0] : bounds[-1]], bounds - bounds[0]


def _array_of(raw: Any, offsets: Any, wide: Any, kind: Any, values: Any) -> Any:
    buffers = [
        None,
        pa.py_buffer(np.ascontiguousarray(offsets)),
        pa.py_buffer(np.ascontiguousarray(raw)),
    ]
    result = pa.Array.from_buffers(wide, len(offsets) - 1, buffers).cast(kind)
    return (
        pc.if_else(values.is_valid(), result, pa.scalar(None, kind))
        if values.null_count
        else result
    )
