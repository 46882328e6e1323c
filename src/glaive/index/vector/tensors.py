"""Tensors of vector indices: centroids, codebooks, rotations.

Specification: "Partitions" and "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.format.pb import index_pb2
from glaive.format.wire import parse
from glaive.index.index_file import IndexFile

__all__ = ["read_tensor", "stored_tensor"]

_TYPES: Final = {
    index_pb2.Tensor.FLOAT16: "<f2",
    index_pb2.Tensor.FLOAT32: "<f4",
    index_pb2.Tensor.FLOAT64: "<f8",
    index_pb2.Tensor.UINT8: "u1",
}


def read_tensor(tensor: index_pb2.Tensor, part: str, file: IndexFile) -> NDArray[Any]:
    """The numbers of a tensor, in its shape: a view of the message's bytes.

    Raises
    ------
    CorruptFileError
        It has another number of bytes, or elements of an unknown type.
    """
    if tensor.data_type == index_pb2.Tensor.BFLOAT16:
        halves = np.frombuffer(tensor.data[: len(tensor.data) // 2 * 2], "<u2")
        numbers: NDArray[Any] = (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)
        width = 2
    elif tensor.data_type in _TYPES:
        width = np.dtype(_TYPES[tensor.data_type]).itemsize
        whole = len(tensor.data) // width * width
        numbers = np.frombuffer(tensor.data[:whole], _TYPES[tensor.data_type])
    else:
        raise file.corrupt(part, "numbers of a known type", f"type {tensor.data_type}")
    shape = [int(size) for size in tensor.shape]
    count = 1
    for size in shape:  # as Python numbers, which do not wrap
        count *= size
    if not shape or count != len(numbers) or count * width != len(tensor.data):
        found = f"{len(tensor.data)} bytes for shape {shape[:8]}"
        raise file.corrupt(part, f"{width} bytes for each number", found)
    return numbers.reshape(shape)


def stored_tensor(file: IndexFile, position: int, part: str) -> NDArray[Any]:
    """The tensor in a global buffer; see :func:`read_tensor`."""
    message = parse(index_pb2.Tensor(), file.buffer(position), part, file.path)
    return read_tensor(message, part, file)
