"""Datasets in other engines: as a pyarrow dataset.

DuckDB and Polars push the columns and the filter of a query down to a
:class:`pyarrow.dataset.Dataset`. :class:`ArrowDataset` is a subclass that scans the Lance dataset.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, Protocol, TypeAlias, Unpack
from weakref import finalize

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyarrow import types
from pyarrow.fs import LocalFileSystem

from glaive.dataset.scanner import Scanner
from glaive.entropy import random_bytes
from glaive.errors import GlaiveError, MissingDependencyError, OptionError, UnsupportedFeatureError
from glaive.named_tuple import NamedTuple
from glaive.scan.options import ScanKeywords
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take_from

_OF_ARROW = ("cache_metadata", "fragment_scan_options", "memory_pool", "use_threads")
"""Options of pyarrow scanners that are ignored."""


_STAND_IN = "a Lance dataset, which Arrow's own scanner cannot read\0"
"""In place of a path: appears in errors if Arrow bypasses the methods below.

No file has a null character in its name: Arrow would read one in the working directory.
"""


class ScannedDataset(Protocol):
    """The methods of a dataset that this module uses."""

    @property
    def snapshot(self) -> Snapshot:
        """The version as scans read it."""

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: object = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> Scanner:
        """Describe a scan."""

    def take(self, indices: object, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows by position."""


class ArrowDataset(pads.FileSystemDataset):
    """One version of a dataset for other engines; returned by ``to_pyarrow_dataset``.

    Scans take the options of ``dataset.scanner``; options that only pyarrow has are ignored.

    Parameters
    ----------
    opened
        The version.
    options
        Options of all scans, such as ``with_row_id``.
    expression
        Filter of all scans.
    """

    def __init__(
        self,
        opened: ScannedDataset,
        options: Mapping[str, Any] | None = None,
        expression: pc.Expression | None = None,
    ) -> None:
        self._opened = opened
        self._options = dict(options or {})
        self._filter = expression
        self._schema = opened.scanner(**self._options).projected_schema
        # Without a fragment, Arrow would dereference a null pointer.
        filesystem, file_format = LocalFileSystem(), pads.IpcFileFormat()
        fragment = file_format.make_fragment(_STAND_IN, filesystem=filesystem)
        super().__init__([fragment], self.schema, file_format, filesystem)

    def __reduce__(self) -> tuple[object, ...]:
        return ArrowDataset, (self._opened, self._options, self._filter)

    @property
    def schema(self) -> pa.Schema:
        """Schema of scans without a projection."""
        return self._schema

    @property
    def partition_expression(self) -> pc.Expression:
        """Always true."""
        return pc.scalar(True)

    def scanner(  # type: ignore[override]  # returns our scanner, which has the same methods
        self,
        columns: Sequence[str] | Mapping[str, Any] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> Scanner:
        """Describe a scan."""
        if self._filter is not None:
            filter = self._filter if filter is None else self._filter & filter
        options = {name: value for name, value in options.items() if name not in _OF_ARROW}
        if columns is not None:  # they include row ids and addresses if those are wanted
            columns = dict(columns) if isinstance(columns, Mapping) else list(columns)
            kept = {k: v for k, v in self._options.items() if k not in _ADDED}
        else:
            kept = self._options
        return self._opened.scanner(columns, filter, **(kept | options))

    def to_table(self, *args: Any, **options: Any) -> pa.Table:
        """Read into a table; arguments as for :meth:`scanner`."""
        return self.scanner(*args, **options).to_table()

    def to_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Stream record batches; arguments as for :meth:`scanner`."""
        return self.scanner(*args, **options).to_batches()

    def head(self, num_rows: int, *args: Any, **options: Any) -> pa.Table:
        """The first rows; arguments as for :meth:`scanner`."""
        return self.scanner(*args, limit=num_rows, **options).to_table()

    def count_rows(self, *args: Any, **options: Any) -> int:
        """Number of rows; arguments as for :meth:`scanner`."""
        return self.scanner(*args, **options).count_rows()

    def filter(self, expression: pc.Expression) -> ArrowDataset:
        """The dataset with a filter."""
        both = expression if self._filter is None else self._filter & expression
        return ArrowDataset(self._opened, self._options, both)

    def take(self, indices: Any, *args: Any, **options: Any) -> pa.Table:
        """Rows by position among those that pass the filter; arguments as for :meth:`scanner`."""
        if self._filter is None and not self._options and not args:
            columns = options.pop("columns", None)
            if not options:
                return self._opened.take(indices, columns)
        return take_from(self.to_table(*args, **options), indices)

    def sort_by(self, sorting: Any, **options: Any) -> pads.InMemoryDataset:
        """All rows, sorted, in memory; arguments as in pyarrow."""
        table = self.to_table()
        keys: Any = [(sorting, "ascending")] if isinstance(sorting, str) else sorting
        order = pc.sort_indices(table, options=pc.SortOptions(keys, **options))
        return _in_memory(take_from(table, order))

    def join(
        self, right_dataset: Any, keys: Any, *args: Any, **options: Any
    ) -> pads.InMemoryDataset:
        """Join with another dataset or table, in memory; options as in pyarrow."""
        return _in_memory(self.to_table().join(_table(right_dataset), keys, *args, **options))

    def join_asof(
        self, right_dataset: Any, on: str, by: Any, tolerance: int, *args: Any, **options: Any
    ) -> pads.InMemoryDataset:
        """Join on the nearest key, in memory; options as in pyarrow."""
        right = _table(right_dataset)
        return _in_memory(self.to_table().join_asof(right, on, by, tolerance, *args, **options))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[Any]:
        """Not supported: Arrow cannot read the files of Lance fragments."""
        raise UnsupportedFeatureError(
            "get_fragments: Arrow cannot read the fragments of a Lance dataset. Use "
            "LanceDataset.get_fragments, or scan"
        )

    _get_fragments = get_fragments

    def replace_schema(self, schema: pa.Schema) -> None:
        """Not supported: cast the result of a scan instead."""
        raise UnsupportedFeatureError(
            "replace_schema: a Lance dataset has one schema. Cast the result of a scan instead"
        )


def _table(given: Any) -> pa.Table:
    table: pa.Table = given if isinstance(given, pa.Table) else given.to_table()
    return table


def _in_memory(table: pa.Table) -> pads.InMemoryDataset:
    return pads.InMemoryDataset(table)  # type: ignore[call-arg]  # missing in the stubs


_ADDED = ("with_row_id", "with_row_address")


# --- SQL queries, run by DuckDB ---------------------------------------------------------

# --- Datasets as DuckDB reads them for a query ------------------------------------------
# Columns that it has no type for are in the next wider type that it has.

_DIGITS = 38
"""Most digits of DuckDB's decimals."""


def for_duckdb(table: object, failures: list[GlaiveError]) -> object:
    """A table of a query as DuckDB can read it.

    DuckDB refuses a table for the type of any of its columns, also of one that a query does not
    name. Half floats become floats. Decimals of 256 bits become those of 128 bits, and those of a
    scale below 0 have all their digits, if these fit: all values stay what they are.

    Parameters
    ----------
    failures
        Errors of reading are appended: DuckDB passes on their text only.
    """
    return _QueriedDataset(table, failures) if isinstance(table, ArrowDataset) else table


class _QueriedDataset(pads.FileSystemDataset):
    """A dataset with wider types, of which DuckDB asks for a schema and scanners."""

    def __init__(self, dataset: ArrowDataset, failures: list[GlaiveError]) -> None:
        self._dataset, self._failures = dataset, failures
        super().__init__([], dataset.schema, pads.IpcFileFormat())

    @property
    def schema(self) -> pa.Schema:
        """With the wider types."""
        return _widened(self._dataset.schema)

    def scanner(self, *args: Any, **options: Any) -> Any:
        """Describe a scan; arguments as for the dataset."""
        with _noted(self._failures):
            return _QueriedScanner(self._dataset.scanner(*args, **options), self._failures)


class _QueriedScanner:
    def __init__(self, scanner: Any, failures: list[GlaiveError]) -> None:
        self._scanner, self._failures = scanner, failures

    @property
    def projected_schema(self) -> pa.Schema:
        return _widened(self._scanner.projected_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        wanted = self.projected_schema
        is_wide = wanted == self._scanner.projected_schema
        with _noted(self._failures):
            for batch in self._scanner.to_reader():
                if is_wide:
                    yield batch
                    continue
                pairs = zip(batch.columns, wanted, strict=True)
                columns = [_cast(column, field.type) for column, field in pairs]
                yield pa.RecordBatch.from_arrays(columns, schema=wanted)


@contextmanager
def _noted(failures: list[GlaiveError]) -> Iterator[None]:
    try:
        yield
    except GlaiveError as error:
        failures.append(error)
        raise


def _cast(column: Any, kind: pa.DataType) -> Any:
    if column.type.equals(kind):
        return column
    return (column.storage if isinstance(column, pa.ExtensionArray) else column).cast(kind)


def _widened(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_wider(field.type)) for field in schema])


def _wider(kind: Any) -> Any:
    """A type without half floats and odd decimals inside; itself, if it has none."""
    if types.is_float16(kind):
        return pa.float32()
    if types.is_decimal(kind):
        scale = max(kind.scale, 0)
        digits = kind.precision + scale - kind.scale
        is_odd = types.is_decimal256(kind) or digits > kind.precision
        return pa.decimal128(digits, scale) if is_odd and digits <= _DIGITS else kind
    made = kind
    if isinstance(kind, pa.BaseExtensionType):
        inner = _wider(kind.storage_type)
        return kind if inner.equals(kind.storage_type) else inner
    if types.is_struct(kind):
        made = pa.struct([field.with_type(_wider(field.type)) for field in kind])
    elif types.is_map(kind):
        made = pa.map_(_wider(kind.key_type), kind.item_field.with_type(_wider(kind.item_type)))
    elif types.is_fixed_size_list(kind):
        made = pa.list_(kind.value_field.with_type(_wider(kind.value_type)), kind.list_size)
    elif types.is_large_list(kind):
        made = pa.large_list(kind.value_field.with_type(_wider(kind.value_type)))
    elif types.is_list(kind):
        made = pa.list_(kind.value_field.with_type(_wider(kind.value_type)))
    return made


# --- Types of the results of SQL queries: those that the datasets declare, where DuckDB's differ


def with_declared_types(
    reader: pa.RecordBatchReader, schemas: Iterable[object]
) -> pa.RecordBatchReader:
    """A result with the types of the columns it came from.

    DuckDB has one type for texts, whose offsets are 32 bits wide, and names items of lists after
    the column. A column that has the name of a table's column, and its type but for that, gets
    that type; items of other lists are called ``item``. A count without a name is ``count(*)``, as
    it is written, where DuckDB calls it ``count_star()``.

    Parameters
    ----------
    reader
        The result of a query.
    schemas
        Of the tables of the query; what is no :class:`pyarrow.Schema` is left out.
    """
    declared: dict[str, list[pa.DataType]] = {}
    for schema in schemas:
        for column in schema if isinstance(schema, pa.Schema) else ():
            declared.setdefault(column.name, []).append(column.type)
    wanted = pa.schema([_declared(column, declared) for column in reader.schema])
    if wanted.equals(reader.schema, check_metadata=True):  # names of items, too
        return reader
    return pa.RecordBatchReader.from_batches(wanted, _cast_to_declared(reader, wanted))


def _cast_to_declared(reader: pa.RecordBatchReader, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield batch.rename_columns(wanted.names).cast(wanted)


def _declared(column: pa.Field, declared: Mapping[str, list[pa.DataType]]) -> pa.Field:
    if column.name == "count_star()":
        return column.with_name("count(*)")
    for kind in declared.get(column.name, ()):
        if _general(kind) == _general(column.type):
            return column.with_type(_widened_type(column.type, kind))
    return column.with_type(_with_items(column.type))


def _widened_type(found: Any, declared: Any) -> Any:
    """A type with the widths and the names of items of another.

    What is inside may be null, as in all results: a join or a null around it makes it so.
    """
    if types.is_struct(declared):
        pairs = zip(found, declared, strict=True)
        return pa.struct(
            [one.with_type(_widened_type(one.type, other.type)) for one, other in pairs]
        )
    if _is_list(declared):
        value = _widened_type(found.value_type, declared.value_type)
        return _list_as(declared, pa.field(declared.value_field.name, value))
    return declared


def _with_items(kind: Any) -> Any:
    """The type with the items of lists called as Arrow calls them."""
    if types.is_struct(kind):
        return pa.struct([one.with_type(_with_items(one.type)) for one in kind])
    if _is_list(kind):
        return _list_as(kind, pa.field("item", _with_items(kind.value_type)))
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _list_as(kind: Any, item: pa.Field) -> pa.DataType:
    """A list of these items that is as large, or has as many, as those of another type."""
    if types.is_fixed_size_list(kind):
        sized: pa.DataType = pa.list_(item, kind.list_size)
        return sized
    return pa.large_list(item) if types.is_large_list(kind) else pa.list_(item)


def _general(kind: pa.DataType) -> object:
    """What two types have in common that differ in names of items or widths of offsets only."""
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return "bytes"
    if types.is_fixed_size_list(kind):
        return kind.list_size, _general(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind):
        return "list", _general(kind.value_type)
    if types.is_struct(kind):
        return tuple((one.name, _general(one.type)) for one in kind)
    return kind


# --- Names and types of columns of SQL results, as in DataFusion, where pylance runs queries
# A column without an alias is called by its expression, as DataFusion writes it:
# ``sum(dataset.id)``, ``dataset.id + Int64(1)``. The expressions are those of DuckDB's parser.
# Whatever is not known here keeps the name that DuckDB gives it.

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


def _cast_to_named(item: Node, table: str) -> str | None:
    return _text(item["child"], table)


_WRITERS: Final[Mapping[str, Any]] = {
    "COLUMN_REF": _reference, "CONSTANT": _constant, "FUNCTION": _function, "CASE": _case,
    "COMPARISON": _compared, "CONJUNCTION": _compared, "OPERATOR": _operator, "BETWEEN": _between,
    "CAST": _cast_to_named,
}  # fmt: skip


_CONFINED: Final = {"enable_external_access": "false", "lock_configuration": "true"}
"""A query sees its tables and nothing else: no files, no network, no extensions. Nor does it change
settings: a log in a file that it may not write would end the process. They are set once DuckDB is
open: set before, they allow a query to write files that are called as a database in memory is.
"""

_UNSAFE: Final = ("0.", "1.")
"""Versions whose functions, such as ``reverse``, trust texts to be UTF-8, and leave the memory of
those that are not. A query may also have them write a log, whatever the settings say."""


_SMALL_ROWS: Final = 100_000
_SMALL_BYTES: Final = 1 << 26
"""Rows and bytes of a table up to which a query does without threads and temporary files."""

_EXPLAIN: Final = re.compile(
    r"(?is)(?:\s|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*explain(\s+analyze)?(\s+verbose)?\s"
)

_TRACE: Final = "\n\nStack Trace:"
"""What begins in errors of DuckDB that it takes for its own fault."""


class SqlQueryBuilder:
    """Builder of an SQL query; returned by ``dataset.sql``. Methods change and return it."""

    def __init__(self, opened: ScannedDataset, sql: str) -> None:
        self._opened = opened
        self._sql = sql
        self._table = "dataset"
        self._batch_size = 8192
        self._options: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"SqlQueryBuilder({self._sql!r}, table_name={self._table!r})"

    def table_name(self, table_name: str) -> SqlQueryBuilder:
        """Name of the dataset in the query; ``dataset`` by default."""
        self._table = table_name
        return self

    def with_row_id(self, with_row_id: bool = True) -> SqlQueryBuilder:
        """Add a column ``_rowid``."""
        self._options["with_row_id"] = with_row_id
        return self

    def with_row_addr(self, with_row_addr: bool = True) -> SqlQueryBuilder:
        """Add a column ``_rowaddr``."""
        self._options["with_row_address"] = with_row_addr
        return self

    def blob_handling(self, blob_handling: str) -> SqlQueryBuilder:
        """How blob columns are returned; see ``ScanOptions``."""
        self._options["blob_handling"] = blob_handling
        return self

    def batch_size(self, batch_size: int) -> SqlQueryBuilder:
        """Approximate rows per batch of the result."""
        self._batch_size = batch_size
        return self

    def batch_size_bytes(self, batch_size_bytes: int) -> SqlQueryBuilder:
        """Approximate bytes per batch read."""
        self._options["batch_size_bytes"] = batch_size_bytes
        return self

    def build(self) -> SqlQuery:
        """The query, ready to run."""
        table = ArrowDataset(self._opened, self._options)
        stored = self._opened.snapshot.file_bytes()
        is_small = table.count_rows() <= _SMALL_ROWS and stored <= _SMALL_BYTES
        return SqlQuery(
            self._sql, {self._table: table}, self._batch_size, as_pylance=True, is_small=is_small
        )


class SqlQuery:
    """An SQL query. Each run reads the datasets again.

    Parameters
    ----------
    as_pylance
        Names of columns and types of sums are those of pylance's queries.
    is_small
        Run in a database that all small queries share, if the query only selects.
    """

    def __init__(
        self,
        sql: str,
        tables: Mapping[str, object],
        batch_size: int,
        *,
        as_pylance: bool = False,
        is_small: bool = False,
    ) -> None:
        self._sql = sql
        self._tables = tables
        self._batch_size = batch_size
        self._as_pylance = as_pylance
        self._is_small = is_small

    def to_batch_records(self) -> list[pa.RecordBatch]:
        """Run the query; the result in batches."""
        return list(self.to_stream_reader())

    def to_stream_reader(self) -> pa.RecordBatchReader:
        """Run the query and stream the result.

        Raises
        ------
        MissingDependencyError
            DuckDB is not installed, or a version before 2.
        OptionError
            The query is invalid; the message is DuckDB's.
        DataFileMissingError, CorruptFileError, NotLanceError
            A table cannot be read; also while the result is read.
        """
        asked = _EXPLAIN.match(self._sql) if self._as_pylance else None
        if asked is not None:
            return self._explained(self._sql[asked.end() :], analyzed=asked[1] is not None)
        try:
            import duckdb
        except ImportError as error:
            raise MissingDependencyError(
                f'sql: queries run in DuckDB ({error}). Install it: pip install "glaive[sql]"'
            ) from error
        if duckdb.__version__.startswith(_UNSAFE):
            raise MissingDependencyError(
                f"sql: expected DuckDB 2 or newer, found {duckdb.__version__}, which may end the "
                'process over texts of strangers. Update it: pip install --upgrade "glaive[sql]"'
            )
        folder = _TemporaryFolder()
        is_shared = self._is_small and _only_selects(_shared(os.getpid()), self._sql)
        if is_shared:
            connection = _shared(os.getpid()).cursor()
        else:
            connection = _connected({"temp_directory": folder.path})
        schemas = [getattr(table, "schema", None) for table in self._tables.values()]
        failures: list[GlaiveError] = []
        try:
            for name, table in self._tables.items():
                connection.register(name, for_duckdb(table, failures))
            relation = connection.sql(self._sql)
            if relation is None:
                raise OptionError("sql: expected a query that returns rows, such as SELECT")
            kinds = relation.types
            reader = with_declared_types(relation.to_arrow_reader(self._batch_size), schemas)
            if self._as_pylance:
                columns = _names(os.getpid(), self._sql, len(kinds))
                reader = with_columns(reader, columns, kinds)
        except (duckdb.Error, pa.ArrowException, UnicodeDecodeError) as error:
            if is_shared and isinstance(error, duckdb.OutOfMemoryException):
                given = (self._sql, self._tables, self._batch_size)  # it may write files, too
                return SqlQuery(*given, as_pylance=self._as_pylance).to_stream_reader()
            raise _cause(error, failures) from error

        def rows() -> Iterator[pa.RecordBatch]:
            try:
                yield from reader
            # DuckDB's messages show values: texts of a stranger may be any bytes.
            except (duckdb.Error, pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise _cause(error, failures) from error
            finally:
                folder.remove()

        return pa.RecordBatchReader.from_batches(reader.schema, rows())

    def _explained(self, sql: str, *, analyzed: bool) -> pa.RecordBatchReader:
        """Return the plans of a query's scans, and DuckDB's plan, in the columns of pylance."""
        plans: list[str] = []
        tables = {
            name: _ExplainedDataset(table, plans, analyzed=analyzed)
            for name, table in self._tables.items()
            if isinstance(table, ArrowDataset)
        }
        SqlQuery(sql, tables, self._batch_size).to_batch_records()
        text = f"EXPLAIN {'ANALYZE ' * analyzed}{sql}"
        whole = SqlQuery(text, self._tables, self._batch_size).to_stream_reader().read_all()
        steps, scans = "\n".join(map(str, whole[1].to_pylist())), "\n".join(plans)
        kinds = ["Plan with Metrics"] if analyzed else ["logical_plan", "physical_plan"]
        plans = [f"{scans}\n{steps}"] if analyzed else [steps, scans]
        return pa.table({"plan_type": kinds, "plan": plans}).to_reader()


class _ExplainedDataset(ArrowDataset):
    """A table of a query that is explained: it notes the plans of its scans, which find nothing."""

    def __init__(self, table: ArrowDataset, plans: list[str], *, analyzed: bool) -> None:
        self._table, self._plans, self._analyzed = table, plans, analyzed
        made: Any = table.__reduce__()[1]
        super().__init__(*made)

    def scanner(  # type: ignore[override]  # arguments are handed on
        self, *args: Any, **options: Any
    ) -> Scanner:
        """Describe a scan; arguments as for the dataset."""
        scan = self._table.scanner(*args, **options)
        self._plans.append(scan.analyze_plan() if self._analyzed else scan.explain_plan())
        return self._table.scanner(*args, **options, limit=0)


def _connected(config: dict[str, Any]) -> Any:
    """A connection to a database of its own, in which queries see nothing else."""
    import duckdb

    connection = duckdb.connect(config=config)
    for name, value in _CONFINED.items():
        connection.execute(f"SET {name} = {value}")
    return connection


@cache
def _shared(_process: int) -> Any:
    """The database of small queries, which saves 15 milliseconds a query.

    It has no threads, so that a process may fork, and writes no files.
    """
    return _connected({"threads": 1, "temp_directory": ""})


@lru_cache(maxsize=256)
def _names(process: int, sql: str, count: int) -> list[ResultColumn]:
    return named_columns(_shared(process).cursor(), sql, count)


def _only_selects(database: Any, sql: str) -> bool:
    """Whether a query changes nothing that the next query of a database would find."""
    import duckdb

    try:
        return all(one.type.name == "SELECT" for one in database.cursor().extract_statements(sql))
    except duckdb.Error:  # the query itself says below what is wrong
        return False


class _TemporaryFolder:
    """A folder in the working directory, which DuckDB makes once it needs one.

    A query may read and write what is in it. So it has a name that no query knows before, and is
    removed with this object: DuckDB leaves files there that a query has written by itself.
    """

    __slots__ = ("__weakref__", "path", "remove")

    def __init__(self) -> None:
        self.path = f".tmp-{random_bytes(16).hex()}"
        with suppress(FileNotFoundError):  # somebody has removed the working directory
            self.path = str(Path(self.path).absolute())
        self.remove = finalize(self, _remove, self.path, os.getpid())


def _remove(folder: str, owner: int) -> None:
    """Remove a folder; not in a child that was forked, whose parent still reads."""
    if os.getpid() == owner:
        rmtree(folder, ignore_errors=True)


def _cause(error: Exception, failures: list[GlaiveError]) -> GlaiveError:
    """The error of reading a table; else what DuckDB says, without the traceback that is added."""
    if failures:
        found = failures[0]
        # DuckDB holds the list, and the traceback of an error holds DuckDB: nothing would free it.
        failures.clear()
        return found
    said = str(error).partition(" Detail: Python exception")[0]
    return OptionError(f"sql: {said.partition(_TRACE)[0]}")
