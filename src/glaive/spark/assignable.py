"""May a frame be stored in a dataset? Asked on the driver, before any task writes a byte."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.errors import ColumnNotFoundError, SchemaError
from glaive.format.extension import storage_type
from glaive.spark.cast import is_list

__all__ = ["refuse_unassignable"]


def refuse_unassignable(source: pa.Schema, target: pa.Schema, *, where: str) -> None:
    """Check that batches of one schema can be stored under another, before any are written.

    Columns are matched by name; both must have the same ones. Numbers go into any number,
    texts into texts and so on; whether each value fits is seen when it is written.

    Raises
    ------
    SchemaError
        Columns are missing or too many, or a type can never be stored.
    ColumnNotFoundError
        The frame has a column the dataset lacks.
    """
    twice = sorted({name for name in source.names if source.names.count(name) > 1})
    if twice:
        raise SchemaError(f"the frame has several columns named {', '.join(twice)}; rename them")
    for name in source.names:
        if name not in target.names:
            error = ColumnNotFoundError.among(name, target.names, where=where)
            error.add_note("Drop the column, or overwrite the dataset to change its columns.")
            raise error
    missing = [name for name in target.names if name not in source.names]
    if missing:
        raise SchemaError(
            f"the frame lacks columns of {where}: {', '.join(missing)}. "
            f"Add them, such as .withColumn({missing[0]!r}, lit(None)), or overwrite the dataset"
        )
    for field in target:
        _refuse(source.field(field.name).type, field.type, field.name, where)


def _refuse(source: Any, target: Any, column: str, where: str) -> None:
    source, target = storage_type(source), storage_type(target)
    types = pa.types
    if types.is_null(source):
        return
    if types.is_struct(source) and types.is_struct(target):
        for one in target:
            if source.get_field_index(one.name) < 0:
                raise SchemaError(f"column {column!r}: {where} has a field {one.name!r} in it")
            _refuse(source.field(one.name).type, one.type, f"{column}.{one.name}", where)
        extra = {one.name for one in source} - {one.name for one in target}
        if extra:
            raise SchemaError(f"column {column!r}: {where} has no field {sorted(extra)} in it")
    elif types.is_map(source) and types.is_map(target):
        _refuse(source.key_type, target.key_type, f"{column}.key", where)
        _refuse(source.item_type, target.item_type, f"{column}.value", where)
    elif is_list(source) and is_list(target):
        _refuse(source.value_type, target.value_type, f"{column}.element", where)
    elif _family(source) != _family(target):
        raise SchemaError(
            f"column {column!r}: {where} stores {target}, the frame brings {source}. "
            "Cast the column to a type that fits"
        )


def _family(kind: Any) -> str:
    types = pa.types
    if types.is_dictionary(kind):
        return _family(kind.value_type)
    if types.is_decimal256(kind) and kind.precision > 38:
        return "text"  # beyond the decimals of Spark, which sees them as texts
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "bytes"
    if types.is_timestamp(kind):
        return "local time" if kind.tz is None else "instant"
    for name in ("date", "time", "duration", "boolean", "struct", "map", "list"):
        if getattr(types, f"is_{name}")(kind):
            return name
    return str(kind)
