"""Queries with ``group by`` over one dataset: each task aggregates its rows, Spark the groups.

A query is taken apart only where the answer is certain to be the same: one table, keys without
floats, all of ``where`` evaluated by glaive, and aggregates whose types and rounding are known. The
types are those that Spark gives to the query as the user wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from sqlglot import exp

from glaive.dataclass import dataclass
from glaive.format.column_path import quoted_name
from glaive.spark.partial_aggregates import (
    WIDE_DIGITS,
    Aggregate,
    Arithmetic,
    Constant,
    Leaf,
    PartialAggregates,
    Value,
)
from glaive.spark.query_conditions import column_path
from glaive.spark.query_tables import TableUse, clause
from glaive.spark.unscaled import LONG_DIGITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Final", "GroupedQuery", "grouped_query"]

INTEGERS = (ByteType, ShortType, IntegerType, LongType)

KEYS = (*INTEGERS, BooleanType, DateType, DecimalType, StringType, TimestampNTZType, TimestampType)
"""Types whose equal values are one and the same; floats have two zeros and many NaNs."""

_PARTS = {"expressions", "from", "where", "group", "having", "order", "limit"}

_NODES = (
    exp.Add,
    exp.Alias,
    exp.And,
    exp.Avg,
    exp.Boolean,
    exp.Column,
    exp.Count,
    exp.EQ,
    exp.GT,
    exp.GTE,
    exp.Identifier,
    exp.LT,
    exp.LTE,
    exp.Literal,
    exp.Max,
    exp.Min,
    exp.Mod,
    exp.Mul,
    exp.NEQ,
    exp.Not,
    exp.Or,
    exp.Ordered,
    exp.Paren,
    exp.Star,
    exp.Sub,
    exp.Sum,
)
"""What is evaluated for each group may consist of these: sqlglot writes them as it read them."""

_OPERATORS: dict[Any, Literal["+", "-", "*"]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}

PREFIX = "_aggregate_"
"""How columns of final aggregates are named."""


FLOAT_DIGITS = 11
"""Spark computes averages of decimals with so many digits, or fewer, as floats."""


@dataclass(frozen=True, slots=True)
class Final:
    """An aggregate of the query, made from columns of partial ones.

    Parameters
    ----------
    kind
        ``avg`` is the quotient of two columns.
    columns
        Their names.
    data_type
        Of the result.
    """

    kind: str
    columns: tuple[str, ...]
    data_type: DataType


@dataclass(frozen=True, slots=True)
class GroupedQuery:
    """A select that is taken apart.

    Parameters
    ----------
    select
        Without its aggregates: columns stand for them.
    alias
        What columns of the table may be qualified with.
    partial
        What tasks make of rows.
    finals
        What Spark makes of groups: the aggregates, by the names of the columns.
    """

    select: Any
    alias: str
    partial: PartialAggregates
    finals: dict[str, Final]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that tasks read."""
        names = dict.fromkeys(self.partial.keys)
        for aggregate in self.partial.aggregates:
            names |= dict.fromkeys(_names(aggregate.value))
        return tuple(names)

    def text(self, names: Sequence[str]) -> tuple[str, str]:
        """The select with names for its columns, before and after that of its table."""
        shown = [_text(node.unalias()) for node in self.select.expressions]
        parts = [f"{sql} AS {quoted_name(name)}" for sql, name in zip(shown, names, strict=True)]
        rest = [f"AS {quoted_name(self.alias)}"]
        having = self.select.args.get("having")
        if having is not None:
            rest.append(f"WHERE {_text(having.this)}")
        clauses = [self.select.args.get(name) for name in ("order", "limit")]
        rest += [_text(part).strip() for part in clauses if part is not None]
        before = ("SELECT", ", ".join(parts), "FROM ")
        return " ".join(before), " " + " ".join(rest)


def _text(node: Any) -> str:
    text: str = node.sql(dialect="spark")
    return text


def _names(value: Value | None) -> list[str]:
    if isinstance(value, Leaf):
        return [value.name]
    if isinstance(value, Arithmetic):
        return _names(value.left) + _names(value.right)
    return []


def grouped_query(use: TableUse, schema: StructType, empty: DataFrame) -> GroupedQuery | None:
    """Take the select of a table apart.

    Parameters
    ----------
    use
        The place of the table.
    schema
        Its columns.
    empty
        A frame without rows of these columns, which tells types.

    Returns
    -------
    GroupedQuery or None
        ``None`` if the answer might be another one.
    """
    select = use.table.find_ancestor(exp.Select)
    if select is None or not use.decided or not _is_simple(select, use.table):
        return None
    if _is_ambiguous(select):
        return None
    made, alias = select.copy(), use.table.alias_or_name
    keys = _keys(made, alias, schema)
    found = [node for part in _selected(made) for node in part.find_all(exp.AggFunc)]
    if keys is None or not found:
        return None
    types = [field.dataType for field in empty.selectExpr(*map(_text, found)).schema]
    partial: dict[Aggregate, StructField] = {}
    finals: dict[str, Final] = {}
    for number, (node, data_type) in enumerate(zip(found, types, strict=True)):
        parts = _partial(node, alias, schema, empty)
        if parts is None:
            return None
        for aggregate, kind in parts:
            name = f"{PREFIX}part_{len(partial)}"
            partial.setdefault(aggregate, StructField(name, kind))
        columns = tuple(partial[aggregate].name for aggregate, _ in parts)
        name = f"{PREFIX}{number}"
        finals[name] = Final(type(node).__name__.lower(), columns, data_type)
        node.replace(exp.column(name, quoted=True))
    if not _columns_remain(made, alias, keys, schema):
        return None
    fields = [schema[name] for name in keys] + list(partial.values())
    aggregates = PartialAggregates(keys, tuple(partial), StructType(fields))
    return GroupedQuery(made, alias, aggregates, finals)


def _is_simple(select: Any, table: Any) -> bool:
    """Whether it reads one table, groups its rows, and names its columns one by one."""
    parts = {name.rstrip("_") for name, part in select.args.items() if part}
    source = clause(select, "from")
    group = select.args.get("group")
    return (
        type(select) is exp.Select
        and parts <= _PARTS
        and not any(isinstance(node.unalias(), exp.Star) for node in select.expressions)
        and not isinstance(select.parent, exp.SetOperation)
        and source is not None
        and source.this is table
        and {name for name, part in table.args.items() if part} <= {"this", "alias"}
        and (
            group is None or {name for name, part in group.args.items() if part} == {"expressions"}
        )
        and all(isinstance(node, _NODES) for part in _selected(select) for node in part.walk())
    )


def _is_ambiguous(select: Any) -> bool:
    """Whether it has quoted text, or a name in ``having`` or in an aggregate of ``order by`` may be
    that of a result.
    """
    if any(node.is_string for part in _selected(select) for node in part.find_all(exp.Literal)):
        return True
    results = {
        node.alias.lower()
        for node in select.expressions
        if isinstance(node, exp.Alias) and node.this.name.lower() != node.alias.lower()
    }
    having, order = select.args.get("having"), select.args.get("order")
    among = [] if having is None else [having]
    among += [] if order is None else list(order.find_all(exp.AggFunc))
    return any(node.name.lower() in results for part in among for node in part.find_all(exp.Column))


def _selected(select: Any) -> list[Any]:
    """The parts of a select that are evaluated for each group."""
    parts = list(select.expressions)
    if (having := select.args.get("having")) is not None:
        parts.append(having.this)
    if (order := select.args.get("order")) is not None:
        parts += order.expressions
    if (limit := select.args.get("limit")) is not None:
        parts.append(limit.expression)
    return parts


def _keys(select: Any, alias: str, schema: StructType) -> tuple[str, ...] | None:
    group = select.args.get("group")
    keys: dict[str, None] = {}
    for node in () if group is None else group.expressions:
        path = column_path(node, alias, schema) if isinstance(node, exp.Column) else None
        if path is None or not _is_key(schema[path[0]].dataType):
            return None
        keys[path[0]] = None
    return tuple(keys)


def _is_key(data_type: DataType) -> bool:
    if isinstance(data_type, StringType):
        return data_type == StringType()  # not of another collation
    if isinstance(data_type, DecimalType):
        return data_type.precision <= LONG_DIGITS
    return isinstance(data_type, KEYS)


def _partial(
    node: Any, alias: str, schema: StructType, empty: DataFrame
) -> list[tuple[Aggregate, DataType]] | None:
    """What tasks have to find out for an aggregate, with the types of the results."""
    counts_rows = isinstance(node, exp.Count) and isinstance(node.this, exp.Star | exp.Literal)
    if counts_rows and not node.expressions:
        return [(Aggregate("count", None), LongType())]
    path = column_path(node.this, alias, schema)
    if path is not None and not node.expressions and not isinstance(node, exp.Sum | exp.Avg):
        kind: Any = type(node).__name__.lower()
        if kind == "count":
            return [(Aggregate(kind, Leaf(path[0])), LongType())]
        data_type = schema[path[0]].dataType
        return [(Aggregate(kind, Leaf(path[0])), data_type)] if _is_key(data_type) else None
    if not isinstance(node, exp.Sum | exp.Avg):
        return None
    nodes: list[tuple[Any, Arithmetic]] = []
    value = _value(node.this, alias, schema, nodes)
    if value is None or isinstance(value, Constant) or not _loses_nothing(nodes, empty):
        return None
    summed: DataType = DecimalType(WIDE_DIGITS, value.scale)
    if isinstance(value, Leaf):
        data_type = schema[value.name].dataType
        is_decimal = isinstance(data_type, DecimalType)
        summed = DecimalType(LONG_DIGITS, value.scale) if is_decimal else LongType()
        if isinstance(node, exp.Avg) and not (
            isinstance(data_type, DecimalType) and data_type.precision > FLOAT_DIGITS
        ):
            return None
    elif isinstance(node, exp.Avg):
        return None
    parts: list[tuple[Aggregate, DataType]] = [(Aggregate("sum", value), summed)]
    if isinstance(node, exp.Avg):
        parts.append((Aggregate("count", value), LongType()))
    return parts


def _value(
    node: Any, alias: str, schema: StructType, nodes: list[tuple[Any, Arithmetic]]
) -> Value | None:
    """What is added up: columns, constants, and arithmetic, which is noted with its node."""
    if isinstance(node, exp.Paren):
        return _value(node.this, alias, schema, nodes)
    if isinstance(node, exp.Literal):
        whole, _, fraction = node.this.partition(".")
        if node.is_string or not f"{whole}{fraction}".isdecimal():
            return None
        fits = len(whole) + len(fraction) <= LONG_DIGITS
        return Constant(int(whole + fraction), len(fraction)) if fits else None
    if isinstance(node, exp.Column):
        path = column_path(node, alias, schema)
        data_type = None if path is None else schema[path[0]].dataType
        if path is None or not isinstance(data_type, (*INTEGERS, DecimalType)):
            return None
        if not isinstance(data_type, DecimalType):
            return Leaf(path[0])
        return Leaf(path[0], data_type.scale) if data_type.precision <= LONG_DIGITS else None
    if type(node) not in _OPERATORS:
        return None
    left = _value(node.left, alias, schema, nodes)
    right = _value(node.right, alias, schema, nodes)
    if left is None or right is None:
        return None
    value = Arithmetic(_OPERATORS[type(node)], left, right)
    nodes.append((node, value))
    return value


def _loses_nothing(nodes: Sequence[tuple[Any, Arithmetic]], empty: DataFrame) -> bool:
    """Whether Spark calculates with decimals and keeps all digits after the point."""
    if not nodes:
        return True
    types = [
        field.dataType for field in empty.selectExpr(*(_text(node) for node, _ in nodes)).schema
    ]
    return all(
        isinstance(data_type, DecimalType) and data_type.scale == value.scale
        for data_type, (_, value) in zip(types, nodes, strict=True)
    )


def _columns_remain(select: Any, alias: str, keys: Sequence[str], schema: StructType) -> bool:
    """Whether all that is left of a select are keys, aggregates, and names of its results."""
    results = {node.alias.lower() for node in select.expressions if isinstance(node, exp.Alias)}
    for part in _selected(select):
        for node in part.find_all(exp.Column):
            if node.name.startswith(PREFIX):
                continue
            if isinstance(part, exp.Ordered) and not node.table and node.name.lower() in results:
                continue
            path = column_path(node, alias, schema)
            if path is None or path[0] not in keys:
                return False
    return not any(name.lower().startswith(PREFIX) for name in schema.names)
