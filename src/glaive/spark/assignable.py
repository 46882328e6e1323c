"""Check on the driver under which types a frame can be stored, before any task writes.

Spark has fewer types than a dataset, so its numbers can be stored as any number type, its strings
as any string type and so on; each value is checked when it is written. Other checks are common to
all writers: see :mod:`glaive.dataset.writing.plan`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import is_variant

from glaive.arrow.extensions import is_json
from glaive.errors import OptionError, SchemaError
from glaive.expr.coerce import is_list, is_number, is_string
from glaive.format.extension import storage_type, with_json
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.spark.types import spark_decimal

__all__ = [
    "assigned",
    "matching",
    "refuse_cut_names",
    "refuse_missing",
    "refuse_same_without_case",
    "refuse_unassignable",
    "spelled",
    "stored_types",
    "two_values",
    "unassignable",
    "values_by_column",
    "without_case",
]


def without_case(names: Sequence[str]) -> dict[str, str]:
    """Names by their lower case, without names that differ in case alone."""
    times = Counter(name.lower() for name in names)
    return {name.lower(): name for name in names if times[name.lower()] == 1}


def matching(source: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The column of a source for each of these columns that it has: by name, else without case."""
    exact, lower = set(source), without_case(source)
    alone = without_case(names)
    found = {}
    for name in names:
        if name in exact:
            found[name] = name
        elif name.lower() in alone and name.lower() in lower:
            found[name] = lower[name.lower()]
    return found


def spelled(source: pa.Schema, target: pa.Schema) -> pa.Schema:
    """The columns of a frame with the names of a dataset, where these differ in case only."""
    names = {given: name for name, given in matching(source.names, target.names).items()}
    return pa.schema([field.with_name(names.get(field.name, field.name)) for field in source])


def values_by_column(values: Mapping[Any, str], names: Sequence[str]) -> Mapping[str, str]:
    """What columns are set to, with the names of a dataset where these differ in case only.

    Raises
    ------
    OptionError
        A column is set twice.
    """
    lower, found = without_case(names), dict[str, str]()
    for given, value in values.items():
        column = given if given in names else lower.get(str(given).lower(), given)
        if column in found:
            raise two_values(column, given)
        found[column] = value
    return found


def two_values(column: str, name: str) -> OptionError:
    """The error for a column that is set twice."""
    return OptionError(
        f"the column {column!r} gets two values, the second by the name {name!r}. Names match "
        "without case: give each column one value"
    )


def refuse_same_without_case(names: Iterable[str], there: Sequence[str], what: str) -> None:
    """Refuse new columns that Spark cannot tell from existing columns.

    Raises
    ------
    SchemaError
        One differs from a column that is there in nothing but case.
    """
    known = {name.lower(): name for name in there}
    for name in names:
        if name not in there and (same := known.get(name.lower())) is not None:
            raise SchemaError(
                f"{what}: the column {name!r} differs from the column {same!r} of the dataset in "
                "nothing but case. Rename it, or set spark.sql.caseSensitive"
            )


def stored_types(schema: LanceSchema) -> pa.Schema:
    """The columns of a dataset as Spark sends them: JSON as text, in Arrow's type for it."""
    return pa.schema([with_json(field) for field in schema.to_arrow()])


def assigned(source: pa.Schema, target: pa.Schema) -> pa.Schema:
    """The columns of a frame with the types of a dataset, if their values can be stored as such.

    Other columns are unchanged: the write plan handles or refuses them.
    """
    fields = []
    for field in source:
        at = target.get_field_index(field.name)
        stored = at >= 0 and _misfit(field.type, target.field(at).type, "") is None
        fields.append(target.field(at) if stored else field)
    return pa.schema(fields)


def refuse_cut_names(sent: pa.Schema) -> None:
    """Refuse names that end at a null character on their way from Java to Python.

    Raises
    ------
    SchemaError
        The name of a column, or of a part of it, has one.
    """
    for field in sent:
        parts: list[Any] = [field]
        for part in parts:
            if "\0" in part.name:
                raise SchemaError(
                    f"column {field.name!r}: Spark's batches cut the name {part.name!r} at its "
                    "null character. Rename it, or write with glaive.write_dataset"
                )
            parts += map(part.type.field, range(part.type.num_fields))


def refuse_missing(given: LanceSchema, wanted: LanceSchema, *, where: str) -> None:
    """Refuse an append that lacks columns, or members of structs.

    Other writers fill them with nulls, but Spark's appends by name need all columns, which detects
    forgotten or renamed ones.

    Raises
    ------
    SchemaError
        A column is missing.
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
    """Check that batches of one schema can be stored under another with the same columns.

    Raises
    ------
    SchemaError
        A type can never be stored.
    """
    fault = unassignable(source, target)
    if fault is not None:
        column, stored, brought = fault
        raise SchemaError(
            f"column {column!r}: {where} stores {stored}, the frame has {brought}. "
            "Cast the column to a matching type"
        )


def unassignable(source: pa.Schema, target: pa.Schema) -> tuple[str, Any, Any] | None:
    """The first part of a column that can never be stored, with the type stored and its own."""
    faults = (_misfit(source.field(one.name).type, one.type, one.name) for one in target)
    return next((fault for fault in faults if fault is not None), None)


def _misfit(source: Any, target: Any, column: str) -> tuple[str, Any, Any] | None:
    """The part of a column that can never be stored, with the type that is stored and its own."""
    types = pa.types
    if is_json(target) and types.is_struct(source) and is_variant(source):
        return None
    source, target = (
        kind.storage_type if is_json(kind) else storage_type(kind) for kind in (source, target)
    )
    if types.is_null(source):
        return None
    parts: list[tuple[Any, Any, str]] = []
    if types.is_struct(source) and types.is_struct(target):
        members = [member.name for member in target]
        given = matching([member.name for member in source], members)
        if len(given) < len(members) or source.num_fields != len(members):
            return column, target, source
        parts = [(source.field(given[one.name]).type, one.type, one.name) for one in target]
    elif types.is_map(source) and types.is_map(target):
        parts = [
            (source.key_type, target.key_type, "key"),
            (source.item_type, target.item_type, "value"),
        ]
    elif is_list(source, fixed=True) and is_list(target, fixed=True):
        parts = [(source.value_type, target.value_type, "element")]
    elif _family(source) != _family(target):
        return column, target, source
    faults = (_misfit(brought, stored, f"{column}.{name}") for brought, stored, name in parts)
    return next((fault for fault in faults if fault is not None), None)


def _family(data_type: Any) -> str:
    types = pa.types
    if types.is_dictionary(data_type):
        return _family(data_type.value_type)
    if types.is_decimal(data_type) and spark_decimal(data_type) is None:
        return "text"  # exceeds Spark's decimals, so it is a string in Spark
    if is_number(data_type):
        return "number"
    if is_string(data_type):
        return "text"
    if (
        types.is_binary(data_type)
        or types.is_large_binary(data_type)
        or types.is_fixed_size_binary(data_type)
    ):
        return "bytes"
    if types.is_timestamp(data_type):
        return "local time" if data_type.tz is None else "instant"
    for name in ("date", "time", "duration", "boolean", "struct", "map", "list"):
        if getattr(types, f"is_{name}")(data_type):
            return name
    return str(data_type)
