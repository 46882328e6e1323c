"""What a vector index learns from its data: centroids, and codes for vectors.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.format.pb import index_pb2
from glaive.index.protocol import IndexSource
from glaive.index.vector.coder import (
    Clusters,
    Coder,
    PlainCoder,
    ProductCoder,
    RabitCoder,
    ScalarCoder,
    Training,
    assign_all,
    encoded_tensor,
    train_clusters,
    train_codebook,
)
from glaive.index.vector.parameters import VectorParameters
from glaive.index.vector.storage import (
    ADDRESSES,
    ColumnVectors,
    Rotation,
    VectorColumn,
    single_precision,
)
from glaive.types import Float32s

_SAMPLE_SHARE = 4
"""A sample takes at most this part of the memory that a build may hold."""

_CODEBOOK_SAMPLE = 256
"""Times the sample rate, so many residuals train a codebook; for codes of 4 bits, too, whose few
centroids would be 2 % further from the vectors if they were trained with 16 times the rate."""


class VectorModel:
    """Centroids and codes. Immutable.

    Parameters
    ----------
    column
        The vectors and their metric.
    centroids
        ``(partitions, dimension)``, in the type of the column.
    coder
        Makes the codes.
    loss
        Of the training; None if the centroids were given.
    """

    def __init__(
        self, column: VectorColumn, centroids: NDArray[Any], coder: Coder, loss: float | None = None
    ) -> None:
        self.column, self.centroids, self.coder, self.loss = column, centroids, coder, loss
        self.clusters = clusters_of(centroids, column)

    def __len__(self) -> int:
        return len(self.centroids)

    def encode(
        self, block: ColumnVectors, partitions: NDArray[np.int32] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """The partition of each vector of a block, and its record."""
        ids = self.clusters.assign(block.vectors) if partitions is None else partitions
        residuals = block.vectors
        if self.column.metric != "hamming":
            with np.errstate(all="ignore"):  # infinite ones are near nothing
                residuals = block.vectors - self.clusters.centroids[ids]
        records = np.empty(len(ids), self.dtype)
        records[ADDRESSES] = block.rows
        with np.errstate(over="ignore"):  # factors beyond the largest number become infinite
            for name, codes in self.coder.encode(block, residuals, ids).items():
                records[name] = codes
        return ids, records

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the records: the number of the row, and codes."""
        return np.dtype([(ADDRESSES, np.uint64), *self.coder.dtypes])

    def message(self) -> index_pb2.IVF:
        """The centroids as files store them."""
        return index_pb2.IVF(centroids_tensor=encoded_tensor(self.centroids), loss=self.loss)


def clusters_of(centroids: NDArray[Any], column: VectorColumn) -> Clusters:
    """Stored centroids, ready to be assigned to."""
    if column.metric == "hamming":
        centroids = np.unpackbits(centroids, axis=1, bitorder="little")
    return Clusters(single_precision(centroids), column.metric)


def train_centroids(
    column: VectorColumn, vectors: Float32s, count: int, iterations: int, device: str | None = None
) -> tuple[NDArray[Any], float]:
    """Train centroids with a sample; in the type of the column, and the loss."""
    training = Training(column.metric, iterations, device=device)
    centroids, loss = train_clusters(vectors, count, training)
    if column.metric == "hamming":
        return np.packbits(centroids.astype(np.bool_), axis=1, bitorder="little"), loss
    return centroids.astype(column.dtype), loss


def sample_vectors(column: VectorColumn, source: IndexSource, rows: int) -> ColumnVectors:
    """Vectors of some rows, as many as memory permits."""
    limit = source.memory_limit // _SAMPLE_SHARE // (column.trained_dimension * 4)
    values = source.sample(min(rows, max(1, limit), source.num_rows))
    return column.block(values, np.zeros(len(values), np.uint64))


def train_model(source: IndexSource, parameters: VectorParameters) -> VectorModel | None:
    """Train a model; None without a vector to train it with. Reads one sample of the column."""
    sample = model_sample(source, parameters)
    if not len(sample):
        return None
    centroids, loss = model_centroids(parameters, sample, source.num_rows)
    return VectorModel(parameters.column, centroids, _coder(parameters, centroids, sample), loss)


def model_sample(source: IndexSource, parameters: VectorParameters) -> Float32s:
    """The vectors that a model is trained with: the same ones each time."""
    needed = 0
    if parameters.centroids is None:
        needed = parameters.partitions_for(source.num_rows)
    if parameters.codes == "PQ" and parameters.codebook is None:
        needed = max(needed, _CODEBOOK_SAMPLE)
    elif parameters.codes == "SQ" and parameters.bounds is None:
        needed = max(needed, 256)
    rows = max(1, needed) * parameters.sample_rate
    return sample_vectors(parameters.column, source, rows).vectors


def model_centroids(
    parameters: VectorParameters, sample: Float32s, rows: int
) -> tuple[NDArray[Any], float | None]:
    """The centroids for so many rows, and the loss: None if they are given.

    Parameters
    ----------
    sample
        As :func:`model_sample` makes it, not empty.
    """
    if parameters.centroids is not None:
        return parameters.centroids, None
    count = parameters.partitions_for(rows)
    return train_centroids(
        parameters.column,
        _some(sample, count * parameters.sample_rate),
        count,
        parameters.max_iters,
        parameters.device,
    )


def model_bounds(parameters: VectorParameters, sample: Float32s) -> tuple[float, float]:
    """The bounds of scalar quantisation; ``sample`` as for :func:`model_centroids`."""
    if parameters.bounds is not None:
        return parameters.bounds
    return float(sample.min()), float(sample.max())


def model_codebook(
    parameters: VectorParameters,
    centroids: NDArray[Any],
    sample: Float32s,
    chosen: Sequence[int] | None = None,
) -> NDArray[Any]:
    """The codebook of product quantisation, or some parts of it: each is trained by itself.

    Parameters
    ----------
    sample
        As for :func:`model_centroids`.
    chosen
        Numbers of the parts; default: all.
    """
    return train_residuals(
        parameters.column,
        centroids,
        _some(sample, parameters.sample_rate * _CODEBOOK_SAMPLE),
        parameters.num_sub_vectors,
        parameters.num_bits,
        parameters.max_iters,
        chosen,
    )


def _coder(parameters: VectorParameters, centroids: NDArray[Any], sample: Float32s) -> Coder:
    column = parameters.column
    match parameters.codes:
        case "SQ":
            start, end = model_bounds(parameters, sample)
            return ScalarCoder(column.dimension, start, end, dot=column.metric == "dot")
        case "PQ":
            return _product_coder(parameters, centroids, sample)
        case "RQ":
            rotation = Rotation.random(parameters.rotation, column.dimension)
            if parameters.signs is not None:
                rotation = Rotation(parameters.signs)
            clusters, dot = clusters_of(centroids, column), column.metric == "dot"
            return RabitCoder(
                clusters, rotation, parameters.num_bits, dot=dot, in_blocks=parameters.transposed
            )
        case _:
            return PlainCoder(column)


def _product_coder(
    parameters: VectorParameters, centroids: NDArray[Any], sample: Float32s
) -> ProductCoder:
    codebook = parameters.codebook
    if codebook is None:
        codebook = model_codebook(parameters, centroids, sample)
    return ProductCoder(
        codebook,
        parameters.num_bits,
        residual=parameters.column.metric != "dot",
        by_column=parameters.transposed,
    )


def train_residuals(
    column: VectorColumn,
    centroids: NDArray[Any],
    vectors: Float32s,
    parts: int,
    bits: int,
    iterations: int,
    chosen: Sequence[int] | None = None,
) -> NDArray[Any]:
    """Train a codebook with a sample: for residuals or, for dot products, for the vectors.

    Parameters
    ----------
    chosen
        Numbers of the parts to train; default: all.

    Returns
    -------
    numpy.ndarray
        ``(parts, 2 ** bits, dimension / parts)``, in the type of the column; of the chosen parts.
    """
    if column.metric != "dot":
        clusters = clusters_of(centroids, column)
        ids, _ = assign_all(clusters, vectors, parallel=True)
        with np.errstate(all="ignore"):
            vectors = vectors - clusters.centroids[ids]
    trained = train_codebook(vectors, parts, bits, Training("l2", iterations), chosen)
    with np.errstate(all="ignore"):  # residuals may be twice the largest number
        return trained.astype(column.dtype)


def _some(vectors: Float32s, most: int) -> Float32s:
    """At most so many vectors, from everywhere."""
    if len(vectors) <= most:
        return vectors
    chosen = np.arange(most, dtype=np.int64) * len(vectors) // most
    return vectors[chosen]
