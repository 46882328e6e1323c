"""Rules for the types of arguments and results.

A rule maps one argument to two types: the one to cast it to, and the one it counts as for the
type of the result. They differ for strings only: dictionaries, views and NULL are cast to
``string`` but count as ``string_view``, the type of the result in the reference implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from glaive.errors import FilterError
from glaive.expr import coerce
from glaive.expr.coerce import is_list, is_number
from glaive.expr.functions.registry import Call, Resolve, Types
from glaive.expr.rows import pa

Rule = Callable[[Call, int], tuple[Any, Any]]
"""From a call and the number of an argument to (type to cast to, type it counts as)."""

is_kind = pa.types


def refuse(call: Call, number: int, expected: str) -> FilterError:
    """Return the error for an argument of a wrong type."""
    found = "NULL" if is_kind.is_null(call.types[number]) else call.types[number]
    return FilterError(f"{call.name}: argument {number + 1} must be {expected}, found {found}")


def check_count(call: Call, least: int, most: int | None = None) -> None:
    """Raise unless there are ``least`` to ``most`` arguments; any number without ``most``."""
    count = len(call.types)
    if count < least or (most is not None and count > most):
        if most is None:
            expected = f"at least {least}"
        else:
            expected = str(least) if least == most else f"{least} to {most}"
        raise FilterError(f"{call.name} takes {expected} arguments, not {count}")


def signature(
    *rules: Rule,
    result: Any | Callable[[Sequence[Any]], Any],
    optional: int = 0,
    repeated: bool = False,
) -> Resolve:
    """Build the rule for a call from one rule per argument.

    Parameters
    ----------
    rules
        One for each argument.
    result
        A type, or a function from the types that the arguments count as.
    optional
        Number of the last arguments that may be omitted.
    repeated
        The last rule applies to any number of further arguments.
    """
    most = None if repeated else len(rules)

    def resolve(call: Call) -> Types:
        check_count(call, len(rules) - optional, most)
        ruled = [rules[min(n, len(rules) - 1)](call, n) for n in range(len(call.types))]
        counted = [counts for _, counts in ruled]
        kind = result if isinstance(result, pa.DataType) else result(counted)
        return tuple(cast for cast, _ in ruled), kind

    return resolve


def is_string(kind: Any) -> bool:
    """Whether values are strings of any type, dictionaries of strings included."""
    if is_kind.is_dictionary(kind):
        kind = kind.value_type
    return coerce.is_string(kind)


def is_json(kind: Any) -> bool:
    """Whether values are JSON: JSONB bytes, or Arrow's JSON type (text)."""
    return bool(is_kind.is_large_binary(kind) or isinstance(kind, pa.JsonType))


def TEXT(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """Text only."""
    kind = call.types[number]
    if is_kind.is_string(kind) or is_kind.is_large_string(kind):
        return kind, kind
    if is_kind.is_null(kind) or is_string(kind):
        value = kind.value_type if is_kind.is_dictionary(kind) else kind
        return value if is_kind.is_large_string(value) else pa.string(), pa.string_view()
    raise refuse(call, number, "text")


def LOOSE_TEXT(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """Text, or anything that a cast turns into text."""
    kind = call.types[number]
    if is_kind.is_null(kind) or is_string(kind):
        return TEXT(call, number)
    if is_kind.is_nested(kind) and not is_list(kind):
        raise refuse(call, number, "text or a value that can be cast to text")
    return pa.string(), pa.string()


def INTEGER(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """An integer; cast to ``int64``."""
    kind = call.types[number]
    if is_kind.is_integer(kind) or is_kind.is_null(kind):
        return pa.int64(), kind
    raise refuse(call, number, "an integer")


def FLOAT(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """A number; ``float32`` stays, others are cast to ``float64``."""
    kind = call.types[number]
    if is_kind.is_float32(kind):
        return kind, kind
    if is_number(kind) or is_kind.is_null(kind):
        return pa.float64(), pa.float64()
    raise refuse(call, number, "a number")


def NUMBER(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """A number of any type, unchanged; NULL counts as ``float64``."""
    kind = call.types[number]
    if is_kind.is_null(kind):
        return pa.float64(), pa.float64()
    if is_number(kind):
        return kind, kind
    raise refuse(call, number, "a number")


def BINARY(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """Bytes or text, as bytes."""
    kind = call.types[number]
    if is_string(kind) or is_kind.is_null(kind):
        cast, _ = TEXT(call, number)
        kind = pa.large_binary() if is_kind.is_large_string(cast) else pa.binary()
    elif isinstance(kind, pa.JsonType):
        kind = pa.large_binary()
    elif is_kind.is_fixed_size_binary(kind):
        kind = pa.binary()
    if is_kind.is_binary(kind) or is_kind.is_large_binary(kind):
        return kind, kind
    raise refuse(call, number, "text or bytes")


def JSON(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """A JSON column, or JSONB bytes."""
    kind = call.types[number]
    if is_json(kind):
        return kind, kind
    if is_kind.is_null(kind) or is_kind.is_binary(kind):
        return pa.large_binary(), pa.large_binary()
    raise refuse(call, number, "a JSON column")


def ANY(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """Any type, unchanged."""
    kind = call.types[number]
    return kind, kind


def like_first(counted: Sequence[Any]) -> Any:
    """Choose the first argument's type."""
    return counted[0]


def length_type(counted: Sequence[Any]) -> Any:
    """Choose ``int64`` for ``large_string``, else ``int32``."""
    return pa.int64() if is_kind.is_large_string(counted[0]) else pa.int32()


def widest_string(counted: Sequence[Any]) -> Any:
    """Choose the type of all strings if it is the same, else ``string_view``."""
    kinds = set(counted)
    return kinds.pop() if len(kinds) == 1 else pa.string_view()


# --- The common type of two types -------------------------------------------------------

_UNITS = ("s", "ms", "us", "ns")


def unify(left: Any, right: Any) -> Any | None:
    """Return the common type; None if there is none.

    It is the smallest integer type for both integers, or else a decimal; the number for a
    number and a string; the coarser unit for two timestamps.
    """
    if left == right or is_kind.is_null(right):
        return left
    if is_kind.is_null(left):
        return right
    if is_number(left) and is_number(right):
        return coerce.common_number(left, right, exact=True)
    for rule in (_strings, _times, _lists):
        for pair in ((left, right), (right, left)):
            unified = rule(*pair)
            if unified is not None:
                return unified
    return None


def _strings(left: Any, right: Any) -> Any | None:
    if not is_string(left):
        return None
    if is_string(right):
        for kind in (left, right):
            if is_kind.is_dictionary(kind):
                other = unify(*(_values(side) for side in (left, right)))
                return pa.dictionary(kind.index_type, other)
        return pa.string_view() if pa.string_view() in (left, right) else pa.large_string()
    plain = is_number(right) or is_kind.is_temporal(right)
    return right if plain and not is_kind.is_duration(right) else None


def _values(kind: Any) -> Any:
    return kind.value_type if is_kind.is_dictionary(kind) else kind


def _times(left: Any, right: Any) -> Any | None:
    if is_kind.is_timestamp(left) and is_kind.is_date(right):
        return pa.timestamp("ns")
    if is_kind.is_timestamp(left) and is_kind.is_timestamp(right):
        unit = min(left.unit, right.unit, key=_UNITS.index)
        return pa.timestamp(unit, left.tz or right.tz)
    if is_kind.is_date64(left) and is_kind.is_date32(right):
        return left
    if is_kind.is_date(left) and right in (pa.int32(), pa.int64()):
        return left
    if is_kind.is_time(left) and is_kind.is_time(right):
        return max(left, right, key=lambda kind: _UNITS.index(kind.unit))
    if is_kind.is_duration(left) and is_kind.is_duration(right):
        return max(left, right, key=lambda kind: _UNITS.index(kind.unit))
    if is_kind.is_binary(left) and is_kind.is_large_binary(right):
        return right
    if is_kind.is_fixed_size_binary(left) and is_kind.is_binary(right):
        return right
    return None


def _lists(left: Any, right: Any) -> Any | None:
    if not (is_list(left, fixed=True) and is_list(right, fixed=True)):
        return None
    item = unify(left.value_type, right.value_type)
    if item is None:
        return None
    large = is_kind.is_large_list(left) or is_kind.is_large_list(right)
    return pa.large_list(pa.field("item", item)) if large else pa.list_(pa.field("item", item))
