"""NumPy references of ``glaive.kernels.distances``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.kernels.distances import (
    ELEMENTS,
    Centroids,
    Element,
    FoundRows,
    Int32Array,
    Int32s,
    Metric,
    Nearest,
    PlacedVectors,
    Queries,
    Ranking,
    VectorBlock,
    _check,
    _check_centroids,
    _check_rows,
    measure_pairs,
)
from glaive.types import Float32s, Int64s, as_array


def _measure(
    vectors: VectorBlock,
    queries: Queries,
    metric: Metric,
    rows: Int64s | None,
    query_of: Int32s | None,
    count: int,
) -> Float32s:
    _check(vectors, queries.matrix, metric)
    matrix = vectors.widened().matrix
    wide = matrix if rows is None else matrix[rows]
    query = queries.matrix[np.zeros(count, np.int32) if query_of is None else query_of]
    return _distances(wide, query, metric)


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


_NUMPY_ROWS: Final = 4096


def find_nearest(rows: Float32s, centroids: Centroids) -> Nearest:
    """Find the centroid with the best score for each row; of equal ones the first."""
    dimension = centroids.dimension
    _check_centroids(rows, dimension)
    count = len(rows)
    ids, scores = np.empty(count, np.int32), np.empty(count, np.float32)
    for start in range(0, count, _NUMPY_ROWS):
        part = slice(start, start + _NUMPY_ROWS)
        with np.errstate(all="ignore"):
            products = rows[part] @ centroids.rows.T
            products += centroids.bias
        ids[part] = products.argmax(axis=1)
        scores[part] = products[np.arange(len(products)), ids[part]]
    return Nearest(ids, scores)


def sum_by_cluster(rows: Float32s, ids: Int32Array, clusters: int) -> NDArray[np.float64]:
    """Sum the rows of each cluster."""
    dimension = rows.shape[1]
    _check_centroids(rows, dimension)
    if len(ids) != len(rows) or (len(ids) and (ids.min() < 0 or ids.max() >= clusters)):
        raise ValueError(f"{len(ids)} clusters below {clusters} for {len(rows)} rows")
    sums = np.zeros((clusters, dimension), np.float64)
    np.add.at(sums, ids, rows)
    return sums


def rescore_rows(
    vectors: PlacedVectors,
    element: Element,
    found: FoundRows,
    queries: Queries,
    metric: Metric,
    limits: Float32s,
    count: int,
    *,
    low: float = -np.inf,
) -> FoundRows | None:
    """Measure rows, and keep the nearest; None where one of them has no place."""
    total, several = len(found.key), len(limits)
    bounds = np.searchsorted(found.query, np.arange(several + 1))
    _check_rows(vectors, element, found, bounds, queries, metric, limits, count)
    if not total:
        empty = np.empty(0, np.int64)
        return FoundRows(
            empty.astype(np.int32), empty.astype(np.float32), empty.astype(np.uint64), empty, empty
        )
    return _rescored(vectors, element, found, queries, metric, limits, count, low)


def _rescored(
    vectors: PlacedVectors, element: Element, found: FoundRows, queries: Queries, metric: Metric,
    limits: Float32s, count: int, low: float,
) -> FoundRows | None:  # fmt: skip
    """The reference implementation."""
    fragment, row, kind = found.fragment, found.row, ELEMENTS[element]
    if ((fragment < 0) | (fragment >= len(vectors.rows)) | (row < 0)).any():
        return None
    first = vectors.first_row[fragment]
    if ((row >= vectors.rows[fragment]) | (first < 0)).any():
        return None
    number, end = first + row, int(vectors.ends[-1])
    if (number < first).any() or (number >= end).any():
        return None
    page = np.searchsorted(vectors.ends, number, side="right")
    before = np.append(0, vectors.ends)[page]
    within = number - np.maximum(before, 0)
    start, last = vectors.starts[page], vectors.memory.size - vectors.width
    if ((before < 0) | (within < 0) | (start < 0) | (start > last)).any():
        return None
    if (within > (last - start) // vectors.width).any():
        return None
    octets = as_array(vectors.memory)[
        (start + within * vectors.width)[:, None] + np.arange(vectors.width)
    ]
    block = VectorBlock(octets.reshape(-1).view(kind), queries.matrix.shape[1], element)
    query = found.query
    far = measure_pairs(block, queries, metric, np.arange(len(query)), query)
    near = np.flatnonzero((far <= limits[query]) & (far >= np.float32(low)))
    order = near[np.lexsort((found.key[near], far[near], query[near]))]
    ordered = query[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    order = order[rank < count]
    return FoundRows(query[order], far[order], found.key[order], fragment[order], row[order])


def rank_vectors(
    vectors: VectorBlock,
    queries: NDArray[Any],
    metric: Metric,
    count: int,
    among: Int64s | None = None,
) -> Ranking:
    """The vectors nearest to each query; NaN comes last."""
    _check(vectors, queries, metric)
    chosen = np.arange(vectors.count) if among is None else among
    far = [_distances(vectors.matrix, query[None], metric)[chosen] for query in queries]
    orders = [distances.argsort(kind="stable")[:count] for distances in far]
    return Ranking(
        np.array([chosen[order] for order in orders]),
        np.array([distances[order] for distances, order in zip(far, orders, strict=True)]),
    )
