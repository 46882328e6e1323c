"""Scalars of JSONB as numbers and text: whole numbers of all rows at once, text in a loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from glaive.arrow.jsonb import decode_jsonb
from glaive.errors import FilterError
from glaive.expr.functions.jsonb_views import FALSE, NUMBER, OBJECT, STRING, TRUE, JsonItems
from glaive.expr.functions.untyped import pa

__all__ = ["numbers_of", "texts_of"]

_ZERO, _INT, _UINT, _FLOAT = 0x00, 0x40, 0x50, 0x60
_WIDTHS = (1, 2, 4, 8)


def texts_of(items: JsonItems) -> Any:
    """Strings as they are, other scalars as JSON."""
    made = np.empty(len(items), object)
    strings = items.kinds == STRING
    made[strings] = items.keep(strings).payloads().cast(pa.large_string()).to_pylist()
    _, others = items.keep(~strings).documents()
    made[~strings] = decode_jsonb(others, "a JSON column").to_pylist()
    return pa.array(made, pa.string())


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
            at = items.begin[some][:, None] + 1 + np.arange(width)
            values = np.ascontiguousarray(items.raw[at]).view(f">{letter}{width}").ravel()
            if whole:
                values = _whole(values, name)
            made[some] = values
            done[some] = True
    rest = np.flatnonzero(~done)
    if len(rest):
        texts = texts_of(items.keep(rest)).to_pylist()
        made[rest] = [_parsed(text, name, whole=whole) for text in texts]
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
