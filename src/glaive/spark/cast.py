"""Cast record batches to an exact schema: the schema that Spark expects, or the dataset's.

Spark interprets the buffers of a batch by the expected schema and only checks the first batch. So
glaive casts every batch here. Columns of matching type pass unchanged. Lists of fixed and of
variable size are converted into each other as views of the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DecimalType, LongType, StructField, StructType, VariantVal

from glaive.arrow.chunked import decode_dictionary
from glaive.arrow.extensions import is_json
from glaive.errors import OptionError, SchemaError
from glaive.expr.coerce import is_list
from glaive.format.field import quoted_name
from glaive.spark.types import matching

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


DECIMAL_ALIGNMENT = 16
INT32_MAX = 2**31 - 1
DAY_MS = 86_400_000


def conform(
    batch: pa.RecordBatch, schema: pa.Schema, *, allow_truncation: bool = False, writing: bool
) -> pa.RecordBatch:
    """Return the batch with exactly this schema, columns matched by name.

    Parameters
    ----------
    batch
        A batch with at least the columns of ``schema``.
    allow_truncation
        Truncate times to the target unit.
    writing
        Align decimals to 16 bytes, as batches from Spark may only be aligned to 8.

    Raises
    ------
    SchemaError
        A value does not fit: truncation, overflow, a list of another length, or a null in a
        non-nullable column or part.
    """
    columns = []
    given = matching(batch.schema.names, schema.names)
    for field in schema:
        caster = _Caster(field.name, allow_truncation=allow_truncation, writing=writing)
        columns.append(caster.cast(batch.column(given[field.name]), field.type))
        _refuse_nulls(columns[-1], field, field.name, writing=writing)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Caster:
    """Casts the parts of one column."""

    def __init__(self, column: str, *, allow_truncation: bool, writing: bool) -> None:
        self.column = column
        self.allow_truncation = allow_truncation
        self.writing = writing

    def cast(self, array: Any, data_type: Any) -> Any:
        source, types = array.type, pa.types
        if source == data_type and not (self.writing and _has_decimals(data_type)):
            return array
        if types.is_null(source):
            return pa.nulls(len(array), data_type)
        if is_json(data_type):
            texts = _variant_texts(array) if types.is_struct(source) else array
            texts = self.cast(texts, data_type.storage_type)
            return pa.ExtensionArray.from_storage(data_type, texts)
        if (plain := _plain(array)) is not None:
            return self.cast(plain, data_type)
        if types.is_dictionary(data_type):
            encoded = self.cast(array, data_type.value_type).dictionary_encode()
            return self.leaf(encoded, data_type)
        if types.is_struct(data_type) and types.is_struct(source):
            return self.struct(array, data_type)
        if types.is_map(data_type) and types.is_map(source):
            return self.map(array, data_type)
        if types.is_fixed_size_list(data_type) and is_list(source, fixed=True):
            return self.fixed_size_list(array, data_type)
        if is_list(data_type) and is_list(source, fixed=True):
            return self.list(array, data_type)
        return self.leaf(array, data_type)

    def leaf(self, array: Any, data_type: pa.DataType) -> pa.Array:
        options = pc.CastOptions.safe(data_type)
        options.allow_time_truncate = self.allow_truncation
        if pa.types.is_date64(array.type) and pa.types.is_date32(data_type):
            self.refuse_days_out_of_range(array)
        try:
            cast = array.cast(options=options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            lost = "would lose data" in str(error) and pa.types.is_temporal(data_type)
            remedy = (
                "Drop the digits with option allow_truncation='true'"
                if lost
                else "Cast the column or filter such rows out"
            )
            raise SchemaError(f"column {self.column!r}: {error}. {remedy}") from error
        return _aligned(cast) if self.writing and pa.types.is_decimal(data_type) else cast

    def refuse_days_out_of_range(self, array: Any) -> None:
        """Refuse milliseconds of days that Arrow would silently convert to other numbers."""
        ends = pc.min_max(array.view(pa.int64()))
        known = (ends[end].as_py() for end in ("min", "max"))
        days = [ms // DAY_MS for ms in known if ms is not None]
        if any(not -INT32_MAX <= day <= INT32_MAX for day in days):
            raise SchemaError(
                f"column {self.column!r}: a date64 is {max(days, key=abs):,} days from 1970-01-01, "
                f"at most {INT32_MAX:,} fit. Filter such rows out"
            )

    def struct(self, array: Any, data_type: Any) -> Any:
        if data_type.num_fields == 0:
            return array.cast(data_type)
        fields = list(data_type)
        names = matching([member.name for member in array.type], [field.name for field in fields])
        children = [self.cast(array.field(names[field.name]), field.type) for field in fields]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    def map(self, array: Any, data_type: Any) -> pa.Array:
        offsets, first, last = _offsets(array)
        entries = pa.StructArray.from_arrays(
            [
                self.cast(array.keys.slice(first, last - first), data_type.key_type),
                self.cast(array.items.slice(first, last - first), data_type.item_type),
            ],
            fields=[data_type.key_field, data_type.item_field],
        )
        return _with_children(array, data_type, self.narrow(offsets, np.int32), entries)

    def list(self, array: Any, data_type: Any) -> pa.Array:
        if pa.types.is_fixed_size_list(array.type):
            size = array.type.list_size
            values = array.values.slice(array.offset * size, len(array) * size)
            offsets = np.arange(len(array) + 1, dtype=np.int64) * size
        else:
            offsets, first, last = _offsets(array)
            values = array.values.slice(first, last - first)
        width = np.int64 if pa.types.is_large_list(data_type) else np.int32
        return _with_children(
            array, data_type, self.narrow(offsets, width), self.cast(values, data_type.value_type)
        )

    def narrow(self, offsets: np.ndarray, width: type[np.signedinteger]) -> np.ndarray:
        if width is np.int32 and len(offsets) and int(offsets[-1]) > INT32_MAX:
            raise SchemaError(
                f"column {self.column!r}: {int(offsets[-1]):,} list items in one batch, at most "
                f"{INT32_MAX:,} fit. Reduce the option batch_size"
            )
        return offsets.astype(width, copy=False)

    def fixed_size_list(self, array: Any, data_type: Any) -> pa.Array:
        size = data_type.list_size
        equal: Any = pc.equal(pc.list_value_length(array), size)
        wrong = pc.index(equal, False).as_py()
        if wrong >= 0:
            raise self.wrong_length(array[wrong], size, row=wrong)
        if array.null_count == len(array):  # pyarrow's cast of lists without values crashes
            missing: pa.Array[Any] = pa.nulls(len(array), data_type)
            return missing
        if not pa.types.is_fixed_size_list(array.type):
            array = array.cast(pa.list_(array.type.value_field, size))
        values = array.values.slice(array.offset * size, len(array) * size)
        child = self.cast(values, data_type.value_type)
        return pa.Array.from_buffers(data_type, len(array), [validity(array)], children=[child])

    def wrong_length(self, found: Any, expected: int, *, row: int) -> SchemaError:
        return SchemaError(
            f"column {self.column!r}: expected lists of {expected} items, found one of "
            f"{len(found)} (row {row:,} of its batch). Filter such rows out, or say how to store "
            f"the column: vector_columns={{{self.column!r}: {len(found)}}}, or a list in "
            "arrow_schema"
        )


# ------------------------------------------------------------------------- parts of arrays


def _refuse_nulls(array: Any, field: Any, column: str, *, writing: bool) -> None:
    """Refuse nulls that the schema of a dataset excludes."""
    if not _has_required(field):
        return
    if array.null_count:
        if not field.nullable:
            found = f"found {array.null_count:,} null values"
            raise SchemaError(
                f"column {column!r}: {field.name!r} is not nullable in this dataset, {found}. Fill "
                "them (coalesce) or filter the rows out"
                if writing
                else f"column {column!r}: {field.name!r} is not nullable in the schema that is "
                f"read, {found}. If that was changed since, start the query again; else read it "
                "with glaive.dataset, and write it again as nullable"
            )
        array = array.drop_null()
    types, kind = pa.types, array.type
    if types.is_struct(kind):
        for at in range(kind.num_fields):
            _refuse_nulls(array.field(at), kind.field(at), column, writing=writing)
    elif types.is_map(kind):
        _, first, last = _offsets(array)
        for part, inner in ((array.keys, kind.key_field), (array.items, kind.item_field)):
            _refuse_nulls(part.slice(first, last - first), inner, column, writing=writing)
    elif is_list(kind, fixed=True):
        _refuse_nulls(array.flatten(), kind.value_field, column, writing=writing)


def _plain(array: Any) -> Any:
    """Return the storage of an extension array or the values of a dictionary, or ``None``."""
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    if pa.types.is_dictionary(array.type):
        return decode_dictionary(array)
    return None


def _variant_texts(array: Any) -> Any:
    """Convert variants to JSON, value by value with Spark's library."""
    pairs = zip(array.field("value").to_pylist(), array.field("metadata").to_pylist(), strict=True)
    valid = array.is_valid().to_pylist()
    texts = [
        VariantVal(*pair).toJson() if there else None
        for pair, there in zip(pairs, valid, strict=True)
    ]
    return pa.array(texts, pa.string())


def _offsets(array: Any) -> tuple[np.ndarray, int, int]:
    """Return the offsets of a list or map, starting at 0, and the range of its items."""
    offsets = array.offsets.to_numpy()
    if not len(offsets):
        return np.zeros(1, np.int64), 0, 0
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, first, last


def validity(array: pa.Array) -> pa.Buffer | None:
    """Return the validity bitmap, starting at bit 0; ``None`` if all values are valid."""
    if array.null_count == 0:
        return None
    if array.offset % 8 == 0 and (bitmap := array.buffers()[0]) is not None:
        return bitmap.slice(array.offset // 8)
    flags = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    packed: Any = np.packbits(flags, bitorder="little")
    return pa.py_buffer(packed)


def _with_children(
    array: pa.Array, data_type: pa.DataType, offsets: Any, child: pa.Array
) -> pa.Array:
    buffers = [validity(array), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(data_type, len(array), buffers, children=[child])


def _aligned(array: pa.Array) -> pa.Array:
    validity, data = array.buffers()
    if data is None or data.address % DECIMAL_ALIGNMENT == 0:
        return array
    copy = pa.allocate_buffer(data.size)
    memoryview(copy)[:] = memoryview(data)
    return pa.Array.from_buffers(array.type, len(array), [validity, copy], offset=array.offset)


@lru_cache(maxsize=256)
def _has_required(field: Any) -> bool:
    """Return whether a field, or a part of it, is non-nullable."""
    kind = field.type
    return not field.nullable or any(_has_required(kind.field(at)) for at in range(kind.num_fields))


@lru_cache(maxsize=256)
def _has_decimals(data_type: Any) -> bool:
    if pa.types.is_decimal(data_type):
        return True
    return any(_has_decimals(data_type.field(i).type) for i in range(data_type.num_fields))


# --- Decimals as their unscaled integers: ``1.25`` with two digits is 125 ---------------
# Java reads and writes Arrow decimals at several times the cost of integers.

SETTING = "spark.glaive.plannedScans"
"""Setting of a session: with ``false``, queries read through the data source."""

LONG_DIGITS = 18
"""Maximum digits of decimals that fit in 64 bits."""


def unscaled(array: Any, name: str) -> Any:
    """Convert values of ``decimal128`` to ``int64``, with the same nulls; one copy.

    Raises
    ------
    SchemaError
        A value of column ``name`` is too large.
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
    """Convert ``int64`` to ``decimal128`` of a precision and scale; reverses :func:`unscaled`."""
    count, buffer = len(integers), integers.buffers()[1]
    if buffer is None or not count:
        return pa.nulls(count, data_type)
    words: Any = np.empty((count, 2), "<i8")
    words[:, 0] = np.frombuffer(buffer, "<i8", count, integers.offset * 8)
    np.right_shift(words[:, 0], 63, out=words[:, 1])
    buffers = [validity(integers), pa.py_buffer(words)]
    return pa.Array.from_buffers(data_type, count, buffers)


def short_decimals(schema: StructType) -> frozenset[str]:
    """Return columns that fit in 64 bits; empty if names differ in case only."""
    if len({name.lower() for name in schema.names}) < len(schema):
        return frozenset()
    return frozenset(
        field.name
        for field in schema
        if isinstance(field.dataType, DecimalType) and field.dataType.precision <= LONG_DIGITS
    )


def unscaled_frame(frame: DataFrame, *, has_jvm: bool) -> tuple[DataFrame, dict[str, str]]:
    """Return a frame with its short decimals as integers, and their original types.

    This needs the JVM of a classic session. In other sessions decimals stay unchanged.
    """
    short = short_decimals(frame.schema) if has_jvm else frozenset[str]()
    if not short:
        return frame, {}
    types = {field.name: _text(field.dataType) for field in frame.schema if field.name in short}
    return with_expressions(frame, short, lambda made, column, _: made.UnscaledValue(column)), types


def with_expressions(
    frame: DataFrame, names: Container[str], make: Callable[[Any, Any, str], Any]
) -> DataFrame:
    """Replace columns of a frame of a classic session by expressions that SQL lacks.

    Parameters
    ----------
    make
        Makes a Java expression from the package of expressions, a column, and its name.
    """
    from pyspark.sql import Column

    session: Any = frame.sparkSession
    spark = session._jvm.org.apache.spark.sql  # noqa: SLF001  # no function of SQL does this
    bridge = spark.classic.ExpressionUtils
    columns: list[Column] = []
    for field in frame.schema:
        column: Any = frame[quoted_name(field.name)]
        if field.name in names:
            value = bridge.expression(column._jc)  # noqa: SLF001  # as above
            made = make(spark.catalyst.expressions, value, field.name)
            column = Column(bridge.column(made)).alias(field.name, metadata=field.metadata)
        columns.append(column)
    return frame.select(*columns)


def restored_schema(schema: StructType, types: Mapping[str, str]) -> StructType:
    """Return the schema of a frame before :func:`unscaled_frame`.

    Raises
    ------
    OptionError
        The frame lacks a column of ``types``, or the column has another type than ``bigint``.
    """
    for name in types:
        if name not in schema.names or not isinstance(schema[name].dataType, LongType):
            raise OptionError(f"option decimals: the frame has no bigint column {name!r}")
    return retyped(schema, {name: DecimalType(*_digits(text)) for name, text in types.items()})


def retyped(schema: StructType, types: Mapping[str, Any]) -> StructType:
    """Return the schema with new types of some columns."""
    return StructType(
        [
            StructField(one.name, types.get(one.name, one.dataType), one.nullable, one.metadata)
            for one in schema
        ]
    )


def restored_batch(batch: pa.RecordBatch, types: Mapping[str, str]) -> pa.RecordBatch:
    """Return the rows of a frame before :func:`unscaled_frame`."""
    for name, text in types.items():
        kind = pa.decimal128(*_digits(text))
        batch = with_column(batch, name, decimals(batch.column(name), kind))
    return batch


def with_column(batch: pa.RecordBatch, name: str, values: Any) -> pa.RecordBatch:
    """Return the batch with new values, of another type, in a column."""
    at = batch.schema.get_field_index(name)
    field = pa.field(name, values.type, batch.schema.field(at).nullable)
    return batch.set_column(at, field, values)


def _text(data_type: Any) -> str:
    return f"{data_type.precision},{data_type.scale}"


def _digits(text: str) -> tuple[int, int]:
    """Return precision and scale.

    Raises
    ------
    OptionError
        The text differs from the form ``15,2``, or the decimal takes more than 64 bits.
    """
    digits, _, scale = text.partition(",")
    if not (digits.isdecimal() and scale.isdecimal() and int(scale) <= int(digits) <= LONG_DIGITS):
        raise OptionError(
            f"option decimals: expected digits as in '15,2', {LONG_DIGITS} at most, found {text!r}"
        )
    return int(digits), int(scale)
