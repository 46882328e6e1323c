"""Values of every type that indices order, with nulls, repetitions and extremes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.conditions import Condition, HasText, InRange, IsNull, IsOneOf

__all__ = ["TYPES", "conditions", "values_of"]

_FLOATS = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5]

TYPES: dict[str, Any] = {
    str(kind): kind
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.bool_()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us")),
        *(pa.time64("ns"), pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns", "UTC")),
        *(pa.duration("ms"), pa.decimal128(20, 2), pa.decimal256(40, 2)),
        *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(4)),
    )
}


@lru_cache(maxsize=16)
def values_of(kind: Any, count: int, seed: int = 0) -> pa.Array:
    """Random values of a type, a tenth of them null; a third are one value."""
    random = np.random.default_rng(seed)
    numbers = random.integers(-100, 100, count)
    numbers[random.random(count) < 0.3] = 42
    numbers = np.abs(numbers) if _unsigned(kind) else numbers
    null = random.random(count) < 0.1
    listed: list[Any] = [_value(kind, one) for one in numbers.tolist()]
    return pa.array(
        [None if is_null else one for one, is_null in zip(listed, null, strict=True)], kind
    )


def _unsigned(kind: Any) -> bool:
    return bool(pa.types.is_unsigned_integer(kind) or pa.types.is_time(kind))


def _value(kind: Any, number: int) -> Any:
    types = pa.types
    if types.is_floating(kind):
        value = _FLOATS[number] if 0 <= number < len(_FLOATS) else number / 4
        return np.float16(value) if types.is_float16(kind) else value
    if types.is_boolean(kind):
        return number > 20
    if types.is_decimal(kind):
        return Decimal(number) / 4
    if types.is_fixed_size_binary(kind):
        return bytes([abs(number), 0, 255, 0])
    if types.is_string(kind) or types.is_large_string(kind):
        return f"ä{number}" if number % 3 else "" if number == 0 else f"z\0{abs(number)}"
    if types.is_binary(kind) or types.is_large_binary(kind):
        return b"\xff" * (number % 4) + bytes([abs(number)]) + b"\0" * (number % 3)
    return (
        pa.scalar(number * 86_400_000 if types.is_date64(kind) else number, pa.int64())
        .cast(pa.int32() if types.is_date32(kind) or types.is_time32(kind) else pa.int64())
        .cast(kind)
    )


def conditions(values: Any) -> Iterator[Condition]:
    """Conditions of every shape on such values, and on others."""
    kind = values.type
    present = values.drop_null()
    low, high = present[len(present) // 3], present[len(present) // 2]
    few = present.take(pa.array([0, len(present) // 2, 0, len(present) - 1]))
    many = present[: len(present) // 2]
    with_null = pa.concat_arrays([few, pa.nulls(1, kind)])
    yield IsNull()
    yield IsNull(negated=True)
    for one in (few, few[:1], many, few[:0], with_null):
        yield IsOneOf(one)
        yield IsOneOf(one, negated=True)
    yield InRange()
    for first, last in ((low, high), (high, low), (low, low), (low, None), (None, high)):
        for included in (True, False):
            yield InRange(low=first, high=last, low_included=included)
            yield InRange(low=first, high=last, high_included=included)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield from (HasText(word=word, begins=True) for word in ("ä", "ä4", "", "z\0", "ä42", "q"))
        yield HasText(word="ä42", begins=True, ends=True)
