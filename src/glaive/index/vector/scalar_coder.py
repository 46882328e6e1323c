"""Scalar quantisation: one byte for each number of a vector, within common bounds.

Specification: "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.index.segment import IndexFileWriter
from glaive.index.vector.coder import Coder, GraphPoints
from glaive.index.vector.storage import SCALAR
from glaive.index.vector.vector_column import VectorBlock
from glaive.kernels.graph_build import MAX_BYTES
from glaive.types import Float32s

__all__ = ["ScalarCoder"]

_LEVELS = 255
_LARGEST = float(np.finfo(np.float32).max)


class ScalarCoder(Coder):
    """Codes from 0 to 255 for numbers from ``start`` to ``end``.

    Parameters
    ----------
    dimension
        Numbers in a vector.
    start, end
        Numbers beyond them have the codes 0 and 255.
    dot
        Whether graphs compare dot products.
    """

    def __init__(self, dimension: int, start: float, end: float, *, dot: bool) -> None:
        self.dimension, self.start, self.end, self.dot = dimension, start, end, dot

    @property
    def fields(self) -> list[pa.Field[Any]]:
        """The columns of codes."""
        return [pa.field(SCALAR, pa.list_(pa.uint8(), self.dimension))]

    def encode(
        self, block: VectorBlock, residuals: Float32s, partitions: NDArray[np.int32]
    ) -> Mapping[str, NDArray[Any]]:
        """See :meth:`Coder.encode`."""
        span = self.end - self.start
        scale = np.float32(_LEVELS / span if span > 0 else 0)
        if span > _LARGEST:  # no float32 holds it
            codes = ((block.vectors.astype(np.float64) - self.start) * (_LEVELS / span)).astype(
                np.float32
            )
        else:
            with np.errstate(over="ignore"):  # of numbers beyond the bounds
                codes = block.vectors - np.float32(self.start)
                codes *= scale
        np.clip(codes, 0, _LEVELS, out=codes)
        return {SCALAR: codes.astype(np.uint8)}

    def recoded(self, codes: NDArray[Any], stored: ScalarCoder) -> NDArray[Any]:
        """Codes within these bounds of the numbers that other codes stand for."""
        if (self.start, self.end) == (stored.start, stored.end):
            return codes
        span = float(self.end) - self.start
        values = np.arange(_LEVELS + 1) * ((stored.end - stored.start) / _LEVELS) + stored.start
        table = np.rint((values - self.start) * (_LEVELS / span if span > 0 else 0))
        again: NDArray[Any] = np.clip(table, 0, _LEVELS).astype(np.uint8)[codes]
        return again

    def points(self, records: NDArray[Any]) -> GraphPoints:
        """See :meth:`Coder.points`."""
        codes = records[SCALAR]
        step = (self.end - self.start) / _LEVELS
        if self.dot or self.dimension > MAX_BYTES:
            if self.end - self.start > _LARGEST:
                return GraphPoints((codes * step + self.start).astype(np.float32), self.dot)
            vectors = codes * np.float32(step) + np.float32(self.start)
            return GraphPoints(vectors, self.dot)
        return GraphPoints(codes, dot=False, scale=step * step)

    def describe(self, file: IndexFileWriter) -> dict[str, Any]:
        """See :meth:`Coder.describe`."""
        bounds = {"start": self.start, "end": self.end}
        return {"dim": self.dimension, "num_bits": 8, "bounds": bounds}
