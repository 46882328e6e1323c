"""Lossless conversion between Arrow types and Spark types, in both directions.

Spark has fewer types than a dataset: it lacks unsigned and half-precision numbers, fixed-size
lists, and 64-bit offsets. Reading widens such types and records their names in the metadata of the
Spark column. Select, filter, join and cache preserve it. Writing uses this metadata to store the
original type again.

The key includes the path within the type. ``lance:arrow_type`` is the column itself,
``lance:arrow_type.element`` the items of its list, ``.key`` and ``.value`` the parts of a map.
Fields of a struct have their own metadata. The names are the format's logical types, such as
``uint8`` or ``fixed_size_list:float:128``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, is_variant
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from glaive.arrow.extensions import is_json
from glaive.errors import FormatError, OptionError, SchemaError
from glaive.expr.coerce import is_binary, is_list, is_number, is_string
from glaive.format.extension import field_metadata, storage_type, with_json
from glaive.format.field import BLOB, BLOB_V2, Field, quoted_name
from glaive.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME, leaf_type, logical_type
from glaive.spark.versions import HAS_TIME, SPARK, TimeType, arrow_schema

if TYPE_CHECKING:
    from glaive.format.fields import LanceSchema


ARROW_TYPE = "lance:arrow_type"
"""Metadata key for the name of the stored type; a path within the type may follow it."""

METADATA_PREFIXES = ("ARROW:", "lance-", "lance.", "lance:")
"""Key prefixes of metadata copied in both directions, except the names of types."""

JSON_TEXT = "json"
"""Name of Arrow's JSON type, a string in Spark; the format stores it differently from strings."""

MAX_DECIMAL_DIGITS = 38
"""Maximum precision of Spark's decimals."""

ALIASES = {"float16": "halffloat", "float32": "float", "float64": "double"}
"""Arrow's names of types that the format names differently."""

WIDER: Mapping[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}
"""Types that Spark lacks, and the Spark types that have all their values."""


def to_spark(schema: pa.Schema) -> StructType:
    """Return the Spark schema of a dataset, with the same nullability.

    glaive widens types that Spark lacks and records them in the metadata of their column.

    Raises
    ------
    SchemaError
        Spark has no type for a column.
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
    """Return the schema for storing a frame: types recorded in metadata, else the plain types.

    A recorded type is ignored if the column was cast afterwards. All columns and their parts are
    nullable, as a later write may have nulls, unless ``strict_nullability``.
    """
    spark_arrow_schema(schema)  # fails for types that Arrow lacks
    return pa.schema([_to_arrow_field(field, strict=strict_nullability) for field in schema])


def stored_schema(
    schema: StructType, vector_columns: tuple[str, ...] = (), *, strict_nullability: bool = False
) -> pa.Schema:
    """Return :func:`to_arrow` with some array columns converted to fixed-size lists.

    Parameters
    ----------
    vector_columns
        ``"column:dimension"`` or ``"column:dimension:type"``, such as ``"emb:128:float16"``.
        The type is an Arrow name or a logical type; default: the type of the column.

    Raises
    ------
    SchemaError
        A column is missing or has another type than an array; an entry has another form.
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
    """Return the Spark type for an Arrow type; record a type that Spark lacks in ``names``."""
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
        names = {}  # the name of the list includes its items
    if is_list(data_type, fixed=True):
        if types.is_large_list(data_type):
            names[key] = "large_list"
        element = _to_spark(data_type.value_type, f"{key}.element", names, where)
        return ArrayType(element, data_type.value_field.nullable)
    spark = _to_spark_leaf(data_type, where)
    if types.is_dictionary(data_type):
        data_type = data_type.value_type  # plain values in Spark, and in Spark's writes
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
    if types.is_decimal(data_type):
        return spark_decimal(data_type) or StringType()
    if types.is_uint64(data_type):
        return DecimalType(20, 0)
    if types.is_fixed_size_binary(data_type):
        return BinaryType()
    if types.is_time(data_type) and HAS_TIME:
        return TimeType(6)
    try:
        plain = WIDER.get(data_type, data_type)
        return from_arrow_type(plain, prefer_timestamp_ntz=True)
    except PySparkException:
        raise SchemaError(
            f"column {where!r}: {SPARK} has no type for {data_type}"
            f"{'; Spark 4.1 has one' if types.is_time(data_type) else ''}. Name the columns to "
            "read: option columns='a,b'"
        ) from None


def spark_decimal(data_type: Any) -> DecimalType | None:
    """Return the Spark decimal with all values of a type; ``None`` if it has too many digits.

    Spark's scales are between 0 and the precision: ``decimal(5, -2)`` becomes ``decimal(7, 0)``.
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
    """Return whether the metadata of a column records its stored type."""
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
        for key in (EXTENSION_NAME, EXTENSION_METADATA):  # of a type other than the field's
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
    """Return the size of a fixed-size list, 32 bits in Arrow; 0 for other texts."""
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
        return None  # metadata of another program, or of a newer glaive
    return data_type if same_type(read_as, spark) else None


def same_type(first: DataType, other: DataType) -> bool:
    """Compare types; ignore nullability."""
    if isinstance(first, ArrayType) and isinstance(other, ArrayType):
        return same_type(first.elementType, other.elementType)
    kinds = (TimeType, DayTimeIntervalType, StringType)  # collations have the same stored bytes
    return first == other or any(isinstance(first, t) and isinstance(other, t) for t in kinds)


# ----------------------------------------------------------------------- vector columns


def vector_name(entry: str, columns: list[str]) -> str:
    """Return the column of an entry of ``vector_columns``; :func:`stored_schema` lists the
    errors.
    """
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


# --- Check on the driver with which types a frame can be stored, before any task writes --
# Spark has fewer types than a dataset. So its numbers can be stored as any number type, its
# strings as any string type and so on. Each value is checked when it is written. All writers share
# other checks: see :mod:`glaive.dataset.writing.plan`.


def without_case(names: Sequence[str]) -> dict[str, str]:
    """Return names by their lower case; omit names that differ in case only."""
    times = Counter(name.lower() for name in names)
    return {name.lower(): name for name in names if times[name.lower()] == 1}


def matching(source: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return for each of these columns the source's column: by exact name, else ignoring case."""
    exact, lower = set(source), without_case(source)
    alone = without_case(names)
    found = {}
    for name in names:
        if name in exact:
            found[name] = name
        elif name.lower() in alone and name.lower() in lower:
            found[name] = lower[name.lower()]
    return found


_ALL_COLUMNS = re.compile(r"[(,]\s*\*\s*(?:[),]|except\b)")
"""A star for all columns, as opposed to a multiplication."""


def columns_in(text: str, names: Iterable[str], reader: str) -> list[str]:
    """Return names that occur in a lower-case text, plain or as spelled within backticks.

    Raises
    ------
    OptionError
        The text has a ``*`` for all columns, including unread ones.
    """
    if _ALL_COLUMNS.search(text):
        raise OptionError(f"{reader} reads the columns that are named only: name those meant by *")
    spelled = ((name, name.lower()) for name in names)
    return [name for name, low in spelled if low in text or quoted_name(low)[1:-1] in text]


def respelled(source: pa.Schema, target: pa.Schema) -> pa.Schema:
    """Return the columns of a frame with the dataset's names, if they differ in case only."""
    names = {given: name for name, given in matching(source.names, target.names).items()}
    return pa.schema([field.with_name(names.get(field.name, field.name)) for field in source])


def values_by_column(values: Mapping[Any, str], names: Sequence[str]) -> Mapping[str, str]:
    """Return new values by column, with the dataset's names if they differ in case only.

    Raises
    ------
    OptionError
        A column is set twice.
    """
    lower, found = without_case(names), dict[str, str]()
    for given, value in values.items():
        column = given if given in names else lower.get(str(given).lower(), given)
        if column in found:
            raise repeated_column(column, given)
        found[column] = value
    return found


def repeated_column(column: str, name: str) -> OptionError:
    """Return the error for a column that is set twice."""
    return OptionError(
        f"the column {column!r} gets two values, the second by the name {name!r}. Names match "
        "without case: give each column one value"
    )


def refuse_same_without_case(names: Iterable[str], there: Sequence[str], what: str) -> None:
    """Refuse new columns whose names differ from existing columns in case only.

    Raises
    ------
    SchemaError
        A new column differs from an existing column in case only.
    """
    known = {name.lower(): name for name in there}
    for name in names:
        if name not in there and (same := known.get(name.lower())) is not None:
            raise SchemaError(
                f"{what}: the column {name!r} differs from the column {same!r} of the dataset in "
                "nothing but case. Rename it, or set spark.sql.caseSensitive"
            )


def stored_types(schema: LanceSchema) -> pa.Schema:
    """Return the columns of a dataset as Spark sends them: JSON as strings of Arrow's JSON type."""
    return pa.schema([with_json(field) for field in schema.to_arrow()])


def assigned(source: pa.Schema, target: pa.Schema) -> pa.Schema:
    """Return the columns of a frame with the types of a dataset, if these can store the values.

    Other columns are unchanged: the write plan handles or refuses them.
    """
    fields = []
    for field in source:
        at = target.get_field_index(field.name)
        stored = at >= 0 and _incompatible_part(field.type, target.field(at).type, "") is None
        fields.append(target.field(at) if stored else field)
    return pa.schema(fields)


def refuse_cut_names(sent: pa.Schema) -> None:
    """Refuse names that end at a null character on their way from Java to Python.

    Raises
    ------
    SchemaError
        The name of a column, or of a part of it, has a null character.
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

    Other writers fill them with nulls. Spark's appends by name need all columns, which detects
    forgotten or renamed columns.

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
    """Check that batches of one schema can be stored with another schema of the same columns.

    Raises
    ------
    SchemaError
        A type is incompatible.
    """
    for field in target:
        fault = _incompatible_part(source.field(field.name).type, field.type, field.name)
        if fault is not None:
            column, stored, brought = fault
            raise SchemaError(
                f"column {column!r}: {where} stores {stored}, the frame has {brought}. "
                "Cast the column to a matching type"
            )


def _incompatible_part(source: Any, target: Any, column: str) -> tuple[str, Any, Any] | None:
    """Return the part of a column with an incompatible type, with the stored type and its own."""
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
    faults = (
        _incompatible_part(brought, stored, f"{column}.{name}") for brought, stored, name in parts
    )
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
    if is_binary(data_type, fixed=True):
        return "bytes"
    if types.is_timestamp(data_type):
        return "local time" if data_type.tz is None else "instant"
    for name in ("date", "time", "duration", "boolean", "struct", "map", "list"):
        if getattr(types, f"is_{name}")(data_type):
            return name
    return str(data_type)
