"""Casts between types, as the reference implementation converts values.

Floats are truncated to integers, decimals are rounded half away from zero, and times are
truncated to their unit. A value that does not fit the type is an error, or null in TRY_CAST.
Lists of bytes become text row by row.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow import compute as pc
from glaive.arrow.chunked import concat_arrays, decode_dictionary, dictionary_encoded, too_large
from glaive.arrow.conditions import doubles_of
from glaive.arrow.geometries import GeometryType
from glaive.errors import FilterError
from glaive.expr.coerce import is_list, is_string, type_text
from glaive.expr.rows import map_rows
from glaive.expr.texts import (
    fitting,
    fitting_decimals,
    integer_range,
    narrow,
    read_texts,
    value_texts,
)

_RAW = {32: pa.int32(), 64: pa.int64()}
_UNITS = ("s", "ms", "us", "ns")


def cast(array: Any, kind: Any, *, attempt: bool = False) -> Any:
    """An array as ``kind``; ``attempt``: null instead of an error.

    Raises
    ------
    FilterError
        A value does not fit the type, or there is no cast between the types.
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
            + "; TRY_CAST returns null" * (len(array) > 1)  # one value is a constant
        ) from None
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise FilterError(f"{type_text(source)} cannot be cast to {type_text(kind)}") from None


def _shown(values: Any) -> str:
    """The first value for an error; a text of strangers may be no UTF-8."""
    text = is_string(values.type)
    first: Any = values[0].cast(pa.large_binary()).as_py() if text else str(values[0])
    shown = repr(first.decode(errors="replace")) if text else first
    return shown if len(shown) < 60 else f"{shown[:59]}…"


def check_members(source: Any, kind: Any) -> None:
    """Refuse structs without a member in common: Arrow would make nulls of all their values.

    Raises
    ------
    FilterError
        Two structs, perhaps within others or in lists, have none.
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
    """Convert each distinct value on its own, or each row if it is nested; null where it fails."""
    if pa.types.is_string_view(kind):  # of which Arrow takes no rows
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
            return _half(raw.cast(pa.float64(), safe=False))
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
    return array.cast(kind, safe=not _is_cut(source, kind))


def _is_cut(source: Any, kind: Any) -> bool:
    """Whether values are truncated: durations, times of day, and timestamps in lists."""
    if is_list(source) and is_list(kind):
        return _is_coarser(kind.value_type, source.value_type)
    return pa.types.is_duration(source) or pa.types.is_time(source)


def _is_coarser(kind: Any, source: Any) -> bool:
    """Whether both are timestamps, and those of ``source`` are truncated to ``kind``."""
    if not (pa.types.is_timestamp(kind) and pa.types.is_timestamp(source)):
        return False
    return _UNITS.index(kind.unit) < _UNITS.index(source.unit)


def _raw(array: Any) -> Any:
    """Times and dates as their stored integers."""
    return array.cast(_RAW[array.type.bit_width]) if _has_raw(array.type) else array


def _has_raw(kind: Any) -> bool:
    """Whether values are times and dates that are stored as integers, as intervals are not."""
    return pa.types.is_temporal(kind) and kind.bit_width in _RAW


def _from_float(array: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_floating(kind):
        return _half(array) if kind.bit_width == 16 else _wide(array).cast(kind, safe=False)
    if types.is_decimal(kind):
        return _float_to_decimal(_wide(array), kind)
    if types.is_boolean(kind):
        return pc.not_equal(_wide(array), pa.scalar(0.0))
    integer = kind if types.is_integer(kind) else pa.int64()
    values: Any = pc.trunc(_wide(array))
    low, high = (pa.scalar(float(end), values.type) for end in integer_range(integer))
    # The greatest integer of 64 bits is not a float: it becomes greater by 1. NaN is in no range.
    below = pc.less if integer.bit_width >= values.type.bit_width else pc.less_equal
    fits: Any = pc.and_(pc.greater_equal(values, low), below(values, high))
    result = pc.if_else(fits, values, None).cast(integer, safe=False)
    return result if integer == kind else _convert(result, kind)


def _float_to_decimal(array: Any, kind: Any) -> Any:
    """Products with the power of ten, rounded half away from zero, in the words of decimals."""
    scale, most = kind.scale, 10**kind.precision - 1
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    with np.errstate(all="ignore"):
        scaled = numbers * float(10**scale) if scale >= 0 else numbers / 10**-scale
        whole = np.trunc(scaled)
        whole += np.where(np.abs(scaled - whole) >= 0.5, np.copysign(1, scaled), 0)
        fits = np.abs(whole) < 2.0**63
        numbers = np.where(fits, whole, 0).astype(np.int64)
    fits &= np.abs(numbers) <= min(most, 2**63 - 1)
    words = pa.py_buffer(np.stack([numbers, numbers >> 63], axis=1).tobytes())
    made = pa.Array.from_buffers(pa.decimal128(38, scale), len(array), [None, words])
    made = pc.if_else(pc.and_(array.is_valid(), pa.array(fits)), made, None).cast(kind)
    large = np.isfinite(whole) & (np.abs(whole) >= 2.0**63) & (np.abs(whole) <= float(most))
    if not large.any():
        return made
    rare = [
        Decimal(number).scaleb(-scale, Context(prec=100)) if abs(number) <= most else None
        for number in map(int, whole[large].tolist())
    ]
    return pc.replace_with_mask(made, pa.array(large), pa.array(rare, kind))


def _wide(array: Any) -> Any:
    if array.type.bit_width == 16:
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float32)
        mask = array.is_null().to_numpy(zero_copy_only=False)
        return pa.array(numbers, pa.float32(), mask=mask)
    return array


def _half(array: Any) -> Any:
    mask = array.is_null().to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float16)
    return pa.array(numbers, pa.float16(), mask=mask)


def _from_decimal(array: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_decimal(kind) or types.is_integer(kind):
        wide = array.cast(pa.decimal256(76, max(array.type.scale, 0)))
        if types.is_integer(kind):
            return fitting_decimals(pc.trunc(wide), *map(Decimal, integer_range(kind))).cast(kind)
        if kind.scale < wide.type.scale:
            wide = pc.round(wide, ndigits=kind.scale, round_mode="half_towards_infinity")
        most = Decimal(10**kind.precision - 1).scaleb(-kind.scale, Context(prec=100))
        return fitting_decimals(wide, most.copy_negate(), most).cast(kind)
    if types.is_floating(kind):
        result = doubles_of(array)
        return _half(result) if kind.bit_width == 16 else result.cast(kind, safe=False)
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
    step = 1000 ** abs(_UNITS.index(kind.unit) - _UNITS.index(source.unit))
    # The quotient is truncated towards zero: of the local time, before it becomes one of the zone.
    most = (2**63 - 1) // step
    ticks = pc.multiply(fitting(raw, -most, most), step) if finer else pc.divide(raw, step)
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
    """The texts of each row (``sizes`` of them) in brackets, as ``large_string``."""
    signs = (separator, "[", "]", "")
    between, begin, end, nothing = (pa.scalar(sign, pa.large_string()) for sign in signs)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64())
    lists = pa.LargeListArray.from_arrays(offsets, texts.cast(pa.large_string()))
    joined: Any = pc.binary_join_element_wise
    return joined(begin, pc.binary_join(lists, between), end, nothing)


def _list_to_text(array: Any) -> Any:
    """The items between brackets, nulls as empty strings: ``[1, , 3]``."""
    kind, types = array.type.value_type, pa.types
    if types.is_fixed_size_list(kind) or types.is_struct(kind) or types.is_map(kind):
        raise pa.ArrowNotImplementedError(f"{array.type} to text")
    items = array.flatten()
    if types.is_fixed_size_binary(kind):
        items = items.cast(pa.binary())
    if types.is_binary(items.type) or types.is_large_binary(items.type):
        items = map_rows(pa.large_string(), bytes.hex, items)
    item_texts = pc.fill_null(cast(items, pa.large_string()), "")
    sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    strings = bracketed(item_texts, sizes, ", ")
    return pc.if_else(array.is_valid(), strings, pa.scalar(None, pa.large_string()))


def _from_text(array: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or kind == pa.binary_view():
        return array.cast(kind)
    if types.is_floating(kind) and kind.bit_width == 16:
        return _half(read_texts(array, pa.float64()))
    return read_texts(array, kind)
