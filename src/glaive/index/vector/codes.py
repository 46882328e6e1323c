"""What every kind of codes can do: read the rows of a partition, and compare them with a query.

Specification: "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import one_array
from glaive.index.row_set import RowNumbers
from glaive.index.vector.storage import ADDRESSES, Storage
from glaive.kernels.code_scan import CodeQuery, CodeRows
from glaive.kernels.distances import VectorBlock
from glaive.kernels.graph_search import NodeCodes
from glaive.memory import items_of
from glaive.types import Float32s

__all__ = ["Codes", "PreparedQuery", "float_column", "list_values", "row_numbers"]

PreparedQuery: TypeAlias = Any
"""What a kind of codes makes of a query: tables, codes, or the query itself."""


class Codes(ABC):
    """How the rows of an index are stored. Immutable; threads may share one."""

    nbytes: int = 0
    """Bytes of memory that it holds."""

    are_vectors: ClassVar[bool] = False
    """Whether they are the vectors themselves, so that their distances are exact."""

    @abstractmethod
    def load(self, number: int, at: slice) -> tuple[RowNumbers, Any, int]:
        """Read a partition: row numbers, codes, and bytes of memory of the codes.

        Parameters
        ----------
        number
            Of the partition.
        at
            Its rows in the file.

        Raises
        ------
        CorruptFileError
            It is damaged.
        """

    @abstractmethod
    def prepare(self, query: NDArray[Any]) -> PreparedQuery:
        """What comparing a query with codes needs, for all partitions."""

    @abstractmethod
    def distances(
        self, prepared: PreparedQuery, number: int, codes: Any, centroid_distance: float
    ) -> Float32s:
        """Distance of each row of a partition.

        Parameters
        ----------
        prepared
            By :meth:`prepare`.
        number, codes
            Of the partition, by :meth:`load`.
        centroid_distance
            Distance of the query from its centroid.
        """

    @abstractmethod
    def decoded(self, number: int, codes: Any, at: slice) -> VectorBlock:
        """The vectors that some rows of a partition stand for; those of RaBitQ are rotated.

        Parameters
        ----------
        number, codes
            Of the partition, by :meth:`load`.
        at
            Rows within it.
        """

    def nodes(self, prepared: PreparedQuery, codes: Any) -> NodeCodes | None:
        """How a graph over a partition compares its nodes; None: it cannot."""
        return None

    def scanned(self, codes: Any, *, has_graph: bool = False) -> CodeRows | None:
        """The codes of a partition for a scan of several; None: :meth:`distances` compares them.

        A partition with a graph is rarely scanned: its codes are not kept in a second order.
        """
        return None

    def code_query(self, prepared: PreparedQuery) -> CodeQuery | None:
        """What a scan of several partitions compares codes with; None: they are not scanned."""
        return None

    def start(self, prepared: PreparedQuery, centroid_distance: float) -> tuple[float, float]:
        """Offset and weight of a partition in a scan, by the distance from its centroid."""
        return 0.0, 1.0


def row_numbers(rows: pa.Table, storage: Storage) -> RowNumbers:
    """Numbers of rows, as the segment stores them."""
    storage.file.check_present(rows[ADDRESSES])
    array: Any = one_array(rows[ADDRESSES])
    numbers: RowNumbers = items_of(array.buffers()[1], np.uint64, len(array), 8 * array.offset)
    return numbers.copy()


def list_values(rows: pa.Table, name: str, dtype: Any, storage: Storage) -> NDArray[Any]:
    """Fixed-size lists as (rows, size).

    Raises
    ------
    CorruptFileError
        There are nulls among them.
    """
    array: Any = one_array(rows[name])
    size: int = array.type.list_size
    items = array.values.slice(array.offset * size, len(array) * size)
    if array.null_count or items.null_count:
        raise storage.file.corrupt_column(name, "values", f"{array.null_count} nulls")
    dtype = np.dtype(dtype)
    flat = items_of(items.buffers()[1], dtype, len(items), items.offset * dtype.itemsize)
    return flat.reshape(len(array), size)


def float_column(rows: pa.Table, name: str, storage: Storage) -> Float32s:
    """A column of ``float32``."""
    storage.file.check_present(rows[name])
    array: Any = one_array(rows[name])
    return items_of(array.buffers()[1], np.float32, len(array), 4 * array.offset)
