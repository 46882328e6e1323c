"""Plain vectors as codes, and vectors of one byte per element.

Specification: "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.index.row_set import RowNumbers
from glaive.index.vector.codes import Codes, list_values, row_numbers
from glaive.index.vector.storage import ADDRESSES, PLAIN, SCALAR, Storage
from glaive.index.vector.vectors import read_bounds
from glaive.kernels.code_scan import CodeQuery, CodeRows
from glaive.kernels.codes import dot_bytes, encode_numbers, gap_bytes
from glaive.kernels.distances import ELEMENTS, Element, Metric, Queries, VectorBlock, measure
from glaive.kernels.graph_search import Comparison, NodeCodes
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, UInt8s

__all__ = ["PlainCodes", "ScalarCodes"]

_LEVELS = 255
_LARGEST = float(np.finfo(np.float32).max)

_ELEMENTS: dict[pa.DataType, Element] = {
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.uint8(): "uint8",
}


class PlainCodes(Codes):
    """The vectors themselves; those for the cosine distance have length 1.

    Raises
    ------
    CorruptFileError
        They are of a type that has no distance, or of another dimension.
    """

    are_vectors: ClassVar[bool] = True

    def __init__(self, storage: Storage, metric: Metric, dimension: int) -> None:
        self._storage = storage
        self._metric: Metric = "dot" if metric == "cosine" else metric
        kind = storage.type_of(PLAIN)
        element = _ELEMENTS.get(kind.value_type)
        bits = (metric == "hamming") == (element == "uint8")
        if element is None or kind.list_size != dimension or not bits:
            expected = f"vectors of {dimension} elements for {metric}"
            raise storage.file.corrupt_column(PLAIN, expected, f"{kind}")
        self._element: Element = element

    def load(self, number: int, at: slice) -> tuple[RowNumbers, Any, int]:
        """Read the vectors of a partition."""
        rows = self._storage.file.read([ADDRESSES, PLAIN], at.start, at.stop)
        vectors = list_values(rows, PLAIN, ELEMENTS[self._element], self._storage)
        # Where files are mapped, vectors are views of them, and take no memory of ours; but
        # nobody knows here, and pages that are in memory count for somebody.
        block = VectorBlock(vectors.reshape(-1), vectors.shape[1], self._element)
        return row_numbers(rows, self._storage), block, vectors.nbytes

    def prepare(self, query: NDArray[Any]) -> Queries:
        """The query in the type that it is compared in."""
        return Queries.of(query[None], self._element)

    def distances(
        self, prepared: Queries, number: int, codes: VectorBlock, centroid_distance: float
    ) -> Float32s:
        """Exact distances."""
        return measure(codes, prepared, self._metric)

    def decoded(self, number: int, codes: VectorBlock, at: slice) -> VectorBlock:
        """See :meth:`Codes.decoded`; views of what was read."""
        width = codes.dimension
        values = codes.values[at.start * width : at.stop * width]
        return VectorBlock(values, width, codes.element)

    def nodes(self, prepared: Queries, codes: VectorBlock) -> NodeCodes | None:
        """By squared distance or product, for vectors of ``float32``."""
        if codes.element != "float32":
            return None
        comparison: Comparison = "squared" if self._metric == "l2" else "product"
        return NodeCodes(comparison, codes.matrix, prepared.matrix[0])

    def scanned(self, codes: VectorBlock, *, has_graph: bool = False) -> CodeRows | None:
        """See :meth:`Codes.scanned`; for vectors of ``float32``."""
        return CodeRows(codes.matrix) if codes.element == "float32" else None

    def code_query(self, prepared: Queries) -> CodeQuery | None:
        """See :meth:`Codes.code_query`."""
        if self._element != "float32":
            return None
        if self._metric == "l2":
            return CodeQuery("squared", prepared.matrix[0])
        return CodeQuery("product", prepared.matrix[0], factor=-1)

    def start(self, prepared: Queries, centroid_distance: float) -> tuple[float, float]:
        """See :meth:`Codes.start`."""
        return (0.0 if self._metric == "l2" else 1.0), 1.0


class _ScalarQuery(NamedTuple):
    """A query as bytes, for squared distances; or as floats with the sum of these."""

    octets: UInt8s
    numbers: Float32s
    total: float


class ScalarCodes(Codes):
    """One byte per element: its place between the least and the greatest number.

    Raises
    ------
    CorruptFileError
        The bounds are not stored, or codes are of another dimension.
    """

    def __init__(self, storage: Storage, metric: Metric, dimension: int) -> None:
        self._storage = storage
        self._dot = metric == "dot"
        self._start, self._step = read_bounds(storage)
        # Finite, so that equal codes are near.
        self._factor = min(self._step * self._step, _LARGEST)
        kind = storage.type_of(SCALAR)
        if kind.list_size != dimension:
            raise storage.file.corrupt_column(SCALAR, f"codes of {dimension} bytes", f"{kind}")

    def load(self, number: int, at: slice) -> tuple[RowNumbers, Any, int]:
        """Read the codes of a partition."""
        rows = self._storage.file.read([ADDRESSES, SCALAR], at.start, at.stop)
        codes = list_values(rows, SCALAR, np.uint8, self._storage)
        return row_numbers(rows, self._storage), codes, codes.nbytes

    def prepare(self, query: NDArray[Any]) -> _ScalarQuery:
        """The query as codes."""
        numbers = np.ascontiguousarray(query, np.float32)
        octets, total = encode_numbers(numbers, self._start, self._step or 1)
        if not isfinite(total):  # nothing is near
            octets = np.zeros(len(numbers), np.uint8)
        return _ScalarQuery(octets, numbers, total)

    def distances(
        self, prepared: _ScalarQuery, number: int, codes: UInt8s, centroid_distance: float
    ) -> Float32s:
        """Distances of the codes from the query's; of what codes stand for from the query."""
        if not isfinite(prepared.total):
            return np.full(len(codes), np.nan, np.float32)
        if self._dot:
            product = dot_bytes(codes, prepared.numbers) * np.float32(self._step)
            return np.float32(1 - self._start * prepared.total) - product
        return gap_bytes(codes, prepared.octets) * np.float32(self._factor)

    def decoded(self, number: int, codes: UInt8s, at: slice) -> VectorBlock:
        """See :meth:`Codes.decoded`."""
        with np.errstate(over="ignore"):
            vectors = codes[at] * np.float32(self._step) + np.float32(self._start)
        if self._step * _LEVELS > _LARGEST:  # no float32 holds it
            vectors = (codes[at] * float(self._step) + self._start).astype(np.float32)
        return VectorBlock(vectors.reshape(-1), codes.shape[1], "float32")

    def nodes(self, prepared: _ScalarQuery, codes: UInt8s) -> NodeCodes | None:
        """By bytes."""
        if self._dot:
            return NodeCodes("bytes", codes, prepared.numbers)
        return NodeCodes("gap", codes, prepared.octets)

    def scanned(self, codes: UInt8s, *, has_graph: bool = False) -> CodeRows:
        """See :meth:`Codes.scanned`."""
        return CodeRows(np.ascontiguousarray(codes))

    def code_query(self, prepared: _ScalarQuery) -> CodeQuery | None:
        """See :meth:`Codes.code_query`."""
        if not isfinite(prepared.total):
            return None
        if self._dot:
            return CodeQuery("bytes", prepared.numbers, factor=-self._step)
        return CodeQuery("gap", prepared.octets, factor=self._factor)

    def start(self, prepared: _ScalarQuery, centroid_distance: float) -> tuple[float, float]:
        """See :meth:`Codes.start`."""
        return (1 - self._start * prepared.total if self._dot else 0.0), 1.0
