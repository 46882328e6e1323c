"""Which types a frame may be stored under. Asked on the driver, before any task writes a byte.

Spark has fewer types than a dataset, so its numbers go into any number, its texts into texts and
so on; whether each value fits is seen when it is written. All else about columns is the same for
whoever writes rows: see :mod:`glaive.dataset.writing.plan`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from glaive.errors import SchemaError
from glaive.format.extension import storage_type
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.spark.cast import is_list

__all__ = ["assigned", "refuse_missing", "refuse_unassignable"]


def assigned(source: pa.Schema, target: pa.Schema) -> pa.Schema:
    """The columns of a frame with the types of a dataset, where their values go into these.

    Other columns stay as they are: the plan of the write refuses them, or knows what to do.
    """
    fields = []
    for field in source:
        at = target.get_field_index(field.name)
        stored = at >= 0 and _misfit(field.type, target.field(at).type, "") is None
        fields.append(target.field(at) if stored else field)
    return pa.schema(fields)


def refuse_missing(given: LanceSchema, wanted: LanceSchema, *, where: str) -> None:
    """Refuse an append that leaves columns, or members of structs, without values.

    Elsewhere they become null. Spark appends by name to no table without naming all columns:
    one that was forgotten, or renamed, is found before rows lack it.

    Raises
    ------
    SchemaError
        Names the columns and the remedy.
    """
    there = set(given.field_ids())
    missing = [path for path, number in _paths(wanted.fields) if number not in there]
    if missing:
        raise SchemaError(
            f"the frame lacks columns of {where}: {', '.join(missing)}. "
            f"Add them, such as .withColumn({missing[0]!r}, lit(None)), or overwrite the dataset"
        )


def _paths(fields: tuple[Field, ...], prefix: str = "") -> Iterator[tuple[str, int]]:
    for field in fields:
        yield prefix + field.name, field.id
        yield from _paths(field.children, f"{prefix}{field.name}.")


def refuse_unassignable(source: pa.Schema, target: pa.Schema, *, where: str) -> None:
    """Check that batches of one schema can be stored under another of the same columns.

    Raises
    ------
    SchemaError
        A type can never be stored.
    """
    for field in target:
        fault = _misfit(source.field(field.name).type, field.type, field.name)
        if fault is not None:
            column, stored, brought = fault
            raise SchemaError(
                f"column {column!r}: {where} stores {stored}, the frame brings {brought}. "
                "Cast the column to a type that fits"
            )


def _misfit(source: Any, target: Any, column: str) -> tuple[str, Any, Any] | None:
    """The part of a column that can never be stored, with both its types."""
    source, target = storage_type(source), storage_type(target)
    types = pa.types
    if types.is_null(source):
        return None
    parts: list[tuple[Any, Any, str]] = []
    if types.is_struct(source) and types.is_struct(target):
        if {field.name for field in source} != {field.name for field in target}:
            return column, target, source
        parts = [(source.field(field.name).type, field.type, field.name) for field in target]
    elif types.is_map(source) and types.is_map(target):
        parts = [
            (source.key_type, target.key_type, "key"),
            (source.item_type, target.item_type, "value"),
        ]
    elif is_list(source) and is_list(target):
        parts = [(source.value_type, target.value_type, "element")]
    elif _family(source) != _family(target):
        return column, target, source
    faults = (_misfit(brought, stored, f"{column}.{name}") for brought, stored, name in parts)
    return next((fault for fault in faults if fault is not None), None)


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
