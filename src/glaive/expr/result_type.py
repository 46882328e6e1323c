"""The type of a bound expression's values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.expr import coerce, tree
from glaive.expr.tree import Node

__all__ = ["type_of"]


def type_of(node: Node) -> Any:
    """Arrow type of the values of a bound expression."""
    match node:
        case tree.Column() | tree.Literal():
            return coerce.plain(node.type)
        case tree.Cast() | tree.Call():
            return coerce.plain(node.type)
        case tree.Negative(operand):
            return type_of(operand)
        case tree.Arithmetic(op, left, right):
            first, second = type_of(left), type_of(right)
            if op in {"||", "<<", ">>"}:
                return first
            types = coerce.arithmetic(op, first, second)
            return types[2] if types else first
        case tree.Member(operand, name):
            return coerce.plain(type_of(operand).field(name).type)
        case tree.Subscript(operand):
            return coerce.plain(type_of(operand).value_type)
        case _:
            return pa.bool_()
