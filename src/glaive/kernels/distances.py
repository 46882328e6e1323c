"""Distances between vectors: squared Euclidean, cosine, dot product, Hamming.

``l2`` is the squared distance, ``cosine`` one minus the cosine, ``dot`` one minus the dot product,
``hamming`` the number of bits that differ. Half and brain floats are widened on the way, doubles
are computed as such; distances are ``float32``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import distances as compiled
from glaive.kernels.vector_records import MeasurePairs
from glaive.types import Float32s, Int64s

__all__ = [
    "ELEMENTS",
    "LEAST_LENGTH",
    "METRICS",
    "MOST_LENGTH",
    "Element",
    "Metric",
    "Queries",
    "VectorBlock",
    "exercise",
    "measure",
    "measure_pairs",
    "squared_norms",
]

Element: TypeAlias = Literal["float32", "float16", "bfloat16", "float64", "uint8"]
"""Types of the elements of vectors."""

Metric: TypeAlias = Literal["l2", "cosine", "dot", "hamming"]
"""Kinds of distances."""

ELEMENTS: Final[Mapping[Element, Any]] = MappingProxyType(
    {
        "float32": np.dtype(np.float32),
        "float16": np.dtype(np.float16),
        "bfloat16": np.dtype(np.uint16),
        "float64": np.dtype(np.float64),
        "uint8": np.dtype(np.uint8),
    }
)
"""What NumPy holds elements as: brain floats by their bits."""

METRICS: Final[tuple[Metric, ...]] = ("l2", "cosine", "dot", "hamming")
"""In the order of the numbers that files have for them."""

LEAST_LENGTH: Final = 1e-15
MOST_LENGTH: Final = 1e15
"""Lengths of vectors between which their squares are exact enough in 32 bits."""

_ELEMENT_NUMBERS: Final = {element: at for at, element in enumerate(ELEMENTS)}
_METRIC_NUMBERS: Final = {metric: at for at, metric in enumerate(METRICS)}

Int32s: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class VectorBlock:
    """Vectors that lie one behind the other.

    Parameters
    ----------
    values
        Elements of all vectors: contiguous, of the type that :data:`ELEMENTS` has.
    dimension
        Elements of a vector.
    element
        Their type.
    """

    values: NDArray[Any]
    dimension: int
    element: Element

    @property
    def count(self) -> int:
        """Number of vectors."""
        return len(self.values) // self.dimension

    @property
    def matrix(self) -> NDArray[Any]:
        """The elements as (vectors, dimension)."""
        return self.values[: self.count * self.dimension].reshape(-1, self.dimension)

    def widened(self) -> VectorBlock:
        """The vectors as floats that NumPy computes with: the same ones, unless of 16 bits."""
        if self.element not in ("float16", "bfloat16"):
            return self
        if not use_compiled(len(self.values)):
            return VectorBlock(_widened(self.values, self.element), self.dimension, "float32")
        wide = np.empty(len(self.values), np.float32)
        compiled.widen(
            address(self.values), address(wide), len(wide), _ELEMENT_NUMBERS[self.element]
        )
        return VectorBlock(wide, self.dimension, "float32")


@dataclass(frozen=True, eq=False)
class Queries:
    """Query vectors.

    Parameters
    ----------
    matrix
        Of shape ``(queries, dimension)``, contiguous: ``float64`` and ``uint8`` for vectors of
        these types, ``float32`` for all others.
    """

    matrix: NDArray[Any]

    @classmethod
    def of(cls, matrix: NDArray[Any], element: Element) -> Queries:
        """Query vectors for vectors of a type."""
        kind = ELEMENTS[element if element in ("float64", "uint8") else "float32"]
        if matrix.dtype == kind:
            return cls(np.ascontiguousarray(matrix))
        with np.errstate(over="ignore", invalid="ignore"):
            return cls(np.ascontiguousarray(matrix, kind))

    @cached_property
    def norms(self) -> Float32s:
        """``float32``: the length of each."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->i", self.matrix, self.matrix, dtype=np.float64)
            norms: Float32s = np.sqrt(squares).astype(np.float32)
            return norms

    @property
    def count(self) -> int:
        """Number of queries."""
        return len(self.matrix)


def measure(vectors: VectorBlock, queries: Queries, metric: Metric, *, query: int = 0) -> Float32s:
    """The distance of each vector from one query; NaN where there is none."""
    only = queries
    if queries.count > 1:
        only = Queries(queries.matrix[query : query + 1])
    return _measure(vectors, only, metric, None, None, vectors.count)


def measure_pairs(
    vectors: VectorBlock, queries: Queries, metric: Metric, rows: Int64s, query_of: Int32s
) -> Float32s:
    """The distance of vector ``rows[i]`` from query ``query_of[i]``, for each i.

    Parameters
    ----------
    rows, query_of
        ``int64`` and ``int32`` of the same length.
    """
    count = len(rows)
    if len(query_of) != count:
        raise ValueError(f"{count} rows with {len(query_of)} queries")
    if count and not _are_below(rows, vectors.count):
        raise ValueError(f"vectors {rows.min()} to {rows.max()} of {vectors.count}")
    if count and not _are_below(query_of, queries.count):
        raise ValueError(f"queries {query_of.min()} to {query_of.max()} of {queries.count}")
    return _measure(vectors, queries, metric, rows, query_of, count)


def _are_below(numbers: NDArray[np.signedinteger], end: int) -> bool:
    """Whether integers with a sign, at least one, are from 0 to below an end."""
    # Without the sign, those below 0 are greater than any end.
    return int(numbers.view(f"u{numbers.itemsize}").max()) < end


def _measure(
    vectors: VectorBlock,
    queries: Queries,
    metric: Metric,
    rows: Int64s | None,
    query_of: Int32s | None,
    count: int,
) -> Float32s:
    _check(vectors, queries, metric)
    if not use_compiled(count * vectors.dimension):
        matrix = vectors.matrix if rows is None else vectors.matrix[rows]
        wide = _widened(matrix, vectors.element)
        query = queries.matrix[np.zeros(count, np.int32) if query_of is None else query_of]
        return _distances(wide, query, metric)
    step = vectors.dimension * ELEMENTS[vectors.element].itemsize
    return _compiled(vectors.values, vectors.element, queries, metric, rows, step, query_of, count)


def _compiled(
    memory: NDArray[Any],
    element: Element,
    queries: Queries,
    metric: Metric,
    rows: Int64s | None,
    step: int,
    query_of: Int32s | None,
    count: int,
) -> Float32s:
    dimension = queries.matrix.shape[1]
    distances = np.empty(count, np.float32)
    is_half = element in ("float16", "bfloat16")
    scratch = np.empty(dimension, np.float32) if is_half else None
    norms = queries.norms if metric == "cosine" else None
    rows = None if rows is None else np.ascontiguousarray(rows, np.int64)
    query_of = None if query_of is None else np.ascontiguousarray(query_of, np.int32)
    call = MeasurePairs(
        values=address(memory), rows=0 if rows is None else address(rows), step=step, pairs=count,
        dimension=dimension, element=_ELEMENT_NUMBERS[element], metric=_METRIC_NUMBERS[metric],
        queries=address(queries.matrix),
        query_of=0 if query_of is None else address(query_of),
        norms=0 if norms is None else address(norms),
        scratch=0 if scratch is None else address(scratch), out=address(distances),
    )  # fmt: skip
    compiled.measure(*call)
    return distances


def _distances(vectors: NDArray[Any], queries: NDArray[Any], metric: Metric) -> Float32s:
    """The reference: distances of rows of two matrices."""
    if metric == "hamming":
        bits: NDArray[Any] = np.bitwise_count(vectors ^ queries).sum(axis=1)
        return bits.astype(np.float32)
    with np.errstate(all="ignore"):
        if metric == "l2":
            far: NDArray[Any] = np.square(vectors - queries).sum(axis=1)
            return far.astype(np.float32)
        if metric == "cosine":
            first, second = map(_scaled, (vectors, queries))
            product = np.einsum("ij,ij->i", first, second)
            for scaled in (first, second):
                product = product / np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
        else:
            product = np.einsum("ij,ij->i", vectors, queries)
        near: Float32s = (1 - product).astype(np.float32)
        return near


def _scaled(matrix: NDArray[Any]) -> NDArray[np.float64]:
    """Rows whose largest number is 1: squares of small or large ones would be 0 or infinite."""
    wide = matrix.astype(np.float64)
    scaled: NDArray[np.float64] = wide / np.abs(wide).max(axis=1, keepdims=True)
    return scaled


def _widened(values: NDArray[Any], element: Element) -> NDArray[Any]:
    if element == "bfloat16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32) if element == "float16" else values


def squared_norms(vectors: VectorBlock) -> Float32s:
    """The squared length of each vector, which are ``float32``."""
    count = vectors.count
    if vectors.element != "float32" or not vectors.values.flags.c_contiguous:
        raise ValueError(f"vectors of {vectors.element}")
    if not use_compiled(len(vectors.values)):
        with np.errstate(all="ignore"):
            squares: Float32s = np.einsum("ij,ij->i", vectors.matrix, vectors.matrix)
            return squares
    norms = np.empty(count, np.float32)
    compiled.squares(address(vectors.values), count, vectors.dimension, address(norms))
    return norms


def _check(vectors: VectorBlock, queries: Queries, metric: Metric) -> None:
    matrix, element, values = queries.matrix, vectors.element, vectors.values
    if values.dtype != ELEMENTS[element] or not values.flags.c_contiguous:
        raise ValueError(f"vectors of {values.dtype} called {element}")
    if vectors.dimension < 1 or len(values) % vectors.dimension:
        raise ValueError(f"{len(values)} elements of vectors of {vectors.dimension}")
    kind: Element = element if element in ("float64", "uint8") else "float32"
    right = matrix.ndim == 2 and matrix.shape[1] == vectors.dimension and len(matrix)
    if not right or matrix.dtype != ELEMENTS[kind] or not matrix.flags.c_contiguous:
        raise ValueError(f"queries {matrix.shape} of {matrix.dtype} for {element}")
    if (metric == "hamming") != (element == "uint8"):
        raise ValueError(f"distance {metric} of {element}")


def exercise() -> None:
    """Call every wrapper once with little data."""
    half = VectorBlock(np.ones(4, np.float16), 2, "float16")
    queries = Queries.of(np.ones((1, 2)), "float16")
    pairs = np.zeros(1, np.int64), np.zeros(1, np.int32)
    measure(half, queries, "l2")
    measure_pairs(half, queries, "cosine", *pairs)
    squared_norms(half.widened())
