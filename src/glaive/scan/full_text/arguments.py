"""Arguments of queries, checked: an ``OptionError`` names the one that is wrong."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from glaive.errors import OptionError, OptionRangeError

__all__ = ["boosts_of", "columns_of", "member_of", "number_of", "text_of", "whole_of"]

_MAX_NUMBER = 1 << 31


def text_of(name: str, value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise OptionError(f"{name}: expected a text, found {value!r:.80}")
    return value


def whole_of(name: str, value: object) -> int:
    """An integer from 0 on."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_NUMBER:
        kind = OptionRangeError if isinstance(value, int) else OptionError
        raise kind(f"{name}: expected an integer from 0 to 2^31 - 1, found {value!r}")
    return value


def number_of(name: str, value: object) -> float:
    """A finite number."""
    most = sys.float_info.max  # integers may be larger
    if not isinstance(value, int | float) or not -most <= value <= most:
        raise OptionError(f"{name}: expected a finite number, found {value!r:.80}")
    return float(value)


def columns_of(columns: object) -> tuple[str, ...]:
    """Names of columns, one or more."""
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        said = "Cannot create MultiMatchQuery with no columns: "
        raise OptionError(
            f"{said if isinstance(columns, list) else ''}columns: expected a list of at least one "
            f"name, found {columns!r:.80}"
        )
    return tuple(text_of("columns", column) for column in columns)


def boosts_of(boosts: object, count: int) -> tuple[float, ...]:
    """Factors, one per column; 1 if there are none."""
    if boosts is None:
        return (1.0,) * count
    if not isinstance(boosts, Sequence) or len(boosts) != count:
        raise OptionError(
            "The number of boosts must match the number of queries: boosts: expected "
            f"{count} numbers, one per column, found {boosts!r:.80}"
        )
    return tuple(number_of("boosts", boost) for boost in boosts)


def member_of(name: str, value: Any, kind: type[Any]) -> Any:
    """A value of one class."""
    if not isinstance(value, kind):
        raise OptionError(f"{name}: expected {kind.__name__}, found {value!r:.80}")
    return value
