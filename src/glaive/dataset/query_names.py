"""Names and types of columns of SQL results, as in DataFusion, where pylance runs queries.

A column without an alias is called by its expression, as DataFusion writes it:
``sum(dataset.id)``, ``dataset.id + Int64(1)``. The expressions are those of DuckDB's parser.
Whatever is not known here keeps the name that DuckDB gives it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow import types

from glaive.errors import OptionError
from glaive.named_tuple import NamedTuple

__all__ = ["ResultColumn", "named_columns", "with_columns"]

Node: TypeAlias = Mapping[str, Any]

_LITERALS: Final = {
    "INTEGER": "Int64({})", "BIGINT": "Int64({})", "NUMERIC": "Float64({})",
    "DECIMAL": "Float64({})", "DOUBLE": "Float64({})", "STRING": 'Utf8("{}")',
    "VARCHAR": 'Utf8("{}")',
}  # fmt: skip
_OPERATORS: Final = {
    "*": "*", "/": "/", "%": "%", "+": "+", "-": "-", "||": "||", "~~": "LIKE",
    "!~~": "NOT LIKE", "~~*": "ILIKE", "COMPARE_EQUAL": "=", "COMPARE_NOTEQUAL": "!=",
    "COMPARE_LESSTHAN": "<", "COMPARE_GREATERTHAN": ">", "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=", "CONJUNCTION_AND": "AND", "CONJUNCTION_OR": "OR",
}  # fmt: skip
"""How DataFusion writes operators; it leaves out parentheses."""

_SUFFIXES: Final = {"OPERATOR_IS_NULL": "IS NULL", "OPERATOR_IS_NOT_NULL": "IS NOT NULL"}
_FUNCTIONS: Final = {"trim": "btrim", "mean": "avg", "char_length": "character_length"}


class ResultColumn(NamedTuple):
    """What the parser tells of a column of a result.

    Parameters
    ----------
    name
        As DataFusion calls it; None: as DuckDB does.
    literal
        The type that DataFusion gives it, where it is made of literals alone.
    """

    name: str | None = None
    literal: pa.DataType | None = None


def named_columns(connection: Any, query: str, count: int) -> list[ResultColumn]:
    """Names of the columns of a query's result, one for each.

    Parameters
    ----------
    connection
        To DuckDB, whose parser is asked.
    count
        Columns of the result: a star stands for several of them.
    """
    try:
        return _named_columns(connection, query, count)
    except RecursionError:  # of an expression of hundreds of levels, which DuckDB takes
        return [ResultColumn()] * count


def _named_columns(connection: Any, query: str, count: int) -> list[ResultColumn]:
    unknown = [ResultColumn()] * count
    # The function of DuckDB: the query may have made a macro of the same name.
    function = "system.main.json_serialize_sql"
    serialize = f"SELECT {function}(?, skip_null := true, skip_empty := true)"
    tree = json.loads(connection.execute(serialize, [query]).fetchall()[0][0])
    statements = tree.get("statements", ())
    if tree.get("error") or len(statements) != 1:
        return unknown
    first, *others = (_selected(select, count) for select in _selects(statements[0]["node"]))
    columns = []
    for column, *same in zip(first, *others, strict=True):
        is_literal = all(one.literal == column.literal for one in same)
        columns.append(column if is_literal else column._replace(literal=None))
    return columns


def _selects(node: Node) -> Iterator[Node]:
    """The selects whose rows a query has, the one that gives the names first."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.get("type") != "SET_OPERATION_NODE":
            yield node
            continue
        first, *others = node.get("children") or [node.get("left", {}), node.get("right", {})]
        if "BY_NAME" in str(node["setop_type"]):
            others = [{} for _ in others]  # their columns may be in another order
        waiting += [*reversed(others), first]


def _selected(select: Node, count: int) -> list[ResultColumn]:
    unknown = [ResultColumn()] * count
    items = select.get("select_list", [])
    stars = [at for at, item in enumerate(items) if item.get("class") == "STAR"]
    if len(stars) > 1 or (len(items) != count and not stars):
        return unknown
    table = _only_table(select.get("from_table", {}))
    columns: list[ResultColumn] = []
    for at, item in enumerate(items):
        columns += unknown[len(items) - 1 :] if at in stars else [_column(item, table)]
    return columns


def with_columns(
    reader: pa.RecordBatchReader, columns: Sequence[ResultColumn], kinds: Sequence[object]
) -> pa.RecordBatchReader:
    """A result with these names, whose sums of integers are ``int64``.

    Parameters
    ----------
    kinds
        Types of the columns in DuckDB. It has integers of 128 bits, which are sums.
    """
    fields = []
    for field, column, kind in zip(reader.schema, columns, kinds, strict=True):
        is_sum = str(kind) == "HUGEINT"
        type_ = pa.int64() if is_sum else _literal_or_found(column.literal, field.type)
        fields.append(field.with_name(column.name or field.name).with_type(type_))
    wanted = pa.schema(fields)
    if wanted.equals(reader.schema):
        return reader

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            try:
                yield batch.rename_columns(wanted.names).cast(wanted)
            except pa.ArrowInvalid as error:
                raise OptionError(
                    f"sql: a sum does not fit 64 bits ({error}). Cast it in the query: "
                    "CAST(sum(…) AS DOUBLE)"
                ) from error

    return pa.RecordBatchReader.from_batches(wanted, rows())


def _literal_or_found(literal: pa.DataType | None, found: pa.DataType) -> pa.DataType:
    """The type of a literal, if a column of the type that was found can be one of such literals."""
    is_whole = types.is_integer(found)
    is_number = types.is_decimal(found) or types.is_floating(found)
    is_such = is_whole if literal == pa.int64() else is_number
    return literal if literal is not None and is_such else found


def _only_table(source: Node) -> str | None:
    """What columns are called after, if they come from one table."""
    if source.get("type") == "EMPTY":
        return ""
    if source.get("type") not in ("BASE_TABLE", "SUBQUERY"):
        return None
    name = source.get("alias") or source.get("table_name")
    return None if name is None else str(name)


def _column(item: Node, table: str | None) -> ResultColumn:
    literal = _literal_type(item)
    bare = item.get("class") == "COLUMN_REF" and (
        len(item["column_names"]) == 1 or item["column_names"][:-1] == [table]
    )
    if item.get("alias") or bare or table is None:
        return ResultColumn(literal=literal)
    return ResultColumn(_text(item, table), literal)


def _literal_type(item: Node) -> pa.DataType | None:
    """``int64`` and ``double`` for literals, and for a CASE whose results are such."""
    if item.get("class") == "CASE":
        results = [check["then_expr"] for check in item["case_checks"]]
        kinds = [_literal_type(one) for one in (*results, item.get("else_expr", {}))]
        return kinds[0] if all(kind == kinds[0] for kind in kinds) else None
    kind, _ = _literal(item)
    if kind in ("INTEGER", "BIGINT"):
        return pa.int64()
    return pa.float64() if kind in ("NUMERIC", "DECIMAL") else None


def _literal(item: Node) -> tuple[str | None, Any]:
    """Kind and text of a literal, as DuckDB 2 writes it or DuckDB 1."""
    if item.get("class") != "CONSTANT":
        return None, None
    if "literal" in item:
        return item["literal"].get("kind"), item["literal"].get("text")
    value = item.get("value", {})
    return value.get("type", {}).get("id"), value.get("value")


def _text(item: Node, table: str) -> str | None:
    """An expression as DataFusion writes it; None: not known."""
    writer = _WRITERS.get(str(item.get("class")))
    text: str | None = None if writer is None else writer(item, table)
    return text


def _texts(items: Sequence[Node], table: str) -> list[str] | None:
    texts = [_text(item, table) for item in items]
    known = [text for text in texts if text is not None]
    return known if len(known) == len(texts) else None


def _reference(item: Node, table: str) -> str:
    names = item["column_names"]
    column, *path = names[1:] if len(names) > 1 and names[0] == table else names
    return ".".join(filter(None, (table, column))) + "".join(f"[{part}]" for part in path)


def _constant(item: Node, _table: str) -> str | None:
    kind, text = _literal(item)
    form = _LITERALS.get(str(kind))
    if form is None or text is None:
        return None
    if form.startswith("Float64"):
        text = f"{float(text):g}"
    return form.format(text)


def _binary(name: str, children: Sequence[Node], table: str) -> str | None:
    sides = _texts(children, table)
    return None if sides is None else f" {_OPERATORS[name]} ".join(sides)


def _compared(item: Node, table: str) -> str | None:
    if item["type"] not in _OPERATORS:
        return None
    return _binary(item["type"], item.get("children") or [item["left"], item["right"]], table)


def _function(item: Node, table: str) -> str | None:
    name = str(item["function_name"])
    found = [one.get("expression", one) for one in item.get("arguments", item.get("children", ()))]
    if name == "count_star":
        return "count(*)"
    if name in _OPERATORS and len(found) == 2:
        return _binary(name, found, table)
    arguments = _texts(found, table)
    if arguments is None or item.get("filter") is not None:
        return None
    if name == "-" and len(arguments) == 1:
        return f"(- {arguments[0]})"
    distinct = "DISTINCT " if item.get("distinct") else ""
    return f"{_FUNCTIONS.get(name, name)}({distinct}{','.join(arguments)})"


def _operator(item: Node, table: str) -> str | None:
    texts = _texts(item.get("children", ()), table)
    kind = str(item["type"])
    if not texts:
        return None
    if kind in _SUFFIXES:
        return f"{texts[0]} {_SUFFIXES[kind]}"
    if kind == "OPERATOR_NOT":
        return f"NOT {texts[0]}"
    if kind == "OPERATOR_COALESCE":
        return f"coalesce({','.join(texts)})"
    if kind == "COMPARE_IN":
        return f"{texts[0]} IN {', '.join(texts[1:])}"
    if kind == "ARRAY_EXTRACT" and len(texts) == 2:
        _, key = _literal(item["children"][1])
        named = _literal(item["children"][1])[0] in ("STRING", "VARCHAR")
        return f"{texts[0]}[{key if named else texts[1]}]"
    return None


def _between(item: Node, table: str) -> str | None:
    texts = _texts([item["input"], item["lower"], item["upper"]], table)
    return None if texts is None else f"{texts[0]} BETWEEN {texts[1]} AND {texts[2]}"


def _case(item: Node, table: str) -> str | None:
    parts = ["CASE"]
    pairs = [("WHEN", "when_expr"), ("THEN", "then_expr")]
    for check in item["case_checks"]:
        for word, key in pairs:
            parts += [word, _text(check[key], table) or ""]
    if "else_expr" in item:
        parts += ["ELSE", _text(item["else_expr"], table) or ""]
    return None if "" in parts else " ".join([*parts, "END"])


def _cast(item: Node, table: str) -> str | None:
    return _text(item["child"], table)


_WRITERS: Final[Mapping[str, Any]] = {
    "COLUMN_REF": _reference, "CONSTANT": _constant, "FUNCTION": _function, "CASE": _case,
    "COMPARISON": _compared, "CONJUNCTION": _compared, "OPERATOR": _operator, "BETWEEN": _between,
    "CAST": _cast,
}  # fmt: skip
