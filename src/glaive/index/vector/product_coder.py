"""Product quantisation: a vector is cut into parts, each of which has a codebook.

Specification: "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.index.segment import IndexFileWriter
from glaive.index.vector.coder import Coder, GraphPoints, encoded_tensor
from glaive.index.vector.kmeans import Clusters, Training, train_clusters
from glaive.index.vector.layouts import transposed
from glaive.index.vector.storage import PRODUCT
from glaive.index.vector.vector_column import VectorBlock
from glaive.io.pool import ordered_map
from glaive.types import Float32s, UInt8s

__all__ = ["ProductCoder", "train_codebook"]


def train_codebook(
    vectors: Float32s,
    parts: int,
    bits: int,
    training: Training,
    chosen: Sequence[int] | None = None,
) -> Float32s:
    """Train a codebook, part by part; for dot products, too, codes are the nearest vectors.

    Parameters
    ----------
    vectors
        ``float32`` of shape ``(n, dimension)``: residuals, or for dot products vectors.
    parts
        Into which vectors are cut.
    bits
        Of a code: 4 or 8.
    chosen
        Numbers of the parts to train, at least one; default: all.

    Returns
    -------
    numpy.ndarray
        ``float32`` of shape ``(parts, 2 ** bits, dimension / parts)``; of the chosen parts only.
    """
    width = vectors.shape[1] // parts
    within = replace(training, metric="l2", parallel=False)
    work = partial(_train_part, vectors=vectors, width=width, bits=bits, training=within)
    return np.stack(list(ordered_map(work, range(parts) if chosen is None else chosen)))


def _train_part(
    part: int, vectors: Float32s, width: int, bits: int, training: Training
) -> Float32s:
    columns = np.ascontiguousarray(vectors[:, part * width : (part + 1) * width])
    return train_clusters(columns, 1 << bits, training)[0]


class ProductCoder(Coder):
    """Codes of 4 or 8 bits for each part of a vector.

    Parameters
    ----------
    codebook
        Of shape ``(parts, 2 ** bits, dimension / parts)``, in the type that the file gets.
    bits
        Of a code.
    residual
        Whether codes are of the vector minus its centroid.
    by_column
        Whether a partition has byte 0 of all rows first.
    """

    def __init__(
        self, codebook: NDArray[Any], bits: int, *, residual: bool, by_column: bool = True
    ) -> None:
        self.codebook, self.bits, self.residual = codebook, bits, residual
        self.by_column = by_column
        self._parts = [Clusters(part.astype(np.float32), "l2") for part in codebook]

    @classmethod
    def like(cls, other: ProductCoder, *, by_column: bool) -> Self:
        """The same codes in another order."""
        return cls(other.codebook, other.bits, residual=other.residual, by_column=by_column)

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return int(self.codebook.shape[0] * self.codebook.shape[2])

    @property
    def fields(self) -> list[pa.Field[Any]]:
        """The columns of codes."""
        return [pa.field(PRODUCT, pa.list_(pa.uint8(), len(self._parts) * self.bits // 8))]

    def encode(
        self, block: VectorBlock, residuals: Float32s, partitions: NDArray[np.int32]
    ) -> Mapping[str, NDArray[Any]]:
        """See :meth:`Coder.encode`."""
        vectors = residuals if self.residual else block.vectors
        codes = np.empty((len(vectors), len(self._parts)), np.uint8)
        width = self.codebook.shape[2]
        for at, part in enumerate(self._parts):
            codes[:, at] = part.assign(vectors[:, at * width : (at + 1) * width])
        return {PRODUCT: codes if self.bits == 8 else _packed_halves(codes)}

    def is_arranged(self, name: str) -> bool:
        """See :meth:`Coder.is_arranged`."""
        return self.by_column

    def arranged(self, name: str, codes: NDArray[Any]) -> NDArray[Any]:
        """See :meth:`Coder.arranged`."""
        return transposed(codes)

    def points(self, records: NDArray[Any]) -> GraphPoints:
        """See :meth:`Coder.points`."""
        codes = records[PRODUCT]
        if self.bits == 4:
            codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)
        parts = [part.astype(np.float32)[codes[:, at]] for at, part in enumerate(self.codebook)]
        # Residuals of one partition are as far from each other as the vectors.
        return GraphPoints(np.concatenate(parts, axis=1), dot=not self.residual)

    def describe(self, file: IndexFileWriter) -> dict[str, Any]:
        """See :meth:`Coder.describe`."""
        shape = (1 << self.bits, self.dimension)
        position = file.add_buffer(encoded_tensor(self.codebook, shape).SerializeToString())
        return {
            "codebook_position": position,
            "nbits": self.bits,
            "num_sub_vectors": len(self._parts),
            "dimension": self.dimension,
            "codebook_tensor": [],
            "transposed": self.by_column,
        }


def _packed_halves(codes: UInt8s) -> UInt8s:
    """Two codes of 4 bits in each byte, the first of them lower."""
    halves: UInt8s = codes[:, ::2] | codes[:, 1::2] << np.uint8(4)
    return halves
