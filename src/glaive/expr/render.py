"""Render trees as text in a normal form, which parses as the same tree."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from glaive.expr import tree
from glaive.expr.coerce import is_string
from glaive.expr.constant_list import ConstantList
from glaive.expr.intervals import interval_text
from glaive.expr.sqltypes import type_text
from glaive.expr.tree import Literal, Node
from glaive.expr.vocabulary import AND, EQUAL, IS, KEYWORDS, LIKE, NOT, OR, PLUS, SHIFT, TIMES
from glaive.expr.write_text import value_texts
from glaive.format.column_path import quoted_name

__all__ = ["render"]

_ATOM = 100
_BINDING = {
    "+": PLUS,
    "-": PLUS,
    "*": TIMES,
    "/": TIMES,
    "%": TIMES,
    "||": TIMES,
    "<<": SHIFT,
    ">>": SHIFT,
}
_PLAIN = re.compile(r"[^\W\d]\w*")
_UNORDERED = 1
"""Precedence of IS DISTINCT FROM, which takes all that follows."""


def render(node: Node) -> str:
    """The text of an expression."""
    return _text(node)[0]


def _in(node: Node, tightness: int) -> str:
    """The text of an operand, in brackets unless it binds at least as tightly."""
    text, binding = _text(node)
    return text if binding >= tightness else f"({text})"


def _text(node: Node) -> tuple[str, int]:  # noqa: C901, PLR0911, PLR0912  # as many classes
    """The text, and the precedence of its outermost operator."""
    match node:
        case tree.Name(parts, exact):
            first = _name(parts[0], always=exact)
            return ".".join([first, *(_name(part) for part in parts[1:])]), _ATOM
        case tree.Column(path):
            return path if _PLAIN.fullmatch(path) or "." in path else _name(path), _ATOM
        case Literal():
            return _literal(node)
        case tree.ListOf(items):
            return f"[{', '.join(map(render, items))}]", _ATOM
        case tree.Compare(op, left, right):
            return _comparison(op, left, right)
        case tree.Arithmetic(op, left, right):
            binding = _BINDING[op]
            return f"{_in(left, binding)} {op} {_in(right, binding + 1)}", binding
        case tree.Negative(operand):
            bare = isinstance(operand, Literal) and not _is_negative(operand)
            inner = f"({render(operand)})" if bare else _in(operand, TIMES + 1)
            return f"- {inner}" if inner.startswith("-") else f"-{inner}", TIMES
        case tree.And(operands):
            return " AND ".join(_in(operand, AND + 1) for operand in operands), AND
        case tree.Or(operands):
            return " OR ".join(_in(operand, OR + 1) for operand in operands), OR
        case tree.Not(operand):
            return f"NOT {_in(operand, NOT)}", NOT
        case tree.IsNull(operand, negated):
            return f"{_in(operand, IS)} IS {_not(negated)}NULL", IS
        case tree.IsTruth(operand, truth, negated):
            word = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[truth]
            return f"{_in(operand, IS)} IS {_not(negated)}{word}", IS
        case tree.InList(operand, items, negated):
            listed = ", ".join(_listed(items))
            return f"{_in(operand, EQUAL)} {_not(negated)}IN ({listed})", EQUAL
        case tree.Between(operand, low, high, negated):
            between = f"{_in(low, EQUAL + 1)} AND {_in(high, EQUAL + 1)}"
            return f"{_in(operand, EQUAL)} {_not(negated)}BETWEEN {between}", EQUAL
        case tree.Like():
            return _like(node)
        case tree.Cast(operand, kind, attempt):
            word = "TRY_CAST" if attempt else "CAST"
            return f"{word}({render(operand)} AS {type_text(kind)})", _ATOM
        case tree.Call(name, arguments):
            return f"{name}({', '.join(map(render, arguments))})", _ATOM
        case tree.Member(operand, name):
            inner = (
                f"({render(operand)})"
                if isinstance(operand, tree.Name | Literal)
                else _in(operand, _ATOM)
            )
            return f"{inner}.{_name(name)}", _ATOM
        case tree.Subscript(operand, index):
            return f"{_in(operand, _ATOM)}[{render(index)}]", _ATOM


def _not(negated: bool) -> str:  # noqa: FBT001  # the word itself
    return "NOT " if negated else ""


def _comparison(op: str, left: Node, right: Node) -> tuple[str, int]:
    if op.startswith("IS"):
        return f"{_in(left, IS)} {op} {_in(right, OR)}", _UNORDERED
    return f"{_in(left, EQUAL)} {op} {_in(right, EQUAL + 1)}", EQUAL


def _like(node: tree.Like) -> tuple[str, int]:
    word = "ILIKE" if node.ignore_case else "LIKE"
    escape = "" if node.escape == "\\" else f" ESCAPE {_quoted(node.escape)}"
    text = f"{_in(node.operand, LIKE)} {_not(node.negated)}{word} {_in(node.pattern, LIKE + 1)}"
    return f"{text}{escape}", LIKE


def _name(name: str, *, always: bool = False) -> str:
    if not always and _PLAIN.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return quoted_name(name)


def _listed(items: Sequence[Node]) -> Iterable[str]:
    if isinstance(items, ConstantList):
        if is_string(items.type):
            return map(_quoted, items.values)
        if pa.types.is_integer(items.type):
            return map(str, items.values)
        if pa.types.is_floating(items.type) and all(map(math.isfinite, items.values)):
            return map(repr, items.values)
    return map(render, items)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _is_negative(literal: Literal) -> bool:
    return render(literal).startswith("-")


def _literal(node: Literal) -> tuple[str, int]:
    value, kind = node.value, node.type
    if value is None:
        return "NULL", _ATOM
    if isinstance(value, bool):
        return str(value).upper(), _ATOM
    if isinstance(value, str):
        return _quoted(value), _ATOM
    if isinstance(value, bytes):
        return f"x'{value.hex()}'", _ATOM
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, tuple):
        items = [Literal(item, kind.value_type) for item in value]  # type: ignore[attr-defined]  # a list's
        return f"[{', '.join(map(render, items))}]", _ATOM
    if isinstance(value, int) and pa.types.is_integer(kind):
        return str(value), _ATOM if value >= 0 else TIMES
    if isinstance(value, Decimal):
        return f"{type_text(kind)} '{value:f}'", _ATOM
    return _typed(node), _ATOM


def _float(value: float) -> tuple[str, int]:
    if not math.isfinite(value):
        return f"double '{value}'", _ATOM
    return repr(value), TIMES if repr(value).startswith("-") else _ATOM


def _typed(node: Literal) -> str:
    scalar: Any = node.scalar()
    if pa.types.is_nested(scalar.type):
        return str(scalar.as_py())
    if pa.types.is_interval(scalar.type):
        return f"interval '{interval_text(scalar)}'"
    text = value_texts(pa.repeat(scalar, 1))[0].as_py()
    return f"{type_text(node.type)} '{text}'"
