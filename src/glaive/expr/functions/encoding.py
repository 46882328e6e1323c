"""Encode bytes as text, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from glaive.expr.functions.coercion import BINARY, TEXT, like_first, signature
from glaive.expr.functions.library import library
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.sizes import bytes_of, check_bytes

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def _text_type(counted: Any) -> Any:
    return pa.large_string() if pa.types.is_large_binary(counted[0]) else pa.string()


def hex_text(values: Any) -> Any:
    """Return bytes as strings of hexadecimal digits; large binary as large strings."""
    check_bytes("hexadecimal text", 2 * bytes_of(values, len(values)), len(values), values.type)
    raw, offsets = _parts(values)
    digits = _DIGITS[np.stack([raw >> 4, raw & 15], axis=1)].ravel()
    return _array_of(digits, offsets * 2, pa.large_string(), _text_type([values.type]), values)


library("encode", takes=signature(BINARY, TEXT, result=_text_type))
library("decode", takes=signature(BINARY, TEXT, result=like_first))


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
