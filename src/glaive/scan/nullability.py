"""Whether a computed column may have nulls, as far as its expression tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glaive.expr.tree import Node

__all__ = ["may_be_null"]


def may_be_null(node: Node, column: Callable[[str], bool]) -> bool:
    """Whether a bound expression may be null.

    Operators pass the nulls of their operands on; functions may be null whatever they are
    given, but for those that return the first value. ``column`` says it of the path of a column.
    """
    from glaive.expr import tree

    todo: list[Node] = [node]
    while todo:
        one = todo.pop()
        match one:
            case tree.Column():
                if column(one.path):
                    return True
            case tree.Literal():
                if one.is_null:
                    return True
            case tree.IsNull() | tree.IsTruth():
                pass
            case tree.Compare(op) if "DISTINCT" in op:
                pass
            case tree.Call(name=name) if name in tree.FIRST_VALUE:
                if all(may_be_null(argument, column) for argument in one.arguments):
                    return True
            case tree.Call() | tree.Member() | tree.Subscript():
                return True
            case tree.Cast() if one.attempt:
                return True
            case _:
                todo.extend(tree.children(one))
    return False
