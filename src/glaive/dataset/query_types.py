"""Types of the results of SQL queries: those that the datasets declare, where DuckDB's differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types

__all__ = ["with_declared_types"]


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
    return pa.RecordBatchReader.from_batches(wanted, _cast(reader, wanted))


def _cast(reader: pa.RecordBatchReader, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield batch.rename_columns(wanted.names).cast(wanted)


def _declared(column: pa.Field, declared: Mapping[str, list[pa.DataType]]) -> pa.Field:
    if column.name == "count_star()":
        return column.with_name("count(*)")
    for kind in declared.get(column.name, ()):
        if _general(kind) == _general(column.type):
            return column.with_type(_widened(column.type, kind))
    return column.with_type(_with_items(column.type))


def _widened(found: Any, declared: Any) -> Any:
    """A type with the widths and the names of items of another.

    What is inside may be null, as in all results: a join or a null around it makes it so.
    """
    if types.is_struct(declared):
        pairs = zip(found, declared, strict=True)
        return pa.struct([one.with_type(_widened(one.type, other.type)) for one, other in pairs])
    if _is_list(declared):
        value = _widened(found.value_type, declared.value_type)
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
