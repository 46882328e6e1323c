"""Types whose values Arrow makes those of another type without a word, though these say less.

A time becomes its day, a double the nearest float, a number ``true``, the text ``007`` a 7.
Who names the type to store asks for that; who gives rows whose types differ does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, time
from typing import Any

import pyarrow as pa

from glaive.dataset.writing.lost_members import lost_member
from glaive.errors import SchemaError
from glaive.expr.coerce import is_list, is_number, is_string, plain

__all__ = ["lost_values", "lost_values_of", "refuse_lost_times"]


def lost_values(given: Any, wanted: Any) -> str | None:
    """What values of one type would lose as those of another, though a cast is no error; or None.

    Parameters
    ----------
    given, wanted
        Types of a column.
    """
    if given.equals(wanted):
        return None
    member = lost_member(given, wanted)
    if member is not None:
        return f"a member {member!r}, which {wanted} lacks"
    part = _changed(given, wanted)
    return (
        None if part is None else f"values of {part[0]}, which {part[1]} does not hold as they are"
    )


def lost_values_of(values: Any, wanted: Any) -> str | None:
    """The same for a column of pandas; None where its type says nothing.

    That of objects does not, nor does that of a column in which all are missing: pandas calls such
    a column one of floats, whatever it would have.
    """
    try:
        given = pa.Array.from_pandas(values.iloc[:0]).type
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    lost = lost_values(given, wanted)
    return None if lost is None or values.isna().all() else lost


def refuse_lost_times(columns: Mapping[str, Any], made: pa.Schema) -> None:
    """Refuse times of Python that Arrow has made days, as those of a column that begins with days.

    Parameters
    ----------
    columns
        Lists of values, or series of pandas with objects; others are passed over.
    made
        The types that Arrow found for them.

    Raises
    ------
    SchemaError
        There is such a time.
    """
    for field in made:
        values: Any = columns.get(field.name)
        is_listed = (
            isinstance(values, list | tuple) or f"{getattr(values, 'dtype', '')}" == "object"
        )
        if not is_listed or not _has_days(field.type):
            continue
        kinds = set(map(type, values))  # nearly always of days alone
        if not any(issubclass(kind, (datetime, list, tuple, Mapping)) for kind in kinds):
            continue
        if any(_is_time(one, field.type) for one in values):
            raise SchemaError(
                f"column {field.name!r} has days and times: {field.type} would drop the time of "
                "day. Make all of them datetime.datetime, or all datetime.date"
            )


def _has_days(kind: Any) -> bool:
    return pa.types.is_date(kind) or any(
        _has_days(kind.field(at).type) for at in range(kind.num_fields)
    )


def _is_time(value: Any, kind: Any) -> bool:
    """Whether a value, or one within it, is no midnight, and the type has a day there."""
    if isinstance(value, datetime):
        is_missing = f"{value}" == "NaT"  # of pandas, a datetime by its class
        is_day = not is_missing and value.tzinfo is None and value.time() == time.min
        return bool(pa.types.is_date(kind) and not (is_missing or is_day))
    if isinstance(value, Mapping) and pa.types.is_struct(kind):
        return any(_is_time(value.get(one.name), one.type) for one in kind if _has_days(one.type))
    if isinstance(value, list | tuple) and is_list(kind, fixed=True):
        return any(_is_time(one, kind.value_type) for one in value)
    return False


def _changed(given: Any, wanted: Any) -> tuple[Any, Any] | None:
    """The first part of a type that Arrow changes without a word, and what it changes it to."""
    given, wanted = plain(given), plain(wanted)
    types = pa.types
    parts: list[tuple[Any, Any]] = []
    if types.is_struct(given) and types.is_struct(wanted):
        known = {member.name: member.type for member in given}
        parts = [(known[one.name], one.type) for one in wanted if one.name in known]
    elif types.is_map(given) and types.is_map(wanted):
        parts = [(given.key_type, wanted.key_type), (given.item_type, wanted.item_type)]
    elif is_list(given, fixed=True) and is_list(wanted, fixed=True):
        parts = [(given.value_type, wanted.value_type)]
    elif _changes(given, wanted):
        return given, wanted
    return next(filter(None, (_changed(*part) for part in parts)), None)


def _changes(given: Any, wanted: Any) -> bool:
    """Whether a cast of values that are not nested may change them, and is no error then."""
    types = pa.types
    if types.is_boolean(wanted):
        return is_number(given) or is_string(given)
    if is_string(given):  # is parsed
        return is_number(wanted) or types.is_temporal(wanted)
    if is_number(given) and is_number(wanted):
        return _rounds(given, wanted)
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return (given.tz is None) != (wanted.tz is None)
    if types.is_temporal(given):
        return is_number(wanted) or (types.is_temporal(wanted) and _kind(given) != _kind(wanted))
    return is_number(given) and types.is_temporal(wanted)


def _rounds(given: Any, wanted: Any) -> bool:
    """Whether numbers are rounded; those that are out of range, or lose a fraction, are errors."""
    types = pa.types
    if types.is_decimal(wanted):
        return types.is_floating(given)
    if not types.is_floating(wanted):
        return False
    if types.is_integer(given):
        return bool(wanted.bit_width == 16 and given.bit_width > 8)
    return types.is_decimal(given) or given.bit_width > wanted.bit_width


def _kind(data_type: Any) -> str:
    """What kind of time it is."""
    kinds = ("timestamp", "date", "time", "duration")
    return next((kind for kind in kinds if getattr(pa.types, f"is_{kind}")(data_type)), "")
