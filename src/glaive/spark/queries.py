"""SQL over datasets: glaive reads only the columns and rows that the query needs.

Spark hides the columns of a query from Python sources, and its pushed filters are unsafe. So glaive
parses the query and makes a frame for each of its tables. Spark runs the user's text with these
frames.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal

from glaive.errors import MissingDependencyError, OptionError

try:
    import sqlglot
    from sqlglot import exp
except ImportError as error:
    raise MissingDependencyError(
        f'glaive.spark.sql needs sqlglot ({error}). Install it: pip install "glaive[spark]"'
    ) from error
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, functions
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from glaive.arrow.blocks import ascending, number_array
from glaive.arrow.chunked import as_numpy
from glaive.arrow.conditions import IsOneOf
from glaive.dataclass import dataclass
from glaive.format.field import quoted_name
from glaive.spark.api import cluster_cores, is_connect, is_set, read
from glaive.spark.cast import LONG_DIGITS
from glaive.spark.failures import as_glaive_errors, naming_columns
from glaive.spark.filters import Frame, push
from glaive.spark.frame import frame_schema, open_dataset, pinned, planner_bytes, stored_paths
from glaive.spark.grammar import Table, Words, version_after, with_versions
from glaive.spark.named_tables import NamedTables
from glaive.spark.options import Options, absolute, from_spark, spark_texts
from glaive.spark.planned_scan import (
    AGGREGATE_SETTING,
    Aggregate,
    Arithmetic,
    Constant,
    Leaf,
    PartialAggregates,
    Value,
    planned_scan,
    shown_name,
)
from glaive.spark.query_tables import (
    Link,
    TableUse,
    clause,
    column_path,
    conditions,
    is_given,
    links,
    select_span,
    table_uses,
    tested_columns,
)
from glaive.spark.source import Keys, among
from glaive.spark.types import MAX_DECIMAL_DIGITS
from glaive.spark.types import to_spark as spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset


# --- Queries with ``group by`` over one dataset: tasks aggregate rows, Spark the groups --
# glaive splits a query only if the answer is certainly the same. The query has one table and keys
# without floats, glaive evaluates all of ``where``, and types and rounding of aggregates are known.
# Spark determines the types from the query as the user wrote it.

INTEGERS = (ByteType, ShortType, IntegerType, LongType)

KEYS = (*INTEGERS, BooleanType, DateType, DecimalType, StringType, TimestampNTZType, TimestampType)
"""Types whose equal values are identical; floats have two zeros and many NaNs."""

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
"""Expressions that sqlglot writes as it read them; only these are evaluated per group."""

_OPERATORS: dict[Any, Literal["+", "-", "*"]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}

PREFIX = "_aggregate_"
"""Prefix of the names of columns of final aggregates."""


FLOAT_DIGITS = 11
"""Spark computes averages of decimals with at most so many digits as floats."""


@dataclass(frozen=True, slots=True)
class Final:
    """An aggregate of the query, computed from columns of partial aggregates.

    Parameters
    ----------
    kind
        Kind of the aggregate; ``avg`` is the quotient of two columns.
    columns
        Names of the columns.
    data_type
        Type of the result.
    """

    kind: str
    columns: tuple[str, ...]
    data_type: DataType


@dataclass(frozen=True, slots=True)
class GroupedQuery:
    """A select that glaive splits.

    Parameters
    ----------
    select
        The select with columns instead of its aggregates.
    alias
        Qualifier of columns of the table.
    partial
        The aggregates that tasks compute from rows.
    finals
        The aggregates that Spark computes from groups, by name of the column.
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
        """Return the select with names for its columns: the text before and after its table."""
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
    """Split the select of a table.

    Parameters
    ----------
    use
        The use of the table.
    schema
        Columns of the table.
    empty
        An empty frame with these columns, for types.

    Returns
    -------
    GroupedQuery or None
        ``None`` if the answer might differ.
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
    """Return whether a select reads one table, groups its rows, and names its columns."""
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
    """Return whether a select has quoted strings, or ``having`` or ``order by`` may name a
    result.
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
    """Return the parts of a select that are evaluated per group."""
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
        return data_type == StringType()  # without other collations
    if isinstance(data_type, DecimalType):
        return data_type.precision <= LONG_DIGITS
    return isinstance(data_type, KEYS)


def _partial(
    node: Any, alias: str, schema: StructType, empty: DataFrame
) -> list[tuple[Aggregate, DataType]] | None:
    """Return the aggregates that tasks compute for an aggregate, with their types."""
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
    if value is None or isinstance(value, Constant) or not _is_lossless(nodes, empty):
        return None
    summed: DataType = DecimalType(MAX_DECIMAL_DIGITS, value.scale)
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
    """Return the summed value: columns, constants, or arithmetic, recorded with its node."""
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


def _is_lossless(nodes: Sequence[tuple[Any, Arithmetic]], empty: DataFrame) -> bool:
    """Return whether Spark calculates with decimals and keeps all digits after the point."""
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
    """Return whether a select has only keys, aggregates, and names of its results left."""
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


MAX_ROWS = 10**9
"""Maximum rows of a dataset: with more, sums might need more digits than Spark gives them."""

LONG_COUNT = 20
"""Digits of a ``bigint``."""

SUM_DIGITS = 10
AVERAGE_DIGITS = 4
"""Digits that Spark adds to a decimal for its sum, and for its average."""


@dataclass(frozen=True, slots=True)
class GroupedFrame:
    """A replacement for a select of a query.

    Parameters
    ----------
    start, end
        Positions of the select within the query.
    before, after
        The new text, before and after the name of its table.
    frame
        That table.
    """

    start: int
    end: int
    before: str
    after: str
    frame: DataFrame


def grouped_frame(spark: SparkSession, query: str, side: Side) -> GroupedFrame | None:
    """Replace the select of a table by groups from tasks; Spark only analyses it.

    Returns
    -------
    GroupedFrame or None
        ``None`` if Spark must aggregate all rows: the answer might differ, or the session
        disables it.
    """
    use, (options, schema, dataset) = side.use, side.source
    wanted = is_set(spark, AGGREGATE_SETTING, "true") and not is_connect(spark)
    computed = _is_searched(options) or isinstance(options.columns, Mapping)
    if not wanted or not use.decided or computed or dataset.count_rows() > MAX_ROWS:
        return None
    filters, complete = _filters(use, side.source)
    span = select_span(query, use.table)
    # Without columns and filters, the metadata has the number of rows.
    if not complete or span is None or not (use.columns or filters):
        return None
    empty: Any = spark.createDataFrame([], schema).alias(use.table.alias_or_name)
    try:
        grouped = grouped_query(use, schema, empty)
        if grouped is None:
            return None
        written = _of_empty(spark, query, span, use, empty).schema
        columns = grouped.columns or use.columns or _narrowest(schema)
        needed = _planned(spark, options, columns, _conjunction(filters))
        groups = planned_scan(spark, needed, dataset, grouped.partial)
        if groups is None:
            return None
        finals = [_final(groups, final).alias(name) for name, final in grouped.finals.items()]
        frame: Any = groups.groupBy(*map(quoted_name, grouped.partial.keys)).agg(*finals)
        before, after = grouped.text(written.names)
        text = f"{_escaped(before)}{{frame}}{_escaped(after)}"
        found = spark.sql(text, frame=frame).schema
    except PySparkException:  # Spark refuses the query, and will tell the user
        return None
    if [field.dataType for field in found] != [field.dataType for field in written]:
        return None
    return GroupedFrame(*span, before, after, frame)


def _of_empty(
    spark: SparkSession, query: str, span: tuple[int, int], use: TableUse, empty: DataFrame
) -> DataFrame:
    """Run the select as written over an empty table."""
    name = use.table.this
    before, after = query[span[0] : name.meta["start"]], query[name.meta["end"] + 1 : span[1]]
    alias = "" if use.table.alias else f" AS {quoted_name(name.name)}"
    return spark.sql(f"{_escaped(before)}{{empty}}{alias}{_escaped(after)}", empty=empty)


def _escaped(text: str) -> str:
    """Escape placeholders of Spark in a text."""
    return text.replace("{", "{{").replace("}", "}}")


def _final(groups: DataFrame, final: Final) -> Column:
    """Return an aggregate of the query from columns of groups."""
    first = functions.col(final.columns[0])
    if final.kind == "count":
        return functions.coalesce(functions.sum(first), functions.lit(0).cast(LongType()))
    if final.kind in ("min", "max"):
        return functions.min(first) if final.kind == "min" else functions.max(first)
    if final.kind == "sum":
        return functions.sum(first).cast(final.data_type)
    data_type: Any = final.data_type
    stored: Any = groups.schema[final.columns[0]].dataType
    digits = data_type.precision - AVERAGE_DIGITS + SUM_DIGITS
    total = functions.sum(first).cast(DecimalType(digits, stored.scale))
    return _quotient(groups, total, functions.sum(final.columns[1]), data_type)


def _quotient(groups: DataFrame, total: Column, count: Column, data_type: Any) -> Column:
    """Divide sum and count of an average of decimals as Spark does."""
    session: Any = groups.sparkSession
    spark = session._jvm.org.apache.spark.sql  # noqa: SLF001  # no function of SQL does this
    bridge = spark.classic.ExpressionUtils
    ansi = is_set(session, "spark.sql.ansi.enabled")
    sides: list[Any] = [total, count.cast(DecimalType(LONG_COUNT, 0))]
    divided = spark.catalyst.expressions.DecimalDivideWithOverflowCheck(
        *(bridge.expression(side._jc) for side in sides),  # noqa: SLF001  # as above
        spark.types.DecimalType(data_type.precision, data_type.scale),
        None,
        not ansi,
    )
    return functions.when(count > 0, Column(bridge.column(divided)))


# --- Joins: the keys of a small side leave out rows of a large side ---------------------
# The driver reads the keys of the small side. Scans of the large side skip rows without these keys,
# so that Spark gets fewer rows. The result is the same.

JOIN_SETTING = "spark.glaive.joinKeys"
"""Setting of a session: with ``false``, scans return all rows that pass the tests of a query."""

MAX_KEYS = {True: 1 << 23, False: 1 << 21}
"""Maximum rows of the small side of a join, by whether its keys are integers."""

MAX_KEY_BYTES = 16 << 20
"""Maximum bytes of keys, except integers that are near each other: tasks make a bitset of them."""

MAX_KEY_DISTANCE = 64
"""Maximum average distance of integers that are near each other, as in bitsets."""

FEW_KEYS = 10_000
"""So few keys are sent even if all rows of the small side pass its tests."""

MIN_FACTOR = 4
"""Minimum rows of the large side per row of the small side."""

MERGED_DAYS = pa.array(range(-141_437, -141_426), pa.int32()).cast(pa.date32())
"""The days from 1582-10-05 to 1582-10-15: for Spark they are one day."""

MAX_SEARCHED_BYTES = {True: 512 << 20, False: 64 << 20}
"""Maximum bytes of columns that the driver reads for a count, or for keys; by whether the files are
local. A gigabyte takes about a second of one core, and a second or more of a network."""


@dataclass(slots=True)
class Side:
    """A table of a query: its rows, how many of them may matter, and the keys that they must have.

    Parameters
    ----------
    use, source
        The use of the table, and its options, columns and dataset.
    """

    use: TableUse
    source: tuple[Options, Any, Any]
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rows: int = 0
    passing: float = 0
    keys: tuple[Keys, ...] = ()

    @property
    def share(self) -> float:
        """The share of the rows that may matter."""
        return self.passing / self.rows if self.rows else 1.0

    def open(self) -> None:
        """Count the rows, and the rows that pass the tests, if few bytes tell."""
        pinned, _, dataset = self.source
        self.paths = stored_paths(dataset, pinned)
        self.rows = self.passing = dataset.count_rows()
        filters, _ = _filters(self.use, self.source)
        if filters and self._is_cheap():
            self.passing = dataset.count_rows(_conjunction(filters))

    def _is_cheap(self, *names: str) -> bool:
        """Return whether few bytes have the columns of the tests, and some others."""
        pinned, _, dataset = self.source
        names += tuple(name for test in self.use.tests for name in tested_columns(test))
        read = replace(pinned, columns=tuple(dict.fromkeys(names)))
        limit = MAX_SEARCHED_BYTES[dataset.store.is_local]
        return pinned.filter is None and planner_bytes(dataset, read) <= limit

    def values(self, name: str) -> Any:
        """Return the different values of a column in rows that may matter, if few bytes have them.

        ``None`` also for stored types whose values Spark may convert.
        """
        _, _, dataset = self.source
        path = self.paths.get(name, ())
        if len(path) != 1 or not self._is_cheap(name):
            return None
        filters, _ = _filters(self.use, self.source)
        rows = among(_conjunction(filters), self.keys)
        found = dataset.scanner(columns=list(path), filter=rows).to_table().column(0)
        kind, types = found.type, pa.types
        if types.is_integer(kind):
            numbers = ascending(as_numpy(found.drop_null()))
            fits = numbers.nbytes <= MAX_KEY_BYTES
            if not fits and len(numbers) <= MAX_KEYS[True]:
                distance = int(numbers[-1]) - int(numbers[0])
                fits = distance < MAX_KEY_DISTANCE * len(numbers)
            return number_array(numbers, kind) if fits else None
        exact = types.is_date32(kind) or types.is_decimal128(kind)
        if not exact and not types.is_string(kind) and not types.is_large_string(kind):
            return None
        values = found.unique().drop_null()
        merged = types.is_date32(kind) and IsOneOf(MERGED_DAYS).mask(values).true_count
        return None if merged or values.nbytes > MAX_KEY_BYTES else values


def _sides(
    spark: SparkSession,
    uses: Sequence[TableUse],
    linked: Sequence[Link],
    sources: Mapping[str, tuple[Options, Any, Any]],
) -> list[Side]:
    """Return the tables of a query, with the keys of smaller tables that they join."""
    sides = [Side(use, sources[use.name]) for use in uses]
    wanted = is_set(spark, JOIN_SETTING, "true")
    waiting = {at for link in linked for at in (link.source, link.target)} if wanted else set()
    waiting = {at for at in waiting if not _is_searched(sides[at].source[0])}
    for at in waiting:
        sides[at].open()
    links = [link for link in linked if {link.source, link.target} <= waiting]
    while waiting:
        at = min(waiting, key=lambda at: sides[at].passing)
        waiting.remove(at)
        small = sides[at]
        for link in links:
            if link.source == at and link.target in waiting:
                _send(small, link.key, sides[link.target], link.column)
    return sides


def _send(small: Side, key: str, large: Side, column: str) -> None:
    """Send the keys of a side to another side, if they are few and likely leave out rows."""
    path, schema = large.paths.get(column, ()), large.source[2].scanner().projected_schema
    types = zip(schema.names, schema.types, strict=True)
    kind = next((kind for name, kind in types if (name,) == path), None)
    few = small.passing <= FEW_KEYS or small.share <= 1 / 2
    if kind is None or not few or small.passing > MAX_KEYS[pa.types.is_integer(kind)]:
        return
    if small.passing * MIN_FACTOR > large.passing:
        return
    values = small.values(key)
    if values is None or values.type != kind or len(values) * MIN_FACTOR > large.passing:
        return
    large.keys += (Keys(path, values, shown_name(small.source[0].uri)),)
    large.passing = max(large.passing * small.share, min(large.passing, len(values)))


MAY_DIFFER = {
    "|>": None,  # sqlglot makes one select of steps that Spark evaluates one by one
    "${": None,  # Spark replaces it by a variable, even within a string
    "\\\n": None,  # Spark continues a comment in the next line
    '"': "spark.sql.ansi.doubleQuotedIdentifiers",
    "`": "spark.sql.parser.quotedRegexColumnNames",
    "\\": "spark.sql.parser.escapedStringLiterals",
}
"""Signs that Spark may parse differently than sqlglot, and the settings that decide."""


def run_query(tables: NamedTables, query: str) -> DataFrame:
    """Run a query.

    Parameters
    ----------
    tables
        The tables that the query may name.
    query
        The text of the query.

    Raises
    ------
    OptionError
        The text is not one query.
    """
    spark = tables.spark
    query = with_versions(query)
    statement = _parsed(query)
    given = dict(tables.given)
    if not isinstance(statement, exp.Query):
        if any(tables.knows(Table(_parts(node))) for node in statement.find_all(exp.Table)):
            raise OptionError(
                f"query: expected a query, found {type(statement).__name__.upper()}. Write WITH "
                "after INSERT INTO and the table, or within USING (…)"
            )
        with as_glaive_errors():
            return spark.sql(query)
    try:
        pieces, frames, columns = _with_frames(tables, query, statement, given)
    except RecursionError:
        raise _too_deep() from None
    names = {one.alias_or_name.lower() for one in statement.find_all(exp.Table)}
    with naming_columns(columns, "the query", names), as_glaive_errors():
        return spark.sql(pieces, **frames)


def exact_filter(
    tables: NamedTables, dataset: LanceDataset, alias: str, condition: str
) -> str | None:
    """Return a filter that selects exactly the rows for which a condition of Spark is true.

    Parameters
    ----------
    alias
        Qualifier of columns of the dataset.

    Returns
    -------
    str or None
        ``None`` if only Spark can evaluate the condition.
    """
    spark = tables.spark
    if _may_differ(spark, condition) or is_set(spark, "spark.sql.caseSensitive"):
        return None
    try:
        parsed = sqlglot.parse_one(condition, dialect="spark")
    except (sqlglot.errors.SqlglotError, RecursionError):
        return None
    whole = Options(uri=dataset.uri)
    schema = spark_schema(frame_schema(dataset, whole))
    tests, decided = conditions(parsed, alias, schema)
    if not decided or parsed.find(exp.Query) is not None:
        return None
    pushed = push(tests, Frame.of(schema, dataset, whole))
    return _conjunction(pushed.filters) if pushed.complete else None


def tables_in(query: str) -> set[str]:
    """Return the names of tables and views in a query, in lower case, including its ``WITH``.

    Raises
    ------
    MissingDependencyError
        sqlglot is not installed.
    OptionError
        The statement is not a query.
    """
    statement = _parsed(query)
    if not isinstance(statement, exp.Query):
        raise OptionError(f"query: expected a query, found {type(statement).__name__.upper()}")
    return {table.name.lower() for table in statement.find_all(exp.Table)}


def _parsed(query: str) -> Any:
    """Parse a text of one statement."""
    # sqlglot takes a parameter named select for a query; positions must stay.
    readable = re.sub(r"(?i)([(,]\s*)select(?=\s*=>)", r"\1chosen", query)
    try:
        statements = sqlglot.parse(readable, dialect="spark")
    except sqlglot.errors.SqlglotError as error:
        raise OptionError(f"query: {error}") from error
    except RecursionError:
        raise _too_deep() from None
    if len(statements) != 1 or statements[0] is None:
        raise OptionError(f"query: expected one statement, found {len(statements)}")
    return statements[0]


def _too_deep() -> OptionError:
    return OptionError(
        "query: it is nested too deeply to be parsed. Use fewer brackets, subqueries and CASE "
        "within each other, or name parts of it by WITH"
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a query names a table: the position of its name, and the alias that it needs."""

    start: int
    stop: int
    alias: str = ""


def _parts(node: Any) -> tuple[str, ...]:
    return tuple(part.name for part in node.parts) or ("",)


def _places(
    tables: NamedTables, query: str, statement: Any, given: dict[str, dict[str, Any]]
) -> tuple[dict[int, Place], dict[int, str]]:
    """Find the tables of a query; return their places and their names in ``given``, by node.

    The names are of tables with several parts or a version. Add their options to ``given``.
    """
    places: dict[int, Place] = {}
    named: dict[int, str] = {}
    read: Words | None = None
    for node in statement.find_all(exp.Table):
        parts = node.parts
        if not parts or any("start" not in part.meta for part in parts):
            continue
        table = Table(_parts(node))
        if not tables.knows(table) or (len(parts) == 1 and not is_given(node, given)):
            continue
        stop = parts[-1].meta["end"] + 1
        if node.args.get("version"):
            read = read or Words.of(query)
            at = next((n for n, word in enumerate(read.words) if word.start >= stop), 0)
            after, version = version_after(read, at)
            if version is not None:
                table, stop = replace(table, version=version), read.words[after - 1].stop
        has_alias = node.alias or _is_sampled(node) or table.parts[0].lower() == "lance"
        alias = "" if has_alias else f" AS {quoted_name(parts[-1].name)}"
        places[id(node)] = Place(parts[0].meta["start"], stop, alias)
        if len(parts) > 1 or table.version is not None:
            named[id(node)] = name = f"{'.'.join(table.parts)} {table.version}"
            if name not in given:
                given[name] = tables.options(table)
    return places, named


def _with_frames(
    tables: NamedTables, query: str, statement: Any, given: dict[str, dict[str, Any]]
) -> tuple[str, dict[str, Any], list[str]]:
    """Return the query with a placeholder per table, the frames, and columns of all datasets."""
    spark = tables.spark
    places, by_path = _places(tables, query, statement, given)
    used = {node.name.lower() for node in statement.find_all(exp.Table) if id(node) in places}
    used.update(by_path.values())
    sources = {name: _open(options) for name, options in given.items() if name in used}
    schemas = {name: schema for name, (_, schema, _) in sources.items()}
    uses = table_uses(statement, query, schemas, by_path)
    if _may_differ(spark, query) or _mixes_names(spark, statement, schemas):
        uses = [use.whole(schemas[use.name]) for use in uses]
        linked: list[Link] = []
    else:
        linked = links(uses, schemas, by_path)
    sides = _sides(spark, uses, linked, sources)
    frames: dict[str, Any] = {}
    known: dict[object, str] = {}
    pieces, done = [], 0
    for side in sorted(sides, key=lambda side: places[id(side.use.table)].start):
        use = side.use
        # Spark runs equal parts of a query once, if they read the same frame.
        equal = use.name, use.columns, repr(use.tests), *(id(keys) for keys in side.keys)
        placeholder = known.setdefault(equal, f"glaive_{len(frames)}")
        grouped = grouped_frame(spark, query, side)
        if grouped is not None:
            placeholder = f"glaive_groups_{len(frames)}"
            frames[placeholder] = grouped.frame
            pieces += [_escaped(query[done : grouped.start] + grouped.before)]
            pieces += [f"{{{placeholder}}}", _escaped(grouped.after)]
            done = grouped.end
            continue
        if placeholder not in frames:
            frames[placeholder] = _frame(spark, side, given[use.name])
        place = places[id(use.table)]
        pieces += [_escaped(query[done : place.start]), f"{{{placeholder}}}", place.alias]
        done = place.stop
    columns = [column for schema in schemas.values() for column in schema.names]
    return "".join([*pieces, _escaped(query[done:])]), frames, columns


def _may_differ(spark: SparkSession, query: str) -> bool:
    """Return whether Spark may parse a query differently than sqlglot did."""
    return any(
        sign in query and (setting is None or is_set(spark, setting))
        for sign, setting in MAY_DIFFER.items()
    )


def _mixes_names(spark: SparkSession, statement: Any, schemas: Mapping[str, Any]) -> bool:
    """Return whether the session distinguishes names that differ in case only."""
    if not is_set(spark, "spark.sql.caseSensitive"):
        return False
    names = {name for schema in schemas.values() for name in schema.names}
    names |= {identifier.name for identifier in statement.find_all(exp.Identifier)}
    return len({name.lower() for name in names}) < len(names)


def _is_sampled(table: Any) -> bool:
    """Return whether ``TABLESAMPLE`` follows; an alias must come after it."""
    return bool(table.args.get("sample")) or type(table.parent).__name__ == "TableSample"


def _open(options: Mapping[str, Any]) -> tuple[Options, Any, Any]:
    """Return options with a pinned version, the columns as Spark sees them, and the dataset."""
    others = {name: value for name, value in options.items() if name != "uri"}
    if "storage_options" in others:
        others["storage"] = others.pop("storage_options")
    checked = from_spark(spark_texts(others) | {"path": absolute(options["uri"])})
    dataset = open_dataset(checked)
    return pinned(checked, dataset), spark_schema(frame_schema(dataset, checked)), dataset


def _is_searched(pinned: Options) -> bool:
    """Return whether the rows of a table are the result of a search."""
    searches = pinned.order_by or pinned.nearest or pinned.full_text_query
    return bool(searches or pinned.limit is not None)


def _filters(use: TableUse, source: tuple[Options, Any, Any]) -> tuple[list[str], bool]:
    """Return the filter of a scan for a table, in parts, and whether it has all tests."""
    pinned, schema, dataset = source
    own = [pinned.filter] if pinned.filter else []
    if _is_searched(pinned):
        return own, not use.tests
    pushed = push(use.tests, Frame.of(schema, dataset, pinned))
    return [*own, *pushed.filters], pushed.complete


def _conjunction(filters: Sequence[str]) -> str | None:
    return " and ".join(f"({text})" for text in filters) or None


def _planned(
    spark: SparkSession, pinned: Options, columns: Any, filter_text: str | None
) -> Options:
    """Return the options of a scan, planned for the cores of the cluster."""
    cores = pinned.parallelism if pinned.parallelism is not None else cluster_cores(spark)
    return replace(pinned, columns=columns, filter=filter_text, parallelism=cores)


def _frame(spark: SparkSession, side: Side, options: Mapping[str, Any]) -> DataFrame:
    """Return the frame of one table of a query."""
    use, (pinned, schema, dataset) = side.use, side.source
    searched = _is_searched(pinned)
    filters, _ = _filters(use, side.source)
    if not use.columns and not filters and not searched:
        return spark.range(dataset.count_rows()).toDF("_row")
    columns = pinned.selected(use.columns or _narrowest(schema))
    filter_text = _conjunction(filters)
    if not searched:
        planned = _planned(spark, pinned, columns, filter_text)
        frame = planned_scan(spark, planned, dataset, keys=side.keys, share=side.share)
        if frame is not None:
            return frame
    rest = {
        name: value
        for name, value in options.items()
        if name not in ("columns", "filter", "version", "branch", "tag", "asof")
    }
    return read(
        spark,
        columns=columns,
        filter=filter_text,
        version=pinned.version,
        branch=pinned.branch,
        **rest,
    )


def _narrowest(schema: Any) -> tuple[str, ...]:
    """Return a column that is cheap to read."""
    narrow = (BooleanType, DateType, NumericType)
    return (min(schema, key=lambda field: not isinstance(field.dataType, narrow)).name,)
