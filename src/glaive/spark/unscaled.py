"""Decimals as the integers that they are stored as: ``1.25`` with two digits is 125.

Java reads and writes the decimals of Arrow at several times the cost of integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DecimalType, LongType, StructField, StructType

from glaive.errors import OptionError, SchemaError
from glaive.format.column_path import quoted_name
from glaive.spark.cast import validity

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "LONG_DIGITS",
    "SETTING",
    "decimals",
    "restored_batch",
    "restored_schema",
    "short_decimals",
    "unscaled",
    "unscaled_frame",
]

SETTING = "spark.glaive.plannedScans"
"""Setting of a session: with ``false``, queries read through the data source."""

LONG_DIGITS = 18
"""Digits of the decimals that fit in 64 bits."""


def unscaled(array: Any, name: str) -> Any:
    """The values of ``decimal128`` as ``int64``, with the same nulls; one copy.

    Raises
    ------
    SchemaError
        A value of column ``name`` does not fit.
    """
    values = array.buffers()[1]
    if values is None:
        return pa.nulls(len(array), pa.int64())
    words = np.frombuffer(values, "<i8", 2 * len(array), array.offset * 16).reshape(-1, 2)
    low = np.ascontiguousarray(words[:, 0])
    null = None if not array.null_count else ~np.asarray(array.is_valid())
    wide = words[:, 1] != low >> 63
    if (wide if null is None else wide & ~null).any():
        raise SchemaError(
            f"column {name!r}: a value has more digits than {array.type}. Read it with "
            f"{SETTING}=false, or write the column again with the type that it needs"
        )
    return pa.array(low, mask=null)


def decimals(integers: Any, data_type: Any) -> Any:
    """The reverse: ``int64`` as ``decimal128`` of a precision and scale."""
    count, buffer = len(integers), integers.buffers()[1]
    if buffer is None or not count:
        return pa.nulls(count, data_type)
    words: Any = np.empty((count, 2), "<i8")
    words[:, 0] = np.frombuffer(buffer, "<i8", count, integers.offset * 8)
    np.right_shift(words[:, 0], 63, out=words[:, 1])
    buffers = [validity(integers), pa.py_buffer(words)]
    return pa.Array.from_buffers(data_type, count, buffers)


def short_decimals(schema: StructType) -> frozenset[str]:
    """Columns that fit in 64 bits; none where Spark's names, without case, are ambiguous."""
    if len({name.lower() for name in schema.names}) < len(schema):
        return frozenset()
    return frozenset(
        field.name
        for field in schema
        if isinstance(field.dataType, DecimalType) and field.dataType.precision <= LONG_DIGITS
    )


def unscaled_frame(frame: DataFrame, *, has_jvm: bool) -> tuple[DataFrame, dict[str, str]]:
    """A frame with its short decimals as integers, and the types that these have had.

    No function of SQL does that: decimals stay where ``has_jvm`` says that the session is not a
    classic one.
    """
    short = short_decimals(frame.schema) if has_jvm else frozenset[str]()
    if not short:
        return frame, {}
    from pyspark.sql import Column

    session: Any = frame.sparkSession
    spark = session._jvm.org.apache.spark.sql  # noqa: SLF001  # no function of SQL does this
    expressions = spark.classic.ExpressionUtils
    columns: list[Column] = []
    for field in frame.schema:
        column: Any = frame[quoted_name(field.name)]
        if field.name in short:
            value = expressions.expression(column._jc)  # noqa: SLF001  # as above
            made = spark.catalyst.expressions.UnscaledValue(value)
            column = Column(expressions.column(made)).alias(field.name, metadata=field.metadata)
        columns.append(column)
    types = {field.name: _text(field.dataType) for field in frame.schema if field.name in short}
    return frame.select(*columns), types


def restored_schema(schema: StructType, types: Mapping[str, str]) -> StructType:
    """The schema of a frame before :func:`unscaled_frame`.

    Raises
    ------
    OptionError
        The types are not those of integers of this frame.
    """
    for name in types:
        if name not in schema.names or not isinstance(schema[name].dataType, LongType):
            raise OptionError(f"option decimals: the frame has no bigint column {name!r}")
    return StructType(
        [
            StructField(
                field.name, DecimalType(*_digits(types[field.name])), field.nullable, field.metadata
            )
            if field.name in types
            else field
            for field in schema
        ]
    )


def restored_batch(batch: pa.RecordBatch, types: Mapping[str, str]) -> pa.RecordBatch:
    """The rows of a frame before :func:`unscaled_frame`."""
    arrays, fields = [], []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if field.name in types:
            kind = pa.decimal128(*_digits(types[field.name]))
            arrays.append(decimals(array, kind))
            fields.append(pa.field(field.name, kind, field.nullable))
        else:
            arrays.append(array)
            fields.append(field)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _text(data_type: Any) -> str:
    return f"{data_type.precision},{data_type.scale}"


def _digits(text: str) -> tuple[int, int]:
    """Precision and scale.

    Raises
    ------
    OptionError
        They are not those of a decimal that fits in 64 bits.
    """
    digits, _, scale = text.partition(",")
    if not (digits.isdecimal() and scale.isdecimal() and int(scale) <= int(digits) <= LONG_DIGITS):
        raise OptionError(
            f"option decimals: expected digits as in '15,2', {LONG_DIGITS} at most, found {text!r}"
        )
    return int(digits), int(scale)
