"""Scalars of JSONB as numbers and text: integers of all rows at once, text row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from glaive.arrow.dictionaries import concat_arrays
from glaive.arrow.jsonb import decode_jsonb
from glaive.errors import FilterError
from glaive.expr.functions.jsonb_views import FALSE, NUMBER, OBJECT, STRING, TRUE, JsonItems
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import row_values

__all__ = ["numbers_of", "texts_of"]

_ZERO, _INT, _UINT, _FLOAT = 0x00, 0x40, 0x50, 0x60
_WIDTHS = (1, 2, 4, 8)


_ESCAPED = r'["\\\x00-\x1f\x7f]'
"""Letters that JSON does not write as they are."""


def texts_of(items: JsonItems, *, quoted: bool = False) -> Any:
    """Scalars as JSON; strings as they are, unless they are to be ``quoted``."""
    strings = items.kinds == STRING
    whole, numbers = _small_whole(items)
    written = items.keep(strings).payloads().cast(pa.large_string()).cast(pa.string())
    if quoted:
        plain = pc.invert(pc.match_substring_regex(written, _ESCAPED))
        written = pc.binary_join_element_wise('"', written, '"', "")
        hard = np.flatnonzero(strings)[~plain.to_numpy(zero_copy_only=False)]
        written = written.filter(plain)
        strings[hard] = False
    floats, fractions = _plain_floats(items)
    rest = ~(strings | whole | floats)
    _, others = items.keep(rest).documents()
    parts = [
        written,
        pa.array(numbers).cast(pa.string()),
        pa.array(fractions).cast(pa.string()),
        decode_jsonb(others, "a JSON column"),
    ]
    places = [np.flatnonzero(some) for some in (strings, whole, floats, rest)]
    return concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(places))))


def _small_whole(items: JsonItems) -> tuple[Any, Any]:
    """Which items are integers of at most 32 bits, and those numbers."""
    made = np.zeros(len(items), np.int64)
    widths = items.end - items.begin - 1
    places = np.flatnonzero((items.kinds == NUMBER) & (widths >= 1) & (widths <= 4))
    tags = items.raw[items.begin[places]] & 0xF0
    chosen = np.zeros(len(items), bool)
    for tag, letter in ((_INT, "i"), (_UINT, "u")):
        for width in _WIDTHS[:3]:
            some = places[(tags == tag) & (widths[places] == width)]
            made[some] = _read(items, some, f">{letter}{width}")
            chosen[some] = True
    return chosen, made[chosen]


def _plain_floats(items: JsonItems) -> tuple[Any, Any]:
    """Which items are fractions that Arrow writes as JSON does, and those numbers."""
    places = np.flatnonzero((items.kinds == NUMBER) & (items.end - items.begin == 9))
    places = places[items.raw[items.begin[places]] & 0xF0 == _FLOAT]
    numbers = _read(items, places, ">f8").astype(np.float64)
    size = np.abs(numbers)
    with np.errstate(invalid="ignore"):
        plain = (size >= 1e-3) & (size < 1e9) & (numbers != np.floor(numbers))
    chosen = np.zeros(len(items), bool)
    chosen[places[plain]] = True
    return chosen, numbers[plain]


def _read(items: JsonItems, places: Any, kind: str) -> Any:
    """Numbers of one type behind the first byte of their payloads."""
    size = np.dtype(kind).itemsize
    if not len(places):
        return np.zeros(0, kind)
    windows = np.ndarray(len(items.raw) - size + 1, kind, items.raw, strides=(1,))
    return windows[items.begin[places] + 1]


def numbers_of(items: JsonItems, kind: Any, name: str) -> Any:
    """Scalars as ``int64`` or ``float64``: booleans count 0 and 1, text is read as a number.

    Raises
    ------
    FilterError
        A value is no number, or too large a whole one; ``name`` says which.
    """
    if np.any(items.kinds >= OBJECT):
        raise FilterError(f"{name} of a row is an object or an array, not a number")
    whole = kind == pa.int64()
    made = np.zeros(len(items), np.int64 if whole else np.float64)
    made[items.kinds == TRUE] = 1
    done = (items.kinds == TRUE) | (items.kinds == FALSE)
    numbers = np.flatnonzero((items.kinds == NUMBER) & (items.end > items.begin))
    tags = items.raw[items.begin[numbers]] & 0xF0
    widths = items.end[numbers] - items.begin[numbers] - 1
    done[numbers[(tags == _ZERO) & (widths == 0)]] = True
    for tag, letter in ((_INT, "i"), (_UINT, "u"), (_FLOAT, "f")):
        for width in _WIDTHS if tag != _FLOAT else (8,):
            some = numbers[(tags == tag) & (widths == width)]
            if not len(some):
                continue
            values = _read(items, some, f">{letter}{width}")
            if whole:
                values = _whole(values, name)
            made[some] = values
            done[some] = True
    rest = np.flatnonzero(~done)
    if len(rest):
        texts = texts_of(items.keep(rest))
        made[rest] = row_values(lambda text: _parsed(text, name, whole=whole), texts)
    return pa.array(made, kind)


def _whole(values: Any, name: str) -> Any:
    """Half rounds away from zero."""
    if values.dtype.kind == "f":
        values = np.trunc(values) + np.where(
            np.abs(values - np.trunc(values)) >= 0.5, np.sign(values), 0
        )
        outside = ~(np.abs(values) < 2.0**63)
    else:
        outside = (
            values > np.uint64(2**63 - 1)
            if values.dtype.itemsize == 8 and (values.dtype.kind == "u")
            else np.zeros(len(values), bool)
        )
    if outside.any():
        raise FilterError(f"{name} of a row is {values[outside.argmax()]}, too large for int64")
    return values.astype(np.int64)


def _parsed(text: str, name: str, *, whole: bool) -> float:
    try:
        if "_" in text or text != text.strip():
            raise ValueError(text)
        if whole and text.lstrip("+-").isdigit():
            made: float = int(text)
        else:
            made = float(text)
            if whole:
                made = math.trunc(made + math.copysign(0.5, made))
    except (ValueError, OverflowError):
        raise FilterError(f"{name} of a row is {text[:40]!r}, not a number") from None
    if whole and not -(2**63) <= made < 2**63:
        raise FilterError(f"{name} of a row is {text[:40]}, too large for int64")
    return made
