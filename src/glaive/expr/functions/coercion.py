"""Rules for the types of arguments and results.

A rule maps one argument to two types: the type to cast it to, and the type it counts as for the
result. They differ for strings only. Dictionaries, views and NULL are cast to ``string`` but count
as ``string_view``, the result type in Lance.
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
"""Function from a call and an argument number to (type to cast to, type it counts as)."""

is_kind = pa.types


def refuse(call: Call, number: int, expected: str) -> FilterError:
    """Return the error for an argument of a wrong type."""
    found = "NULL" if is_kind.is_null(call.types[number]) else call.types[number]
    return FilterError(f"{call.name}: argument {number + 1} must be {expected}, found {found}")


def check_count(call: Call, minimum: int, maximum: int | None = None) -> None:
    """Check that there are ``minimum`` to ``maximum`` arguments; ``None``: without a maximum."""
    count = len(call.types)
    if count < minimum or (maximum is not None and count > maximum):
        if maximum is None:
            expected = f"at least {minimum}"
        else:
            expected = str(minimum) if minimum == maximum else f"{minimum} to {maximum}"
        raise FilterError(f"{call.name}: the number of arguments must be {expected}, not {count}")


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
    maximum = None if repeated else len(rules)

    def resolve(call: Call) -> Types:
        check_count(call, len(rules) - optional, maximum)
        ruled = [rules[min(n, len(rules) - 1)](call, n) for n in range(len(call.types))]
        counted = [counts for _, counts in ruled]
        kind = result if isinstance(result, pa.DataType) else result(counted)
        return tuple(cast for cast, _ in ruled), kind

    return resolve


def is_string(kind: Any) -> bool:
    """Return whether values are strings of any type, including dictionaries of strings."""
    if is_kind.is_dictionary(kind):
        kind = kind.value_type
    return coerce.is_string(kind)


def is_json(kind: Any) -> bool:
    """Return whether values are JSON: JSONB bytes, or Arrow's JSON type (text)."""
    return bool(is_kind.is_large_binary(kind) or isinstance(kind, pa.JsonType))


def TEXT(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """Accept strings only."""
    kind = call.types[number]
    if is_kind.is_string(kind) or is_kind.is_large_string(kind):
        return kind, kind
    if is_kind.is_null(kind) or is_string(kind):
        value = kind.value_type if is_kind.is_dictionary(kind) else kind
        return value if is_kind.is_large_string(value) else pa.string(), pa.string_view()
    raise refuse(call, number, "text")


def LOOSE_TEXT(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """Accept strings, and anything that can be cast to strings."""
    kind = call.types[number]
    if is_kind.is_null(kind) or is_string(kind):
        return TEXT(call, number)
    if is_kind.is_nested(kind) and not is_list(kind):
        raise refuse(call, number, "text or a value that can be cast to text")
    return pa.string(), pa.string()


def INTEGER(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """Accept an integer, cast to ``int64``."""
    kind = call.types[number]
    if is_kind.is_integer(kind) or is_kind.is_null(kind):
        return pa.int64(), kind
    raise refuse(call, number, "an integer")


def FLOAT(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """Accept a number; ``float32`` stays, others are cast to ``float64``."""
    kind = call.types[number]
    if is_kind.is_float32(kind):
        return kind, kind
    if is_number(kind) or is_kind.is_null(kind):
        return pa.float64(), pa.float64()
    raise refuse(call, number, "a number")


def NUMBER(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """Accept a number of any type, unchanged; NULL counts as ``float64``."""
    kind = call.types[number]
    if is_kind.is_null(kind):
        return pa.float64(), pa.float64()
    if is_number(kind):
        return kind, kind
    raise refuse(call, number, "a number")


def BINARY(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """Accept bytes or strings, as bytes."""
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
    """Accept a JSON column, or JSONB bytes."""
    kind = call.types[number]
    if is_json(kind):
        return kind, kind
    if is_kind.is_null(kind) or is_kind.is_binary(kind):
        return pa.large_binary(), pa.large_binary()
    raise refuse(call, number, "a JSON column")


def ANY(call: Call, number: int) -> tuple[Any, Any]:  # noqa: N802  # Reads as a type.
    """Accept any type, unchanged."""
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
