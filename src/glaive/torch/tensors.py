"""Batches as tensors: without a copy where Arrow's memory allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from glaive.errors import SchemaError

__all__ = ["concat_batches", "resized", "to_tensor"]


def to_tensor(
    batch: pa.RecordBatch | Mapping[str, Any],
    *,
    uint64_as_int64: bool = True,
    hf_converter: Any = None,
    use_blob_api: bool = False,  # noqa: ARG001  # given to all such functions
    **options: Any,
) -> Any:
    """The columns of a batch as tensors.

    Numbers and booleans become one dimension, fixed-size lists two, image tensors those of the
    images. Nulls of floats become NaN; integers with nulls become doubles, so.

    Parameters
    ----------
    batch
        A batch, or columns by name.
    uint64_as_int64
        Whether unsigned numbers of 64 bit are taken for signed ones.
    hf_converter
        Converts columns of Hugging Face datasets; see :mod:`glaive.hf`.
    use_blob_api
        Whether there are blob files among the columns.

    Returns
    -------
    tensor or dict of str to tensor
        The tensor itself if there is one column.

    Raises
    ------
    SchemaError
        A column has no tensor: texts, lists of several lengths, blobs.
    """
    columns = (
        dict(zip(batch.schema.names, batch.columns, strict=True))
        if isinstance(batch, pa.RecordBatch)
        else dict(batch)
    )
    tensors = {
        name: _tensor(name, column, hf_converter, uint64_as_int64=uint64_as_int64)
        for name, column in columns.items()
    }
    return next(iter(tensors.values())) if len(tensors) == 1 else tensors


def _tensor(name: str, column: Any, hf_converter: Any, *, uint64_as_int64: bool) -> Any:
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        raise SchemaError(f"column {name!r}: blob files need a to_tensor_fn of your own")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    shape: tuple[int, ...] = ()
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name != "lance.bfloat16":
        images = kind.extension_name == "lance.arrow.fixed_shape_image_tensor"
        shape = tuple(getattr(kind, "shape", ())) if images else ()
        column = column.storage
    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        values = column.values.slice(column.offset * size, len(column) * size)
        if column.null_count:
            missing = np.repeat(column.is_null().to_numpy(zero_copy_only=False), size)
            values = pa.array(values.to_numpy(zero_copy_only=False), mask=missing)
        flat = _numbers(values, uint64_as_int64=uint64_as_int64)
        if flat is not None:
            return flat.reshape(-1, *(shape or (size,)))
    flat = _numbers(column, uint64_as_int64=uint64_as_int64)
    if flat is None and hf_converter is not None:
        flat = hf_converter.to_pytorch(name, column)
    if flat is None:
        raise SchemaError(
            "Only support FixedSizeList<f16/bf16/f32/f64> or numeric/bfloat16 values, got: "
            f"{kind} in column {name!r}. Leave the column out, or pass a to_tensor_fn"
        )
    return flat


def _numbers(values: Any, *, uint64_as_int64: bool) -> Any:
    """A tensor of one dimension; None if the type has none."""
    kind = values.type
    if getattr(kind, "extension_name", "") == "lance.bfloat16":
        return _brain_floats(values)
    if pa.types.is_boolean(kind):
        return torch.from_numpy(values.to_numpy(zero_copy_only=False).copy())
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        return None
    if values.null_count:
        return torch.from_numpy(values.to_numpy(zero_copy_only=False).copy())
    if uint64_as_int64 and kind == pa.uint64():
        values = values.view(pa.int64())
    return torch.from_dlpack(values)


def _brain_floats(values: Any) -> Any:
    storage = values.storage
    words: Any = pa.Array.from_buffers(
        pa.uint16(), len(storage), [None, storage.buffers()[1]], 0, storage.offset
    )
    tensor = torch.from_dlpack(words).view(torch.bfloat16)
    if values.null_count:
        tensor = tensor.clone()
        tensor[torch.from_numpy(values.is_null().to_numpy(zero_copy_only=False).copy())] = float(
            "nan"
        )
    return tensor


def concat_batches(bs: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of several batches as one."""
    columns = [
        pa.concat_arrays([batch.column(at) for batch in bs]) for at in range(bs[0].num_columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=bs[0].schema)


def resized(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of ``size`` rows, but the last; slices where one batch has them."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = 0
        while rows + batch.num_rows - start >= size:
            piece = batch.slice(start, size - rows)
            yield concat_batches([*waiting, piece]) if waiting else piece
            start += size - rows
            waiting, rows = [], 0
        if start < batch.num_rows:
            waiting.append(batch.slice(start))
            rows += batch.num_rows - start
    if waiting:
        yield concat_batches(waiting) if len(waiting) > 1 else waiting[0]
