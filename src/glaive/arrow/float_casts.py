"""``cast``: Arrow's, and to and from brain floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.bfloat16 import BFloat16Array, BFloat16Type, bfloat16_array, floats_of
from glaive.errors import SchemaError

__all__ = ["cast"]

_NAMES = ("bfloat16", "bf16")


def cast(arr: Any, target_type: Any, *args: Any, **options: Any) -> Any:
    """Cast an array; like :func:`pyarrow.compute.cast`, and to and from brain floats.

    Parameters
    ----------
    arr
        An array; floats for brain floats, or fixed-size lists of them.
    target_type
        A type of Arrow or its name; ``"bfloat16"``, ``"bf16"`` or :class:`BFloat16Type`.
    *args, **options
        Those of pyarrow, where it does the work.

    Raises
    ------
    SchemaError
        There is no such cast, or lists differ in size.
    """
    target: Any = BFloat16Type() if target_type in _NAMES else target_type
    if isinstance(target, str):
        aliases: Any = pa.type_for_alias
        target = aliases(target)
    if isinstance(arr, pa.ChunkedArray):
        chunks: list[Any] = [cast(chunk, target, *args, **options) for chunk in arr.chunks]
        return pa.chunked_array(chunks, target)
    if isinstance(arr.type, BFloat16Type):
        return _from_bfloat16(arr, target)
    if isinstance(target, BFloat16Type):
        if not pa.types.is_floating(arr.type):
            raise SchemaError(
                f"Only support casting floating array to bfloat16 array, got: {arr.type}"
            )
        return bfloat16_array(arr)
    if pa.types.is_fixed_size_list(arr.type) and pa.types.is_fixed_size_list(target):
        if arr.type.list_size != target.list_size:
            raise SchemaError(
                "Only support casting fixed size list to fixed size list with the same size, "
                f"got: {arr.type} to {target}"
            )
        items = cast(arr.values, target.value_type, *args, **options)
        return pa.Array.from_buffers(
            pa.list_(pa.field(target.value_field.name, items.type), target.list_size),
            len(arr),
            arr.buffers()[:1],
            arr.null_count,
            arr.offset,
            children=[items],
        )
    return pc.cast(arr, target, *args, **options)


def _from_bfloat16(arr: BFloat16Array, target: Any) -> Any:
    if isinstance(target, BFloat16Type):
        return arr
    if not pa.types.is_floating(target):
        raise SchemaError(f"Only support casting bfloat16 array to floating array, got: {target}")
    missing = arr.is_null().to_numpy(zero_copy_only=False) if arr.null_count else None
    floats: Any = pa.array(np.ascontiguousarray(floats_of(arr.bits())), mask=missing)
    return pc.cast(floats, target, safe=False)
