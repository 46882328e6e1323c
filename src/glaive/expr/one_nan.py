"""Floats of a column compared with constants of pyarrow expressions: no NaN is below a number.

To DuckDB and Polars all NaNs are one, greater than all numbers, and they believe the rows that a
source finds for a test. Filters that are texts tell a NaN with the sign bit, which processors make
of ``0 / 0``, from others: it is smaller than all numbers. Tests for greater values stay as they
are: with two ranges in place of one, no statistics nor encoded pages would answer them.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from math import inf, isnan
from typing import Any

import pyarrow as pa

from glaive.expr import tree
from glaive.expr.tree import Compare, InList, Literal, Name, Node

__all__ = ["all_of", "among_floats", "compared_floats"]


def compared_floats(node: Node, op: str, column: Name, constant: Literal, kind: Any) -> Node:
    """A comparison of a column with a constant; ``node`` itself where no NaN makes a difference.

    Parameters
    ----------
    node
        The comparison as a tree.
    kind
        Type of the column.
    """
    value = constant.value
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number or not pa.types.is_floating(kind):
        return node
    if isnan(value):
        if op in (">", "<="):
            return Compare("=" if op == "<=" else "!=", column, column, at=node.at)
        return _numbers(column, kind, negated=op in ("=", ">="))
    if op in ("<", "<="):
        return tree.both(Compare(">=", column, Literal(-inf, kind)), node, at=node.at)
    return node


def all_of(operands: Iterable[Node], at: int) -> Node:
    """AND of tests, without the bounds against NaNs that other tests of the column imply."""
    joined = tree.both(*operands, at=at)
    if not isinstance(joined, tree.And):
        return joined
    bounded: set[Node] = set()
    kept: list[Node] = []
    for test in sorted(joined.operands, key=_is_no_nan):
        match test:
            case Compare(">=" | ">", Name() as column, Literal()):
                if _is_no_nan(test) and column in bounded:
                    continue
                bounded.add(column)
        kept.append(test)
    return tree.both(*kept, at=at)


def _is_no_nan(test: Node) -> bool:
    match test:
        case Compare(">=", Name(), Literal(value)):
            return bool(value == -inf)
    return False


def among_floats(node: InList, column: Name, kind: Any) -> Node:
    """A test for constants of a list; ``node`` itself where none of them is a NaN."""
    if not pa.types.is_floating(kind):
        return node
    others = tuple(item for item in node.items if not _is_nan(item))
    if len(others) == len(node.items):
        return node
    nans = _numbers(column, kind, negated=True)
    found = tree.either(InList(column, others), nans, at=node.at) if others else nans
    return tree.Not(found, at=node.at) if node.negated else found


def _numbers(column: Name, kind: Any, *, negated: bool) -> Node:
    """Whether a value is a number, infinities among them; or, ``negated``, a NaN."""
    return tree.Between(column, Literal(-inf, kind), Literal(inf, kind), negated)


def _is_nan(item: Node) -> bool:
    return isinstance(item, Literal) and isinstance(item.value, float) and isnan(item.value)
