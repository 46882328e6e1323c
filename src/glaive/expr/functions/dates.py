"""Dates and times: their parts, truncation; the current time.

Timestamps with a time zone are evaluated in that zone. What Arrow has in one call it computes; the
rest is of :mod:`glaive.expr.functions.library`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from glaive.errors import FilterError
from glaive.expr.functions.coercion import signature
from glaive.expr.functions.library import compute, engine_types
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.rows import pa, pc

is_kind = pa.types

_TICKS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks of each unit of Arrow in a second."""

_NEAR_DAYS: Final = 10_000_000
"""Days before and after 1970 that Arrow's calendar has: its years have 16 bits."""


def _is_far(moment: Any) -> bool:
    """Whether a date (``date32``) or timestamp is in a year that Arrow's calendar lacks."""
    is_date = is_kind.is_date32(moment.type)
    limit = _NEAR_DAYS * (1 if is_date else 86_400 * _TICKS[moment.type.unit])
    ends = pc.min_max(moment.cast(pa.int32() if is_date else pa.int64())).as_py()
    return ends["min"] is not None and (ends["min"] < -limit or ends["max"] > limit)


_OF_DAYS: Final[dict[str, Callable[[Any], Any]]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "dow": partial(pc.day_of_week, count_from_zero=True, week_start=7),
    "isodow": partial(pc.day_of_week, count_from_zero=False, week_start=1),
    "doy": pc.day_of_year,
    "isoyear": pc.iso_year,
}
_PARTS: Final = {**_OF_DAYS, "hour": pc.hour, "minute": pc.minute, "second": pc.second}
"""Parts of timestamps by name."""


def _word(call: Call) -> str:
    """The constant that a call has first, in lower case; empty if there is none."""
    given = call.literals[0].as_py() if call.literals and call.literals[0] is not None else None
    return given.lower() if isinstance(given, str) else ""


def _part_types(call: Call) -> Types:
    kind = call.types[1] if len(call.types) == 2 else None
    known = {}
    if kind is not None and is_kind.is_timestamp(kind):
        known = _PARTS
    elif kind is not None and is_kind.is_date32(kind):
        known = _OF_DAYS
    return ((pa.string(), kind), pa.int32()) if _word(call) in known else engine_types(call)


@function("date_part", "datepart", takes=_part_types, column=1)
def _date_part(part: Any, moment: Any) -> Any:
    extract, kind = _PARTS.get(str(part).lower()), moment.type
    is_date = is_kind.is_date32(kind) and str(part).lower() in _OF_DAYS
    if extract is None or not (is_date or is_kind.is_timestamp(kind)):
        return compute("date_part", part, moment)
    if not is_date and kind.tz:
        moment = pc.local_timestamp(moment)  # seconds of zones before standard time stay
    return compute("date_part", part, moment) if _is_far(moment) else extract(moment)


_UNITS: Final = (
    "microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter",
    "year",
)  # fmt: skip


def _trunc_types(call: Call) -> Types:
    kind = call.types[1] if len(call.types) == 2 else None
    if kind is not None and (is_kind.is_date(kind) or is_kind.is_null(kind)):
        kind = pa.timestamp("ns")
    if kind is None or not is_kind.is_timestamp(kind) or _word(call) not in _UNITS:
        return engine_types(call)
    return (pa.string(), kind), kind


@function("date_trunc", "datetrunc", takes=_trunc_types, column=1)
def _date_trunc(unit: Any, moment: Any) -> Any:
    name, kind = str(unit).lower(), moment.type
    if not is_kind.is_timestamp(kind) or kind.tz or name not in _UNITS or _is_far(moment):
        return compute("date_trunc", unit, moment)
    floored = pc.floor_temporal(moment, unit=name)
    if pc.any(pc.greater(floored, moment)).as_py():
        raise FilterError(f"date_trunc: a value of {kind} is in a {name} that begins out of range")
    return floored


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(tzinfo=None)


@function("now", "current_timestamp", takes=signature(result=pa.timestamp("ns")))
def _current_timestamp() -> Any:
    return pa.scalar(_now(), pa.timestamp("ns"))


@function("current_date", "today", takes=signature(result=pa.date32()))
def _current_date() -> Any:
    return pa.scalar(_now().date(), pa.date32())


@function("current_time", takes=signature(result=pa.time64("ns")))
def _current_time() -> Any:
    return pa.scalar(_now().time(), pa.time64("ns"))
