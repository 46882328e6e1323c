"""Simplify bound trees: fold constants, push NOT to the leaves, move constants to the right.

The meaning does not change, nulls included. Constants that cannot be computed stay as they
are, and are errors only if a row is evaluated.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from glaive.errors import CapacityError, FilterError
from glaive.expr import tree
from glaive.expr.constant_list import ConstantList
from glaive.expr.evaluate import values
from glaive.expr.functions import registry
from glaive.expr.sizes import MAX_HELD_BYTES, scalar_bytes
from glaive.expr.tree import Literal, Node
from glaive.expr.uncast import uncast

__all__ = ["draws", "simplify"]

_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
    "IS DISTINCT FROM": "IS NOT DISTINCT FROM",
    "IS NOT DISTINCT FROM": "IS DISTINCT FROM",
}
_MAX_FOLDED = 8 << 20
"""Bytes of a folded constant; larger ones are computed when they are evaluated."""

_UNKNOWN = Literal(None, pa.bool_())
_FALSE, _TRUE = Literal(False, pa.bool_()), Literal(True, pa.bool_())  # values


class _Computed(threading.local):
    """Bytes of the constants that were computed of the filter that this thread simplifies."""

    size = 0


_COMPUTED = _Computed()


def simplify(node: Node) -> Node:
    """An equivalent, simpler expression.

    Raises
    ------
    FilterError
        Its constants take more than ``MAX_HELD_BYTES`` together: computing them takes time, too.
    """
    _COMPUTED.size = 0
    return _simplified(node)


def _simplified(node: Node) -> Node:  # noqa: C901, PLR0911, PLR0912  # a case for each class
    match node:
        case tree.Column() | Literal():
            return node
        case tree.And(operands):
            return _all([_simplified(operand) for operand in operands], node.at)
        case tree.Or(operands):
            return _any([_simplified(operand) for operand in operands], node.at)
        case tree.Not(operand):
            return _opposite(_simplified(operand), node.at)
        case tree.Compare(op, left, right):
            return _compare(op, _simplified(left), _simplified(right), node.at)
        case tree.InList(operand, items, negated):
            among = _in_list(_simplified(operand), items, node.at)
            return _opposite(among, node.at) if negated else among
        case tree.Arithmetic(op, left, right):
            left, right = _simplified(left), _simplified(right)
            return _constant(tree.Arithmetic(op, left, right, at=node.at), left, right)
        case tree.Negative(operand):
            operand = _simplified(operand)
            return _constant(tree.Negative(operand, at=node.at), operand)
        case tree.IsNull(operand, negated):
            operand = _simplified(operand)
            if _is_known(operand):
                return _TRUE if negated else _FALSE
            return _constant(tree.IsNull(operand, negated, at=node.at), operand)
        case tree.IsTruth(operand, truth, negated):
            operand = _simplified(operand)
            return _constant(tree.IsTruth(operand, truth, negated, at=node.at), operand)
        case tree.Like():
            return _like(node)
        case tree.Cast(operand, kind, attempt):
            operand = _simplified(operand)
            cast = tree.Cast(operand, kind, attempt, at=node.at)
            if isinstance(operand, Literal):
                return Literal.of(values(cast, _one_row())[0], at=node.at)
            return cast
        case tree.Call():
            return _call(node)
        case tree.Member(operand, name):
            return tree.Member(_simplified(operand), name, at=node.at)
        case tree.Subscript(operand, index):
            operand, index = _simplified(operand), _simplified(index)
            return _constant(tree.Subscript(operand, index, at=node.at), operand, index)
        case _:
            return node


@cache
def _one_row() -> Any:
    return pa.RecordBatch.from_arrays([pa.nulls(1)], names=["none"])


def _constant(node: Node, *operands: Node) -> Node:
    """Its value, if all operands are constants and it can be computed; else the node."""
    if not all(isinstance(operand, Literal) for operand in operands):
        return node
    try:
        value = values(node, _one_row())[0]
        size = scalar_bytes(value)
        result = Literal.of(value, at=node.at) if size <= _MAX_FOLDED else node
    except (FilterError, CapacityError):
        return node  # an error if a row is evaluated
    _COMPUTED.size += size
    if _COMPUTED.size > MAX_HELD_BYTES:
        raise FilterError(
            f"the constants that the filter computes take more than {MAX_HELD_BYTES} bytes"
        )
    return result


def _call(node: tree.Call) -> Node:
    arguments = tuple(_simplified(argument) for argument in node.arguments)
    call = tree.Call(node.name, arguments, node.type, at=node.at)
    if (
        node.name in tree.HAS_ITEM
        and (among := _among_items(arguments[0], arguments[1], node.at)) is not None
    ):
        return among
    return call if registry.find(node.name).volatile else _constant(call, *arguments)


def _among_items(items: Node, operand: Node, at: int) -> Node | None:
    """``array_has([1, 2], a)`` as ``a IN (1, 2)``, with its nulls and zeros; None for others."""
    if not isinstance(items, Literal) or items.is_null or isinstance(operand, Literal):
        return None
    values = items.scalar().values
    if pa.types.is_nested(values.type):
        return None
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return _in_list(operand, tuple(Literal.of(value) for value in values), at)


def _like(node: tree.Like) -> Node:
    operand, pattern = _simplified(node.operand), _simplified(node.pattern)
    if isinstance(pattern, Literal) and pattern.is_null:
        return _UNKNOWN
    test = tree.Like(operand, pattern, node.escape, node.negated, node.ignore_case, at=node.at)
    return _constant(test, operand, pattern)


def _is_known(node: Node) -> bool:
    """Whether a test is never null."""
    distinct = isinstance(node, tree.Compare) and node.op.startswith("IS")
    return distinct or isinstance(node, tree.IsNull | tree.IsTruth)


def _truth(node: Node) -> bool | Node | None:
    """The value of a constant; other nodes unchanged."""
    return node.value if isinstance(node, Literal) else node


def _all(operands: list[Node], at: int) -> Node:
    kept = [operand for operand in _flat(operands, tree.And) if _truth(operand) is not True]
    if any(_truth(operand) is False for operand in kept):
        return _FALSE
    return tree.both(*_once(kept), at=at) if kept else _TRUE


def _any(operands: list[Node], at: int) -> Node:
    kept = [operand for operand in _flat(operands, tree.Or) if _truth(operand) is not False]
    if any(_truth(operand) is True for operand in kept):
        return _TRUE
    return tree.either(*_once(kept), at=at) if kept else _FALSE


def _once(operands: list[Node]) -> list[Node]:
    """Each of several tests once, but for those that draw something each time."""
    once = list(dict.fromkeys(operands))
    return operands if len(once) < len(operands) and any(map(draws, operands)) else once


def draws(node: Node) -> bool:
    """Whether an expression has another value each time, such as ``random()``."""
    calls = (part for part in tree.walk(node) if isinstance(part, tree.Call))
    return any(registry.find(call.name).volatile for call in calls)


def _flat(operands: list[Node], kind: type[tree.And | tree.Or]) -> list[Node]:
    return [
        inner
        for operand in operands
        for inner in (operand.operands if isinstance(operand, kind) else (operand,))
    ]


def _opposite(node: Node, at: int) -> Node:
    match node:
        case Literal(value):
            return _UNKNOWN if value is None else (_FALSE if value else _TRUE)
        case tree.Not(operand):
            return operand
        case tree.And(operands):
            return _any([_opposite(operand, operand.at) for operand in operands], at)
        case tree.Or(operands):
            return _all([_opposite(operand, operand.at) for operand in operands], at)
        case tree.Compare(op, left, right):
            return tree.Compare(_OPPOSITE[op], left, right, at=at)
        case tree.InList(operand, items, negated):
            return tree.InList(operand, items, not negated, at=at)
        case tree.IsNull(operand, negated):
            return tree.IsNull(operand, not negated, at=at)
        case tree.IsTruth(operand, truth, negated):
            return tree.IsTruth(operand, truth, not negated, at=at)
        case tree.Like(operand, pattern, escape, negated, ignore_case):
            return tree.Like(operand, pattern, escape, not negated, ignore_case, at=at)
        case _:
            return tree.Not(node, at=at)


def _compare(op: str, left: Node, right: Node, at: int) -> Node:
    if isinstance(left, Literal) and not isinstance(right, Literal):
        left, right, op = right, left, _FLIPPED.get(op, op)
    if op in _FLIPPED and any(isinstance(side, Literal) and side.is_null for side in (left, right)):
        return _UNKNOWN
    if isinstance(right, Literal) and right.is_null:
        return tree.IsNull(left, op == "IS DISTINCT FROM", at=at)
    if isinstance(left, tree.Cast) and isinstance(right, Literal):
        inner = uncast(op, left, right)
        if inner is not None:
            return _compare(op, left.operand, inner, at)
    with_zeros = _compare_zeros(op, left, right, at)
    if with_zeros is not None:
        return with_zeros
    return _constant(tree.Compare(op, left, right, at=at), left, right)


def _zeros(node: Node) -> tuple[Literal, Literal] | None:
    """Both zeros, if the node is one of them."""
    if isinstance(node, Literal) and isinstance(node.value, float) and node.value == 0:
        return Literal(-0.0, node.type, at=node.at), Literal(0.0, node.type, at=node.at)
    return None


def _compare_zeros(op: str, left: Node, right: Node, at: int) -> Node | None:
    """A comparison with a float zero as one with both zeros: ``-0.0 < 0.0`` in total order."""
    zeros = _zeros(right)
    if zeros is None:
        return None
    if op in {"<", ">="}:
        return _constant(tree.Compare(op, left, zeros[0], at=at), left)
    if op in {">", "<="}:
        return _constant(tree.Compare(op, left, zeros[1], at=at), left)
    among = tree.InList(left, zeros, op == "!=", at=at)
    if op in {"=", "!="}:
        return _constant(among, left)
    return _constant(tree.IsTruth(among, True, op == "IS DISTINCT FROM", at=at), left)  # TRUE


def _in_list(operand: Node, items: Sequence[Node], at: int) -> Node:
    """An IN list of the constants; if an item is not constant, one comparison per item."""
    if isinstance(items, ConstantList) and not isinstance(operand, Literal | tree.Cast):
        items = items.distinct()
        if len(items) > 1:
            return tree.InList(operand, items, at=at)
    items = [_simplified(item) for item in items]
    if isinstance(operand, Literal) or not all(isinstance(item, Literal) for item in items):
        return _any([_compare("=", operand, item, at) for item in items], at)
    known: dict[Literal, None] = {}
    nulls = False
    for item in items:
        nulls = nulls or (isinstance(item, Literal) and item.is_null)
        if isinstance(item, Literal) and not item.is_null:
            known.update(dict.fromkeys(_zeros(item) or (item,)))
    if not known:
        return _UNKNOWN if nulls else _FALSE
    test: Node
    operand, values_of = _uncast_all(operand, tuple(known))
    if len(values_of) == 1:
        test = tree.Compare("=", operand, values_of[0], at=at)
    else:
        test = tree.InList(operand, values_of, at=at)
    return _any([test, _UNKNOWN], at) if nulls else test


def _uncast_all(operand: Node, items: tuple[Literal, ...]) -> tuple[Node, tuple[Literal, ...]]:
    while isinstance(operand, tree.Cast):
        constants = [uncast("=", operand, item) for item in items]
        inner = tuple(value for value in constants if value is not None)
        if len(inner) < len(items):
            break
        operand, items = operand.operand, inner
    return operand, items
