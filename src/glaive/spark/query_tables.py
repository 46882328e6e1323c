"""What a query needs of each table: columns, and tests that its rows have to pass.

Both are supersets: a column that is named anywhere counts for every table that has one of this
name, unless it is named as that of another table (``a.id``), and a test is only taken where Spark
would drop the rows that fail it. Spark evaluates the query as it is.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import Any

from pyspark.sql.datasource import (
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
from sqlglot import TokenType, exp, tokenize
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.simplify import simplify

from glaive.dataclass import dataclass
from glaive.spark.column_tests import Compared

__all__ = ["TableUse", "clause", "column_path", "is_given", "select_span", "table_uses"]

COMPARISONS: dict[Any, tuple[type[Filter], type[Filter]]] = {
    exp.EQ: (EqualTo, EqualTo),
    exp.GT: (GreaterThan, LessThan),
    exp.GTE: (GreaterThanOrEqual, LessThanOrEqual),
    exp.LT: (LessThan, GreaterThan),
    exp.LTE: (LessThanOrEqual, GreaterThanOrEqual),
}
"""Comparisons, and what they are with their sides exchanged."""

HIGHEST: dict[type[DataType], int] = {
    ByteType: 2**7 - 1,
    ShortType: 2**15 - 1,
    IntegerType: 2**31 - 1,
    LongType: 2**63 - 1,
}
"""The highest value of each type of integers."""

_MOST_SIMPLIFIED = 200
"""Words AND and OR of a condition that is simplified, which takes the square of their number."""

_MOST_DIGITS = 100
"""Characters of a number that may be a value of a column: decimals have 38 digits."""


@dataclass(frozen=True, slots=True)
class TableUse:
    """One place of a query where a table stands.

    Parameters
    ----------
    table
        The node of the query.
    name
        Name of the table among those given.
    columns
        The columns that may be needed, in the order of the table.
    tests
        Tests that all rows have to pass which the query needs.
    decided
        Whether these are all that ``where`` says of the rows.
    """

    table: Any
    name: str
    columns: tuple[str, ...]
    tests: tuple[Filter | Compared, ...]
    decided: bool = False


def table_uses(
    query: Any, schemas: Mapping[str, StructType], by_path: Mapping[int, str]
) -> list[TableUse]:
    """Find the tables of a query.

    Parameters
    ----------
    query
        Parsed; it is not changed.
    schemas
        The columns of each table, by lower-case name.
    by_path
        Names of the tables that the query names by their paths, by the identity of their nodes.
    """
    named = _named(query)
    # The columns of a natural join are not named.
    unnamed = any(join.method == "NATURAL" for join in query.find_all(exp.Join))
    uses = []
    for table in query.find_all(exp.Table):
        if id(table) not in by_path and not is_given(table, schemas):
            continue
        name = by_path.get(id(table)) or table.name.lower()
        schema = schemas[name]
        select = table.find_ancestor(exp.Select)
        renamed = bool(table.alias_column_names)
        whole = unnamed or renamed or select is None or _selects_all(select, table)
        wanted = named.get("", set()) | named.get(table.alias_or_name.lower(), set())
        columns = tuple(field for field in schema.names if whole or field.lower() in wanted)
        tests, decided = ([], False) if select is None else _tests(select, table, schema)
        uses.append(TableUse(table, name, columns, tuple(tests), decided))
    return uses


def is_given(table: Any, names: Container[str]) -> bool:
    """Whether a table is one of those given; others are tables, views and queries of Spark.

    Parameters
    ----------
    table
        The node of the query.
    names
        Names of the tables that are given, in lower case.
    """
    has_database = table.args.get("db") is not None
    return not has_database and table.name.lower() in names and not _names_a_query(table)


def _named(query: Any) -> dict[str, set[str]]:
    """The names in a query, by the table that they are said to be of; ``""``: of any."""
    named: dict[str, set[str]] = {}
    for identifier in query.find_all(exp.Identifier):
        column = identifier.parent
        of_table = isinstance(column, exp.Column) and column.this is identifier
        # With more parts, the first one may be a table or a column.
        owner = column.table if of_table and column.args.get("db") is None else ""
        named.setdefault(owner.lower(), set()).add(identifier.name.lower())
    return named


def _names_a_query(table: Any) -> bool:
    """Whether a name is that of a query in a ``with`` around it."""
    name, own = table.name.lower(), False
    node: Any = table
    while node is not None:
        queries: list[Any] = []
        parent = node.parent
        if isinstance(parent, exp.With):  # queries see those before them
            position = next(at for at, cte in enumerate(parent.expressions) if cte is node)
            queries = parent.expressions[: position + bool(parent.recursive)]
            parent, own = parent.parent, True
        elif not own and (before := clause(node, "with")) is not None:
            queries = before.expressions
        else:
            own = False
        if any(cte.alias_or_name.lower() == name for cte in queries):
            return True
        node = parent
    return False


def select_span(query: str, table: Any) -> tuple[int, int] | None:
    """Where the text of the select around a table begins and ends: all, or all in parentheses."""
    tokens = tokenize(query, dialect="spark")
    at = next(n for n, token in enumerate(tokens) if token.start >= table.this.meta["start"])
    first = _unmatched(tokens, range(at, -1, -1), TokenType.R_PAREN, TokenType.L_PAREN)
    if first is None:
        last = len(tokens) - (tokens[-1].token_type == TokenType.SEMICOLON)
        first = -1
    else:
        last = _unmatched(tokens, range(at, len(tokens)), TokenType.L_PAREN, TokenType.R_PAREN) or 0
    if last <= first + 1 or tokens[first + 1].token_type != TokenType.SELECT:
        return None
    return tokens[first + 1].start, tokens[last - 1].end + 1


def _unmatched(tokens: Sequence[Any], positions: range, opening: Any, closing: Any) -> int | None:
    """The first closing token without one that opens before it."""
    depth = 0
    for at in positions:
        kind = tokens[at].token_type
        depth += (kind == opening) - (kind == closing)
        if depth < 0:
            return at
    return None


def clause(node: Any, name: str) -> Any:
    """A clause of a query; newer releases of sqlglot add an underscore to reserved words."""
    return node.args.get(f"{name}_") or node.args.get(name)


def _selects_all(select: Any, table: Any) -> bool:
    """Whether ``*`` stands for the columns of a table in a select.

    In ``count(*)`` it does not, nor in ``exists (select * …)``, which only asks for rows; in a
    query within the select it stands for the columns of that query's tables.
    """
    for star in select.find_all(exp.Star):
        around = star.find_ancestor(exp.Select)
        if isinstance(star.parent, exp.Count) or _is_asked_for_rows(around):
            continue
        owner = star.parent.table if isinstance(star.parent, exp.Column) else ""
        if owner.lower() == table.alias_or_name.lower() or (not owner and around is select):
            return True
    return False


def _is_asked_for_rows(select: Any) -> bool:
    """Whether a query stands in ``exists (…)``."""
    parent = select.parent
    while isinstance(parent, exp.Subquery | exp.Paren):
        parent = parent.parent
    return isinstance(parent, exp.Exists)


def _tests(select: Any, table: Any, schema: StructType) -> tuple[list[Filter | Compared], bool]:
    """Tests in ``where`` that a row of a table has to pass, and whether these are all of it.

    None of them holds for null, so they hold for no row that an outer join has made up.
    """
    where = select.args.get("where")
    if where is None:
        return [], True
    if table.args.get("sample") or isinstance(table.parent, exp.TableSample):
        return [], False
    others = {source.alias_or_name.lower() for source in _sources(select) if source is not table}
    alias = table.alias_or_name
    if alias.lower() in others:
        return [], False
    written = [_test(part, alias, schema) for part in _conjuncts(where.this)]
    if None not in written and where.find(exp.Like) is None:  # of which only prefixes are tested
        return [test for test in written if test is not None], True
    joined = islice(where.find_all(exp.Connector), _MOST_SIMPLIFIED + 1)
    if sum(1 for _ in joined) > _MOST_SIMPLIFIED:
        return [test for test in written if test is not None], False
    try:
        condition = simplify(where.this.copy(), dialect="spark")
    except SqlglotError:
        return [], False
    found = [_test(part, alias, schema) for part in _conjuncts(condition)]
    return [test for test in found if test is not None], False


def _conjuncts(condition: Any) -> Iterator[Any]:
    """The parts of which all have to hold."""
    if isinstance(condition, exp.Paren):
        yield from _conjuncts(condition.this)
    elif isinstance(condition, exp.And):
        for part in condition.flatten():
            yield from _conjuncts(part)
    elif isinstance(condition, exp.Between):
        low, high = condition.args["low"], condition.args["high"]
        yield exp.GTE(this=condition.this.copy(), expression=low.copy())
        yield exp.LTE(this=condition.this.copy(), expression=high.copy())
    else:
        yield condition


def _sources(select: Any) -> Iterator[Any]:
    first = clause(select, "from")
    if first is not None:
        yield first.this
    for join in select.args.get("joins") or ():
        yield join.this


def _test(part: Any, alias: str, schema: StructType) -> Filter | Compared | None:
    if isinstance(part, exp.Paren):
        return _test(part.this, alias, schema)
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
    path = column_path(part.this, alias, schema)
    if path is None:
        return None
    if isinstance(part, exp.In) and part.expressions and not part.args.get("query"):
        values = [_constant(value, schema[path[0]].dataType) for value in part.expressions]
        return None if None in values else In(path, tuple(values))
    if isinstance(part, exp.Like) and isinstance(schema[path[0]].dataType, StringType):
        return _prefix(part, path)
    if isinstance(part, exp.Not) and isinstance(part.this.expression, exp.Null):
        return IsNotNull(path)
    return None


def column_path(node: Any, alias: str, schema: StructType) -> tuple[str] | None:
    """The column that a node names, if it is one of the table.

    A name without a table is the table's, if it has such a column, or Spark refuses the query.
    """
    if isinstance(node, exp.Is):
        node = node.this
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
    if isinstance(node, exp.Cast) and isinstance(data_type, DateType):
        return _date(node.this) if node.to.this == exp.DataType.Type.DATE else None
    if isinstance(node, exp.Boolean) and isinstance(data_type, BooleanType):
        return bool(node.this)
    if not isinstance(node, exp.Literal):
        return None
    text = node.this
    if node.is_string:
        if isinstance(data_type, DateType):
            return _date(node)
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
    text = node.this if isinstance(node, exp.Literal) and node.is_string else ""
    try:
        return date.fromisoformat(text) if len(text) == 10 else None
    except ValueError:
        return None
