"""Filters and computed columns: the interface of this package.

``bind_filter`` turns a string, a pyarrow expression or Substrait bytes into a :class:`Filter`. A
filter knows the columns it needs and its terms with conditions on single columns, and evaluates
batches. ``bind_value`` does the same for expressions of any type.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache, cached_property, partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from glaive.arrow import compute as pc
from glaive.arrow.blocks import known_true
from glaive.arrow.chunked import batch_parts, concat_arrays, dictionary_encoded, too_large
from glaive.arrow.conditions import Condition, HasText, InRange, IsNull, IsOneOf, constants
from glaive.dataclass import dataclass
from glaive.errors import CapacityError, FilterError, OptionError, UnsupportedFeatureError
from glaive.expr import tree
from glaive.expr.bind import Names, bind
from glaive.expr.casts import EXACT, cast
from glaive.expr.coerce import PER_SECOND, is_string, plain, type_of
from glaive.expr.compare import pattern_parts
from glaive.expr.constants import ConstantList
from glaive.expr.evaluate import values
from glaive.expr.functions import registry
from glaive.expr.parse import parse, render
from glaive.expr.rows import MAX_HELD_BYTES, scalar_bytes, varies
from glaive.expr.tree import FLIPPED, Literal, Node, walk
from glaive.format.blobs import has_blobs_v2
from glaive.format.field import Field
from glaive.format.fields import LanceSchema

# --- Split a simplified filter into terms, and recognise conditions on single columns ---

Test = tuple[str, Condition]
"""Path of a column, and a condition on its values."""


def paths(node: Node) -> tuple[str, ...]:
    """Return the paths of the columns, in the order of the expression."""
    columns = (part.path for part in tree.walk(node) if isinstance(part, tree.Column))
    return tuple(dict.fromkeys(columns))


def conjuncts(node: Node) -> list[Node]:
    """Return the operands of the outermost AND."""
    if isinstance(node, Literal) and node.value is True:
        return []
    return list(node.operands) if isinstance(node, tree.And) else [node]


def one_column(node: Node) -> Test | None:
    """Return the condition on one column that an expression is equivalent to, if any."""
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
            return _like_test(path, kind, node.pattern, node.escape)
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
    """Return whether the type of values is flat: other than a list or struct."""
    return not pa.types.is_nested(plain(column.type))


def _like_test(path: str, kind: pa.DataType, pattern: Any, escape: str) -> Test | None:
    """Recognise ``LIKE`` with one word, and ``%`` before or after it or both."""
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
            return column.path, IsOneOf(_array_of_one(right))
        case "!=":
            return column.path, IsOneOf(_array_of_one(right), negated=True)
        case "<" | "<=":
            return column.path, InRange(high=right.scalar(), high_included=op == "<=")
        case ">" | ">=":
            return column.path, InRange(low=right.scalar(), low_included=op == ">=")
        case _:
            return None


def _array_of_one(constant: Literal) -> Any:
    """Return an array of one constant."""
    value, kind = constant.value, constant.type
    if isinstance(value, pa.Scalar | tuple):
        kind = constant.scalar().type
    return constants([value], kind)


def _alternatives(operands: tuple[Node, ...]) -> Test | None:
    """Recognise ``a = 1 OR a IN (2, 3)``."""
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
    """Merge lower and upper bounds of a column into one range."""
    kept: list[tuple[Node, Test | None]] = []
    half: dict[tuple[str, bool], deque[int]] = defaultdict(deque)
    """Indices in ``kept`` of single bounds, by column and whether the bound is lower."""
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
    """Return the column of a test with one bound, and whether the bound is lower."""
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


# --- Refuse expressions that use values of blob columns (version 2) ---------------------
#
# While rows are changed, an external blob value is read as a reference. Only the writer of the blob
# column understands it. The reference must stay out of other values, and out of comparisons with
# strings.


def refuse_blob_uses(expression: Node, fields: Iterable[Field], subject: str) -> None:
    """Refuse a bound expression that does more with a blob than test for null or equality.

    Parameters
    ----------
    fields
        Columns whose old values the expression uses.
    subject
        What the expression is for, in messages.

    Raises
    ------
    UnsupportedFeatureError
        The message names the column.
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
    for column in _used_columns(expression, whole):
        if column.field_id in whole or column.field_id in inside:
            raise UnsupportedFeatureError(
                f"{subject}: {column.path!r} is a blob column or part of one. Expressions can "
                "test it for null, and an update can copy another blob column into it. Read values "
                "with blob_handling='all_binary'"
            )


def _used_columns(node: Node, whole: set[int]) -> Iterator[tree.Column]:
    """Yield the columns whose values an expression uses, except in null tests and comparisons."""
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
                    yield from _used_columns(operand, whole)


# --- Remove the cast from a comparison of a cast value with a constant ------------------
#
# If 5 fits the type of ``a``, ``CAST(a AS bigint) = 5`` becomes ``a = 5``, which is a condition on
# one column and avoids conversions. Lance does this for all casts between integers, decimals
# and times. As in Lance, ``CAST(d AS int) = 1`` on a decimal means 1.00.


def uncast(op: str, left: tree.Cast, right: Literal) -> Literal | None:
    """Convert a constant to the type that ``left`` casts from; ``None`` if the type lacks it."""
    kind = type_of(left.operand)
    if kind is None or right.is_null:
        return None
    if is_string(left.type) and pa.types.is_integer(kind):
        # ``CAST(a AS string) = '1'``: only if the number is formatted like the constant.
        if op not in {"=", "!="}:
            return None
        converted = cast(pa.array([right.value]), kind, attempt=True)[0]
        if not converted.is_valid or str(converted.as_py()) != right.value:
            return None
        return Literal.of(converted, at=right.at)
    if pa.types.is_date32(right.type) and pa.types.is_integer(kind):
        return Literal(right.value, kind, at=right.at)  # both count days
    number = _number(right)
    if number is None:
        return None
    value = _value(number, right.type, kind)
    return None if value is None else Literal(value, kind, at=right.at)


def _number(literal: Literal) -> int | Decimal | None:
    kind, types = literal.type, pa.types
    if types.is_integer(kind) or types.is_timestamp(kind) or types.is_decimal128(kind):
        value: Any = literal.value
        return value if isinstance(value, int | Decimal) else None
    return None


def _value(number: int | Decimal, source: Any, kind: Any) -> int | Decimal | None:
    types = pa.types
    if types.is_decimal128(kind):
        if types.is_timestamp(source):
            return None
        digits = Decimal(number).scaleb(kind.scale, context=EXACT)
        fits = digits == digits.to_integral_value() and abs(digits) < Decimal(10) ** kind.precision
        return Decimal(number) if fits else None
    if number != int(number) or (types.is_decimal128(source) and types.is_timestamp(kind)):
        return None
    integer = int(number)
    if types.is_timestamp(kind):
        if types.is_timestamp(source):
            if source.tz != kind.tz and not {source.tz, kind.tz} <= {None, "UTC", "+00:00", "Z"}:
                return None
            integer = _quotient(integer * PER_SECOND[kind.unit], PER_SECOND[source.unit])
        return integer if -(1 << 63) <= integer < 1 << 63 else None
    if types.is_integer(kind):
        signed = types.is_signed_integer(kind)
        low = -(1 << (kind.bit_width - 1)) if signed else 0
        return integer if low <= integer < 1 << (kind.bit_width - signed) else None
    return None


def _quotient(over: int, by: int) -> int:
    """Divide, and truncate towards zero."""
    return over // by if over >= 0 else -(-over // by)


# --- Simplify bound trees: fold constants, push NOT to the leaves, move constants to the right ---
# The meaning stays the same, including nulls. A constant whose computation fails stays as it is.
# It raises only if a row is evaluated.

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
"""Maximum bytes of a folded constant; a larger constant is computed during evaluation."""

_UNKNOWN = Literal(None, pa.bool_())
_FALSE, _TRUE = Literal(False, pa.bool_()), Literal(True, pa.bool_())  # values


class _Computed(threading.local):
    """Bytes of constants computed while this thread simplifies a filter."""

    size = 0


_COMPUTED = _Computed()


def simplify(node: Node) -> Node:
    """Return an equivalent, simpler expression.

    Raises
    ------
    FilterError
        All constants together exceed ``MAX_HELD_BYTES``: computing them takes time, too.
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
    """Return the value of a node with constant operands; otherwise, or on failure, the node."""
    if not all(isinstance(operand, Literal) for operand in operands):
        return node
    try:
        value = values(node, _one_row())[0]
        size = scalar_bytes(value)
        result = Literal.of(value, at=node.at) if size <= _MAX_FOLDED else node
    except (FilterError, CapacityError):
        return node  # raises if a row is evaluated
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
    """Convert ``array_has([1, 2], a)`` to ``a IN (1, 2)``, with nulls and zeros, if possible."""
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
    """Return whether a test is never null."""
    distinct = isinstance(node, tree.Compare) and node.op.startswith("IS")
    return distinct or isinstance(node, tree.IsNull | tree.IsTruth)


def _truth(node: Node) -> bool | Node | None:
    """Return the value of a constant, or the node."""
    return node.value if isinstance(node, Literal) else node


def _all(operands: list[Node], at: int) -> Node:
    kept = [operand for operand in _flat(operands, tree.And) if _truth(operand) is not True]
    if any(_truth(operand) is False for operand in kept):
        return _FALSE
    return tree.both(*_distinct_tests(kept), at=at) if kept else _TRUE


def _any(operands: list[Node], at: int) -> Node:
    kept = [operand for operand in _flat(operands, tree.Or) if _truth(operand) is not False]
    if any(_truth(operand) is True for operand in kept):
        return _TRUE
    return tree.either(*_distinct_tests(kept), at=at) if kept else _FALSE


def _distinct_tests(operands: list[Node]) -> list[Node]:
    """Remove repeated tests, unless a test is volatile."""
    once = list(dict.fromkeys(operands))
    return operands if len(once) < len(operands) and any(map(is_volatile, operands)) else once


def is_volatile(node: Node) -> bool:
    """Return whether an expression is volatile, like ``random()``: it may change each time."""
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
        left, right, op = right, left, FLIPPED.get(op, op)
    if op in FLIPPED and any(isinstance(side, Literal) and side.is_null for side in (left, right)):
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
    """Return both zeros if the node is a zero."""
    if isinstance(node, Literal) and isinstance(node.value, float) and node.value == 0:
        return Literal(-0.0, node.type, at=node.at), Literal(0.0, node.type, at=node.at)
    return None


def _compare_zeros(op: str, left: Node, right: Node, at: int) -> Node | None:
    """Compare with both float zeros instead of one, because ``-0.0 < 0.0`` in total order."""
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
    """Return an IN list if all items are constants, else one comparison per item."""
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


_MAX_MESSAGE_TEXT = 100
"""Maximum characters of an expression in messages."""

NO_COLUMNS: Mapping[str, pa.DataType] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)  # derived values are cached in ``__dict__``
class _Bound:
    """A bound expression."""

    expression: Node

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Paths of the columns it needs."""
        return paths(self.expression)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term(_Bound):
    """A test that rows must pass.

    Parameters
    ----------
    expression
        Bound, boolean expression.
    condition
        Path of a column and an equivalent condition on its values, or ``None``.
    """

    condition: tuple[str, Condition] | None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Paths of the columns it needs."""
        return paths(self.expression) if self.condition is None else self.condition[:1]

    @property
    def is_by_value(self) -> bool:
        """Whether rows with equal values always have the same result."""
        return not is_volatile(self.expression)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return flags of passing rows, all valid; see :meth:`Filter.mask`."""
        # Evaluating LIKE is faster than the mask of a ``HasText``.
        if self.condition is not None and not isinstance(self.condition[1], HasText):
            path, condition = self.condition
            index = batch.schema.get_field_index(path)
            if index >= 0:
                return condition.mask(batch.column(index))
        return _passing_rows(self.expression, batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(_Bound):
    """A bound filter.

    Parameters
    ----------
    expression
        Bound and simplified expression.
    terms
        Tests that must all pass; if empty, all rows pass. Tests with a condition come first. Other
        tests are evaluated only on rows that passed the tests before them:
        ``b != 0 AND a / b = 1``.
    written
        Text of the filter, or its tree before binding.
    """

    terms: tuple[Term, ...]
    written: str | Node

    @property
    def columns(self) -> tuple[str, ...]:
        """Paths of the columns it needs."""
        return self.terms[0].columns if len(self.terms) == 1 else paths(self.expression)

    @property
    def text(self) -> str:
        """The filter in normal form."""
        return render(parse(self.written) if isinstance(self.written, str) else self.written)

    @property
    def never(self) -> bool:
        """Whether all rows fail."""
        return any(
            isinstance(term.expression, Literal) and term.expression.value is not True
            for term in self.terms
        )

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return flags of passing rows, all valid: rows that evaluate to NULL fail.

        Parameters
        ----------
        batch
            Rows with a column for each path of ``columns``, or a struct that contains it. Members
            of a null struct must be null.

        Raises
        ------
        FilterError
            Computing a value fails: a division by zero, an invalid cast.
        """
        return _passing_rows(self.expression, batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value(_Bound):
    """A bound expression of any type.

    Parameters
    ----------
    expression
        Bound and simplified expression.
    type
        Arrow type of the values.
    text
        The expression in normal form.
    """

    type: pa.DataType
    text: str

    @property
    def constant_bytes(self) -> int:
        """Bytes of constants that every value may contain."""
        if not varies(self.type):
            return 0
        literals = (node for node in walk(self.expression) if isinstance(node, Literal))
        return sum(scalar_bytes(literal.scalar()) for literal in literals)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Return a value per row; for the batch and errors see :meth:`Filter.mask`.

        Raises
        ------
        FilterError
            Computing a value fails, or a single value exceeds an array.
        CapacityError
            The values exceed one array: use fewer rows.
        """
        try:
            if varies(self.type):
                return self._values(batch)
            # The values are small even if intermediate values are large.
            result: pa.Array = concat_arrays(list(batch_parts(self._values, batch)))
        except CapacityError as error:
            if batch.num_rows > 1 and varies(self.type):
                raise
            raise _too_large(self.text, error) from None
        return result

    def _values(self, batch: pa.RecordBatch) -> pa.Array:
        computed: Any = values(self.expression, batch)
        kind: Any = self.type
        try:
            result: pa.Array = computed if computed.type == kind else _as_type(computed, kind)
        except (pa.ArrowInvalid, pa.ArrowCapacityError, pa.ArrowNotImplementedError) as error:
            if not too_large(error):
                raise FilterError(f"{_short(self.text)}: {error}") from None
            raise CapacityError(f"the values do not fit one array: {error}") from None
        return result


def bind_filter(
    source: str | pc.Expression | bytes | Node,
    schema: LanceSchema,
    *,
    system: Mapping[str, pa.DataType] = NO_COLUMNS,
) -> Filter:
    """Bind a filter to a schema.

    Parameters
    ----------
    source
        A string in the filter language, its tree, a pyarrow expression, or a Substrait
        ``ExtendedExpression`` as bytes.
    system
        Columns that exist only in reads, such as ``_rowid``, and their types.

    Raises
    ------
    FilterError
        The filter is wrong; the message says how, and where.
    """
    written, text = _tree_of(source, schema, system)
    simple = simplify(bind(written, schema, system=system, text=text, test=True)[0])
    # Tests with a condition are fast and always succeed: run them first, others may rely on them.
    tests = sorted(
        merged([(term, one_column(term)) for term in conjuncts(simple)]),
        key=lambda test: test[1] is None,
    )
    terms = tuple(Term(expression=part, condition=test) for part, test in tests)
    return Filter(expression=simple, terms=terms, written=written)


def bind_value(
    source: str | pc.Expression | bytes,
    schema: LanceSchema,
    *,
    system: Mapping[str, pa.DataType] = NO_COLUMNS,
) -> Value:
    """Bind an expression of any type to a schema; see ``bind_filter``."""
    node, text = _tree_of(source, schema, system)
    bound, kind = bind(node, schema, system=system, text=text, test=False)
    return Value(expression=simplify(bound), type=kind, text=render(node))


def _as_type(values: Any, kind: Any) -> Any:
    """Cast values to the public type, which may be a dictionary."""
    if pa.types.is_dictionary(kind):
        encoded = dictionary_encoded(values.cast(kind.value_type))
        indices = encoded.indices.cast(kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=kind.ordered)
    return values.cast(kind)


def _tree_of(
    source: str | pc.Expression | bytes | Node,
    schema: LanceSchema,
    system: Mapping[str, pa.DataType],
) -> tuple[Node, str]:
    if isinstance(source, str):
        return parse(source), source
    if isinstance(source, Node):
        return source, ""
    if isinstance(source, pc.Expression):
        from glaive.expr.convert import convert_constants, from_arrow

        return convert_constants(from_arrow(source), Names(schema, system, "")), ""
    if isinstance(source, bytes):
        from glaive.expr.convert import read_substrait

        return read_substrait(source), ""
    raise OptionError(
        f"filter: expected a string, a pyarrow expression or Substrait bytes, found {source!r:.60}"
    )


def _too_large(text: str, error: CapacityError) -> FilterError:
    return FilterError(f"{_short(text)} cannot be computed for a row: {error}")


def _short(text: str) -> str:
    half = _MAX_MESSAGE_TEXT // 2
    return text if len(text) <= 2 * half else f"{text[:half]}…{text[-half:]}"


def _passing_rows(node: Node, batch: pa.RecordBatch) -> pa.BooleanArray:
    try:
        mask: Any = concat_arrays(list(batch_parts(partial(values, node), batch)))
    except CapacityError as error:
        raise _too_large(render(node), error) from None
    passing: pa.BooleanArray = known_true(mask)
    return passing
