"""Split a simplified filter into terms, and recognise conditions on single columns."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from glaive.arrow.conditions import Condition, HasText, InRange, IsNull, IsOneOf, constants
from glaive.errors import UnsupportedFeatureError
from glaive.expr import tree
from glaive.expr.coerce import plain
from glaive.expr.compare import pattern_parts
from glaive.expr.constants import ConstantList
from glaive.expr.tree import Literal, Node
from glaive.format.blobs import has_blobs_v2
from glaive.format.field import Field

Test = tuple[str, Condition]
"""Path of a column, and a condition on its values."""


def paths(node: Node) -> tuple[str, ...]:
    """Paths of the columns, in the order of the text."""
    columns = (part.path for part in tree.walk(node) if isinstance(part, tree.Column))
    return tuple(dict.fromkeys(columns))


def conjuncts(node: Node) -> list[Node]:
    """The operands of the outermost AND."""
    if isinstance(node, Literal) and node.value is True:
        return []
    return list(node.operands) if isinstance(node, tree.And) else [node]


def one_column(node: Node) -> Test | None:
    """The condition on one column that an expression is equivalent to, if any."""
    match node:
        case tree.IsNull(tree.Column(path), negated):
            return path, IsNull(negated)
        case tree.Compare(op, left, Literal() as right):
            return _compared(op, left, right)
        case tree.InList(tree.Column(path) as column, items, negated):
            if isinstance(items, ConstantList):
                return (path, IsOneOf(items.array(), negated)) if _is_flat(column) else None
            values = [item.value for item in items if isinstance(item, Literal)]
            if len(values) == len(items) and _is_flat(column):
                return path, IsOneOf(constants(values, plain(column.type)), negated)
        case tree.Like(tree.Column(path, kind), Literal(), negated=False, ignore_case=False):
            return _liked(path, kind, node.pattern, node.escape)
        case tree.Column(path, kind) if pa.types.is_boolean(plain(kind)):
            return path, IsOneOf(constants([True], pa.bool_()))
        case tree.Not(tree.Column(path, kind)) if pa.types.is_boolean(plain(kind)):
            return path, IsOneOf(constants([False], pa.bool_()))
        case tree.IsTruth(tree.Column(path), bool() as truth, False):
            return path, IsOneOf(constants([truth], pa.bool_()))
        case tree.Or(operands):
            return _alternatives(operands)
    return None


def _is_flat(column: tree.Column) -> bool:
    """Whether values are neither lists nor structs."""
    return not pa.types.is_nested(plain(column.type))


def _liked(path: str, kind: pa.DataType, pattern: Any, escape: str) -> Test | None:
    """``LIKE`` of one word, with ``%`` before or after it or both."""
    text = plain(kind)
    if pattern.is_null or not (pa.types.is_string(text) or pa.types.is_large_string(text)):
        return None
    parts = pattern_parts(pattern.scalar().as_py(), escape)
    words = [part for part in parts if isinstance(part, str)]
    if len(words) != 1 or 1 in parts:
        return None
    begins, ends = parts[0] is not None, parts[-1] is not None
    return path, HasText(word=words[0], begins=begins, ends=ends)


def _compared(op: str, left: Node, right: Literal) -> Test | None:
    if not isinstance(left, tree.Column) or not _is_flat(left) or right.is_null:
        return None
    column = left
    match op:
        case "=" | "IS NOT DISTINCT FROM":
            return column.path, IsOneOf(_alone(right))
        case "!=":
            return column.path, IsOneOf(_alone(right), negated=True)
        case "<" | "<=":
            return column.path, InRange(high=right.scalar(), high_included=op == "<=")
        case ">" | ">=":
            return column.path, InRange(low=right.scalar(), low_included=op == ">=")
        case _:
            return None


def _alone(constant: Literal) -> Any:
    """An array of one constant."""
    value, kind = constant.value, constant.type
    if isinstance(value, pa.Scalar | tuple):
        kind = constant.scalar().type
    return constants([value], kind)


def _alternatives(operands: tuple[Node, ...]) -> Test | None:
    """``a = 1 OR a IN (2, 3)``."""
    tests = [one_column(operand) for operand in operands]
    values: list[Any] = []
    path = tests[0][0] if tests[0] else ""
    for test in tests:
        if test is None or test[0] != path:
            return None
        condition = test[1]
        if not isinstance(condition, IsOneOf) or condition.negated:
            return None
        values.append(condition.values)
    return path, IsOneOf(pa.concat_arrays(values).unique())


def merged(tests: list[tuple[Node, Test | None]]) -> list[tuple[Node, Test | None]]:
    """Merge lower and upper bounds of one column into one range."""
    kept: list[tuple[Node, Test | None]] = []
    half: dict[tuple[str, bool], deque[int]] = defaultdict(deque)
    """Where in ``kept`` single bounds are, by column and whether they are lower ones."""
    for node, test in tests:
        side = _bound(test)
        if test is None or side is None:
            kept.append((node, test))
            continue
        path, is_lower = side
        if not (opposite := half[path, not is_lower]):
            half[side].append(len(kept))
            kept.append((node, test))
            continue
        index = opposite.popleft()
        other_node, other = kept[index]
        if other is not None:
            kept[index] = tree.both(other_node, node), (path, _range(other[1], test[1]))
    return kept


def _bound(test: Test | None) -> tuple[str, bool] | None:
    """The column that a test has one bound of, and whether that is the lower one."""
    if test is None or not isinstance(test[1], InRange):
        return None
    bounds = test[1]
    if (bounds.low is None) == (bounds.high is None):
        return None
    return test[0], bounds.high is None


def _range(first: Condition, other: Condition) -> Condition:
    lower, upper = (
        (first, other) if isinstance(first, InRange) and first.low is not None else (other, first)
    )
    if not isinstance(lower, InRange) or not isinstance(upper, InRange):
        return first
    return InRange(
        low=lower.low,
        high=upper.high,
        low_included=lower.low_included,
        high_included=upper.high_included,
    )


# --- What expressions over old values may do with blob columns of the second kind -------
# Where rows are changed, a value that lies elsewhere is read as a reference, which means something
# to the writer of a blob column and to nobody else. It must not become part of other values, nor
# be compared with a text.


def refuse_blob_uses(expression: Node, fields: Iterable[Field], subject: str) -> None:
    """Refuse a bound expression that does more with a blob than to ask for null or for equality.

    Parameters
    ----------
    fields
        The columns whose old values it has.
    subject
        What it is for, in messages.

    Raises
    ------
    UnsupportedFeatureError
        Names the column.
    """
    whole = {part.id for field in fields for part in field.walk() if has_blobs_v2(part)}
    if not whole:
        return
    inside = {
        part.id
        for field in fields
        for blob in field.walk()
        if blob.is_blob_v2
        for part in blob.walk()
    } - whole
    for column in _used(expression, whole):
        if column.field_id in whole or column.field_id in inside:
            raise UnsupportedFeatureError(
                f"{subject}: {column.path!r} is a blob column, or lies within one; an expression "
                "can ask whether its value is null, and update sets a blob column to the value of "
                "another one. Read values with blob_handling='all_binary'"
            )


def _used(node: Node, whole: set[int]) -> Iterator[tree.Column]:
    """Columns in an expression, but for those that are tested for null or compared as a whole."""
    match node:
        case tree.Column():
            yield node
        case tree.IsNull():
            return
        case _:
            for operand in tree.children(node):
                compared = isinstance(node, tree.Compare | tree.InList)
                is_whole = isinstance(operand, tree.Column) and operand.field_id in whole
                if not (compared and is_whole):
                    yield from _used(operand, whole)
