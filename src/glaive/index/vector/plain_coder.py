"""Vectors stored as they are.

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
from glaive.index.vector.storage import PLAIN
from glaive.index.vector.vector_column import VectorBlock, VectorColumn
from glaive.kernels.graph_build import MAX_BYTES
from glaive.types import Float32s

__all__ = ["PlainCoder"]


class PlainCoder(Coder):
    """No code: vectors of length one for the cosine distance, otherwise those of the column."""

    def __init__(self, column: VectorColumn) -> None:
        self._column = column

    @property
    def fields(self) -> list[pa.Field[Any]]:
        """The columns of codes."""
        column = self._column
        return [pa.field(PLAIN, pa.list_(column.kind, column.dimension), nullable=False)]

    def encode(
        self, block: VectorBlock, residuals: Float32s, partitions: NDArray[np.int32]
    ) -> Mapping[str, NDArray[Any]]:
        """See :meth:`Coder.encode`."""
        return {PLAIN: block.stored}

    def points(self, records: NDArray[Any]) -> GraphPoints:
        """See :meth:`Coder.points`."""
        vectors = records[PLAIN]
        if self._column.metric == "hamming":
            bits = np.unpackbits(vectors, axis=1)
            if bits.shape[1] > MAX_BYTES:
                bits = bits.astype(np.float32)
            return GraphPoints(bits, dot=False)
        # Of vectors of length one, too: cosine is then one minus the dot product.
        dot = self._column.metric in ("cosine", "dot")
        return GraphPoints(vectors.astype(np.float32), dot)

    def describe(self, file: IndexFileWriter) -> dict[str, Any]:
        """See :meth:`Coder.describe`."""
        return {"dim": self._column.dimension}
