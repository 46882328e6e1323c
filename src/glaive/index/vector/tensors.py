"""Tensors of vector indices: centroids, codebooks, rotations.

Specification: "Partitions" and "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.pb import index_pb2
from glaive.format.wire import parse
from glaive.index.index_file import IndexFile
from glaive.types import Float32s

__all__ = ["read_tensor", "single_precision", "stored_tensor", "tensor_values"]

_TYPES: Final = {
    index_pb2.Tensor.FLOAT16: "<f2",
    index_pb2.Tensor.FLOAT32: "<f4",
    index_pb2.Tensor.FLOAT64: "<f8",
    index_pb2.Tensor.UINT8: "u1",
}

_MAX_SIZES, _MAX_EMPTY = 4, 1 << 15
"""Sizes in a shape, and the largest beside a 0, at most: NumPy refuses far more, or larger ones."""


def tensor_values(tensor: index_pb2.Tensor, part: str, path: str) -> NDArray[Any]:
    """The numbers of a tensor, one after the other: a view of the message's bytes.

    Raises
    ------
    CorruptFileError
        It has a part of a number, or elements of an unknown type.
    """
    kind = "<u2" if tensor.data_type == index_pb2.Tensor.BFLOAT16 else _TYPES.get(tensor.data_type)
    if kind is None or len(tensor.data) % np.dtype(kind).itemsize:
        found = f"{len(tensor.data)} bytes of type {tensor.data_type}"
        raise CorruptFileError(part, expected="numbers of a known type", found=found, where=path)
    numbers: NDArray[Any] = np.frombuffer(tensor.data, kind)
    if tensor.data_type == index_pb2.Tensor.BFLOAT16:
        numbers = (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return numbers


def read_tensor(tensor: index_pb2.Tensor, part: str, file: IndexFile) -> NDArray[Any]:
    """The numbers of a tensor, in its shape: a view of the message's bytes.

    Raises
    ------
    CorruptFileError
        It has another number of bytes, or elements of an unknown type.
    """
    numbers = tensor_values(tensor, part, file.path)
    shape = [int(size) for size in tensor.shape]
    # The product is one of Python numbers, which do not wrap; a size of 0 allows any others.
    known = len(shape) <= _MAX_SIZES and not (0 in shape and max(shape) > _MAX_EMPTY)
    if not shape or not known or prod(shape) != len(numbers):
        found = f"{len(numbers)} for shape {shape[:8]}"
        raise file.corrupt(part, "as many numbers as the shape says", found)
    return numbers.reshape(shape)


def single_precision(numbers: NDArray[Any]) -> Float32s:
    """Numbers as ``float32``, without a copy if they are; those beyond its largest are infinite."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(numbers, np.float32)


def stored_tensor(file: IndexFile, position: int, part: str) -> NDArray[Any]:
    """The tensor in a global buffer; see :func:`read_tensor`."""
    message = parse(index_pb2.Tensor(), file.buffer(position), part, file.path)
    return read_tensor(message, part, file)
