"""Find the best centroid of each vector, and add vectors up by cluster: the steps of k-means.

The score of a centroid ``c`` for a vector ``x`` is ``x · c + bias``. With a bias of ``-|c|²/2``,
the best one is the nearest; with none, the one with the largest dot product.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import nearest as compiled
from glaive.kernels.vector_records import FindNearest
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s

__all__ = ["Centroids", "Nearest", "exercise", "find_nearest", "sum_by_cluster"]

Int32s = NDArray[np.int32]

BLOCK: Final = 32
ROWS: Final = 4
_SCRATCH: Final = ROWS * 16 * 8
_PRODUCTS_PER_VALUE: Final = 64
"""Multiplications that cost about as much as one value in other kernels."""

_NUMPY_ROWS: Final = 4096
_SUMMED_ROWS: Final = 4096
"""Rows whose sum is kept in 32 bits, before it is added to a sum of 64."""


class Nearest(NamedTuple):
    """The best centroid of each row, and its score."""

    ids: Int32s
    scores: Float32s


class Centroids:
    """Centroids in the order in which the kernel reads them. Immutable.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(centroids, dimension)``.
    bias
        ``float32`` of shape ``(centroids,)``; not NaN.
    """

    def __init__(self, rows: Float32s, bias: Float32s) -> None:
        if rows.ndim != 2 or len(rows) != len(bias) or not len(rows):
            raise ValueError(f"{len(bias)} biases for centroids of shape {rows.shape}")
        self.rows = np.ascontiguousarray(rows, np.float32)
        self.bias = np.ascontiguousarray(bias, np.float32)

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return int(self.rows.shape[1])

    @cached_property
    def blocks(self) -> Float32s:
        """Blocks of 32 centroids: their biases, then dimension by dimension their numbers."""
        count, dimension = self.rows.shape
        padded = -(-count // BLOCK) * BLOCK
        bias = np.full(padded, -np.inf, np.float32)
        bias[:count] = self.bias
        numbers = np.zeros((padded, dimension), np.float32)
        numbers[:count] = self.rows
        blocks = np.empty((padded // BLOCK, dimension + 1, BLOCK), np.float32)
        blocks[:, 0] = bias.reshape(-1, BLOCK)
        blocks[:, 1:] = numbers.reshape(-1, BLOCK, dimension).transpose(0, 2, 1)
        return blocks


def find_nearest(rows: Float32s, centroids: Centroids) -> Nearest:
    """Find the centroid with the best score for each row; of equal ones the first.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(n, dimension)``, contiguous.
    """
    dimension = centroids.dimension
    _check(rows, dimension)
    count = len(rows)
    if use_compiled(count * len(centroids.rows) * max(1, dimension) // _PRODUCTS_PER_VALUE):
        padded = rows if count >= ROWS else _padded(rows)
        ids, scores = np.empty(len(padded), np.int32), np.empty(len(padded), np.float32)
        scratch = np.empty(_SCRATCH, np.uint8)
        blocks = centroids.blocks
        call = FindNearest(
            rows=address(padded), row_count=len(padded),
            dimension=dimension, table=address(blocks), blocks=len(blocks),
            scratch=address(scratch), ids=address(ids), scores=address(scores),
        )  # fmt: skip
        compiled.find_nearest(*call)
        return Nearest(ids[:count], scores[:count])
    ids, scores = np.empty(count, np.int32), np.empty(count, np.float32)
    for start in range(0, count, _NUMPY_ROWS):
        part = slice(start, start + _NUMPY_ROWS)
        with np.errstate(all="ignore"):
            products = rows[part] @ centroids.rows.T
            products += centroids.bias
        ids[part] = products.argmax(axis=1)
        scores[part] = products[np.arange(len(products)), ids[part]]
    return Nearest(ids, scores)


def _padded(rows: Float32s) -> Float32s:
    padded = np.zeros((ROWS, rows.shape[1]), np.float32)
    padded[: len(rows)] = rows
    return padded


def sum_by_cluster(rows: Float32s, ids: Int32s, clusters: int) -> NDArray[np.float64]:
    """Sum the rows of each cluster.

    Parameters
    ----------
    rows
        As for :func:`find_nearest`.
    ids
        ``int32`` of shape ``(n,)``: the cluster of each row.
    clusters
        Number of clusters.

    Returns
    -------
    numpy.ndarray
        ``float64`` of shape ``(clusters, dimension)``.
    """
    dimension = rows.shape[1]
    _check(rows, dimension)
    if len(ids) != len(rows) or (len(ids) and (ids.min() < 0 or ids.max() >= clusters)):
        raise ValueError(f"{len(ids)} clusters below {clusters} for {len(rows)} rows")
    sums = np.zeros((clusters, dimension), np.float64)
    if not use_compiled(rows.size):
        np.add.at(sums, ids, rows)
        return sums
    ids = np.ascontiguousarray(ids, np.int32)
    for start in range(0, len(rows), _SUMMED_ROWS):
        part = rows[start : start + _SUMMED_ROWS]
        partial = np.zeros((clusters, dimension), np.float32)
        compiled.add_rows(
            address(part), len(part), dimension,
            address(ids[start : start + _SUMMED_ROWS]), address(partial),
        )  # fmt: skip
        sums += partial
    return sums


def _check(rows: Float32s, dimension: int) -> None:
    good = rows.ndim == 2 and rows.flags.c_contiguous and rows.shape[1] == dimension
    if rows.dtype != np.float32 or not good:
        raise ValueError(f"{rows.dtype} of shape {rows.shape} for dimension {dimension}")


def exercise() -> None:
    """Call every wrapper once with little data."""
    rows = np.eye(5, dtype=np.float32)
    found = find_nearest(rows, Centroids(rows, np.zeros(5, np.float32)))
    sum_by_cluster(rows, found.ids, 5)
