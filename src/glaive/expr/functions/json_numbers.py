"""Scalars of JSONB as numbers and strings: integers with numpy, strings row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from glaive.arrow.dictionaries import concat_arrays
from glaive.arrow.jsonb import BEYOND, decode_jsonb
from glaive.errors import FilterError
from glaive.expr.functions.jsonb_views import FALSE, NUMBER, OBJECT, STRING, TRUE, JsonItems
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import row_values

__all__ = ["numbers_of", "strings_of"]

_ZERO, _INT, _UINT, _FLOAT = 0x00, 0x40, 0x50, 0x60
_WIDTHS = (1, 2, 4, 8)


_ESCAPED = r'["\\\x00-\x1f\x7f]'
"""Characters that JSON escapes."""


def strings_of(items: JsonItems, *, quoted: bool = False) -> Any:
    """Scalars as JSON; strings only with ``quoted`` in quotes, and infinity a number only then."""
    strings = items.kinds == STRING
    integers, numbers = _small_integers(items)
    written = items.keep(strings).payloads().cast(pa.large_string()).cast(pa.string())
    if quoted:
        plain = pc.invert(pc.match_substring_regex(written, _ESCAPED))
        written = pc.binary_join_element_wise('"', written, '"', "")
        escaped = np.flatnonzero(strings)[~plain.to_numpy(zero_copy_only=False)]
        written = written.filter(plain)
        strings[escaped] = False
    floats, fractions = _plain_floats(items)
    rest = ~(strings | integers | floats)
    _, documents = items.keep(rest).documents()
    others: Any = decode_jsonb(documents, "a JSON column")
    if not quoted:
        others = pc.replace_substring_regex(others, f"^(-?){BEYOND}$", r"\1inf")
    parts = [
        written,
        pa.array(numbers).cast(pa.string()),
        pa.array(fractions).cast(pa.string()),
        others,
    ]
    positions = [np.flatnonzero(mask) for mask in (strings, integers, floats, rest)]
    return concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(positions))))


def _small_integers(items: JsonItems) -> tuple[Any, Any]:
    """Which items are integers of at most 32 bits, and these integers."""
    numbers = np.zeros(len(items), np.int64)
    widths = items.end - items.begin - 1
    positions = np.flatnonzero((items.kinds == NUMBER) & (widths >= 1) & (widths <= 4))
    tags = items.raw[items.begin[positions]] & 0xF0
    chosen = np.zeros(len(items), bool)
    for tag, letter in ((_INT, "i"), (_UINT, "u")):
        for width in _WIDTHS[:3]:
            same_width = positions[(tags == tag) & (widths[positions] == width)]
            numbers[same_width] = _read(items, same_width, f">{letter}{width}")
            chosen[same_width] = True
    return chosen, numbers[chosen]


def _plain_floats(items: JsonItems) -> tuple[Any, Any]:
    """Which items are fractions that Arrow formats like JSON, and these numbers."""
    positions = np.flatnonzero((items.kinds == NUMBER) & (items.end - items.begin == 9))
    positions = positions[items.raw[items.begin[positions]] & 0xF0 == _FLOAT]
    numbers = _read(items, positions, ">f8").astype(np.float64)
    size = np.abs(numbers)
    with np.errstate(invalid="ignore"):
        plain = (size >= 1e-3) & (size < 1e9) & (numbers != np.floor(numbers))
    chosen = np.zeros(len(items), bool)
    chosen[positions[plain]] = True
    return chosen, numbers[plain]


def _read(items: JsonItems, positions: Any, dtype: str) -> Any:
    """Numbers of one type, which follow the first byte of their payloads."""
    size = np.dtype(dtype).itemsize
    if not len(positions):
        return np.zeros(0, dtype)
    windows = np.ndarray(len(items.raw) - size + 1, dtype, items.raw, strides=(1,))
    return windows[items.begin[positions] + 1]


def numbers_of(items: JsonItems, kind: Any, name: str) -> Any:
    """Scalars as ``int64`` or ``float64``: booleans as 0 and 1, strings are parsed.

    Raises
    ------
    FilterError
        A value is not a number, or an integer too large; ``name`` is used in the message.
    """
    if np.any(items.kinds >= OBJECT):
        raise FilterError(f"{name} of a row is an object or an array, not a number")
    integer = kind == pa.int64()
    result = np.zeros(len(items), np.int64 if integer else np.float64)
    result[items.kinds == TRUE] = 1
    done = (items.kinds == TRUE) | (items.kinds == FALSE)
    numbers = np.flatnonzero((items.kinds == NUMBER) & (items.end > items.begin))
    tags = items.raw[items.begin[numbers]] & 0xF0
    widths = items.end[numbers] - items.begin[numbers] - 1
    done[numbers[(tags == _ZERO) & (widths == 0)]] = True
    for tag, letter in ((_INT, "i"), (_UINT, "u"), (_FLOAT, "f")):
        for width in _WIDTHS if tag != _FLOAT else (8,):
            same_width = numbers[(tags == tag) & (widths == width)]
            if not len(same_width):
                continue
            values = _read(items, same_width, f">{letter}{width}")
            if integer:
                values = _rounded(values, name)
            result[same_width] = values
            done[same_width] = True
    rest = np.flatnonzero(~done)
    if len(rest):
        strings = strings_of(items.keep(rest))
        result[rest] = row_values(lambda text: _parsed(text, name, integer=integer), strings)
    return pa.array(result, kind)


def _rounded(values: Any, name: str) -> Any:
    """Integers; halves are rounded away from zero."""
    if values.dtype.kind == "f":
        outside = ~(np.abs(values) < 2.0**63)
    else:
        outside = (
            values > np.uint64(2**63 - 1)
            if values.dtype.itemsize == 8 and (values.dtype.kind == "u")
            else np.zeros(len(values), bool)
        )
    if outside.any():
        raise FilterError(f"{name} of a row is {values[outside.argmax()]}, too large for int64")
    if values.dtype.kind == "f":  # finite here: infinity less infinity is a warning of NumPy
        whole = np.trunc(values)
        values = whole + np.where(np.abs(values - whole) >= 0.5, np.sign(values), 0)
    return values.astype(np.int64)


def _parsed(text: str, name: str, *, integer: bool) -> float:
    try:
        if "_" in text or text != text.strip():
            raise ValueError(text)
        if integer and text.lstrip("+-").isdigit():
            number: float = int(text)
        else:
            number = float(text)
            if integer:
                number = math.trunc(number + math.copysign(0.5, number))
    except (ValueError, OverflowError):
        raise FilterError(f"{name} of a row is {text[:40]!r}, not a number") from None
    if integer and not -(2**63) <= number < 2**63:
        raise FilterError(f"{name} of a row is {text[:40]}, too large for int64")
    return number
