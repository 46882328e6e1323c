"""Choosing between values: the first that is not null, the greatest, null where two are equal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from glaive.errors import FilterError
from glaive.expr.compare import compare, distinct
from glaive.expr.functions.coercion import ANY, check_count, is_text, refuse, signature
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.unify import unify
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import count_rows, spread

__all__: list[str] = []

is_kind = pa.types


def _one_type(call: Call, meet: Callable[[Any, Any], Any] = unify) -> Types:
    """All arguments become one type."""
    kind = reduce(lambda left, right: left and meet(left, right), call.types)
    if kind is None:
        shown = ", ".join(map(str, call.types))
        raise FilterError(f"{call.name}: no type holds all of {shown}; cast them to one")
    # Dictionaries are chosen from as the values they stand for.
    cast = kind.value_type if is_kind.is_dictionary(kind) else kind
    cast = pa.string() if is_kind.is_string_view(cast) else cast
    return (cast,) * len(call.types), kind


def _compared(left: Any, right: Any) -> Any | None:
    """The type in which two values are compared."""
    for kind, other in ((left, right), (right, left)):
        if is_text(kind) and _is_binary(other):
            wide = pa.large_string() in (kind, other) or is_kind.is_large_binary(other)
            return pa.large_binary() if wide else pa.binary()
        if is_kind.is_dictionary(kind) and other not in (kind.value_type, kind):
            return unify(kind.value_type, other)
    return unify(left, right)


def _is_binary(kind: Any) -> bool:
    """Whether values are bytes of any length."""
    return bool(is_kind.is_binary(kind) or is_kind.is_large_binary(kind))


def _joined(left: Any, right: Any) -> Any | None:
    """The type of a column with values of both; text where one is text, the other a number."""
    for text, other in ((left, right), (right, left)):
        if is_text(text) and _is_number(other):
            return text.value_type if is_kind.is_dictionary(text) and text is right else text
        if is_text(text) and (is_kind.is_boolean(other) or is_kind.is_duration(other)):
            return None
    return _compared(left, right)


def _is_number(kind: Any) -> bool:
    return bool(is_kind.is_integer(kind) or is_kind.is_floating(kind) or is_kind.is_decimal(kind))


def _first_of(left: Any, right: Any) -> Any | None:
    """The type of the first of both that is there: points in time meet no text and no number."""
    for kind, other in ((left, right), (right, left)):
        if is_kind.is_temporal(kind) and (is_text(other) or is_kind.is_integer(other)):
            return None
        if is_kind.is_dictionary(kind) and not is_text(other) and not is_kind.is_null(other):
            met = unify(kind.value_type, other)
            return met and pa.dictionary(kind.index_type, met)
    return unify(left, right)


def _at_least_one(call: Call) -> Types:
    check_count(call, 1)
    return _one_type(call, _first_of)


def _choose(condition: Any, chosen: Any, other: Any) -> Any:
    if not isinstance(chosen.type, pa.ExtensionType):
        return pc.if_else(condition, chosen, other)
    rows = count_rows((condition, chosen, other))
    stored = [
        spread(each, rows).storage if isinstance(spread(each, rows), pa.ExtensionArray) else each
        for each in (chosen, other)
    ]
    return chosen.type.wrap_array(pc.if_else(condition, *stored))


@function("coalesce", takes=_at_least_one)
def _coalesce(*values: Any) -> Any:
    rows = count_rows(values)
    return reduce(
        lambda first, second: _choose(pc.is_valid(first), first, spread(second, rows)),
        values[1:],
        spread(values[0], rows),
    )


_NVL = (
    pa.bool_(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
)


def _nvl_types(call: Call) -> Types:
    check_count(call, 2, 2)
    left, right = call.types
    if is_kind.is_null(left) and is_kind.is_null(right):
        return (pa.bool_(), pa.bool_()), pa.bool_()
    if all(is_text(kind) or is_kind.is_null(kind) for kind in call.types):
        same = left == right and not is_kind.is_dictionary(left) and not is_kind.is_null(left)
        kind = left if same else pa.string_view()
        cast = pa.string() if is_kind.is_string_view(kind) else kind
        return (cast, cast), kind
    for kind in _NVL:
        if _fits(left, kind) and _fits(right, kind):
            return (kind, kind), kind
    for number, kind in enumerate(call.types):
        if is_kind.is_nested(kind) and not (is_kind.is_list(kind) or is_kind.is_large_list(kind)):
            raise refuse(call, number, "a plain value")
    return (pa.string(), pa.string()), pa.string()


def _fits(kind: Any, other: Any) -> bool:
    """Whether every value of ``kind`` counts as one of ``other`` for ``nvl``."""
    if kind == other or is_kind.is_null(kind):
        return True
    if is_kind.is_integer(kind) and is_kind.is_integer(other):
        return bool(unify(kind, other) == other)
    if is_kind.is_floating(other):
        narrow = is_kind.is_integer(kind) or is_kind.is_float16(kind)
        wide = is_kind.is_floating(kind) or is_kind.is_decimal(kind)
        return bool(narrow or (is_kind.is_float64(other) and wide))
    return False


@function("nvl", "ifnull", takes=_nvl_types)
def _nvl(value: Any, other: Any) -> Any:
    return _coalesce(value, other)


def _three(call: Call) -> Types:
    check_count(call, 3, 3)
    return _one_type(call, _joined)


@function("nvl2", takes=_three)
def _nvl2(value: Any, present: Any, absent: Any) -> Any:
    return _choose(
        pc.is_valid(spread(value, count_rows((value, present, absent)))), present, absent
    )


def _two(call: Call) -> Types:
    check_count(call, 2, 2)
    if all(map(is_kind.is_null, call.types)):
        return (pa.string(), pa.string()), pa.string_view()
    return _one_type(call, _compared)


@function("nullif", takes=_two)
def _nullif(value: Any, other: Any) -> Any:
    rows = count_rows((value, other))
    value, other = spread(value, rows), spread(other, rows)
    equal = pc.fill_null(_equal(value, other), False)
    return _choose(equal, pa.nulls(rows, value.type), value)


def _equal(left: Any, right: Any) -> Any:
    if is_kind.is_null(left.type):
        return pa.nulls(len(left), pa.bool_())
    if is_kind.is_floating(left.type):
        left, right = _ordered(left), _ordered(right)
    if is_kind.is_nested(left.type):
        return pc.invert(distinct(left, right))
    return pc.equal(left, right)


def _ordered(values: Any) -> Any:
    """Floats as integers in the same order, where NaN is the greatest and -0.0 below 0.0."""
    width = values.type.bit_width
    whole = getattr(pa, f"int{width}")()
    bits = pc.fill_null(values, pa.scalar(0, pa.int8()).cast(values.type))
    raw = bits.to_numpy(zero_copy_only=False).view(f"i{width // 8}")
    flipped = pa.array(np.where(raw < 0, raw ^ np.iinfo(raw.dtype).max, raw), whole)
    return pc.if_else(values.is_valid(), flipped, pa.scalar(None, whole))


def _floats(ordered: Any, kind: Any) -> Any:
    width = kind.bit_width
    raw = pc.fill_null(ordered, 0).to_numpy(zero_copy_only=False)
    bits = np.where(raw < 0, raw ^ np.iinfo(raw.dtype).max, raw)
    made = pa.array(bits.astype(raw.dtype).view(f"f{width // 8}"), kind)
    return pc.if_else(ordered.is_valid(), made, pa.scalar(None, kind))


def _extreme(name: str, choose: Any, values: tuple[Any, ...]) -> Any:
    rows, kind = count_rows(values), values[0].type
    columns = [spread(value, rows) for value in values]
    if len(columns) == 1 or is_kind.is_null(kind):
        return columns[0]
    if is_kind.is_floating(kind):
        return _floats(choose(*map(_ordered, columns)), kind)
    if is_kind.is_boolean(kind):
        return choose(*[column.cast(pa.int8()) for column in columns]).cast(kind)
    if is_kind.is_timestamp(kind):
        return choose(*[column.view(pa.int64()) for column in columns]).view(kind)
    if isinstance(kind, pa.ExtensionType):
        raise FilterError(f"{name}: values of type {kind} have no order")
    if is_kind.is_nested(kind):
        return reduce(partial(_better, ">=" if name == "greatest" else "<="), columns)
    return choose(*columns)


def _better(op: str, left: Any, right: Any) -> Any:
    """Of each two lists the one that is there, and of both the one that ``op`` says."""
    first = pc.fill_null(compare(op, left, right), False)
    return _choose(pc.if_else(pc.is_valid(right), first, True), left, right)


def _ordered_types(call: Call) -> Types:
    check_count(call, 1)
    return _one_type(call, _compared)


@function("greatest", takes=_ordered_types)
def _greatest(*values: Any) -> Any:
    return _extreme("greatest", pc.max_element_wise, values)


@function("least", takes=_ordered_types)
def _least(*values: Any) -> Any:
    return _extreme("least", pc.min_element_wise, values)


@function("is_valid", takes=signature(ANY, result=pa.bool_()))
def _is_valid(value: Any) -> Any:
    return pc.is_valid(value)
