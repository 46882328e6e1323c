"""Values of one type as values of another, as the reference implementation converts them.

Floats lose what stands after the point on their way to integers, decimals are rounded
half away from zero, times lose what is smaller than their unit. A value that has no place in
the type is an error, or null where it was only to be attempted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.capacity import too_large
from glaive.arrow.dictionaries import concat_arrays, decoded
from glaive.errors import FilterError
from glaive.expr.coerce import is_text
from glaive.expr.functions.encoding import hex_text
from glaive.expr.functions.list_parts import bracketed
from glaive.expr.read_text import READERS, UnreadableError
from glaive.expr.rows import map_distinct
from glaive.expr.sqltypes import type_text
from glaive.expr.write_text import written

__all__ = ["cast"]

_RAW = {32: pa.int32(), 64: pa.int64()}


def cast(array: Any, kind: Any, *, attempt: bool = False) -> Any:
    """An array as ``kind``; ``attempt``: null in place of an error.

    Raises
    ------
    FilterError
        A value has no place in the type, or nothing of this type becomes the other.
    """
    had = array.type
    if had == kind:
        return array
    if pa.types.is_null(had):
        return pa.nulls(len(array), kind)
    if pa.types.is_dictionary(had):
        return cast(decoded(array), kind, attempt=attempt)
    try:
        return _convert(array, kind)
    except (pa.ArrowInvalid, OverflowError, UnreadableError) as error:
        if too_large(error):
            raise
        if attempt:
            return _each(array, kind)
        raise FilterError(
            f"a value of type {type_text(had)} cannot become {type_text(kind)}: {error}; "
            "TRY_CAST gives null"
        ) from None
    except pa.ArrowNotImplementedError:
        raise FilterError(f"{type_text(had)} cannot be cast to {type_text(kind)}") from None


def _each(array: Any, kind: Any) -> Any:
    """Convert each different value on its own; null where it does not go."""
    if pa.types.is_nested(array.type):
        raise FilterError(f"TRY_CAST of {array.type}: a value does not fit {kind}")
    coded = array.dictionary_encode()
    made = []
    for i in range(len(coded.dictionary)):
        try:
            made.append(_convert(coded.dictionary[i : i + 1], kind))
        except (pa.ArrowInvalid, OverflowError, UnreadableError):
            made.append(pa.nulls(1, kind))
    whole: Any = concat_arrays(made) if made else pa.nulls(0, kind)
    return whole.take(coded.indices)


def _convert(array: Any, kind: Any) -> Any:  # noqa: PLR0911  # one way each
    had, types = array.type, pa.types
    if is_text(kind):
        return _to_text(array, kind)
    if is_text(had):
        return _from_text(array, kind)
    if types.is_floating(had):
        return _from_float(array, kind)
    if types.is_decimal(had):
        return _from_decimal(array, kind)
    if types.is_decimal(kind):
        wide = array if types.is_integer(had) else array.cast(pa.int64())
        return _from_decimal(wide.cast(pa.decimal128(20, 0)), kind)
    if types.is_floating(kind):
        raw = _raw(array)
        if kind.bit_width == 16:
            return _half(raw.cast(pa.float64(), safe=False))
        return raw.cast(kind, safe=False)
    if types.is_timestamp(kind) and types.is_temporal(had):
        return _to_timestamp(array, kind)
    if types.is_timestamp(had) or types.is_date64(had):
        return _from_time(array, kind)
    if types.is_temporal(had) and (types.is_integer(kind) or types.is_boolean(kind)):
        return _raw(array).cast(kind)
    if types.is_integer(had) and types.is_temporal(kind):
        days = types.is_date64(kind) and had.bit_width < 64
        raw = array.cast(pa.int32()).cast(pa.date32()) if days else array.cast(_RAW[kind.bit_width])
        return raw.cast(kind)
    if types.is_boolean(kind):
        return pc.not_equal(array, pa.scalar(0, had))
    if types.is_duration(had) or types.is_time(had):
        return array.cast(kind, safe=False)
    return array.cast(kind)


def _raw(array: Any) -> Any:
    """Times and dates as the numbers they are stored as."""
    if pa.types.is_temporal(array.type):
        return array.cast(_RAW[array.type.bit_width])
    return array


def _from_float(array: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_floating(kind):
        return _half(array) if kind.bit_width == 16 else _wide(array).cast(kind, safe=False)
    if types.is_decimal(kind):
        return _read(array, kind, READERS["float to decimal"])
    if types.is_boolean(kind):
        return pc.not_equal(_wide(array), pa.scalar(0.0))
    whole = kind if types.is_integer(kind) else pa.int64()
    values: Any = pc.trunc(_wide(array))
    bits = whole.bit_width
    signed = types.is_signed_integer(whole)
    low = -(2.0 ** (bits - 1)) if signed else 0.0
    high = 2.0 ** (bits - 1 if signed else bits)
    # NaN is in no range.
    fits: Any = pc.and_(
        pc.greater_equal(values, pa.scalar(low, values.type)),
        pc.less(values, pa.scalar(high, values.type)),
    )
    if not pc.all(fits, min_count=0).as_py():
        worst = array.filter(pc.invert(fits))[0].as_py()
        raise pa.ArrowInvalid(f"{worst} lies outside {whole}")
    found = values.cast(whole, safe=False)
    return found if whole == kind else _convert(found, kind)


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
    if types.is_decimal(kind):
        wide = array.cast(pa.decimal256(76, max(array.type.scale, 0)))
        if kind.scale < wide.type.scale:
            wide = pc.round(wide, ndigits=kind.scale, round_mode="half_towards_infinity")
        return wide.cast(kind)
    if types.is_integer(kind):
        return pc.trunc(array.cast(pa.decimal256(76, max(array.type.scale, 0)))).cast(kind)
    if types.is_floating(kind):
        found = array.cast(pa.float64())
        return _half(found) if kind.bit_width == 16 else found.cast(kind, safe=False)
    if types.is_boolean(kind):
        return pc.not_equal(array, pa.scalar(0, array.type))
    return array.cast(kind)


def _to_timestamp(array: Any, kind: Any) -> Any:
    had, types = array.type, pa.types
    if types.is_date(had):
        array = array.cast(pa.timestamp("s" if types.is_date32(had) else "ms"))
        had = array.type
    elif not types.is_timestamp(had):
        raise pa.ArrowNotImplementedError(f"{had} to {kind}")
    if kind.tz is not None and had.tz is None and kind.tz.upper() not in {"UTC", "+00:00", "Z"}:
        array = pc.assume_timezone(array, kind.tz, ambiguous="earliest", nonexistent="earliest")
    units = ("s", "ms", "us", "ns")
    finer = units.index(kind.unit) >= units.index(had.unit)
    raw = array.cast(pa.int64())
    step = 1000 ** abs(units.index(kind.unit) - units.index(had.unit))
    # The quotient is cut towards zero.
    moved = pc.multiply_checked(raw, step) if finer else pc.divide(raw, step)
    return moved.cast(kind)


def _from_time(array: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_integer(kind) or types.is_boolean(kind):
        return _convert(array.cast(pa.int64()), kind)
    if types.is_date(kind) and types.is_timestamp(array.type) and array.type.tz is not None:
        array = pc.local_timestamp(array)
    return array.cast(kind, safe=False)


def _to_text(array: Any, kind: Any) -> Any:
    had, types = array.type, pa.types
    if is_text(had) or types.is_integer(had) or types.is_boolean(had):
        return array.cast(kind)
    if types.is_fixed_size_binary(had):
        return array.cast(pa.binary()).cast(kind)
    if types.is_binary(had) or types.is_large_binary(had) or had == pa.binary_view():
        return array.cast(kind)
    if types.is_list(had) or types.is_large_list(had):
        return _list_to_text(array).cast(kind)
    coded = array.dictionary_encode()
    texts: Any = pa.array(written(coded.dictionary), pa.large_string())
    return texts.take(coded.indices).cast(kind)


def _list_to_text(array: Any) -> Any:
    """The items between brackets, nulls as nothing: ``[1, , 3]``."""
    kind, types = array.type.value_type, pa.types
    if types.is_fixed_size_list(kind) or types.is_struct(kind) or types.is_map(kind):
        raise pa.ArrowNotImplementedError(f"{array.type} to text")
    items = array.flatten()
    if types.is_fixed_size_binary(kind):
        items = items.cast(pa.binary())
    if types.is_binary(items.type) or types.is_large_binary(items.type):
        items = hex_text(items)
    texts = pc.fill_null(cast(items, pa.large_string()), "")
    sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    whole = bracketed(texts, sizes, ", ")
    return pc.if_else(array.is_valid(), whole, pa.scalar(None, pa.large_string()))


def _from_text(array: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or kind == pa.binary_view():
        return array.cast(kind)
    for test, name in (
        (types.is_boolean, "boolean"),
        (types.is_integer, "whole"),
        (types.is_floating, "float"),
        (types.is_decimal, "decimal"),
        (types.is_date, "date"),
        (types.is_timestamp, "timestamp"),
        (types.is_time, "time"),
    ):
        if test(kind):
            return _read(array, kind, READERS[name])
    raise pa.ArrowNotImplementedError(f"{array.type} to {kind}")


def _read(array: Any, kind: Any, reader: Callable[[Any, Any], Any]) -> Any:
    """Read each different value once."""
    return map_distinct(kind, lambda value: reader(value, kind), array)
