"""Functions of Substrait and of Arrow, mapped to those of the filter language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_lowercase, ascii_uppercase

import pyarrow as pa

from glaive.errors import FilterError
from glaive.expr import tree
from glaive.expr.source_position import close_names
from glaive.expr.tree import Literal, Node

__all__ = ["called", "check_option"]

_COMPARED = {
    "equal": "=",
    "not_equal": "!=",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "is_distinct_from": "IS DISTINCT FROM",
    "is_not_distinct_from": "IS NOT DISTINCT FROM",
    "xor": "!=",
}
_COMBINED = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "modulus": "%",
    "mod": "%",
    "concat": "||",
    "shift_left": "<<",
    "shift_right": ">>",
}
_NAMED = {
    "utf8_upper": "upper",
    "utf8_lower": "lower",
    "utf8_length": "char_length",
    "binary_length": "octet_length",
    "utf8_reverse": "reverse",
    "trim": "btrim",
    "ceiling": "ceil",
    "sign": "signum",
    "is_nan": "isnan",
}
_ALSO = frozenset(
    """
    abs acos asin atan atan2 btrim ceil char_length coalesce contains cos ends_with exp
    floor isnan ln log10 log2 lower ltrim octet_length power reverse round rtrim signum
    sin sqrt starts_with strpos substr substring tan upper
    """.split()  # noqa: SIM905  # words are easier to read than a list
)
"""Functions with the same name in the filter language."""


_MOST_ITEMS = (1 << 63) - 1
_OTHERWISE = {
    "case_sensitivity": {"CASE_INSENSITIVE", "CASE_INSENSITIVE_ASCII"},
    "division_type": {"FLOOR"},
    "negative_start": {"WRAP_FROM_END"},
    "null_handling": {"IGNORE_NULLS"},
    "overflow": {"SATURATE"},
}
"""Options of Substrait, and what functions of the filter language do not do."""


def check_option(function: str, option: str, wanted: Sequence[str]) -> None:
    """See that a function is wanted as the filter language has it.

    Parameters
    ----------
    wanted
        What the option may be, any of these.

    Raises
    ------
    FilterError
        It would compute something else.
    """
    others = _OTHERWISE.get(option, set())
    if wanted and others.issuperset(wanted):
        raise FilterError(
            f"filters do not have the function {function!r} with {option} {wanted[0]}"
        )


def called(name: str, arguments: Sequence[Node]) -> Node:
    """A call as a tree.

    Raises
    ------
    FilterError
        The language does not have the function with so many arguments.
    """
    if name.endswith(("_kleene", "_checked")):
        name = name.rsplit("_", 1)[0]
    node = _operator(name, tuple(arguments))
    if node is not None:
        return node
    known = _NAMED.get(name, name)
    if known in _ALSO:
        return tree.Call(known, tuple(arguments))
    names = [*_COMPARED, *_COMBINED, *_NAMED, *_ALSO, *_ONE, "and", "or", "between", "like"]
    hint = close_names(name, names) or "."
    raise FilterError(f"filters do not have the function {name!r} of the expression{hint}")


def _operator(name: str, arguments: tuple[Node, ...]) -> Node | None:
    match arguments:
        case (only,) if name in _ONE:
            return _ONE[name](only)
        case (left, right) if name in _COMPARED:
            return tree.Compare(_COMPARED[name], left, right)
        case (left, right) if name in _COMBINED:
            return tree.Arithmetic(_COMBINED[name], left, right)
        case (left, right) if name == "and_not":
            return tree.both(left, tree.Not(right))
        case (left, pattern) if name == "like":
            return tree.Like(left, pattern)
        case (value, low, high) if name == "between":
            return tree.Between(value, low, high)
        case (lists, Literal(int() as index, kind)) if name == "list_element":
            return _element(lists, index, kind)
        case (first, *more) if name in {"and", "or"}:
            return (tree.both if name == "and" else tree.either)(first, *more)
        case _:
            return None


def _element(lists: Node, index: int, kind: pa.DataType) -> Node:
    """An item of a list, counted from 0."""
    if not (pa.types.is_integer(kind) and 0 <= index < _MOST_ITEMS):
        raise FilterError(f"list_element: expected the number of an item, from 0, found {index}")
    return tree.Subscript(lists, Literal(index + 1, pa.int64()))


def _infinite(node: Node) -> Node:
    infinity = float("inf")
    return tree.InList(node, tuple(Literal(value, pa.float64()) for value in (infinity, -infinity)))


def _finite(node: Node) -> Node:
    return tree.Not(tree.either(_infinite(node), tree.Call("isnan", (node,))))


def _replacing(old: str, new: str) -> Callable[[Node], Node]:
    """A function that replaces letters in texts."""
    letters = Literal(old, pa.string()), Literal(new, pa.string())
    return lambda node: tree.Call("translate", (node, *letters))


def _trimming(side: str) -> Callable[[Node], Node]:
    """A function that takes spaces of all kinds off texts; those of SQL take off one kind."""
    letters = Literal(_SPACES, pa.string())
    return lambda node: tree.Call(side, (node, letters))


_SPACES = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_UNKNOWN = Literal(None, pa.bool_())
_ONE: dict[str, Callable[[Node], Node]] = {
    "not": tree.Not,
    "invert": tree.Not,
    "is_null": tree.IsNull,
    "is_valid": lambda node: tree.IsNull(node, negated=True),
    "is_not_null": lambda node: tree.IsNull(node, negated=True),
    "true_unless_null": lambda node: tree.Or(
        (tree.IsNull(node, negated=True), Literal(None, pa.bool_()))
    ),
    "is_true": lambda node: tree.IsTruth(node, True),
    "is_false": lambda node: tree.IsTruth(node, False),
    "is_not_true": lambda node: tree.IsTruth(node, True, negated=True),
    "is_not_false": lambda node: tree.IsTruth(node, False, negated=True),
    "negate": tree.Negative,
    "ascii_lower": _replacing(ascii_uppercase, ascii_lowercase),
    "ascii_upper": _replacing(ascii_lowercase, ascii_uppercase),
    "utf8_trim_whitespace": _trimming("btrim"),
    "utf8_ltrim_whitespace": _trimming("ltrim"),
    "utf8_rtrim_whitespace": _trimming("rtrim"),
    "is_finite": _finite,
    "is_infinite": _infinite,
    "is_inf": _infinite,
}
