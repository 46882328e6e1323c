"""Batches as tensors: without a copy where Arrow's memory allows.

A program may change tensors in place, as ``batch.sub_(mean)`` does. So what lies in the map of a
file, which the system lets nobody write to, is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from glaive.arrow.coalesce import slices_of_rows
from glaive.arrow.dictionaries import decode_dictionary
from glaive.arrow.python_values import NO_PYTHON_VALUE
from glaive.errors import FormatError, SchemaError

__all__ = ["concat_batches", "cut_apart", "python_values", "resized", "to_tensor"]


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
    images. Nulls of floats become NaN; integers with nulls become doubles, so. Texts and binary
    values become lists of ``str`` and ``bytes``, lists of several lengths become lists of tensors,
    with None for nulls; structs become dictionaries of their members.

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
        A column has no tensor: times, decimals, nulls among booleans, blob files.
    FormatError
        A text is damaged.
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
    if isinstance(column, list) and all(one is None or type(one) is bytes for one in column):
        return column  # large values that were read
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        raise SchemaError(f"column {name!r}: blob files need a to_tensor_fn of your own")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    shape: tuple[int, ...] = ()
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name != "lance.bfloat16":
        images = kind.extension_name == "lance.arrow.fixed_shape_image_tensor"
        shape = tuple(getattr(kind, "shape", ())) if images else ()
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = decode_dictionary(column)
    found = _vectors(column, shape, uint64_as_int64=uint64_as_int64)
    if found is None:
        found = _numbers(column, uint64_as_int64=uint64_as_int64)
    if found is None and hf_converter is not None and not _is_text(column.type):
        found = hf_converter.to_pytorch(name, column)
    if found is None:
        found = _objects(name, column, uint64_as_int64=uint64_as_int64)
    if found is None:
        raise SchemaError(
            "Only support FixedSizeList<f16/bf16/f32/f64> or numeric/bfloat16 values, texts, "
            f"lists and structs of these, got: {kind} in column {name!r}. Leave the column out, "
            f'convert it, as in columns={{"{name}": "cast({name} as bigint)"}}, or pass a '
            "to_tensor_fn"
        )
    return found


def _vectors(column: Any, shape: tuple[int, ...], *, uint64_as_int64: bool) -> Any:
    """Fixed-size lists of numbers, as one tensor; None for other types."""
    if not pa.types.is_fixed_size_list(column.type):
        return None
    size = column.type.list_size
    values = column.values.slice(column.offset * size, len(column) * size)
    if column.null_count:
        missing = np.repeat(column.is_null().to_numpy(zero_copy_only=False), size)
        if pa.types.is_primitive(values.type):
            values = pa.array(values.to_numpy(zero_copy_only=False), mask=missing)
        else:
            values = values.take(pa.array(np.arange(len(values)), mask=missing))
    flat = _vectors(values, (), uint64_as_int64=uint64_as_int64)
    if flat is None:
        flat = _numbers(values, uint64_as_int64=uint64_as_int64)
    # No -1: the rows of an empty tensor could be any number.
    return None if flat is None else flat.reshape(len(column), *(shape or (size,)), *flat.shape[1:])


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_fixed_size_binary,
            pa.types.is_binary_view,
        )
    )


def python_values(what: str, rows: Any) -> Any:
    """Values, or rows of a table, as Python has them.

    Raises
    ------
    FormatError
        It does not have one: a damaged text, a time beyond the year 9999, or one of a zone that
        nobody knows.
    """
    try:
        return rows.to_pylist()
    except NO_PYTHON_VALUE as error:
        raise FormatError(
            f"{what}: Python does not have a value: {error}. Leave the column out; "
            "`glaive verify --deep` finds damaged texts"
        ) from error


def _objects(name: str, column: Any, *, uint64_as_int64: bool) -> Any:
    """Values that no tensor holds (texts, structs, lists of several lengths); None for others."""
    kind = column.type
    if _is_text(kind):
        return python_values(f"column {name!r}", column)
    if pa.types.is_struct(kind):
        return {
            field.name: _tensor(
                f"{name}.{field.name}", member, None, uint64_as_int64=uint64_as_int64
            )
            for field, member in zip(kind, column.flatten(), strict=True)
        }
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return None
    flat = _tensor(f"{name}.item", column.flatten(), None, uint64_as_int64=uint64_as_int64)
    lengths = column.value_lengths().fill_null(0).to_pylist()
    if isinstance(flat, dict):
        return None
    if isinstance(flat, list):
        ends = np.cumsum(lengths).tolist()
        rows: list[Any] = [flat[end - size : end] for end, size in zip(ends, lengths, strict=True)]
    else:
        rows = cut_apart(flat, lengths) if lengths else []
    if column.null_count:
        rows = [row if there else None for row, there in zip(rows, _present(column), strict=True)]
    return rows


def cut_apart(tensor: Any, lengths: list[int]) -> list[Any]:
    """Consecutive parts of a tensor, over its memory.

    To PyTorch those of ``torch.split`` are one tensor: to change one of them in place fails the
    backward pass of all others. These are as independent as the memory that each has for itself.
    """
    return list(torch.unsafe_split_with_sizes(tensor, lengths))


def _present(column: Any) -> list[bool]:
    there: list[bool] = column.is_valid().to_pylist()
    return there


def _numbers(values: Any, *, uint64_as_int64: bool) -> Any:
    """A tensor of one dimension; None if the type has none."""
    kind = values.type
    if getattr(kind, "extension_name", "") == "lance.bfloat16":
        return _brain_floats(values)
    if pa.types.is_boolean(kind):
        if values.null_count:
            return None  # a tensor of booleans has no third value
        return torch.from_numpy(values.to_numpy(zero_copy_only=False).copy())
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        return None
    if values.null_count:
        return torch.from_numpy(values.to_numpy(zero_copy_only=False).copy())
    if uint64_as_int64 and kind == pa.uint64():
        values = values.view(pa.int64())
    return torch.from_dlpack(_writable(values))


def _writable(values: Any) -> Any:
    """Numbers without nulls, in memory that may be written to.

    The copy is one of Arrow's, whose memory is used again: torch's takes ten times as long.
    """
    memory = owner = values.buffers()[1]
    while owner is not None and owner.parent is not None:
        owner = owner.parent
    if owner is None or owner.is_mutable:
        return values
    width = values.type.bit_width // 8
    part = memory.slice(values.offset * width, len(values) * width)
    copy = pa.allocate_buffer(part.size)
    memoryview(copy)[:] = memoryview(part)
    return pa.Array.from_buffers(values.type, len(values), [None, copy], 0)


def _brain_floats(values: Any) -> Any:
    storage = values.storage
    words: Any = pa.Array.from_buffers(
        pa.uint16(), len(storage), [None, storage.buffers()[1]], 0, storage.offset
    )
    tensor = torch.from_dlpack(_writable(words)).view(torch.bfloat16)
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
    for slices in slices_of_rows(batches, size):
        yield concat_batches(slices) if len(slices) > 1 else slices[0]
