"""Points in time from numbers and texts, in other units, and as text in a format."""

from __future__ import annotations

from typing import Any

from glaive.errors import FilterError
from glaive.expr.coerce import is_number
from glaive.expr.functions.coercion import INTEGER, LOOSE_TEXT, check_count, is_string, refuse
from glaive.expr.functions.library import library
from glaive.expr.functions.registry import Call, Resolve, Types
from glaive.expr.functions.untyped import pa, pc

__all__: list[str] = []

is_kind = pa.types

_DECIMAL_DIGITS = 65
"""Of decimals that are multiplied by nanoseconds of a second; of more, floats are."""


def _source_types(call: Call, *, days: bool) -> tuple[Any, ...]:
    check_count(call, 1)
    kind = call.types[0]
    if is_string(kind):
        return tuple(LOOSE_TEXT(call, number)[0] for number in range(len(call.types)))
    if len(call.types) > 1:
        raise refuse(call, 0, "text if a format is given")
    if is_kind.is_null(kind) or is_kind.is_integer(kind):
        return (pa.int64(),)
    if is_kind.is_timestamp(kind) or (days and is_kind.is_date(kind)):
        return (kind,)
    exact = is_kind.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS and kind.scale >= 0
    if exact and not days:
        return (kind,)
    if is_number(kind):
        return (pa.float64(),)
    raise refuse(call, 0, "text, a number or a timestamp")


def _to(kind: Any, *, days: bool = True) -> Resolve:
    """Build the rule of a function to this type."""
    return lambda call: (_source_types(call, days=days), kind)


library("to_timestamp", takes=_to(pa.timestamp("ns"), days=False))
library("to_timestamp_seconds", takes=_to(pa.timestamp("s"), days=False))
library("to_timestamp_millis", takes=_to(pa.timestamp("ms"), days=False))
library("to_timestamp_micros", takes=_to(pa.timestamp("us"), days=False))
library("to_timestamp_nanos", takes=_to(pa.timestamp("ns"), days=False))
library("to_unixtime", takes=_to(pa.int64()))
library("to_date", takes=_to(pa.date32()))


def _from_types(call: Call) -> Types:
    check_count(call, 1, 2)
    INTEGER(call, 0)
    if len(call.types) == 1:
        return (pa.int64(),), pa.timestamp("s")
    given = call.literals[1]
    zone = given.as_py() if given is not None else None
    if not isinstance(zone, str):
        raise refuse(call, 1, "a time zone, a constant")
    try:
        pa.scalar(0, pa.timestamp("s")).cast(pa.timestamp("s", zone))
        pc.local_timestamp(pa.scalar(0, pa.timestamp("s", zone)))
    except pa.ArrowInvalid:
        raise FilterError(f"from_unixtime: no time zone {zone!r:.80}") from None
    return (pa.int64(), pa.string()), pa.timestamp("s", zone)


library("from_unixtime", takes=_from_types)


def _clock_types(call: Call) -> Types:
    check_count(call, 1)
    kind = call.types[0]
    if is_kind.is_timestamp(kind) or is_kind.is_null(kind):
        if len(call.types) > 1:
            raise refuse(call, 0, "text if a format is given")
        return (kind if is_kind.is_timestamp(kind) else pa.timestamp("ns"),), pa.time64("ns")
    if not is_string(kind):
        raise refuse(call, 0, "text or a timestamp")
    argument_types = tuple(LOOSE_TEXT(call, number)[0] for number in range(len(call.types)))
    return argument_types, pa.time64("ns")


library("to_time", takes=_clock_types)


def _char_types(call: Call) -> Types:
    check_count(call, 2, 2)
    pattern, _ = LOOSE_TEXT(call, 1)
    kind = call.types[0]
    if is_kind.is_null(kind) or is_string(kind):
        kind = pa.timestamp("ns")
    known = (is_kind.is_timestamp, is_kind.is_date, is_kind.is_time, is_kind.is_duration)
    if not any(test(kind) for test in known):
        raise refuse(call, 0, "a date, a time, a timestamp or a duration")
    return (kind, pattern), pa.string()


library("to_char date_format", takes=_char_types)
