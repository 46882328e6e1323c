"""The types under which the columns of a frame are stored.

In this order: the option ``arrow_schema``; the options ``vector_columns`` and ``blob_columns``; the
type that a column had where it was read, which Spark keeps as metadata until an aggregate or a
union drops it; the type of the column in the dataset that is overwritten; that of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.format.blobs import BLOB_V2
from glaive.format.declared_keys import is_primary_key
from glaive.format.field import BLOB
from glaive.format.fields import LanceSchema
from glaive.format.logical_types import EXTENSION_NAME
from glaive.spark.options import Options
from glaive.spark.types import is_recorded, same_type, stored_schema, to_spark, vector_name

__all__ = ["blob_field_of", "frame_types", "recorded_types", "refuse_other_types"]


def frame_types(
    schema: StructType, options: Options, replaced: pa.Schema | None = None
) -> pa.Schema:
    """Return the schema for storing a frame.

    Parameters
    ----------
    schema
        The frame.
    options
        What the user said about types.
    replaced
        The columns of the dataset that is overwritten.

    Raises
    ------
    ColumnNotFoundError
        An option names a column that the frame lacks.
    SchemaError
        A column cannot have the type that an option names.
    """
    if options.arrow_schema is not None:
        return options.arrow_schema
    recorded = StructType([_recorded(field, options.column_types) for field in schema])
    stored = stored_schema(
        recorded, options.vector_columns, strict_nullability=options.strict_nullability
    )
    for name in options.blob_columns:
        if name not in schema.names:
            raise ColumnNotFoundError.among(name, schema.names, where="the frame")
        if not isinstance(schema[name].dataType, BinaryType):
            raise SchemaError(
                f"blob column {name!r}: expected a binary column, found {schema[name].dataType}"
            )
    vectors = {vector_name(entry, schema.names) for entry in options.vector_columns}
    for position, field in enumerate(recorded):
        if field.name in options.blob_columns:
            stored = stored.set(position, blob_field_of(stored.field(position)))
        elif replaced is not None and not is_recorded(field) and field.name not in vectors:
            at = replaced.get_field_index(field.name)
            if at >= 0 and (kept := _kept(field, replaced.field(at))) is not None:
                stored = stored.set(position, kept)
    for position, column in enumerate(LanceSchema.from_arrow(stored).fields):
        if is_primary_key(column):  # other readers refuse a table where it may be null
            stored = stored.set(position, stored.field(position).with_nullable(False))
    return stored


def recorded_types(schema: StructType) -> dict[str, dict[str, str]]:
    """The types that columns of a frame had where they were read, by column.

    Spark's optimizer drops some of this metadata, such as that of ``dropDuplicates``, before the
    writer sees it.
    """
    return {
        field.name: {key: str(value) for key, value in field.metadata.items()}
        for field in schema
        if is_recorded(field)
    }


def blob_field_of(field: Any) -> Any:
    """The field of a binary column as one of blobs."""
    return pa.field(field.name, pa.large_binary(), field.nullable, {BLOB: "true"})


def refuse_other_types(stored: pa.Schema, dataset: pa.Schema, options: Options) -> None:
    """Refuse options of an append that name other types than those of the dataset.

    Raises
    ------
    OptionError
        An append has the types of the dataset; the option would have no effect.
    """
    named: dict[str, list[str]] = {
        "vector_columns": [vector_name(entry, stored.names) for entry in options.vector_columns],
        "blob_columns": list(options.blob_columns),
        "arrow_schema": [] if options.arrow_schema is None else stored.names,
    }
    for option, names in named.items():
        for name in names:
            if (at := dataset.get_field_index(name)) < 0:
                continue  # the write plan refuses it, or the column is added
            wanted, found = stored.field(name), dataset.field(at)
            both_blobs = _is_blob(wanted) and _is_blob(found)
            if not both_blobs and not _alike(wanted.type, found.type):
                raise OptionError(
                    f"{option}: the dataset stores column {name!r} as {found.type}, the option "
                    f"says {wanted.type}. An append keeps the types of the dataset; leave the "
                    "option out, or overwrite the dataset"
                )


def _recorded(field: StructField, types: Mapping[str, Mapping[str, str]]) -> StructField:
    lost = types.get(field.name)
    if lost is None or is_recorded(field):
        return field
    metadata: dict[str, Any] = {**(field.metadata or {}), **lost}
    return StructField(field.name, field.dataType, field.nullable, metadata)


def _kept(field: StructField, replaced: Any) -> Any:
    """The field of the dataset, if values of the frame's column can have its type."""
    if _is_blob(replaced):
        binary = isinstance(field.dataType, BinaryType)
        return blob_field_of(replaced.with_nullable(True)) if binary else None
    if EXTENSION_NAME.encode() in (replaced.metadata or {}):
        return None
    try:
        (read_as,) = to_spark(pa.schema([replaced]))
    except SchemaError:  # a type that Spark does not have, so the frame's is another
        return None
    if not same_type(read_as.dataType, field.dataType):
        return None
    return replaced.with_nullable(True)


def _is_blob(field: Any) -> bool:
    metadata = field.metadata or {}
    name = metadata.get(EXTENSION_NAME.encode())
    return metadata.get(BLOB.encode()) == b"true" or name == BLOB_V2.encode()


def _alike(one: Any, other: Any) -> bool:
    """Whether types are equal but for the names and nullability of list items."""
    if pa.types.is_fixed_size_list(one) and pa.types.is_fixed_size_list(other):
        return one.list_size == other.list_size and _alike(one.value_type, other.value_type)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _alike(one.value_type, other.value_type)
    return bool(one == other)
