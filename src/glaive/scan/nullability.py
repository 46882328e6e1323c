"""Whether a computed column may have nulls, as far as its expression tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from glaive.expr.tree import Node

__all__ = ["computed_field", "may_be_null"]


def computed_field(
    name: str, kind: pa.DataType, node: Node, column: Callable[[str], bool]
) -> pa.Field[Any]:
    """The field of a computed column; nulls may be null, whatever a schema says of the column."""
    return pa.field(name, kind, pa.types.is_null(kind) or may_be_null(node, column))


def may_be_null(node: Node, column: Callable[[str], bool]) -> bool:
    """Whether a bound expression may be null.

    Operators pass the nulls of their operands on; functions may be null whatever they are
    given, but for those that return the first value. ``column`` says it of the path of a column.
    """
    from glaive.expr import tree

    todo: list[Node] = [node]
    while todo:
        node = todo.pop()
        match node:
            case tree.Column():
                if column(node.path):
                    return True
            case tree.Literal():
                if node.is_null:
                    return True
            case tree.IsNull() | tree.IsTruth():
                pass
            case tree.Compare(op) if "DISTINCT" in op:
                pass
            case tree.Call(name=name) if name in tree.FIRST_VALUE:
                if all(may_be_null(argument, column) for argument in node.arguments):
                    return True
            case tree.Call() | tree.Member() | tree.Subscript():
                return True
            case tree.Cast() if node.attempt:
                return True
            case _:
                todo.extend(tree.children(node))
    return False
