"""Cast record batches to an exact schema: that which Spark expects, or that of the dataset.

Spark interprets the buffers of a batch by the expected schema and only checks the first batch, so
every batch is cast here. Columns of matching type are passed through; lists are converted between
fixed and variable size without copying their values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.dictionaries import decode_dictionary
from glaive.arrow.extensions import is_json
from glaive.errors import SchemaError
from glaive.expr.coerce import is_list
from glaive.spark.assignable import matching

__all__ = ["conform", "validity"]

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
        Has at least the columns of ``schema``.
    allow_truncation
        Truncate times to the target unit.
    writing
        Align decimals to 16 bytes, as batches from Spark may only be aligned to 8.

    Raises
    ------
    SchemaError
        A value does not fit: truncation, overflow, a list of another length, or a null where a
        column or a part of it has none. Spark would not look for it.
    """
    columns = []
    given = matching(batch.schema.names, schema.names)
    for field in schema:
        caster = _Caster(field.name, allow_truncation=allow_truncation, writing=writing)
        columns.append(caster.field(batch.column(given[field.name]), field))
        if not writing:
            _refuse_nulls(columns[-1], field, field.name)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Caster:
    """Casts the parts of one column."""

    def __init__(self, column: str, *, allow_truncation: bool, writing: bool) -> None:
        self.column = column
        self.allow_truncation = allow_truncation
        self.writing = writing

    def field(self, array: Any, field: pa.Field) -> Any:
        if self.writing and not field.nullable and array.null_count:
            raise SchemaError(
                f"column {self.column!r}: {field.name!r} is not nullable in this dataset, found "
                f"{array.null_count:,} null values. Fill them (coalesce) or filter the rows out"
            )
        return self.cast(array, field.type)

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
        """Refuse milliseconds of days that Arrow would give other numbers without a word."""
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
        fields = [data_type.field(i) for i in range(data_type.num_fields)]
        valid = array.is_valid() if array.null_count else None
        children = []
        names = matching([member.name for member in array.type], [field.name for field in fields])
        for field in fields:
            child = array.field(names[field.name])
            if self.writing and valid is not None and not field.nullable:
                # Values below a null struct do not count.
                self.field(child.filter(valid), field)
                children.append(self.cast(child, field.type))
            else:
                children.append(self.field(child, field))
        mask = None if valid is None else pc.invert(valid)
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    def map(self, array: Any, data_type: Any) -> pa.Array:
        offsets, first, last = _offsets(array)
        entries = pa.StructArray.from_arrays(
            [
                self.field(array.keys.slice(first, last - first), data_type.key_field),
                self.field(array.items.slice(first, last - first), data_type.item_field),
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
            array, data_type, self.narrow(offsets, width), self.field(values, data_type.value_field)
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
        if pa.types.is_fixed_size_list(array.type):
            if array.type.list_size != size:
                raise self.wrong_length(array.type.list_size, size, row=0)
            values = array.values.slice(array.offset * size, len(array) * size)
        else:
            values = self.values_of_equal_length(array, size)
        values = self.field(values, data_type.value_field)
        buffers = [validity(array)]
        return pa.Array.from_buffers(data_type, len(array), buffers, children=[values])

    def values_of_equal_length(self, array: Any, size: int) -> Any:
        """The concatenated items of all lists, ``size`` for each, including null lists."""
        offsets, first, last = _offsets(array)
        lengths = np.diff(offsets)
        if bool((lengths == size).all()):
            return array.values.slice(first, last - first)
        valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
        wrong = np.flatnonzero(valid & (lengths != size))
        if len(wrong):
            raise self.wrong_length(int(lengths[wrong[0]]), size, row=int(wrong[0]))
        # Null lists have no items here, but a fixed-size list has items for them.
        rows = np.where(valid, offsets[:-1] + first, -1)
        positions = np.where(rows[:, None] < 0, -1, rows[:, None] + np.arange(size)).ravel()
        return array.values.take(pa.array(positions, mask=positions < 0))

    def wrong_length(self, found: int, expected: int, *, row: int) -> SchemaError:
        return SchemaError(
            f"column {self.column!r}: expected lists of {expected} items, found one of {found} "
            f"(row {row:,} of its batch). Filter such rows out, or say how to store the column: "
            f"vector_columns={{{self.column!r}: {found}}}, or a list in arrow_schema"
        )


# ------------------------------------------------------------------------- parts of arrays


def _refuse_nulls(array: Any, field: Any, column: str) -> None:
    """Refuse nulls that the schema of a dataset excludes."""
    if not _has_required(field):
        return
    if array.null_count:
        if not field.nullable:
            raise SchemaError(
                f"column {column!r}: {field.name!r} is not nullable in the schema that is read, "
                f"found {array.null_count:,} null values. If that was changed since, start the "
                "query again; else read it with glaive.dataset, and write it again as nullable"
            )
        array = array.drop_null()
    types, kind = pa.types, array.type
    if types.is_struct(kind):
        for at in range(kind.num_fields):
            _refuse_nulls(array.field(at), kind.field(at), column)
    elif types.is_map(kind):
        _, first, last = _offsets(array)
        for part, inner in ((array.keys, kind.key_field), (array.items, kind.item_field)):
            _refuse_nulls(part.slice(first, last - first), inner, column)
    elif is_list(kind, fixed=True):
        _refuse_nulls(array.flatten(), kind.value_field, column)


def _plain(array: Any) -> Any:
    """The storage of an extension array or the values of a dictionary; None for other arrays."""
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    if pa.types.is_dictionary(array.type):
        return decode_dictionary(array)
    return None


def _variant_texts(array: Any) -> Any:
    """The JSON of variants; Spark's library has it by value."""
    from pyspark.sql.types import VariantVal

    pairs = zip(array.field("value").to_pylist(), array.field("metadata").to_pylist(), strict=True)
    valid = array.is_valid().to_pylist()
    texts = [
        VariantVal(*pair).toJson() if there else None
        for pair, there in zip(pairs, valid, strict=True)
    ]
    return pa.array(texts, pa.string())


def _offsets(array: Any) -> tuple[np.ndarray, int, int]:
    """The offsets of a list or map, starting at 0, and the range of its items."""
    wide = pa.types.is_large_list(array.type)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array) + 1, np.int64), 0, 0
    dtype = np.dtype("<i8" if wide else "<i4")
    offsets = np.frombuffer(
        memoryview(buffer), dtype, len(array) + 1, array.offset * dtype.itemsize
    )
    first, last = int(offsets[0]), int(offsets[-1])
    return (offsets - first if first else offsets), first, last


def validity(array: pa.Array) -> pa.Buffer | None:
    """The validity bitmap, starting at bit 0; None without nulls."""
    if array.null_count == 0:
        return None
    if array.offset % 8 == 0 and (bitmap := array.buffers()[0]) is not None:
        return bitmap.slice(array.offset // 8)
    flags = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    return _buffer(np.packbits(flags, bitorder="little"))


def _buffer(values: Any) -> pa.Buffer:
    return pa.py_buffer(values)


def _with_children(
    array: pa.Array, data_type: pa.DataType, offsets: np.ndarray, child: pa.Array
) -> pa.Array:
    buffers = [validity(array), _buffer(offsets)]
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
    """Whether a field, or a part of it, has no nulls."""
    kind = field.type
    return not field.nullable or any(_has_required(kind.field(at)) for at in range(kind.num_fields))


@lru_cache(maxsize=256)
def _has_decimals(data_type: Any) -> bool:
    if pa.types.is_decimal(data_type):
        return True
    return any(_has_decimals(data_type.field(i).type) for i in range(data_type.num_fields))
