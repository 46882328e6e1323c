"""Batches of a scan as NumPy arrays, without a copy where Arrow's memory allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.dictionaries import decode_dictionary
from glaive.arrow.python_values import NO_PYTHON_VALUE
from glaive.errors import FormatError

__all__ = ["batch_arrays"]


def batch_arrays(batch: pa.RecordBatch) -> dict[str, Any]:
    """The columns of a batch as arrays of as many rows.

    Numbers, booleans and times keep their types, and share Arrow's memory; nulls make numbers NaN
    (integers become ``float64``) and times NaT. Fixed-size lists of numbers have two dimensions,
    tensors those of their shape; structs are dictionaries; all else is arrays of objects.

    Raises
    ------
    FormatError
        Python does not have a value: a damaged text, a time of nanoseconds, or one of a
        zone that nobody knows.
    """
    arrays: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            arrays[name] = _array(column)
        except MemoryError:
            raise
        except (pa.ArrowException, *NO_PYTHON_VALUE) as error:
            raise FormatError(
                f"column {name!r}: Python does not have a value: {error}. Leave the column out, or "
                "use to_batches; `glaive verify --deep` finds damaged texts"
            ) from error
    return arrays


def _array(column: Any) -> np.ndarray[Any, Any] | Mapping[str, Any]:
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return _rows_of(column.storage, tuple(kind.shape))
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "lance.bfloat16" and not column.null_count:
            brain_floats: np.ndarray[Any, Any] = column.to_numpy()
            return brain_floats
        shape = tuple(getattr(kind, "shape", ())) if "tensor" in kind.extension_name else ()
        storage = column.storage
        return _rows_of(storage, shape) if shape else _array(storage)
    if pa.types.is_struct(kind):
        return {
            field.name: _array(member) for field, member in zip(kind, column.flatten(), strict=True)
        }
    if pa.types.is_dictionary(kind):
        return _array(decode_dictionary(column))
    if pa.types.is_fixed_size_list(kind) and _is_plain(kind.value_type):
        return _rows_of(column, (kind.list_size,))
    values: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
    return values


def _is_plain(kind: Any) -> bool:
    """Whether rows of fixed-size lists of this type have a regular shape."""
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or kind == pa.bool_())


def _rows_of(column: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The rows of a fixed-size list in a shape, or objects; null rows are NaN in all places."""
    size = column.type.list_size
    flat: Any = _array(column.values.slice(column.offset * size, len(column) * size))
    if isinstance(flat, Mapping):  # tensors of structs, which Arrow allows
        objects: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
        return objects
    rows: np.ndarray[Any, Any] = flat.reshape(len(column), *shape, *flat.shape[1:])
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        kind = rows.dtype if rows.dtype.kind == "f" else np.dtype(np.float64)
        rows = rows.astype(kind)
        rows[missing] = np.nan
    return rows
