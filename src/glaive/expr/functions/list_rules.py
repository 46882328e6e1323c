"""Type rules of functions on lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glaive.expr.functions.coercion import INTEGER, TEXT, check_count, is_string, refuse
from glaive.expr.functions.registry import Call, Types
from glaive.expr.functions.unify import unify
from glaive.expr.functions.untyped import pa

__all__ = ["always", "element_of", "item_field", "list_like", "list_type", "lists"]

is_kind = pa.types


def list_type(call: Call, number: int) -> Any:
    """Return the list type an argument is cast to; fixed-size lists become lists."""
    kind = call.types[number]
    if pa.types.is_large_list(kind):
        return pa.large_list(pa.field("item", kind.value_type))
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("item", kind.value_type))
    if pa.types.is_null(kind):
        return pa.list_(pa.field("item", pa.null()))
    raise refuse(call, number, "a list")


def item_field(kind: Any) -> Any:
    """Return the field of a list's items, with the name of the reference implementation."""
    return pa.field("item", kind)


def list_like(kind: Any, item: Any) -> Any:
    """Return a list type with other items, large if ``kind`` is."""
    return (pa.large_list if is_kind.is_large_list(kind) else pa.list_)(item_field(item))


def lists(
    pattern: str, result: Callable[[Any], Any] | None = None, optional: int = 0
) -> Callable[[Call], Types]:
    """Build a rule: ``l`` a list, ``e`` an element of it, ``i`` an integer, ``t`` text.

    ``result`` chooses the type of the result from that of the lists; by default it is the same.
    """

    def resolve(call: Call) -> Types:
        check_count(call, len(pattern) - optional, len(pattern))
        given = pattern[: len(call.types)]
        item = None
        outer = None
        for number, (letter, kind) in enumerate(zip(given, call.types, strict=True)):
            if letter == "l":
                data_type = list_type(call, number)
                outer = data_type if outer is None or is_kind.is_large_list(data_type) else outer
                inner = data_type.value_type
            elif letter == "e":
                inner = kind
            else:
                continue
            mixed = item is not None and is_string(item) != is_string(inner)
            if mixed and not is_kind.is_null(item) and not is_kind.is_null(inner):
                raise refuse(call, number, f"a value among values of type {item}")
            common = inner if item is None else unify(item, inner)
            if common is None:
                raise refuse(call, number, f"a value among values of type {item}")
            item = common
        cast = {"l": list_like(outer, item), "e": item, "i": pa.int64(), "t": pa.string()}
        for number, letter in enumerate(given):
            if letter == "i":
                INTEGER(call, number)
            elif letter == "t":
                TEXT(call, number)
        outcome = cast["l"] if result is None else result(cast["l"])
        return tuple(cast[letter] for letter in given), outcome

    return resolve


def element_of(kind: Any) -> Any:
    """Choose the type of the items."""
    return kind.value_type


def always(kind: Any) -> Callable[[Any], Any]:
    """Choose this type."""
    return lambda _: kind
