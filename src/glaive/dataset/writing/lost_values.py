"""Types whose values Arrow makes those of another type without a word, though these say less.

A time becomes its day, a double the nearest float, a number ``true``, the text ``007`` a 7.
Who names the type to store asks for that; who gives rows whose types differ does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, time
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.dataset.writing.lost_members import lost_member
from glaive.errors import SchemaError
from glaive.expr.coerce import is_list, is_number, is_string, plain

__all__ = ["lost_values", "lost_values_of", "refuse_lost_times", "series_of"]

_ROWS = (list, tuple, np.ndarray)
"""Values of Python that Arrow makes lists."""


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

    That of a column in which all are missing does not: pandas calls it one of floats, whatever it
    would have. Objects have the type that Arrow finds for them, where it matters.
    """
    are_objects = _are_objects(values)
    if are_objects and not _has(wanted, _takes_more):
        return None
    try:
        given = pa.Array.from_pandas(values if are_objects else values.iloc[:0]).type
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    if are_objects and _has_times(values, given):
        return f"times of day, which {wanted} does not hold as they are"
    lost = lost_values(given, wanted)
    return None if lost is None or values.isna().all() else lost


def series_of(frame: Any) -> list[tuple[str, Any]]:
    """Columns of pandas, then the levels of its index that have names: names, as Arrow has them."""
    columns = [(f"{name}", frame.iloc[:, at]) for at, name in enumerate(frame.columns)]
    index = frame.index
    if type(index).__name__ == "RangeIndex":
        return columns
    levels = [
        (f"{name}", index.get_level_values(at).to_series())
        for at, name in enumerate(index.names)
        if name is not None
    ]
    return columns + levels


def refuse_lost_times(columns: Callable[[], Mapping[str, Any]], made: pa.Schema) -> None:
    """Refuse times of Python that Arrow has made days, as those of a column that begins with days.

    Parameters
    ----------
    columns
        Gives lists of values, or series of pandas with objects, by name; others are passed over.
    made
        The types that Arrow found for them.

    Raises
    ------
    SchemaError
        There is such a time.
    """
    with_days = [field for field in made if _has(field.type, pa.types.is_date)]
    given = columns() if with_days else {}
    for field in with_days:
        values: Any = given.get(field.name)
        is_typed = hasattr(values, "dtype") or isinstance(values, pa.Array | pa.ChunkedArray)
        is_plain = isinstance(values, Collection) and not is_typed
        if (is_plain or _are_objects(values)) and _has_times(values, field.type):
            raise SchemaError(
                f"column {field.name!r} has days and times: {field.type} would drop the time of "
                "day. Make all of them datetime.datetime, or all datetime.date"
            )


def _are_objects(values: Any) -> bool:
    return f"{getattr(values, 'dtype', '')}" == "object"


def _has(kind: Any, test: Callable[[Any], bool]) -> bool:
    """Whether a type, or a part of it, passes a test."""
    kind = plain(kind)
    return test(kind) or any(_has(kind.field(at).type, test) for at in range(kind.num_fields))


def _takes_more(kind: Any) -> bool:
    """Whether Arrow makes objects of other types values of this one, though these say less."""
    types = pa.types
    is_small = types.is_floating(kind) and kind.bit_width < 64
    return is_small or types.is_date(kind) or types.is_timestamp(kind)


def _has_times(values: Any, kind: Any) -> bool:
    """Whether there is a time of day that the type, which Arrow found for the values, drops."""
    if not _has(kind, pa.types.is_date):
        return False
    kinds = set(map(type, values))  # nearly always of days alone
    if not any(issubclass(one, (datetime, Mapping, *_ROWS)) for one in kinds):
        return False
    return any(_is_time(one, kind) for one in values)


def _is_time(value: Any, kind: Any) -> bool:
    """Whether a value, or one within it, is no midnight, and the type has a day there."""
    if isinstance(value, datetime):
        is_missing = f"{value}" == "NaT"  # of pandas, a datetime by its class
        is_day = not is_missing and value.tzinfo is None and value.time() == time.min
        return bool(pa.types.is_date(kind) and not (is_missing or is_day))
    if isinstance(value, Mapping) and pa.types.is_struct(kind):
        return any(_is_time(value.get(one.name), one.type) for one in kind)
    if isinstance(value, _ROWS) and is_list(kind, fixed=True):
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
    if types.is_date(given) and types.is_timestamp(wanted) and wanted.tz is None:
        return False  # midnight
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
