"""What vector indices store of a vector: the vector itself, or a code for it.

Specification: "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import NUMPY_TYPES
from glaive.format.pb import index_pb2
from glaive.index.segment import IndexFileWriter
from glaive.index.vector.storage import DETAILS
from glaive.index.vector.vector_column import VectorBlock
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, UInt8s

__all__ = ["Coder", "GraphPoints", "encoded_tensor", "fixed_size_lists"]

_TENSOR_TYPES = {
    np.dtype(np.float16): index_pb2.Tensor.FLOAT16,
    np.dtype(np.float32): index_pb2.Tensor.FLOAT32,
    np.dtype(np.float64): index_pb2.Tensor.FLOAT64,
    np.dtype(np.uint8): index_pb2.Tensor.UINT8,
}


class GraphPoints(NamedTuple):
    """Vectors, and the distance between two of them.

    Parameters
    ----------
    vectors
        ``float32`` or ``uint8`` of shape ``(n, dimension)``.
    dot
        The distance is one minus the dot product; otherwise the squared distance.
    scale
        The stored distance is so many times this.
    """

    vectors: NDArray[Any]
    dot: bool
    scale: float = 1.0


class Coder(ABC):
    """Makes codes of vectors, and says how a file stores them. Immutable."""

    @property
    @abstractmethod
    def fields(self) -> list[pa.Field[Any]]:
        """The columns of codes."""

    @property
    def dtypes(self) -> list[tuple[Any, ...]]:
        """The columns as members of a record: name, type, and shape where it is a list."""
        members: list[tuple[Any, ...]] = []
        for field in self.fields:
            kind: Any = field.type
            if pa.types.is_fixed_size_list(kind):
                members.append((field.name, NUMPY_TYPES[kind.value_type], (kind.list_size,)))
            else:
                members.append((field.name, NUMPY_TYPES[kind]))
        return members

    @abstractmethod
    def encode(
        self, block: VectorBlock, residuals: Float32s, partitions: NDArray[np.int32]
    ) -> Mapping[str, NDArray[Any]]:
        """Codes of a block, one array for each column.

        Parameters
        ----------
        block
            The vectors.
        residuals
            The same minus the centroids of their partitions.
        partitions
            Of each vector.
        """

    def is_arranged(self, name: str) -> bool:
        """Whether a column stores rows of a partition in another order than one by one."""
        return False

    def arranged(self, name: str, codes: NDArray[Any]) -> NDArray[Any]:
        """Codes of a complete partition in the order in which a column stores them."""
        return codes

    @abstractmethod
    def points(self, records: NDArray[Any]) -> GraphPoints:
        """What a graph over codes measures distances between.

        Parameters
        ----------
        records
            Of a complete partition.
        """

    @abstractmethod
    def describe(self, file: IndexFileWriter) -> dict[str, Any]:
        """What a file says of the codes; adds the buffers that this refers to."""

    def add_to(self, file: IndexFileWriter) -> None:
        """Add description and buffers to a file."""
        text = json.dumps(self.describe(file), separators=(",", ":"))
        file.add_metadata({DETAILS: json.dumps([text], separators=(",", ":"))})


def encoded_tensor(numbers: NDArray[Any], shape: tuple[int, ...] | None = None) -> index_pb2.Tensor:
    """A tensor as files hold it; ``shape`` says another shape than that of the numbers."""
    little = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)
    return index_pb2.Tensor(
        data_type=_TENSOR_TYPES[numbers.dtype],
        shape=shape or numbers.shape,
        data=little.tobytes(),
    )


def fixed_size_lists(numbers: NDArray[Any] | UInt8s, kind: pa.DataType) -> pa.Array[Any]:
    """Rows of a matrix as an array of fixed-size lists, without a copy if they are adjacent."""
    flat = pa.array(np.ascontiguousarray(numbers).reshape(-1))
    lists: Any = pa.FixedSizeListArray
    array: pa.Array[Any] = lists.from_arrays(flat, type=kind)
    return array
