"""Find the needs of a query per table: columns, and tests that rows must pass.

Both are supersets. A column named anywhere counts for every table that has it, unless the query
names its table (``a.id``). glaive takes a test only if Spark would drop the rows that fail it. A
word that the parser takes for something else, such as the function ``current_user``, counts as a
name. For Spark it is a column if a table has it. Spark evaluates the query unchanged.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise, zip_longest
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
    StructField,
    StructType,
)
from sqlglot import TokenType, exp, tokenize

from glaive.dataclass import NamedTuple, dataclass
from glaive.spark.filters import Compared
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

# --- Tests of single columns that follow from a condition of a query --------------------
# Spark evaluates the condition unchanged. glaive takes a test from it only if it follows by logic
# alone and compares with a literal constant. Spark's calculations stay with Spark, as its types
# have other digits.

COMPARISONS: dict[Any, tuple[type[Filter], type[Filter]]] = {
    exp.EQ: (EqualTo, EqualTo),
    exp.GT: (GreaterThan, LessThan),
    exp.GTE: (GreaterThanOrEqual, LessThanOrEqual),
    exp.LT: (LessThan, GreaterThan),
    exp.LTE: (LessThanOrEqual, GreaterThanOrEqual),
}
"""Comparisons, and their equivalents with exchanged sides."""

NEGATED: dict[Any, Any] = {
    exp.NEQ: exp.EQ,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
}
"""Comparisons that are true where others are false; both are null for null."""

HIGHEST: dict[type[DataType], int] = {
    ByteType: 2**7 - 1,
    ShortType: 2**15 - 1,
    IntegerType: 2**31 - 1,
    LongType: 2**63 - 1,
}
"""The highest value of each type of integers."""

_MAX_DIGITS = 100
"""Maximum characters of a number that may equal a value of a column: decimals have 38 digits."""

_DAYS = {"DAY": 1, "WEEK": 7}
_MONTHS = {"MONTH": 1, "YEAR": 12}
"""Units of intervals, in singular."""


def conditions(
    condition: Any, alias: str, schema: StructType
) -> tuple[list[Filter | Compared], bool]:
    """Return tests of a table that a condition implies, and whether they are equivalent to it.

    Parameters
    ----------
    condition
        The parsed condition; unchanged.
    alias
        Qualifier of columns of the table.
    schema
        Columns of the table.
    """
    tests, decided = [], True
    for part in _conjuncts(condition, negated=False):
        test = _test(part, alias, schema)
        if test is not None:
            tests.append(test)
        if test is None or isinstance(part, exp.Like):  # only the prefix is tested
            decided = False
    return tests, decided


def _conjuncts(condition: Any, *, negated: bool) -> Iterator[Any]:
    """Yield the parts of a condition, or of its opposite, that must all be true."""
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
        yield condition  # which implies more
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
    if part.args.get("negate"):  # ``NOT LIKE`` is a ``Not`` only in some versions of sqlglot
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


def tested_columns(test: Any) -> tuple[str, ...]:
    """Return the columns of a test."""
    return tuple(path[0] for path in (test.attribute, getattr(test, "other", None)) if path)


def column_path(node: Any, alias: str, schema: StructType) -> tuple[str] | None:
    """Return the column that a node names, if it belongs to the table.

    A name without a table belongs to the table if the table has it, or Spark refuses the query.
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
    """Return the value that Spark compares a column with; ``None`` if uncertain."""
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
    if len(text) > _MAX_DIGITS or not text.replace(".", "", 1).isdecimal():  # or exponents
        return None
    if type(data_type) in HIGHEST:
        return int(text) if text.isdecimal() and int(text) <= HIGHEST[type(data_type)] else None
    if isinstance(data_type, DecimalType):
        return _decimal(text, data_type)
    return float(text) if isinstance(data_type, DoubleType) else None


def _decimal(text: str, data_type: DecimalType) -> Decimal | None:
    """Return a number as a decimal of a column, if the column has enough digits."""
    whole, _, fraction = text.partition(".")
    digits = data_type.precision - data_type.scale
    if len(fraction.rstrip("0")) > data_type.scale or len(whole.lstrip("0")) > digits:
        return None
    return Decimal(f"{whole or 0}.{fraction[: data_type.scale]:0<{data_type.scale}}")


def _date(node: Any) -> date | None:
    """Return a literal date, plus or minus intervals of whole days or months."""
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
    except (ValueError, OverflowError):  # outside the years 1 to 9999
        return None


def _months_later(start: date, months: int) -> date:
    """Return the same day of another month, or its last day."""
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    return date(year, month + 1, min(start.day, monthrange(year, month + 1)[1]))


def _day(text: str) -> date | None:
    if len(text) != len("2026-01-31") or text[4] + text[7] != "--":  # such as 2026-W05-6
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class TableUse:
    """One use of a table in a query.

    Parameters
    ----------
    table
        The node of the query.
    name
        Name of the table among the given tables.
    columns
        The columns that may be needed, in the order of the table.
    tests
        Tests that all rows which the query needs must pass.
    decided
        Whether the tests are equivalent to ``where``.
    """

    table: Any
    name: str
    columns: tuple[str, ...]
    tests: tuple[Filter | Compared, ...]
    decided: bool = False

    def whole(self, schema: StructType) -> TableUse:
        """Return the use with all columns and rows, for a query that Spark may parse
        differently.
        """
        return replace(self, columns=tuple(schema.names), tests=(), decided=False)


def table_uses(
    query: Any, text: str, schemas: Mapping[str, StructType], by_path: Mapping[int, str]
) -> list[TableUse]:
    """Find the tables of a query.

    Parameters
    ----------
    query
        The parsed query; unchanged.
    text
        The text of the query.
    schemas
        The columns of each table, by lower-case name.
    by_path
        Names of the tables that the query names by path, by the identity of their nodes.
    """
    tokens = tokenize(text, dialect="spark")
    named = _named(query, tokens)
    # Columns of a natural join are not named, as are names that are made from strings.
    unnamed = any(join.method == "NATURAL" for join in query.find_all(exp.Join))
    unnamed = unnamed or any(
        token.text.lower() == "identifier" and after.token_type == TokenType.L_PAREN
        for token, after in pairwise(tokens)
    )
    uses = []
    for table in query.find_all(exp.Table):
        if id(table) not in by_path and not is_given(table, schemas):
            continue
        name = by_path.get(id(table)) or table.name.lower()
        schema = schemas[name]
        select = table.find_ancestor(exp.Select)
        renamed = bool(table.alias_column_names)
        whole = unnamed or renamed or select is None or _selects_all(select, table)
        # A pivot groups by all unnamed columns.
        whole = whole or select.find(exp.Pivot) is not None
        known_as = ("", *_names_of(table))
        wanted = set[str]().union(*(named.get(name, set()) for name in known_as))
        columns = tuple(field for field in schema.names if whole or field.lower() in wanted)
        tests: list[Filter | Compared] = []
        decided = False
        if select is not None:
            own = _own_columns(select, table, schema, schemas, by_path)
            tests, decided = _tests(select, table, own)
        uses.append(TableUse(table, name, columns, tuple(tests), decided))
    return uses


# --- Columns of two tables that joins and correlated queries compare --------------------
# Each link by itself keeps the result. So links may be followed one after another, in any order.

_LINKED = (ByteType, ShortType, IntegerType, LongType, DateType, DecimalType, StringType)
"""Types of linked columns: their equal values are identical."""

_BOTH = {("", ""), ("", "INNER"), ("", "CROSS"), ("", "SEMI"), ("LEFT", "SEMI")}
"""Joins that drop unmatched rows of both sides, by side and kind."""

_JOINED = {("LEFT", ""), ("LEFT", "OUTER"), ("", "ANTI"), ("LEFT", "ANTI")}
_EARLIER = {("RIGHT", ""), ("RIGHT", "OUTER")}
"""Joins that drop unmatched rows of the joined table only, or of the tables before it."""


class Link(NamedTuple):
    """Rows of a target matter only if their column has a value of the key of a source.

    ``target`` and ``source`` are positions of uses.
    """

    target: int
    column: str
    source: int
    key: str


def links(
    uses: Sequence[TableUse], schemas: Mapping[str, StructType], by_path: Mapping[int, str]
) -> list[Link]:
    """Find the links between the tables of a query; for parameters see :func:`table_uses`."""
    names = _Names({id(use.table): at for at, use in enumerate(uses)}, schemas, by_path)
    selects = {id(one): one for use in uses if (one := use.table.find_ancestor(exp.Select))}
    found: dict[Link, None] = {}
    for select in selects.values():
        for join, *columns in _equalities(select):
            sides = [names.owner(column, select, join) for column in columns]
            for target, source in (sides, sides[::-1]):
                if (
                    target is not None
                    and source is not None
                    and target[2].dataType == source[2].dataType
                    and isinstance(target[2].dataType, _LINKED)
                    and target[1].find_ancestor(exp.Select) is select
                    and (join is None or _drops(join, target[1], source[1]))
                ):
                    found[Link(target[0], target[2].name, source[0], source[2].name)] = None
    return list(found)


def _equalities(select: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the operands of equalities in ``where`` and in joins, after the join or ``None``."""
    conditions = [(None, part.this) for part in [select.args.get("where")] if part is not None]
    for join in select.args.get("joins") or ():
        if not join.method:
            conditions += [(join, part) for part in [join.args.get("on")] if part is not None]
            for name in join.args.get("using") or ():
                yield join, exp.column(name.name), exp.column(name.name, join.this.alias_or_name)
    for place, condition in conditions:
        for part in _conjuncts(condition, negated=False):
            if isinstance(part, exp.EQ):
                yield place, part.left, part.right


def _drops(join: Any, target: Any, source: Any) -> bool:
    """Return whether a join drops rows of a table that match no row of another table."""
    kind = join.side, join.kind
    joined, earlier = target is join.this, source is join.this
    return kind in _BOTH or (joined and kind in _JOINED) or (earlier and kind in _EARLIER)


@dataclass(frozen=True, slots=True)
class _Names:
    """The meaning of names of columns in the selects of a query."""

    positions: Mapping[int, int]
    schemas: Mapping[str, StructType]
    by_path: Mapping[int, str]

    def owner(self, column: Any, select: Any, join: Any) -> tuple[int, Any, StructField] | None:
        """Return position, table and field of a column; ``None`` if uncertain.

        It is a column of the select, or of a select around it, unless ``join`` has the condition.
        """
        if not isinstance(column, exp.Column) or column.args.get("db") is not None:
            return None
        name, alias = column.name.lower(), column.table.lower()
        while select is not None:
            sources = list(_sources(select))
            if join is not None:
                last = next(at for at, source in enumerate(sources) if source is join.this)
                sources = sources[: last + (bool(alias) or not join.args.get("using"))]
            if any(_is_opaque(source) for source in sources):
                return None
            known = [(source, self._columns(source)) for source in sources]
            fields = [(source, [] if of is None else of.fields) for source, of in known]
            found = [
                (source, [field for field in of if field.name.lower() == name])
                for source, of in fields
                if (source.alias_or_name.lower() == alias if alias else True)
            ]
            found = found if alias else [one for one in found if one[1]]
            if found:
                (source, matching), *others = found
                if (
                    others
                    or len(matching) != 1
                    or not self._is_own(matching[0], select, source, join)
                ):
                    return None
                return self.positions[id(source)], source, matching[0]
            hides = any(field.name.lower() == alias for _, of in fields for field in of)
            unknown = any(of is None for _, of in known) or select.args.get("laterals")
            if join is not None or unknown or hides:
                return None
            select = select.find_ancestor(exp.Select)
        return None

    def _columns(self, source: Any) -> StructType | None:
        if id(source) not in self.positions or source.alias_column_names:
            return None
        return self.schemas[self.by_path.get(id(source)) or source.name.lower()]

    def _is_own(self, field: StructField, select: Any, source: Any, join: Any) -> bool:
        """Return whether a condition sees the values of all rows of a table."""
        own = _own_columns(select, source, StructType([field]), self.schemas, self.by_path)
        if join is None or source is not join.this:
            return bool(own.fields) and _exposes_rows(select, source)
        sampled = source.args.get("sample") or isinstance(source.parent, exp.TableSample)
        return bool(own.fields) and not sampled and select.find(exp.Pivot) is None


def _is_opaque(source: Any) -> bool:
    """Return whether a source has tables in parentheses."""
    nested = isinstance(source, exp.Subquery) and not isinstance(source.this, exp.Query)
    return nested or isinstance(source, exp.Paren) or bool(source.args.get("joins"))


def is_given(table: Any, names: Container[str]) -> bool:
    """Return whether a table is one of the given tables; others are Spark's tables and queries.

    Parameters
    ----------
    table
        The node of the query.
    names
        Names of the given tables, in lower case.
    """
    has_database = table.args.get("db") is not None
    return not has_database and table.name.lower() in names and not _is_with_query(table)


def _named(query: Any, tokens: Sequence[Any]) -> dict[str, set[str]]:
    """Return the names in a query by the table that qualifies them; ``""`` if unqualified."""
    named: dict[str, set[str]] = {}
    known = set()
    for identifier in query.find_all(exp.Identifier):
        known.add(identifier.meta.get("start"))
        column = identifier.parent
        of_table = isinstance(column, exp.Column) and column.this is identifier
        # With more parts, the first may be a table or a column.
        owner = column.table if of_table and column.args.get("db") is None else ""
        named.setdefault(owner.lower(), set()).add(identifier.name.lower())
    named.setdefault("", set()).update(
        token.text.lower()
        for token, after in zip_longest(tokens, tokens[1:])
        if token.start not in known
        and token.token_type != TokenType.STRING
        and (after is None or after.token_type != TokenType.L_PAREN)  # of a function
    )
    return named


def _is_with_query(table: Any) -> bool:
    """Return whether a name is the name of a query in a ``with`` around it."""
    name, own = table.name.lower(), False
    node: Any = table
    while node is not None:
        queries: list[Any] = []
        parent = node.parent
        if isinstance(parent, exp.With):  # queries see earlier queries
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
    """Return the span of the select around a table: the whole text, or text in parentheses."""
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
    """Return the first closing token that lacks its opening token."""
    depth = 0
    for at in positions:
        kind = tokens[at].token_type
        depth += (kind == opening) - (kind == closing)
        if depth < 0:
            return at
    return None


def clause(node: Any, name: str) -> Any:
    """Return a clause of a query; newer sqlglot adds an underscore to reserved words."""
    return node.args.get(f"{name}_") or node.args.get(name)


def _selects_all(select: Any, table: Any) -> bool:
    """Return whether ``*`` means the columns of a table in a select.

    Exceptions are ``count(*)`` and ``exists (select * …)``, which only asks for rows. In a nested
    query it means the columns of that query's tables.
    """
    for star in select.find_all(exp.Star):
        around = star.find_ancestor(exp.Select)
        if isinstance(star.parent, exp.Count) or _is_in_exists(around):
            continue
        owner = star.parent.table if isinstance(star.parent, exp.Column) else ""
        if owner.lower() in _names_of(table) or (not owner and around is select):
            return True
    return False


def _names_of(table: Any) -> set[str]:
    """Return the names of a table within a select: its own, and names of parentheses around it."""
    names, node = {table.alias_or_name.lower()}, table.parent
    while node is not None and not isinstance(node, exp.Select):
        if _is_alias(node):
            names.add(node.alias.lower())
        node = node.parent
    return names


def _is_alias(node: Any) -> bool:
    """Return whether a node around a table gives it another name: ``(t) x``, ``(t join u) x``."""
    return bool(node.alias) and not isinstance(node, exp.Table)


def _is_in_exists(select: Any) -> bool:
    """Return whether a query is the argument of ``exists (…)``."""
    parent = select.parent
    while isinstance(parent, exp.Subquery | exp.Paren):
        parent = parent.parent
    return isinstance(parent, exp.Exists)


def _own_columns(
    select: Any,
    table: Any,
    schema: StructType,
    schemas: Mapping[str, StructType],
    by_path: Mapping[int, str],
) -> StructType:
    """Return the columns of a table whose values ``where`` sees under their names.

    Tables joined by column names (``using``, ``natural``) share one column per name, with the
    values of the first table. Values of the other tables equal them after a conversion.
    """
    joins = list(select.find_all(exp.Join))
    first = clause(select, "from")
    if (
        first is not None
        and first.this is table
        and not any(join.side in ("RIGHT", "FULL") for join in joins)
    ):
        return schema
    natural = any(join.method == "NATURAL" for join in joins)
    shared = {name.name.lower() for join in joins for name in join.args.get("using") or ()}
    types: list[dict[str, DataType] | None] = []
    for source in _sources(select):
        name = by_path.get(id(source)) or source.name.lower()
        known = id(source) in by_path or (
            isinstance(source, exp.Table) and is_given(source, schemas)
        )
        columns = schemas[name] if known and not source.alias_column_names else None
        types.append(
            None if columns is None else {field.name.lower(): field.dataType for field in columns}
        )
    return StructType(
        [
            field
            for field in schema
            if not (natural or field.name.lower() in shared)
            or all(
                of is not None and of.get(field.name.lower(), field.dataType) == field.dataType
                for of in types
            )
        ]
    )


def _tests(select: Any, table: Any, schema: StructType) -> tuple[list[Filter | Compared], bool]:
    """Return tests in ``where`` that rows of a table must pass, and whether they are equivalent.

    All tests are false for null, so they drop rows that an outer join makes up.
    """
    if not _exposes_rows(select, table):
        return [], False
    where = select.args.get("where")
    if where is None:
        return [], True
    others = {source.alias_or_name.lower() for source in _sources(select) if source is not table}
    alias = table.alias_or_name
    return ([], False) if alias.lower() in others else conditions(where.this, alias, schema)


def _exposes_rows(select: Any, table: Any) -> bool:
    """Return whether ``where`` sees all rows of a table, and its columns by their names.

    It sees other columns if a column or the table is renamed, or if columns are turned into rows.
    After a semi or anti join it sees columns of the other table.
    """
    node = table
    while node is not select:
        if node.args.get("sample") or node.alias_column_names or _is_alias(node):
            return False
        if isinstance(node, exp.TableSample) or getattr(node, "kind", "") in ("SEMI", "ANTI"):
            return False
        node = node.parent
    return select.find(exp.Pivot) is None


def _sources(select: Any) -> Iterator[Any]:
    first = clause(select, "from")
    if first is not None:
        yield first.this
    for join in select.args.get("joins") or ():
        yield join.this
