"""Bring record batches to an exact schema: what Spark expects, or what the dataset stores.

Spark reads the buffers of a batch by the schema it expects and checks only the first batch,
so every batch is made to fit here. Columns that fit already are passed on untouched; lists
change between fixed and variable size without touching their values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.dictionaries import decoded
from glaive.errors import SchemaError

__all__ = ["conform", "is_list"]

DECIMAL_ALIGNMENT = 16
INT32_MAX = 2**31 - 1


def conform(
    batch: pa.RecordBatch, schema: pa.Schema, *, allow_truncation: bool = False, writing: bool
) -> pa.RecordBatch:
    """Return the batch with exactly this schema, columns matched by name.

    Parameters
    ----------
    batch
        Has at least the columns of ``schema``.
    allow_truncation
        Drop digits of times below the unit of the target.
    writing
        Check that columns that must not hold nulls hold none, and move decimals to addresses
        a multiple of 16: in batches that Spark sends they may lie at a multiple of 8 only.

    Raises
    ------
    SchemaError
        A value does not fit: a digit or overflow, a list of another length, a null. Names the
        column and the remedy.
    """
    columns = [
        _Caster(field.name, allow_truncation=allow_truncation, writing=writing).field(
            batch.column(field.name), field
        )
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Caster:
    """Casts the parts of one column; knows its name for errors."""

    def __init__(self, column: str, *, allow_truncation: bool, writing: bool) -> None:
        self.column = column
        self.allow_truncation = allow_truncation
        self.writing = writing

    def field(self, array: Any, field: pa.Field) -> Any:
        if self.writing and not field.nullable and array.null_count:
            raise SchemaError(
                f"column {self.column!r}: {field.name!r} must not be null in this dataset, found "
                f"{array.null_count:,} null values. Fill them (coalesce) or filter the rows out"
            )
        return self.cast(array, field.type)

    def cast(self, array: Any, kind: Any) -> Any:
        source, types = array.type, pa.types
        if source == kind and not (self.writing and _has_decimals(kind)):
            return array
        if types.is_null(source):
            return pa.nulls(len(array), kind)
        if (plain := _plain(array)) is not None:
            return self.cast(plain, kind)
        if types.is_struct(kind) and types.is_struct(source):
            return self.struct(array, kind)
        if types.is_map(kind) and types.is_map(source):
            return self.map(array, kind)
        if types.is_fixed_size_list(kind) and is_list(source):
            return self.fixed_size_list(array, kind)
        if is_list(kind) and is_list(source):
            return self.list(array, kind)
        return self.leaf(array, kind)

    def leaf(self, array: Any, kind: pa.DataType) -> pa.Array:
        options = pc.CastOptions.safe(kind)
        options.allow_time_truncate = self.allow_truncation
        try:
            cast = array.cast(options=options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            lost = "would lose data" in str(error) and pa.types.is_temporal(kind)
            remedy = (
                "Drop the digits with option allow_truncation='true'"
                if lost
                else "Cast the column or filter such rows out"
            )
            raise SchemaError(f"column {self.column!r}: {error}. {remedy}") from error
        return _aligned(cast) if self.writing and pa.types.is_decimal(kind) else cast

    def struct(self, array: Any, kind: Any) -> Any:
        if kind.num_fields == 0:
            return array.cast(kind)
        fields = [kind.field(i) for i in range(kind.num_fields)]
        valid = array.is_valid() if array.null_count else None
        children = []
        for field in fields:
            child = array.field(field.name)
            if self.writing and valid is not None and not field.nullable:
                # Whatever lies under a null struct is no value of the field.
                self.field(child.filter(valid), field)
                children.append(self.cast(child, field.type))
            else:
                children.append(self.field(child, field))
        mask = None if valid is None else pc.invert(valid)
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    def map(self, array: Any, kind: Any) -> pa.Array:
        offsets, first, last = _offsets(array)
        entries = pa.StructArray.from_arrays(
            [
                self.field(array.keys.slice(first, last - first), kind.key_field),
                self.field(array.items.slice(first, last - first), kind.item_field),
            ],
            fields=[kind.key_field, kind.item_field],
        )
        return _with_children(array, kind, self.narrow(offsets, np.int32), entries)

    def list(self, array: Any, kind: Any) -> pa.Array:
        if pa.types.is_fixed_size_list(array.type):
            size = array.type.list_size
            values = array.values.slice(array.offset * size, len(array) * size)
            offsets = np.arange(len(array) + 1, dtype=np.int64) * size
        else:
            offsets, first, last = _offsets(array)
            values = array.values.slice(first, last - first)
        width = np.int64 if pa.types.is_large_list(kind) else np.int32
        return _with_children(
            array, kind, self.narrow(offsets, width), self.field(values, kind.value_field)
        )

    def narrow(self, offsets: np.ndarray, width: type[np.signedinteger]) -> np.ndarray:
        if width is np.int32 and len(offsets) and int(offsets[-1]) > INT32_MAX:
            raise SchemaError(
                f"column {self.column!r}: {int(offsets[-1]):,} list items in one batch, at most "
                f"{INT32_MAX:,} fit. Take fewer rows at once: option batch_size"
            )
        return offsets.astype(width, copy=False)

    def fixed_size_list(self, array: Any, kind: Any) -> pa.Array:
        size = kind.list_size
        if pa.types.is_fixed_size_list(array.type):
            if array.type.list_size != size:
                raise self.wrong_length(array.type.list_size, size, row=0)
            values = array.values.slice(array.offset * size, len(array) * size)
        else:
            values = self.values_of_equal_length(array, size)
        values = self.field(values, kind.value_field)
        buffers = [_validity(array)]
        return pa.Array.from_buffers(kind, len(array), buffers, children=[values])

    def values_of_equal_length(self, array: Any, size: int) -> Any:
        """Return the items of all lists one after the other, ``size`` for each, nulls included."""
        offsets, first, last = _offsets(array)
        lengths = np.diff(offsets)
        if bool((lengths == size).all()):
            return array.values.slice(first, last - first)
        valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
        wrong = np.flatnonzero(valid & (lengths != size))
        if len(wrong):
            raise self.wrong_length(int(lengths[wrong[0]]), size, row=int(wrong[0]))
        # Null lists have no items here, but take their place in a list of fixed size.
        rows = np.where(valid, offsets[:-1] + first, -1)
        places = np.where(rows[:, None] < 0, -1, rows[:, None] + np.arange(size)).ravel()
        return array.values.take(pa.array(places, mask=places < 0))

    def wrong_length(self, found: int, expected: int, *, row: int) -> SchemaError:
        return SchemaError(
            f"column {self.column!r}: expected lists of {expected} items, found one of {found} "
            f"(row {row:,} of its batch). Filter such rows out, or store lists of any length"
        )


# ------------------------------------------------------------------------- parts of arrays


def _plain(array: Any) -> Any:
    """Return an extension's storage or a dictionary's values; None for any other array."""
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    if pa.types.is_dictionary(array.type):
        return decoded(array)
    return None


def _offsets(array: Any) -> tuple[np.ndarray, int, int]:
    """Return the offsets of a list or map from 0 on, and the range of items they came from."""
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


def _validity(array: pa.Array) -> pa.Buffer | None:
    """Return the validity bitmap from bit 0 on; None when nothing is null."""
    if array.null_count == 0:
        return None
    if array.offset % 8 == 0 and (bitmap := array.buffers()[0]) is not None:
        return bitmap.slice(array.offset // 8)
    flags = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    return _buffer(np.packbits(flags, bitorder="little"))


def _buffer(values: Any) -> pa.Buffer:
    return pa.py_buffer(values)


def _with_children(
    array: pa.Array, kind: pa.DataType, offsets: np.ndarray, child: pa.Array
) -> pa.Array:
    buffers = [_validity(array), _buffer(offsets)]
    return pa.Array.from_buffers(kind, len(array), buffers, children=[child])


def _aligned(array: pa.Array) -> pa.Array:
    validity, data = array.buffers()
    if data is None or data.address % DECIMAL_ALIGNMENT == 0:
        return array
    copy = pa.allocate_buffer(data.size)
    memoryview(copy)[:] = memoryview(data)
    return pa.Array.from_buffers(array.type, len(array), [validity, copy], offset=array.offset)


@lru_cache(maxsize=256)
def _has_decimals(kind: Any) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimals(kind.field(i).type) for i in range(kind.num_fields))


def is_list(kind: pa.DataType) -> bool:
    """Tell whether items are stored in a list of 32-bit, 64-bit or fixed size."""
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
