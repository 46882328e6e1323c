"""Casts between types, with the rules of Lance.

Casts to integers truncate floats, casts of decimals round half away from zero, and casts of times
truncate to the unit. A value outside the range of the type is an error, or null in TRY_CAST. Lists
of bytes become strings row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

import numpy as np

from glaive.arrow.blocks import flag_array, known_true, number_array
from glaive.arrow.chunked import (
    as_numpy,
    concat_arrays,
    decode_dictionary,
    dictionary_encoded,
    too_large,
)
from glaive.arrow.conditions import doubles_of, filled, scalar, valid_where
from glaive.arrow.extensions import GeometryType
from glaive.errors import FilterError
from glaive.expr.coerce import PER_SECOND, TIME_UNITS, is_list, is_string, type_text
from glaive.expr.rows import map_distinct, map_rows, pa, pc

# --- Parse strings as numbers, dates and times, like DataFusion -------------------------

_INTEGER = "^[+-]?0*[0-9]{1,20}$"
_FLOAT = r"^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))$"
_DAY = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|"
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
_INSTANT = rf"^{_DAY}(?:[T ]{_CLOCK}(?:[Zz]|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?$"
_RARE_DATE = (
    "^[0-9]{4}(?:(?:-[0-9]-[0-9]{1,2}|-[0-9]{2}-[0-9]|[0-9]{4})(?:$|[Tt ])|-[0-9]{2}-[0-9]{2}[Tt ])"
)
_RARE_INSTANT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:$|[Tt ][0-9]{2}:)"
_TRUE = ("true", "tru", "tr", "t", "yes", "ye", "y", "on", "1")
_FALSE = ("false", "fals", "fal", "fa", "f", "no", "n", "off", "of", "0")
EXACT = Context(prec=160)
_UTC = frozenset({"UTC", "Z", "+00:00"})


_RARE = {"date": _RARE_DATE, "timestamp": _RARE_INSTANT}
"""Beginnings of strings in rare formats, which DataFusion parses."""


def is_timestamp(text: str, kind: Any) -> bool:
    """Return whether a string is a timestamp that a type can hold."""
    return not read_texts(pa.array([text]), kind).null_count


def read_texts(text: Any, kind: Any) -> Any:
    """Parse strings as values of a type; null for an invalid string.

    Raises
    ------
    pyarrow.ArrowNotImplementedError
        glaive lacks a parser for this type.
    """
    name = next((name for name in _READERS if getattr(pa.types, f"is_{name}")(kind)), None)
    if name is None:
        raise pa.ArrowNotImplementedError(f"{text.type} to {kind}")
    text = text.cast(pa.large_string())
    found = _READERS[name](text, kind)
    if name not in _RARE:
        return found
    rare = pc.and_(pc.is_null(found), pc.match_substring_regex(text, _RARE[name]))
    rare = known_true(rare)
    if not rare.true_count:
        return found
    from glaive.expr.functions.library import engine_cast

    return pc.replace_with_mask(found, rare, engine_cast(text.filter(rare), kind, attempt=True))


def _matching(text: Any, pattern: str) -> Any:
    """Return the strings that match a pattern; null for the others."""
    return pc.if_else(pc.match_substring_regex(text, pattern), text, scalar(None, text.type))


def fitting(values: Any, low: Any, high: Any) -> Any:
    """Return numbers from ``low`` to ``high``; null for the others."""
    bounds = [scalar(bound, values.type) for bound in (low, high)]
    inside = pc.and_(pc.greater_equal(values, bounds[0]), pc.less_equal(values, bounds[1]))
    return pc.if_else(inside, values, scalar(None, values.type))


def integer_range(kind: Any) -> tuple[int, int]:
    """Return the least and the greatest integer of a type."""
    signed = pa.types.is_signed_integer(kind)
    low = -(1 << (kind.bit_width - 1)) if signed else 0
    return low, (1 << (kind.bit_width - signed)) - 1


def narrow(array: Any, kind: Any) -> Any:
    """Cast integers to another integer type; null for values outside its range."""
    (minimum, maximum), (low, high) = integer_range(array.type), integer_range(kind)
    if minimum < low or high < maximum:
        array = fitting(array, max(minimum, low), min(maximum, high))
    return array.cast(kind)


def fitting_decimals(values: Any, minimum: Decimal, maximum: Decimal) -> Any:
    """Return decimals between bounds, which may exceed the type; null for the others."""
    scale = values.type.scale
    end = Decimal(10**values.type.precision - 1).scaleb(-scale, context=EXACT)
    unit = Decimal(1).scaleb(-scale)
    low, high = (
        min(max(bound, end.copy_negate()), end).quantize(unit, ROUND_DOWN, EXACT)
        for bound in (minimum, maximum)
    )
    return fitting(values, low, high)


def _booleans(text: Any, _: Any) -> Any:
    words = pc.utf8_lower(pc.utf8_trim_whitespace(text))
    true, false = (pc.is_in(words, pa.array(known, words.type)) for known in (_TRUE, _FALSE))
    return valid_where(pc.or_(true, false), true)


def _integers(text: Any, kind: Any) -> Any:
    short = _matching(text, "^-?[0-9]{1,18}$").cast(pa.int64())
    found, others = narrow(short, kind), pc.and_(pc.is_valid(text), pc.is_null(short))
    rest = _matching(text.filter(others), _INTEGER)
    if rest.null_count < len(rest):
        numbers = pc.utf8_ltrim(rest, "+").cast(pa.decimal128(38, 0))
        whole = fitting(numbers, *map(Decimal, integer_range(kind))).cast(kind)
        found = pc.replace_with_mask(found, others, whole)
    return found


def _decimals(text: Any, kind: Any) -> Any:
    """Parse decimals; a string that lacks digits is 0, unless the scale is 0 or less."""
    places, whole = max(kind.scale, 0), kind.precision - kind.scale
    digits = min(places + 1, 76 - whole)
    form = rf"^\s*([+-]?)0*([0-9]{{0,{whole}}})(?:(\.[0-9]{{0,{digits}}})[0-9]*)?\s*$"
    usual = _matching(text, form)
    if not places:
        usual = _matching(usual, "[0-9]")
    wide = pc.replace_substring_regex(usual, form, r"\10\2\3").cast(pa.decimal256(76, digits))
    rounded = pc.round(wide, ndigits=places, round_mode="half_towards_infinity")
    maximum = Decimal(10**kind.precision - 1).scaleb(-kind.scale, context=EXACT)
    return fitting_decimals(rounded, maximum.copy_negate(), maximum).cast(kind)


def _instants(text: Any) -> tuple[Any, Any, Any]:
    """Return seconds since 1970, nanoseconds, and zone of each string in the usual format."""
    usual = _matching(text, _INSTANT)
    seconds = pc.utf8_slice_codeunits(usual, 0, 19).cast(pa.timestamp("s")).cast(pa.int64())
    rest = pc.utf8_slice_codeunits(usual, 19)
    if not pc.sum(pc.binary_length(rest)).as_py():
        return seconds, scalar(0, pa.int64()), rest
    zones = pc.replace_substring_regex(rest, r"^\.[0-9]+", "")
    ahead = map_distinct(pa.int64(), _offset_seconds, zones)
    return pc.subtract(seconds, ahead), _fraction(rest), zones


def _offset_seconds(zone: str) -> int:
    """Return the seconds that a zone such as ``+02:00`` is ahead."""
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return int(f"{zone[:1]}1") * (int(digits[:2]) * 60 + int(digits[2:])) * 60 if zone[1:] else 0


def _fraction(rest: Any) -> Any:
    """Return the nanoseconds of strings that may begin with a fraction of a second."""
    digits = pc.replace_substring_regex(rest, r"^(?:\.([0-9]{1,9}))?.*$", r"\1")
    return pc.utf8_rpad(digits, 9, "0").cast(pa.int64())


def _days(text: Any, kind: Any) -> Any:
    seconds, nanos, _ = _instants(text)
    if kind.bit_width == 64:  # keep the time of day
        return pc.add(pc.multiply(seconds, 1000), pc.divide(nanos, 10**6)).cast(kind)
    return seconds.cast(pa.timestamp("s")).cast(pa.date32(), safe=False).cast(kind)


def _timestamps(text: Any, kind: Any) -> Any:
    seconds, nanos, zones = _instants(text)
    if kind.tz is not None and kind.tz.upper() not in _UTC:  # local times are in rare formats
        seconds = pc.if_else(pc.equal(zones, ""), None, seconds)
    per = PER_SECOND[kind.unit]
    maximum = 2**63 // per - 1
    ticks = pc.multiply(fitting(seconds, -maximum, maximum), scalar(per, pa.int64()))
    return pc.add(ticks, pc.divide(nanos, scalar(10**9 // per, pa.int64()))).cast(kind)


def _times(text: Any, kind: Any) -> Any:
    clocks, per = _matching(text, f"^{_CLOCK}$"), PER_SECOND[kind.unit]
    moments = pc.binary_join_element_wise(
        _text("1970-01-01 "), pc.utf8_slice_codeunits(clocks, 0, 8), _text("")
    )
    seconds = moments.cast(pa.timestamp("s")).cast(pa.int64())
    nanos = _fraction(pc.utf8_slice_codeunits(clocks, 8))
    ticks = pc.add(pc.multiply(seconds, per), pc.divide(nanos, 10**9 // per))
    # A time of day that lacks colons is a number of units.
    raw = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pc.coalesce(ticks.cast(raw), _integers(text, raw)).cast(kind)


def _text(text: str) -> Any:
    return scalar(text, pa.large_string())


_READERS: dict[str, Callable[[Any, Any], Any]] = {
    "boolean": _booleans,
    "integer": _integers,
    "floating": lambda text, kind: _matching(text, _FLOAT).cast(kind),
    "decimal": _decimals,
    "date": _days,
    "timestamp": _timestamps,
    "time": _times,
}
"""Functions that parse strings as a type, by the name of the type; null if the format differs."""


# --- Format numbers, dates and times as strings -----------------------------------------
# Arrow formats most values in a few calls; values that Arrow formats differently are handled alone.

_FIRST_DAY, _END_DAY = -719_528, 2_932_897
"""Days since 1970 of the years 0 to 9999."""
_LAST_RULE = 2_145_916_800
"""End of 2037, in seconds since 1970."""


def value_texts(array: Any) -> Any:
    """Format each value as a ``large_string``; null for nulls.

    Raises
    ------
    FilterError
        Formatting values of the type is unsupported.
    """
    kind, types = array.type, pa.types
    if types.is_float64(kind) or types.is_float32(kind):
        return _float_texts(array)
    if types.is_decimal(kind):
        texts = _as_text(array)
        texts = pc.if_else(pc.match_substring(texts, "E"), None, texts)
        others = valid_where(pc.is_null(texts), array)
        if others.null_count == len(others):
            return texts
        return pc.coalesce(texts, map_distinct(pa.large_string(), "{:f}".format, others))
    if types.is_duration(kind):
        return _by_datafusion(array)
    if types.is_float16(kind):
        return map_distinct(pa.large_string(), _half, array)
    if types.is_time(kind):
        raw = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64())
        seconds, fraction = _seconds(raw, kind.unit)
        return _joined(_as_text(seconds.cast(pa.int32()).cast(pa.time32("s"))), fraction)
    if not types.is_date(kind) and not types.is_timestamp(kind):
        raise FilterError(f"{kind} cannot be cast to text")
    if types.is_date32(kind):
        days = array.cast(pa.int32())
        near = pc.and_(pc.greater_equal(days, _FIRST_DAY), pc.less(days, _END_DAY))
        return _with_far_values(_as_text(valid_where(near, array)), array)
    unit, zone = ("ms", None) if types.is_date64(kind) else (kind.unit, kind.tz)
    raw = array.cast(pa.int64())
    seconds, fraction = _seconds(raw, unit)
    low, high = _FIRST_DAY * 86_400, _END_DAY * 86_400
    if zone is not None and zone.upper() not in _UTC:
        # Arrow knows daylight saving time in these years only.
        low, high = low + 86_400, _LAST_RULE
    near = pc.and_(pc.greater_equal(seconds, low), pc.less(seconds, high))
    local, suffix = seconds, _text("" if zone is None else "Z")
    if zone is not None and zone.upper() not in _UTC and pc.any(near).as_py():
        moments = valid_where(near, seconds).cast(pa.timestamp("s", zone))
        try:
            local = pc.local_timestamp(moments).cast(pa.int64())
        except pa.ArrowInvalid:
            raise FilterError(f"time zone {zone!r:.80} is not known") from None
        suffix = map_distinct(pa.large_string(), _zone_text, pc.subtract(local, seconds))
    day = _as_text(valid_where(near, local).cast(pa.timestamp("s")))
    texts = _joined(pc.binary_replace_slice(day, 10, 11, "T"), fraction, suffix)
    return _with_far_values(texts, array)


def _as_text(array: Any) -> Any:
    return array.cast(pa.large_string())


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, _text(""))


def _with_far_values(texts: Any, values: Any) -> Any:
    """Return the texts, with DataFusion's for values far from today, which Arrow refuses."""
    out_of_range = pc.and_(values.is_valid(), texts.is_null())
    if not out_of_range.true_count:
        return texts
    return pc.replace_with_mask(texts, out_of_range, _by_datafusion(values.filter(out_of_range)))


def _by_datafusion(values: Any) -> Any:
    from glaive.expr.functions.library import engine_cast

    return _as_text(engine_cast(values, pa.string(), attempt=False))


def _seconds(raw: Any, unit: str) -> tuple[Any, Any]:
    """Return whole seconds, and the fraction as text with three, six or nine digits, or empty."""
    per = PER_SECOND[unit]
    if per == 1:
        return raw, _text("")
    ticks = as_numpy(filled(raw, 0))
    seconds, rest = np.divmod(ticks, per)
    fraction: Any = _text("")
    if rest.any():
        digits = pc.utf8_lpad(_as_text(pa.array(rest)), len(str(per)) - 1, "0")
        short = pc.replace_substring_regex(digits, "(?:000)+$", "")
        point = pc.if_else(pa.array(rest != 0), _text("."), _text(""))
        fraction = _joined(point, short)
    return pa.array(seconds, mask=as_numpy(raw.is_null())), fraction


def _zone_text(ahead: int) -> str:
    minutes = abs(ahead) // 60  # offsets before standard time have seconds
    return f"{'-' if ahead < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _float_texts(array: Any) -> Any:
    """Return the shortest text that parses as the same number, in the format of Lance.

    Arrow finds the digits, but uses exponents from 10 digits on.
    """
    wide = array.type.bit_width == 64
    size, texts = pc.abs(array), _as_text(array)
    whole = pc.and_(pc.equal(pc.trunc(array), array), pc.less(size, 1e16 if wide else 2.0**24))
    whole = pc.and_(whole, pc.greater(size, 0))
    digits = _as_text(valid_where(whole, array).cast(pa.int64()))
    texts = pc.replace_substring(pc.coalesce(digits, texts), "e+", "e")
    texts = pc.if_else(
        pc.match_substring_regex(texts, "^-?[0-9]+$"), _joined(texts, _text(".0")), texts
    )
    texts = pc.if_else(pc.is_nan(array), _text("NaN"), texts)
    # Arrow writes an exponent only for large numbers.
    large = pc.and_(
        pc.greater_equal(size, 1e10), pc.less(size, 1e16 if wide else float(np.float32(1e13)))
    )
    large = known_true(pc.and_(large, pc.invert(whole)))
    if large.true_count:
        digits = _as_text(texts.filter(large).cast(pa.decimal128(38, 8)))
        digits = pc.replace_substring_regex(digits, r"(\.[0-9]+?)0+$", r"\1")
        texts = pc.replace_with_mask(texts, large, digits)
    if wide and pc.any(pc.and_(pc.greater_equal(size, 1e-6), pc.less(size, 1e-5))).as_py():
        texts = pc.replace_substring_regex(texts, r"^(-?)0\.00000([1-9])$", r"\1\2e-6")
        texts = pc.replace_substring_regex(texts, r"^(-?)0\.00000([1-9])([0-9]+)$", r"\1\2.\3e-6")
    return texts


def _half(value: float) -> str:
    """Format all digits of a half float; omit the point of integers."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else str(value)
    return str(np.format_float_positional(np.float32(value), unique=True, trim="-"))


_RAW = {32: pa.int32(), 64: pa.int64()}


def cast(array: Any, kind: Any, *, attempt: bool = False) -> Any:
    """Cast an array to ``kind``; with ``attempt``, return null instead of raising.

    Raises
    ------
    FilterError
        A value is outside the range of the type, or the cast between the types is unsupported.
    """
    source = array.type
    if source == kind:
        return array
    if isinstance(kind, GeometryType):
        return pa.ExtensionArray.from_storage(kind, cast(array, kind.storage_type))
    if pa.types.is_null(source):
        return pa.nulls(len(array), kind)
    if pa.types.is_dictionary(source):
        return cast(decode_dictionary(array), kind, attempt=attempt)
    check_members(source, kind)
    try:
        converted = _convert(array, kind)
        if not attempt and converted.null_count > array.null_count:
            lost = array.filter(pc.and_(array.is_valid(), converted.is_null()))
            raise pa.ArrowInvalid(f"{_shown(lost)} is not of type {kind}")
        return converted
    except (pa.ArrowInvalid, OverflowError) as error:
        if too_large(error):
            raise
        if attempt:
            return _try_each(array, kind)
        raise FilterError(
            f"a value of type {type_text(source)} cannot be cast to {type_text(kind)}: {error}"
            + "; write TRY_CAST to get null" * (len(array) > 1)  # one value is a constant
        ) from None
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise FilterError(f"{type_text(source)} cannot be cast to {type_text(kind)}") from None


def _shown(values: Any) -> str:
    """Return the first value for an error message; an untrusted string may be invalid UTF-8."""
    text = is_string(values.type)
    first: Any = values[0].cast(pa.large_binary()).as_py() if text else str(values[0])
    shown = repr(first.decode(errors="replace")) if text else first
    return shown if len(shown) < 60 else f"{shown[:59]}…"


def check_members(source: Any, kind: Any) -> None:
    """Refuse a cast between structs that share no member, which Arrow would turn into nulls.

    Raises
    ------
    FilterError
        Two structs, possibly nested, share no member.
    """
    types = pa.types
    if types.is_struct(source) and types.is_struct(kind):
        names = {field.name for field in source}
        shared = [field for field in kind if field.name in names]
        if not shared and names and kind.num_fields:
            raise FilterError(
                f"{type_text(source)} cannot be cast to {type_text(kind)}: they have no member in "
                "common. Name the members: named_struct('a', 1)"
            )
        for field in shared:
            check_members(source.field(field.name).type, field.type)
    elif is_list(source) and is_list(kind):
        check_members(source.value_type, kind.value_type)


def _try_each(array: Any, kind: Any) -> Any:
    """Cast each distinct value alone, or each row of a nested type; null where it fails."""
    if pa.types.is_string_view(kind):  # Arrow fails to take rows of string views
        return _try_each(array, pa.large_string()).cast(kind)
    encoded = None if pa.types.is_nested(array.type) else dictionary_encoded(array)
    distinct = array if encoded is None else encoded.dictionary
    converted = []
    for i in range(len(distinct)):
        try:
            converted.append(_convert(distinct[i : i + 1], kind))
        except (pa.ArrowInvalid, OverflowError):
            converted.append(pa.nulls(1, kind))
    values: Any = concat_arrays(converted) if converted else pa.nulls(0, kind)
    return values if encoded is None else values.take(encoded.indices)


def _convert(array: Any, kind: Any) -> Any:  # noqa: PLR0911  # one way each
    source, types = array.type, pa.types
    if is_string(kind):
        return _to_text(array, kind)
    if is_string(source):
        return _from_text(array, kind)
    if types.is_floating(source):
        return _from_float(array, kind)
    if types.is_decimal(source):
        return _from_decimal(array, kind)
    if types.is_decimal(kind):
        wide = array if types.is_integer(source) else array.cast(pa.int64())
        return _from_decimal(wide.cast(pa.decimal128(20, 0)), kind)
    if types.is_floating(kind):
        raw = _raw(array)
        if kind.bit_width == 16:
            return _half_casts(raw.cast(pa.float64(), safe=False))
        return raw.cast(kind, safe=False)
    if types.is_timestamp(kind) and types.is_temporal(source):
        return _to_timestamp(array, kind)
    if types.is_timestamp(source) or types.is_date64(source):
        return _from_time(array, kind)
    if _has_raw(source) and (types.is_integer(kind) or types.is_boolean(kind)):
        return _convert(_raw(array), kind)
    if types.is_integer(source) and _has_raw(kind):
        days = types.is_date64(kind) and source.bit_width < 64
        raw = narrow(array, pa.int32() if days else _RAW[kind.bit_width])
        return (raw.cast(pa.date32()) if days else raw).cast(kind)
    if types.is_integer(source) and types.is_integer(kind):
        return narrow(array, kind)
    if types.is_boolean(kind):
        return pc.not_equal(array, pa.scalar(0, source))
    return array.cast(kind, safe=not _truncates(source, kind))


def _truncates(source: Any, kind: Any) -> bool:
    """Return whether a cast truncates: durations, times of day, and timestamps in lists."""
    if is_list(source) and is_list(kind):
        return _is_coarser(kind.value_type, source.value_type)
    return bool(pa.types.is_duration(source) or pa.types.is_time(source))


def _is_coarser(kind: Any, source: Any) -> bool:
    """Return whether a cast between timestamps truncates."""
    if not (pa.types.is_timestamp(kind) and pa.types.is_timestamp(source)):
        return False
    return TIME_UNITS.index(kind.unit) < TIME_UNITS.index(source.unit)


def _raw(array: Any) -> Any:
    """Return times and dates as their stored integers."""
    return array.cast(_RAW[array.type.bit_width]) if _has_raw(array.type) else array


def _has_raw(kind: Any) -> bool:
    """Return whether a type is a time or date stored as an integer; False for intervals."""
    return bool(pa.types.is_temporal(kind) and kind.bit_width in _RAW)


def _from_float(array: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_floating(kind):
        return _half_casts(array) if kind.bit_width == 16 else _wide(array).cast(kind, safe=False)
    if types.is_decimal(kind):
        return _float_to_decimal(_wide(array), kind)
    if types.is_boolean(kind):
        return pc.not_equal(_wide(array), pa.scalar(0.0))
    integer = kind if types.is_integer(kind) else pa.int64()
    values: Any = pc.trunc(_wide(array))
    low, high = (scalar(float(end), values.type) for end in integer_range(integer))
    # The greatest 64-bit integer is 1 larger as a float. All ranges exclude NaN.
    below = pc.less if integer.bit_width >= values.type.bit_width else pc.less_equal
    fits: Any = pc.and_(pc.greater_equal(values, low), below(values, high))
    result = pc.if_else(fits, values, scalar(None, values.type)).cast(integer, safe=False)
    return result if integer == kind else _convert(result, kind)


def _float_to_decimal(array: Any, kind: Any) -> Any:
    """Multiply by the power of ten, round half away from zero, and build decimals from words."""
    scale, maximum = kind.scale, 10**kind.precision - 1
    numbers: Any = as_numpy(filled(array, 0)).astype(np.float64)
    with np.errstate(all="ignore"):
        scaled = numbers * float(10**scale) if scale >= 0 else numbers / 10**-scale
        whole = np.trunc(scaled)
        whole += np.where(np.abs(scaled - whole) >= 0.5, np.copysign(1, scaled), 0)
        fits = np.abs(whole) < 2.0**63
        numbers = np.where(fits, whole, 0).astype(np.int64)
    fits &= np.abs(numbers) <= min(maximum, 2**63 - 1)
    words = pa.py_buffer(np.stack([numbers, numbers >> 63], axis=1).tobytes())
    made = pa.Array.from_buffers(pa.decimal128(38, scale), len(array), [None, words])
    made = valid_where(pc.and_(array.is_valid(), flag_array(fits)), made).cast(kind)
    large = np.isfinite(whole) & (np.abs(whole) >= 2.0**63) & (np.abs(whole) <= float(maximum))
    if not large.any():
        return made
    rare = [
        Decimal(number).scaleb(-scale, Context(prec=100)) if abs(number) <= maximum else None
        for number in map(int, whole[large].tolist())
    ]
    return pc.replace_with_mask(made, pa.array(large), pa.array(rare, kind))


def _wide(array: Any) -> Any:
    if array.type.bit_width == 16:
        numbers = as_numpy(filled(array, 0)).astype(np.float32)
        mask = as_numpy(array.is_null())
        return number_array(numbers, nulls=mask)
    return array


def _half_casts(array: Any) -> Any:
    mask = as_numpy(array.is_null())
    with np.errstate(over="ignore"):
        numbers = as_numpy(filled(array, 0)).astype(np.float16)
    return number_array(numbers, nulls=mask)


def _from_decimal(array: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_decimal(kind) or types.is_integer(kind):
        wide = array.cast(pa.decimal256(76, max(array.type.scale, 0)))
        if types.is_integer(kind):
            return fitting_decimals(pc.trunc(wide), *map(Decimal, integer_range(kind))).cast(kind)
        if kind.scale < wide.type.scale:
            wide = pc.round(wide, ndigits=kind.scale, round_mode="half_towards_infinity")
        maximum = Decimal(10**kind.precision - 1).scaleb(-kind.scale, Context(prec=100))
        return fitting_decimals(wide, maximum.copy_negate(), maximum).cast(kind)
    if types.is_floating(kind):
        result = doubles_of(array)
        return _half_casts(result) if kind.bit_width == 16 else result.cast(kind, safe=False)
    if types.is_boolean(kind):
        return pc.not_equal(array, pa.scalar(0, array.type))
    if types.is_timestamp(kind) or types.is_duration(kind):
        return _convert(_from_decimal(array, pa.int64()), kind)
    return array.cast(kind)


def _to_timestamp(array: Any, kind: Any) -> Any:
    source, types = array.type, pa.types
    if types.is_date(source):
        array = array.cast(pa.timestamp("s" if types.is_date32(source) else "ms"))
        source = array.type
    elif not types.is_timestamp(source):
        raise pa.ArrowNotImplementedError(f"{source} to {kind}")
    finer = not _is_coarser(kind, source)
    raw = array.cast(pa.int64())
    step = 1000 ** abs(TIME_UNITS.index(kind.unit) - TIME_UNITS.index(source.unit))
    # Truncate towards zero in local time, before the conversion to the zone.
    maximum = (2**63 - 1) // step
    ticks = pc.multiply(fitting(raw, -maximum, maximum), step) if finer else pc.divide(raw, step)
    if kind.tz is None or source.tz is not None or kind.tz.upper() in {"UTC", "+00:00", "Z"}:
        return ticks.cast(kind)
    local = ticks.cast(pa.timestamp(kind.unit))
    return pc.assume_timezone(local, kind.tz, ambiguous="earliest", nonexistent="earliest")


def _from_time(array: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_integer(kind) or types.is_boolean(kind):
        return _convert(array.cast(pa.int64()), kind)
    if types.is_date(kind) and types.is_timestamp(array.type) and array.type.tz is not None:
        array = pc.local_timestamp(array)
    return array.cast(kind, safe=False)


def _to_text(array: Any, kind: Any) -> Any:
    source, types = array.type, pa.types
    if is_string(source) or types.is_integer(source) or types.is_boolean(source):
        return array.cast(kind)
    if types.is_fixed_size_binary(source):
        return array.cast(pa.binary()).cast(kind)
    if types.is_binary(source) or types.is_large_binary(source) or source == pa.binary_view():
        return array.cast(kind)
    if is_list(source):
        return _list_to_text(array).cast(kind)
    return value_texts(array).cast(kind)


def bracketed(texts: Any, sizes: Any, separator: str) -> Any:
    """Return the texts of each row (``sizes`` per row) in brackets, as ``large_string``."""
    signs = (separator, "[", "]", "")
    between, begin, end, nothing = (pa.scalar(sign, pa.large_string()) for sign in signs)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64())
    lists = pa.LargeListArray.from_arrays(offsets, texts.cast(pa.large_string()))
    joined: Any = pc.binary_join_element_wise
    return joined(begin, pc.binary_join(lists, between), end, nothing)


def _list_to_text(array: Any) -> Any:
    """Format lists as items in brackets, with nulls as empty strings: ``[1, , 3]``."""
    kind, types = array.type.value_type, pa.types
    if types.is_fixed_size_list(kind) or types.is_struct(kind) or types.is_map(kind):
        raise pa.ArrowNotImplementedError(f"{array.type} to text")
    items = array.flatten()
    if types.is_fixed_size_binary(kind):
        items = items.cast(pa.binary())
    if types.is_binary(items.type) or types.is_large_binary(items.type):
        items = map_rows(pa.large_string(), bytes.hex, items)
    item_texts = filled(cast(items, pa.large_string()), "")
    sizes = as_numpy(filled(pc.list_value_length(array), 0))
    strings = bracketed(item_texts, sizes, ", ")
    return pc.if_else(array.is_valid(), strings, pa.scalar(None, pa.large_string()))


def _from_text(array: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or kind == pa.binary_view():
        return array.cast(kind)
    if types.is_floating(kind) and kind.bit_width == 16:
        return _half_casts(read_texts(array, pa.float64()))
    return read_texts(array, kind)
