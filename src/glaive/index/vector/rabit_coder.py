"""RaBitQ: the signs of a rotated residual, and more bits of its numbers.

Specification: "RaBitQ" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import UnsupportedFeatureError
from glaive.index.segment import IndexFileWriter
from glaive.index.vector.coder import Coder, GraphPoints, encoded_tensor
from glaive.index.vector.extra_bits import blocked_width, to_blocked
from glaive.index.vector.kmeans import Clusters
from glaive.index.vector.layouts import packed
from glaive.index.vector.rotation import Rotation
from glaive.index.vector.storage import SIGNS
from glaive.index.vector.vector_column import VectorBlock
from glaive.kernels.rotation import quantize_rotated
from glaive.types import Flags, Float32s

__all__ = ["EXTRA", "RabitCoder"]

EXTRA: Final = "__blocked_ex_codes"
_FACTORS: Final = ("__add_factors", "__scale_factors", "__error_factors")
_EXTRA_FACTORS: Final = ("__add_factors_ex", "__scale_factors_ex")

Float64s = NDArray[np.float64]

_CONFIDENCE: Final = 1.9
"""Standard deviations within which the error of an estimate is expected."""

_STEPS: Final = {
    1: 0.9957, 2: 0.586, 3: 0.3352, 4: 0.1881, 5: 0.1041, 6: 0.0569, 7: 0.0308, 8: 0.0166,
}  # fmt: skip
"""By bits beside the sign: the step of the best uniform codes of a normal distribution."""

_TINY: Final = 1e-30
_TRIED: Final = np.geomspace(0.6, 1.6, 24).astype(np.float32)
"""Parts of that step which are tried for each vector."""


class RabitCoder(Coder):
    """Codes of ``bits`` bits for each dimension.

    Parameters
    ----------
    clusters
        The partitions' centroids.
    rotation
        Of the residuals.
    bits
        From 1 to 9; the first is the sign.
    dot
        Whether the metric is the dot product.
    in_blocks
        Whether signs are stored in blocks of rows, or row by row.
    """

    def __init__(
        self,
        clusters: Clusters,
        rotation: Rotation,
        bits: int,
        *,
        dot: bool,
        in_blocks: bool = True,
    ) -> None:
        self._in_blocks = in_blocks
        self._clusters, self.rotation, self.bits, self._dot = clusters, rotation, bits, dot
        self.dimension = clusters.centroids.shape[1]

    @cached_property
    def _centroids(self) -> Float32s:
        """The rotated centroids."""
        return self.rotation.apply(self._clusters.centroids)

    @property
    def fields(self) -> list[pa.Field[Any]]:
        """The columns of codes."""
        octets, dimension = pa.uint8(), self.dimension
        fields: list[Any] = [pa.field(SIGNS, pa.list_(octets, dimension // 8))]
        fields += [pa.field(name, pa.float32()) for name in _FACTORS]
        if self.bits > 1:
            width = blocked_width(dimension, self.bits - 1)
            fields.append(pa.field(EXTRA, pa.list_(octets, width)))
            fields += [pa.field(name, pa.float32()) for name in _EXTRA_FACTORS]
        return fields

    def encode(
        self, block: VectorBlock, residuals: Float32s, partitions: NDArray[np.int32]
    ) -> Mapping[str, NDArray[Any]]:
        """See :meth:`Coder.encode`."""
        rotated = self.rotation.apply(residuals)
        positive = rotated >= 0
        sizes = np.abs(rotated)
        squares = np.einsum("ij,ij->i", residuals, residuals).astype(np.float64)
        # The centroid with the signs of the residual changed, so that codes have none.
        centroids = self._centroids[partitions]
        mirrored = np.where(positive, centroids, -centroids)
        products = np.einsum("ij,ij->i", sizes, mirrored).astype(np.float64)
        columns: dict[str, NDArray[Any]] = {SIGNS: np.packbits(positive, axis=1, bitorder="little")}
        length = sizes.sum(axis=1, dtype=np.float64) / 2
        offset = mirrored.sum(axis=1, dtype=np.float64) / 2
        factors = self._factors(squares, products, length, offset)
        error = self._error(squares, length)
        columns |= dict(zip(_FACTORS, (*factors, error), strict=True))
        if self.bits > 1:
            columns |= self._extra(sizes, positive, mirrored, squares, products)
        return columns

    def _factors(
        self, squares: Float64s, products: Float64s, length: Float64s, offset: Float64s
    ) -> tuple[Float64s, Float64s]:
        """What is added to an estimate, and what its product is multiplied with.

        Parameters
        ----------
        squares
            Squared lengths of the residuals.
        products
            Of residuals and centroids.
        length, offset
            Products of codes with residuals, and with centroids.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(length > 0, squares / length, 0)
            if self._dot:
                return 1 - products + ratio * offset, -ratio
            return squares + 2 * ratio * offset, -2 * ratio

    def _error(self, squares: Float64s, length: Float64s) -> Float64s:
        """How far an estimate by signs alone may be off."""
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.where(length > 0, squares * self.dimension / 4 / length**2 - 1, 0)
            spread = np.maximum(spread, 0) / max(1, self.dimension - 1)
            error: Float64s = np.sqrt(squares * spread) * _CONFIDENCE
        return error if self._dot else 2 * error

    def _extra(
        self,
        sizes: Float32s,
        positive: Flags,
        mirrored: Float32s,
        squares: Float64s,
        products: Float64s,
    ) -> dict[str, NDArray[Any]]:
        """Codes and factors of the bits beside the sign."""
        bits = self.bits - 1
        most = (1 << bits) - 1
        # Numbers of a rotated vector are nearly those of a normal distribution.
        deviations = np.sqrt(np.maximum(squares, _TINY) / self.dimension)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (sizes / deviations[:, None]).astype(np.float32)
        finite = np.isfinite(scaled)
        if not finite.all():
            # Of vectors, or damaged centroids, near the largest number the squares are infinite,
            # and so are all distances: any code will do.
            scaled = np.where(finite, scaled, np.float32(0))
        codes = quantize_rotated(scaled, _TRIED / np.float32(_STEPS[bits]), most)
        values = codes + np.float32(0.5)
        length = np.einsum("ij,ij->i", values, sizes).astype(np.float64)
        offset = np.einsum("ij,ij->i", values, mirrored).astype(np.float64)
        stored = np.where(positive, codes, np.uint8(most) - codes)
        factors = self._factors(squares, products, length, offset)
        return {
            EXTRA: to_blocked(stored, bits),
            **dict(zip(_EXTRA_FACTORS, factors, strict=True)),
        }

    def is_arranged(self, name: str) -> bool:
        """See :meth:`Coder.is_arranged`."""
        return name == SIGNS and self._in_blocks

    def arranged(self, name: str, codes: NDArray[Any]) -> NDArray[Any]:
        """See :meth:`Coder.arranged`."""
        return packed(codes)

    def points(self, records: NDArray[Any]) -> GraphPoints:
        """See :meth:`Coder.points`.

        Raises
        ------
        UnsupportedFeatureError
            Always: there is no such kind of index.
        """
        raise UnsupportedFeatureError("graphs over codes of RaBitQ are not built")

    def describe(self, file: IndexFileWriter) -> dict[str, Any]:
        """See :meth:`Coder.describe`."""
        signs, matrix = self.rotation.signs, self.rotation.matrix
        position = None
        if matrix is not None:
            position = file.add_buffer(encoded_tensor(matrix).SerializeToString())
        return {
            "rotate_mat_position": position,
            "fast_rotation_signs": None if signs is None else signs.tolist(),
            "rotation_type": "fast" if matrix is None else "matrix",
            "code_dim": self.dimension,
            "num_bits": self.bits,
            "packed": self._in_blocks,
            "query_estimator": "raw_query",
        }
