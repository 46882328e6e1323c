"""Arrow types and Spark types, both ways, without losing what Spark has no name for.

Spark knows fewer types than a dataset can hold: no unsigned or half-precision numbers, no
lists of fixed size, one width of offsets. Reading widens such types, and keeps their names in
the metadata of the Spark column, which travels with the column through select, filter, join
and cache. Writing looks there first and stores the type the column came from.

The keys say where in the type the name belongs: ``lance:arrow_type`` is the column itself,
``lance:arrow_type.element`` the items of its list, ``.key`` and ``.value`` the parts of a map.
Fields of a struct carry metadata of their own. The names are the format's logical types, such
as ``uint8`` or ``fixed_size_list:float:128``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema as pyspark_to_arrow_schema
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
    TimeType,
)

from glaive.errors import FormatError, SchemaError
from glaive.format.extension import field_metadata
from glaive.format.logical_types import leaf_type, logical_type
from glaive.spark.cast import is_list

__all__ = ["ARROW_TYPE", "as_spark_sends", "stored_schema", "to_arrow", "to_spark"]

ARROW_TYPE = "lance:arrow_type"
"""Metadata key for the name of the stored type; a path within the type may follow it."""

KEPT_METADATA = ("ARROW:", "lance-", "lance.", "lance:")
"""Beginnings of metadata keys that mean something to a dataset and are carried both ways."""

DECIMAL_DIGITS = 38
"""The most Spark has."""

ALIASES = {"float16": "halffloat", "float32": "float", "float64": "double"}
"""Arrow's names of types that the format calls otherwise."""

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
    """Return the frame a dataset of this schema is read as.

    Nullability is the schema's. Types Spark has no equal for are widened and named in the
    metadata of their column.

    Raises
    ------
    SchemaError
        A column has a type Spark cannot hold in any form.
    """
    return StructType([_to_spark_field(column, column.name) for column in schema])


def as_spark_sends(schema: StructType) -> pa.Schema:
    """Return the Arrow schema Spark wants from a source, and gives to a writer."""
    try:
        return pyspark_to_arrow_schema(schema, timezone="UTC")
    except PySparkException as error:
        raise SchemaError(f"Spark cannot hand this frame over as Arrow data: {error}") from error


def to_arrow(schema: StructType, *, strict_nullability: bool = False) -> pa.Schema:
    """Return the schema to store a frame under: types named in metadata, else the plain ones.

    A name that no longer fits the column (it was cast since) is passed over. All columns and
    their parts may hold nulls, as another write may bring some, unless ``strict_nullability``.
    """
    as_spark_sends(schema)  # refuses what has no Arrow form at all
    return pa.schema([_to_arrow_field(field, strict=strict_nullability) for field in schema])


def stored_schema(
    schema: StructType, vector_columns: tuple[str, ...] = (), *, strict_nullability: bool = False
) -> pa.Schema:
    """Return :func:`to_arrow` with some array columns made lists of fixed size.

    Parameters
    ----------
    vector_columns
        ``"column:dimension"`` or ``"column:dimension:type"``, such as ``"emb:128:float16"``.
        The type is an Arrow name or a logical type; the column's own when omitted.

    Raises
    ------
    SchemaError
        A column does not exist or is no array; a text does not have this form.
    """
    arrow = to_arrow(schema, strict_nullability=strict_nullability)
    for text in vector_columns:
        name, dimension, value_name = _split_vector(text, arrow.names)
        position = arrow.get_field_index(name)
        column = arrow.field(position)
        if not is_list(column.type):
            raise SchemaError(
                f"vector column {name!r}: expected an array column, found {schema[name].dataType}"
            )
        value = _value_type(value_name, text) if value_name else column.type.value_type
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
        if key.startswith(KEPT_METADATA) and _is_text(value)
    }
    return StructField(field.name, spark, field.nullable, metadata | names)


def _to_spark(kind: Any, key: str, names: dict[str, str], where: str) -> DataType:
    """Return the Spark type for an Arrow type; put what it cannot say into ``names``."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    types = pa.types
    if types.is_struct(kind):
        return StructType([_to_spark_field(kind.field(i), where) for i in range(kind.num_fields)])
    if types.is_map(kind):
        return MapType(
            _to_spark(kind.key_type, f"{key}.key", names, where),
            _to_spark(kind.item_type, f"{key}.value", names, where),
            kind.item_field.nullable,
        )
    if types.is_fixed_size_list(kind):
        if types.is_nested(kind.value_type) and not types.is_fixed_size_list(kind.value_type):
            names[key] = f"fixed_size_list:struct:{kind.list_size}"
        else:
            names[key] = logical_type(kind, where)
        element = _to_spark(kind.value_type, f"{key}.element", {}, where)
        return ArrayType(element, kind.value_field.nullable)
    if is_list(kind):
        if types.is_large_list(kind):
            names[key] = "large_list"
        element = _to_spark(kind.value_type, f"{key}.element", names, where)
        return ArrayType(element, kind.value_field.nullable)
    spark = _to_spark_leaf(kind, where)
    if types.is_dictionary(kind):
        kind = kind.value_type  # plain values in Spark, and in what Spark writes
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return spark  # wider in a dataset as well
    name = logical_type(kind, where)
    if name != logical_type(_plain_arrow(spark), where):
        names[key] = name
    return spark


def _to_spark_leaf(kind: Any, where: str) -> DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return _to_spark_leaf(kind.value_type, where)
    if (simple := SIMPLE.get(kind)) is not None:
        return simple
    if types.is_fixed_size_binary(kind):
        return BinaryType()
    if types.is_timestamp(kind):
        return TimestampNTZType() if kind.tz is None else TimestampType()
    if types.is_time(kind):
        return TimeType(6)
    if types.is_duration(kind):
        return DayTimeIntervalType()
    if types.is_decimal(kind):
        fits = kind.precision <= DECIMAL_DIGITS and 0 <= kind.scale <= kind.precision
        return DecimalType(kind.precision, kind.scale) if fits else StringType()
    raise SchemaError(
        f"column {where!r}: Spark has no type for {kind}. "
        "Name the columns to read: option columns='a,b'"
    )


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _plain_arrow(spark: DataType) -> Any:
    return as_spark_sends(StructType([StructField("_", spark)])).field(0).type


# ------------------------------------------------------------------------- Spark to Arrow


def _to_arrow_field(field: StructField, *, strict: bool) -> pa.Field:
    metadata = field.metadata or {}
    kind = _to_arrow(field.dataType, ARROW_TYPE, _stored_names(field), strict=strict)
    kept = {
        key: str(value)
        for key, value in metadata.items()
        if key.startswith(KEPT_METADATA) and not key.startswith(ARROW_TYPE)
    }
    nullable = field.nullable or not strict
    return pa.field(field.name, kind, nullable=nullable, metadata=kept or None)


def _stored_names(field: StructField) -> dict[str, str]:
    """Return the type names of a column by place; the keys of the JVM connector count too."""
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
        if name.startswith("fixed_size_list:struct:") and pa.types.is_struct(value):
            return pa.list_(item, int(name.rpartition(":")[2]))
        stored = _named(name, spark)
        return pa.list_(item) if stored is None else stored
    stored = _named(name, spark)
    return _plain_arrow(spark) if stored is None else stored


def _named(name: str, spark: DataType) -> pa.DataType | None:
    """Return the type of this name if values of the Spark type can be stored as it."""
    if not name:
        return None
    try:
        kind = leaf_type(name)
        read_as = _to_spark(kind, ARROW_TYPE, {}, "metadata")
    except (FormatError, SchemaError):
        return None  # metadata of other origin under our key, or of a newer glaive
    return kind if _same(read_as, spark) else None


def _same(one: DataType, other: DataType) -> bool:
    """Compare types without nullability."""
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return _same(one.elementType, other.elementType)
    if isinstance(one, TimeType) and isinstance(other, TimeType):
        return True
    if isinstance(one, DayTimeIntervalType) and isinstance(other, DayTimeIntervalType):
        return True
    if isinstance(one, StringType) and isinstance(other, StringType):
        return True  # collations do not change the stored bytes
    return one == other


# ----------------------------------------------------------------------- vector columns


def _split_vector(text: str, columns: list[str]) -> tuple[str, int, str]:
    parts = text.split(":")
    # The name may contain colons: take what is left of the numbers.
    for cut in (2, 1):
        name, rest = ":".join(parts[:-cut]), parts[-cut:]
        if name in columns and rest[0].isdecimal() and int(rest[0]) > 0:
            return name, int(rest[0]), rest[1] if cut == 2 else ""
    raise SchemaError(
        f"vector column {text!r}: expected 'column:dimension' or 'column:dimension:type', such "
        f"as 'emb:128:float16', with one of the columns {', '.join(columns)}"
    )


def _value_type(name: str, text: str) -> pa.DataType:
    try:
        kind: pa.DataType = leaf_type(ALIASES.get(name, name))
    except FormatError as error:
        raise SchemaError(
            f"vector column {text!r}: {name!r} is no type; take float16, float32, float64, int8, "
            "uint8 or another Arrow name"
        ) from error
    return kind
