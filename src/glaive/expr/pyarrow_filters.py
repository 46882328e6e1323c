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
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.expr import tree
from glaive.expr.bind import Names
from glaive.expr.tree import Compare, InList, Literal, Name, Node


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


# --- Constants of pyarrow expressions that the type of a column does not hold, compared exactly
# Engines give constants in types of their own: DuckDB those of columns with a time zone in
# microseconds, and floats for half floats. A comparison with one that lies between two values of
# the column is the same as one with the lower of these, so that indices and statistics answer it.

_UNITS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_BETWEEN: Final = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}
"""Comparisons with a constant, and those with the greatest value of the column below it."""


def held_constants(node: Node, names: Names) -> Node:
    """The same tests with constants of the types of the columns that they are compared with.

    Those of floats compared with half floats, and those of times in other units; all else stays.
    NaNs are those of engines: see :mod:`glaive.expr.pyarrow_filters`.
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
