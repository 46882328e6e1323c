"""What a condition of a query says of the rows of one table: tests of single columns.

Spark evaluates the condition as it is. A test is taken from it only where it follows by logic
alone, and compares with a constant that is written as such: what Spark calculates is not calculated
here, as its types have other digits.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)
from sqlglot import exp

from glaive.spark.column_tests import Compared
from glaive.spark.versions import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

__all__ = ["column_path", "conditions"]

COMPARISONS: dict[Any, tuple[type[Filter], type[Filter]]] = {
    exp.EQ: (EqualTo, EqualTo),
    exp.GT: (GreaterThan, LessThan),
    exp.GTE: (GreaterThanOrEqual, LessThanOrEqual),
    exp.LT: (LessThan, GreaterThan),
    exp.LTE: (LessThanOrEqual, GreaterThanOrEqual),
}
"""Comparisons, and what they are with their sides exchanged."""

NEGATED: dict[Any, Any] = {
    exp.NEQ: exp.EQ,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
}
"""Comparisons that hold where others are false; neither holds for null."""

HIGHEST: dict[type[DataType], int] = {
    ByteType: 2**7 - 1,
    ShortType: 2**15 - 1,
    IntegerType: 2**31 - 1,
    LongType: 2**63 - 1,
}
"""The highest value of each type of integers."""

_MOST_DIGITS = 100
"""Characters of a number that may be a value of a column: decimals have 38 digits."""

_DAYS = {"DAY": 1, "WEEK": 7}
_MONTHS = {"MONTH": 1, "YEAR": 12}
"""Units of intervals, without the s of a plural."""


def conditions(
    condition: Any, alias: str, schema: StructType
) -> tuple[list[Filter | Compared], bool]:
    """Tests of a table that hold wherever a condition does, and whether these are all of it.

    Parameters
    ----------
    condition
        Parsed; it is not changed.
    alias
        What columns of the table may be qualified with.
    schema
        Its columns.
    """
    tests, decided = [], True
    for part in _conjuncts(condition, negated=False):
        test = _test(part, alias, schema)
        if test is not None:
            tests.append(test)
        if test is None or isinstance(part, exp.Like):  # of which only prefixes are tested
            decided = False
    return tests, decided


def _conjuncts(condition: Any, *, negated: bool) -> Iterator[Any]:
    """The parts of a condition, or of its opposite, of which all have to hold."""
    if isinstance(condition, exp.Paren):
        yield from _conjuncts(condition.this, negated=negated)
    elif isinstance(condition, exp.Not):
        yield from _conjuncts(condition.this, negated=not negated)
    elif isinstance(condition, exp.Or if negated else exp.And):
        for part in condition.flatten():
            yield from _conjuncts(part, negated=negated)
    elif isinstance(condition, exp.And | exp.Or):
        first, *others = (list(_conjuncts(part, negated=negated)) for part in condition.flatten())
        common = set(first).intersection(*others)
        yield from (part for part in first if part in common)
        yield condition  # which says more
    elif isinstance(condition, exp.Between) and not negated and not condition.args.get("symmetric"):
        low, high = condition.args["low"], condition.args["high"]
        yield exp.GTE(this=condition.this.copy(), expression=low.copy())
        yield exp.LTE(this=condition.this.copy(), expression=high.copy())
    elif negated and type(condition) in NEGATED:
        kind = NEGATED[type(condition)]
        yield kind(this=condition.left.copy(), expression=condition.right.copy())
    else:
        yield exp.Not(this=condition.copy()) if negated else condition


def _test(part: Any, alias: str, schema: StructType) -> Filter | Compared | None:
    if isinstance(part, exp.Paren):
        return _test(part.this, alias, schema)
    if part.args.get("negate"):  # NOT LIKE: some versions of sqlglot do not make a Not of it
        return None
    if type(part) in COMPARISONS:
        straight, exchanged = COMPARISONS[type(part)]
        for column, constant, kind in (
            (part.left, part.right, straight),
            (part.right, part.left, exchanged),
        ):
            path = column_path(column, alias, schema)
            value = None if path is None else _constant(constant, schema[path[0]].dataType)
            if path is not None and value is not None:
                return kind(path, value)  # type: ignore[call-arg]  # all of them take these two
        first, second = (column_path(side, alias, schema) for side in (part.left, part.right))
        return None if first is None or second is None else Compared(first, second, straight)
    if isinstance(part, exp.Not):
        asked = part.this
        is_null = isinstance(asked, exp.Is) and isinstance(asked.expression, exp.Null)
        is_null = is_null and not asked.args.get("negate")
        path = column_path(asked.this, alias, schema) if is_null else None
        return None if path is None else IsNotNull(path)
    path = column_path(part.this, alias, schema)
    if path is None:
        return None
    if isinstance(part, exp.In) and part.expressions and not part.args.get("query"):
        values = [_constant(value, schema[path[0]].dataType) for value in part.expressions]
        return None if None in values else In(path, tuple(values))
    if isinstance(part, exp.Like) and isinstance(schema[path[0]].dataType, StringType):
        return _prefix(part, path)
    return None


def column_path(node: Any, alias: str, schema: StructType) -> tuple[str] | None:
    """The column that a node names, if it is one of the table.

    A name without a table is the table's, if it has such a column, or Spark refuses the query.
    """
    if not isinstance(node, exp.Column) or node.args.get("db") is not None:
        return None
    if node.table and node.table.lower() != alias.lower():
        return None
    matching = [name for name in schema.names if name.lower() == node.name.lower()]
    return (matching[0],) if len(matching) == 1 else None


def _prefix(like: Any, path: tuple[str]) -> Filter | None:
    pattern = like.expression
    if like.args.get("escape") or not isinstance(pattern, exp.Literal) or not pattern.is_string:
        return None
    prefix = pattern.this.split("%")[0]
    if not prefix or "_" in prefix or "\\" in prefix:
        return None
    return StringStartsWith(path, prefix)


def _constant(node: Any, data_type: DataType) -> Any:
    """The value that Spark compares a column of a type with; ``None`` if that is not certain."""
    if isinstance(node, exp.Neg):
        value = _constant(node.this, data_type)
        return -value if isinstance(value, int | float | Decimal) else None
    if isinstance(node, exp.Cast | exp.Add | exp.Sub):
        return _date(node) if isinstance(data_type, DateType) else None
    if isinstance(node, exp.Boolean) and isinstance(data_type, BooleanType):
        return bool(node.this)
    if not isinstance(node, exp.Literal):
        return None
    text = node.this
    if node.is_string:
        if isinstance(data_type, DateType):
            return _day(text)
        return text if isinstance(data_type, StringType) else None
    if len(text) > _MOST_DIGITS or not text.replace(".", "", 1).isdecimal():  # or exponents
        return None
    if type(data_type) in HIGHEST:
        return int(text) if text.isdecimal() and int(text) <= HIGHEST[type(data_type)] else None
    if isinstance(data_type, DecimalType):
        return _decimal(text, data_type)
    return float(text) if isinstance(data_type, DoubleType) else None


def _decimal(text: str, data_type: DecimalType) -> Decimal | None:
    """A number with the digits of a column, if it has no more."""
    whole, _, fraction = text.partition(".")
    digits = data_type.precision - data_type.scale
    if len(fraction.rstrip("0")) > data_type.scale or len(whole.lstrip("0")) > digits:
        return None
    return Decimal(f"{whole or 0}.{fraction[: data_type.scale]:0<{data_type.scale}}")


def _date(node: Any) -> date | None:
    """A date that is written as such, and intervals of whole days or months added to it."""
    if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE:
        text = node.this
        return _day(text.this) if isinstance(text, exp.Literal) and text.is_string else None
    if not isinstance(node, exp.Add | exp.Sub) or not isinstance(node.expression, exp.Interval):
        return None
    start, number = _date(node.this), node.expression.this
    unit = node.expression.args.get("unit")
    if start is None or not isinstance(number, exp.Literal) or not isinstance(unit, exp.Var):
        return None
    if len(number.this) > len("9999999") or not number.this.isdecimal():
        return None
    count = int(number.this) * (-1 if isinstance(node, exp.Sub) else 1)
    name = unit.name.upper().removesuffix("S")
    try:
        if name in _DAYS:
            return start + timedelta(days=count * _DAYS[name])
        return _months_later(start, count * _MONTHS[name]) if name in _MONTHS else None
    except (ValueError, OverflowError):  # outside of the years 1 to 9999
        return None


def _months_later(start: date, months: int) -> date:
    """The same day of another month, or its last one."""
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    return date(year, month + 1, min(start.day, monthrange(year, month + 1)[1]))


def _day(text: str) -> date | None:
    if len(text) != len("2026-01-31") or text[4] + text[7] != "--":  # such as 2026-W05-6
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
