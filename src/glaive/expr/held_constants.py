"""Constants of pyarrow expressions that the type of a column does not hold, compared exactly.

Engines give constants in types of their own: DuckDB those of columns with a time zone in
microseconds, and floats for half floats. A comparison with one that lies between two values of the
column is the same as one with the lower of these, so that indices and statistics answer it.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.expr import tree
from glaive.expr.names import Names
from glaive.expr.one_nan import all_of, among_floats, compared_floats
from glaive.expr.tree import Literal, Node

__all__ = ["held_constants"]

_UNITS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_BETWEEN: Final = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}
"""Comparisons with a constant, and those with the greatest value of the column below it."""


def held_constants(node: Node, names: Names) -> Node:
    """The same tests with constants of the types of the columns that they are compared with.

    Those of floats compared with half floats, and those of times in other units; all else stays.
    NaNs are those of engines: see :mod:`glaive.expr.one_nan`.
    """
    match node:
        case tree.And(operands):
            return all_of((held_constants(one, names) for one in operands), node.at)
        case tree.Or(operands):
            return tree.Or(tuple(held_constants(one, names) for one in operands), at=node.at)
        case tree.Not(operand):
            return tree.Not(held_constants(operand, names), at=node.at)
        case tree.IsTruth(operand, truth, negated):
            return tree.IsTruth(held_constants(operand, names), truth, negated, at=node.at)
        case tree.IsNull(operand, negated):
            return tree.IsNull(held_constants(operand, names), negated, at=node.at)
        case tree.Compare(op, tree.Name() as column, Literal() as constant) if op in _TURNED:
            return _compared(node, op, column, constant, names)
        case tree.Compare(op, Literal() as constant, tree.Name() as column) if op in _TURNED:
            return _compared(node, _TURNED[op], column, constant, names)
        case tree.InList(tree.Name() as column, items):
            return _in_list(node, column, items, names)
        case _:
            return node


def _compared(node: Node, op: str, column: tree.Name, constant: Literal, names: Names) -> Node:
    kind = names.bind(column)[1]
    found = _held(constant, kind)
    if found is not None:
        constant, exact = found
        if not exact and op not in _BETWEEN:
            return _known(column, truth=op == "!=")
        op = op if exact else _BETWEEN[op]
        node = tree.Compare(op, column, constant, at=node.at)
    return compared_floats(node, op, column, constant, kind)


def _in_list(node: tree.InList, column: tree.Name, items: Any, names: Names) -> Node:
    kind = names.bind(column)[1]
    if not items or not all(isinstance(item, Literal) and _fits(item.type, kind) for item in items):
        return among_floats(node, column, kind)
    found = [(item, True) if item.is_null else _held(item, kind) for item in items]
    if None in found:
        return among_floats(node, column, kind)
    held = tuple(pair[0] for pair in found if pair is not None and pair[1])
    if not held:
        return _known(column, truth=node.negated)
    return among_floats(tree.InList(column, held, node.negated, at=node.at), column, kind)


def _known(column: tree.Name, *, truth: bool) -> Node:
    """A test with this result for all values but null, where it is unknown."""
    return tree.Compare("=" if truth else "!=", column, column)


def _fits(constant: Any, kind: Any) -> bool:
    """Whether constants of a type are converted here."""
    types = pa.types
    if constant == kind:
        return False
    if types.is_timestamp(constant) and types.is_timestamp(kind):
        return (constant.tz is None) == (kind.tz is None)
    return (types.is_time(constant) and types.is_time(kind)) or (
        types.is_float32(constant) and types.is_float16(kind)
    )


def _held(constant: Literal, kind: Any) -> tuple[Literal, bool] | None:
    """The greatest value of a type that is not above a constant, and whether it is equal.

    None where the constant stays: it is null, of another type, or beyond all values.
    """
    if constant.is_null or not _fits(constant.type, kind):
        return None
    if pa.types.is_float16(kind):
        with np.errstate(over="ignore"):
            half = float(np.float16(constant.value))
        if half > constant.value:
            half = float(np.nextafter(np.float16(half), np.float16(-inf)))
        # Not a number stays so.
        return Literal(half, kind, at=constant.at), not half < constant.value
    given: Any = constant.type
    number, rest = divmod(constant.value * _UNITS[kind.unit], _UNITS[given.unit])
    bound = 1 << (kind.bit_width - 1)
    if not -bound <= number < bound:
        return None
    return Literal(number, kind, at=constant.at), not rest
