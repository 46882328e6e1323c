"""Conversion between Arrow types and Spark types, in both directions, without losing types.

Spark has fewer types than a dataset: no unsigned or half-precision numbers, no fixed-size lists,
only one width of offsets. Reading widens such types and records their names in the metadata of
the Spark column, which select, filter, join and cache preserve. Writing uses this metadata to
store the original type again.

The key includes the path within the type: ``lance:arrow_type`` is the column itself,
``lance:arrow_type.element`` the items of its list, ``.key`` and ``.value`` the parts of a map.
Fields of a struct have metadata of their own. The names are the format's logical types, such
as ``uint8`` or ``fixed_size_list:float:128``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import is_variant
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from glaive.arrow.extensions import is_json
from glaive.errors import FormatError, SchemaError
from glaive.expr.coerce import is_list
from glaive.format.blobs import BLOB_V2
from glaive.format.extension import field_metadata
from glaive.format.field import BLOB
from glaive.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME, leaf_type, logical_type
from glaive.spark.versions import HAS_TIME, SPARK, TimeType, arrow_schema

__all__ = [
    "ARROW_TYPE",
    "is_recorded",
    "same_type",
    "spark_arrow_schema",
    "spark_decimal",
    "stored_schema",
    "to_arrow",
    "to_spark",
    "vector_name",
]

ARROW_TYPE = "lance:arrow_type"
"""Metadata key for the name of the stored type; a path within the type may follow it."""

METADATA_PREFIXES = ("ARROW:", "lance-", "lance.", "lance:")
"""Metadata with these key prefixes is copied in both directions, but for the names of types."""

JSON_TEXT = "json"
"""Name of Arrow's JSON type, a text in Spark; the format stores it in another way than texts."""

MAX_DECIMAL_DIGITS = 38
"""Maximum precision of Spark's decimals."""

ALIASES = {"float16": "halffloat", "float32": "float", "float64": "double"}
"""Arrow's names of types that have other names in the format."""

SIMPLE: Mapping[pa.DataType, DataType] = {
    pa.null(): NullType(),
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.uint8(): ShortType(),
    pa.uint16(): IntegerType(),
    pa.uint32(): LongType(),
    pa.uint64(): DecimalType(20, 0),
    pa.float16(): FloatType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.date32(): DateType(),
    pa.date64(): DateType(),
    pa.string(): StringType(),
    pa.large_string(): StringType(),
    pa.string_view(): StringType(),
    pa.binary(): BinaryType(),
    pa.large_binary(): BinaryType(),
    pa.binary_view(): BinaryType(),
}


def to_spark(schema: pa.Schema) -> StructType:
    """Return the Spark schema of a dataset, with the same nullability.

    Types that Spark does not have are widened and recorded in the metadata of their column.

    Raises
    ------
    SchemaError
        Spark cannot represent the type of a column.
    """
    return StructType([_to_spark_field(column, column.name) for column in schema])


def spark_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the batches that Spark exchanges with sources and writers."""
    try:
        return arrow_schema(schema)
    except PySparkException as error:
        for field in schema if len(schema) > 1 else ():
            spark_arrow_schema(StructType([field]))  # names the column
        raise SchemaError(
            f"column {schema.names[0]!r}: {str(error).rstrip('.')}. Cast it first, such as to a "
            "string, or drop it"
        ) from error


def to_arrow(schema: StructType, *, strict_nullability: bool = False) -> pa.Schema:
    """Return the schema for storing a frame: types recorded in metadata, else the plain ones.

    A recorded type that no longer fits the column (it was cast since) is ignored. All columns
    and their parts are nullable, as a later write may have nulls, unless ``strict_nullability``.
    """
    spark_arrow_schema(schema)  # fails for types without an Arrow equivalent
    return pa.schema([_to_arrow_field(field, strict=strict_nullability) for field in schema])


def stored_schema(
    schema: StructType, vector_columns: tuple[str, ...] = (), *, strict_nullability: bool = False
) -> pa.Schema:
    """Return :func:`to_arrow` with some array columns converted to fixed-size lists.

    Parameters
    ----------
    vector_columns
        ``"column:dimension"`` or ``"column:dimension:type"``, such as ``"emb:128:float16"``.
        The type is an Arrow name or a logical type; the column's own when omitted.

    Raises
    ------
    SchemaError
        A column does not exist or is not an array; an entry does not have this form.
    """
    arrow = to_arrow(schema, strict_nullability=strict_nullability)
    for entry in vector_columns:
        name, dimension, value_name = _split_vector(entry, arrow.names)
        position = arrow.get_field_index(name)
        column = arrow.field(position)
        if not is_list(column.type, fixed=True):
            raise SchemaError(
                f"vector column {name!r}: expected an array column, found {schema[name].dataType}"
            )
        value = _value_type(value_name, entry) if value_name else column.type.value_type
        item = pa.field("item", value, nullable=True)
        arrow = arrow.set(position, column.with_type(pa.list_(item, dimension)))
    return arrow


# ------------------------------------------------------------------------- Arrow to Spark


def _to_spark_field(field: pa.Field, where: str) -> StructField:
    names: dict[str, str] = {}
    spark = _to_spark(field.type, ARROW_TYPE, names, where)
    metadata = {
        key: value.decode()
        for key, value in field_metadata(field).items()
        if _is_copied(key) and _is_text(value)
    }
    return StructField(field.name, spark, field.nullable, metadata | names)


def _to_spark(data_type: Any, key: str, names: dict[str, str], where: str) -> DataType:
    """Return the Spark type for an Arrow type; record a type that it loses in ``names``."""
    if is_json(data_type):
        names[key] = JSON_TEXT
        return StringType()
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    types = pa.types
    if types.is_struct(data_type) and is_variant(data_type):
        return VariantType()
    if types.is_struct(data_type):
        return StructType(
            [_to_spark_field(data_type.field(i), where) for i in range(data_type.num_fields)]
        )
    if types.is_map(data_type):
        return MapType(
            _to_spark(data_type.key_type, f"{key}.key", names, where),
            _to_spark(data_type.item_type, f"{key}.value", names, where),
            data_type.item_field.nullable,
        )
    if types.is_fixed_size_list(data_type):
        if types.is_nested(data_type.value_type) and not types.is_fixed_size_list(
            data_type.value_type
        ):
            names[key] = f"fixed_size_list:struct:{data_type.list_size}"
        else:
            names[key] = logical_type(data_type, where)
        element = _to_spark(data_type.value_type, f"{key}.element", {}, where)
        return ArrayType(element, data_type.value_field.nullable)
    if is_list(data_type, fixed=True):
        if types.is_large_list(data_type):
            names[key] = "large_list"
        element = _to_spark(data_type.value_type, f"{key}.element", names, where)
        return ArrayType(element, data_type.value_field.nullable)
    spark = _to_spark_leaf(data_type, where)
    if types.is_dictionary(data_type):
        data_type = data_type.value_type  # plain values in Spark, and in what Spark writes
    if types.is_decimal32(data_type) or types.is_decimal64(data_type):
        return spark  # datasets store the wider type as well
    name = logical_type(data_type, where)
    if name != logical_type(_plain_arrow(spark), where):
        names[key] = name
    return spark


def _to_spark_leaf(data_type: Any, where: str) -> DataType:
    types = pa.types
    if types.is_dictionary(data_type):
        return _to_spark_leaf(data_type.value_type, where)
    if (simple := SIMPLE.get(data_type)) is not None:
        return simple
    if types.is_fixed_size_binary(data_type):
        return BinaryType()
    if types.is_timestamp(data_type):
        return TimestampNTZType() if data_type.tz is None else TimestampType()
    if types.is_time(data_type) and HAS_TIME:
        return TimeType(6)
    if types.is_duration(data_type):
        return DayTimeIntervalType()
    if types.is_decimal(data_type):
        return spark_decimal(data_type) or StringType()
    raise SchemaError(
        f"column {where!r}: {SPARK} has no type for {data_type}"
        f"{'; Spark 4.1 has one' if types.is_time(data_type) else ''}. Name the columns to read: "
        "option columns='a,b'"
    )


def spark_decimal(data_type: Any) -> DecimalType | None:
    """The decimals of Spark that have all values of a type; None if those have too many digits.

    Spark's scales are between 0 and the precision: ``decimal(5, -2)`` is ``decimal(7, 0)``.
    """
    precision, scale = data_type.precision, data_type.scale
    digits = max(precision, scale) - min(scale, 0)
    return DecimalType(digits, max(scale, 0)) if digits <= MAX_DECIMAL_DIGITS else None


def _is_copied(key: str) -> bool:
    return key.startswith(METADATA_PREFIXES) and not key.startswith(ARROW_TYPE)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _plain_arrow(spark: DataType) -> Any:
    return spark_arrow_schema(StructType([StructField("_", spark)])).field(0).type


# ------------------------------------------------------------------------- Spark to Arrow


def is_recorded(field: StructField) -> bool:
    """Whether the metadata of a column says how it was stored."""
    return bool(_stored_names(field)) or _is_blob(field)


def _is_blob(field: StructField) -> bool:
    metadata = field.metadata or {}
    return (
        str(metadata.get(BLOB, "")).lower() == "true"
        or metadata.get("lance.encoding") == "blob"  # of the JVM connector
        or metadata.get(EXTENSION_NAME) == BLOB_V2
    )


def _to_arrow_field(field: StructField, *, strict: bool) -> pa.Field:
    metadata = field.metadata or {}
    if _is_blob(field) and isinstance(field.dataType, BinaryType):
        nullable = field.nullable or not strict
        return pa.field(field.name, pa.large_binary(), nullable, {BLOB: "true"})
    if _is_blob(field):
        raise SchemaError(
            f"column {field.name!r} tells where blobs are, not what they are. Read it with "
            "blobs='bytes', or drop it"
        )
    names = _stored_names(field)
    data_type = _to_arrow(field.dataType, ARROW_TYPE, names, strict=strict)
    copied = {key: str(value) for key, value in metadata.items() if _is_copied(key)}
    fits = isinstance(field.dataType, ArrayType) or _named(
        names.get(ARROW_TYPE, ""), field.dataType
    )
    if is_json(data_type) or (ARROW_TYPE in names and not fits):
        for key in (EXTENSION_NAME, EXTENSION_METADATA):  # of another type than the field's
            copied.pop(key, None)
    nullable = field.nullable or not strict
    return pa.field(field.name, data_type, nullable=nullable, metadata=copied or None)


def _stored_names(field: StructField) -> dict[str, str]:
    """Return the recorded types of a column by key; also reads keys of the JVM connector."""
    metadata = field.metadata or {}
    names = {key: str(name) for key, name in metadata.items() if key.startswith(ARROW_TYPE)}
    if names:
        return names
    half = str(metadata.get("arrow.float16", "")).lower() == "true"
    size = str(metadata.get("arrow.fixed-size-list.size", ""))
    if size.isdecimal() and isinstance(field.dataType, ArrayType):
        value = logical_type(_plain_arrow(field.dataType.elementType), field.name)
        names[ARROW_TYPE] = f"fixed_size_list:{'halffloat' if half else value}:{size}"
    elif half:
        names[ARROW_TYPE] = "halffloat"
    elif str(metadata.get("arrow.large_var_char", "")).lower() == "true":
        names[ARROW_TYPE] = "large_string"
    return names


def _to_arrow(spark: DataType, key: str, names: Mapping[str, str], *, strict: bool) -> Any:
    if isinstance(spark, StructType):
        return pa.struct([_to_arrow_field(field, strict=strict) for field in spark])
    if isinstance(spark, MapType):
        return pa.map_(
            pa.field("key", _to_arrow(spark.keyType, f"{key}.key", names, strict=strict), False),
            pa.field(
                "value",
                _to_arrow(spark.valueType, f"{key}.value", names, strict=strict),
                spark.valueContainsNull or not strict,
            ),
        )
    name = names.get(key, "")
    if isinstance(spark, ArrayType):
        value = _to_arrow(spark.elementType, f"{key}.element", names, strict=strict)
        item = pa.field("item", value, spark.containsNull or not strict)
        if name == "large_list":
            return pa.large_list(item)
        prefix, _, size = name.rpartition(":")
        if prefix == "fixed_size_list:struct" and _list_size(size) and pa.types.is_struct(value):
            return pa.list_(item, _list_size(size))
        stored = _named(name, spark)
        return pa.list_(item) if stored is None else stored
    stored = _named(name, spark)
    return _plain_arrow(spark) if stored is None else stored


def _list_size(text: str) -> int:
    """The size of a fixed-size list, which has 32 bits in Arrow; 0 for other texts."""
    return int(text) if text.isdecimal() and len(text) <= 10 and int(text) < 2**31 else 0


def _named(name: str, spark: DataType) -> pa.DataType | None:
    """Return the type with this name if values of the Spark type can be stored as it."""
    if not name:
        return None
    if name == JSON_TEXT:
        return pa.json_() if isinstance(spark, StringType) else None
    try:
        data_type = leaf_type(name)
        read_as = _to_spark(data_type, ARROW_TYPE, {}, "metadata")
    except (FormatError, SchemaError):
        return None  # metadata of another program with the same key, or of a newer glaive
    return data_type if same_type(read_as, spark) else None


def same_type(first: DataType, other: DataType) -> bool:
    """Compare types without nullability."""
    if isinstance(first, ArrayType) and isinstance(other, ArrayType):
        return same_type(first.elementType, other.elementType)
    kinds = (TimeType, DayTimeIntervalType, StringType)  # collations do not change stored bytes
    return first == other or any(isinstance(first, t) and isinstance(other, t) for t in kinds)


# ----------------------------------------------------------------------- vector columns


def vector_name(entry: str, columns: list[str]) -> str:
    """The column of an entry of ``vector_columns``; errors as for :func:`stored_schema`."""
    return _split_vector(entry, columns)[0]


def _split_vector(entry: str, columns: list[str]) -> tuple[str, int, str]:
    parts = entry.split(":")
    # The name may contain colons, so split from the right.
    for count in (2, 1):
        name, suffix = ":".join(parts[:-count]), parts[-count:]
        if name in columns and (size := _list_size(suffix[0])):
            return name, size, suffix[1] if count == 2 else ""
    raise SchemaError(
        f"vector column {entry!r}: expected 'column:dimension' or 'column:dimension:type', such "
        f"as 'emb:128:float16', with one of the columns {', '.join(columns)}"
    )


def _value_type(name: str, entry: str) -> pa.DataType:
    try:
        data_type: pa.DataType = leaf_type(ALIASES.get(name, name))
    except FormatError as error:
        raise SchemaError(
            f"vector column {entry!r}: {name!r} is not a type; use float16, float32, float64, "
            "int8, uint8 or another Arrow type"
        ) from error
    return data_type
