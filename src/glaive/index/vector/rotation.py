"""The rotation of RaBitQ: a stored matrix, or signs and Walsh-Hadamard transforms.

Specification: "Bits of rotated vectors" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from glaive.dataclass import dataclass
from glaive.index.vector.storage import Storage
from glaive.index.vector.tensors import single_precision, stored_tensor
from glaive.index.vector.vectors import stored_integer
from glaive.kernels.rotation import ROUNDS, rotate
from glaive.types import Float32s, UInt8s

__all__ = ["Rotation", "read_rotation"]


@dataclass(frozen=True, eq=False)
class Rotation:
    """A rotation of vectors: ``signs`` of the fast one, or the ``matrix`` it is multiplied with."""

    signs: UInt8s | None
    matrix: Float32s | None = None

    @classmethod
    def random(cls, kind: str, dimension: int) -> Self:
        """A random one, the same each time."""
        random = np.random.default_rng(dimension)
        if kind == "fast":
            return cls(random.integers(0, 256, ROUNDS * dimension // 8, dtype=np.uint8))
        matrix, triangle = np.linalg.qr(random.standard_normal((dimension, dimension)))
        return cls(None, (matrix * np.sign(np.diag(triangle))).astype(np.float32))

    def apply(self, vectors: Float32s) -> Float32s:
        """Rotate vectors, of shape ``(n, dimension)``."""
        if self.signs is not None:
            return rotate(vectors, self.signs)
        rotated: Float32s = vectors @ self.matrix.T  # type: ignore[union-attr]  # one of both is there
        return rotated


def read_rotation(storage: Storage, dimension: int) -> Rotation:
    """The rotation of stored codes; the dimension is divisible by 8.

    Raises
    ------
    CorruptFileError
        It is damaged, or of another dimension.
    """
    details, file = storage.details, storage.file
    kind = str(details.get("rotation_type", "matrix")).lower()
    if kind == "fast":
        signs = details.get("fast_rotation_signs")
        good = isinstance(signs, list) and len(signs) == ROUNDS * dimension // 8
        if not good or not all(isinstance(sign, int) and 0 <= sign < 256 for sign in signs or ()):
            expected = f"{ROUNDS * dimension // 8} bytes of signs"
            raise file.corrupt("rotation of an index", expected, f"{signs!r}"[:80])
        return Rotation(np.array(signs, np.uint8))
    position = stored_integer(storage, "rotate_mat_position")
    matrix = stored_tensor(file, position, "rotation of an index")
    if matrix.shape != (dimension, dimension) or matrix.dtype.kind != "f":
        expected = f"a matrix of {dimension} rows and columns"
        raise file.corrupt("rotation of an index", expected, f"{matrix.dtype} {matrix.shape}")
    return Rotation(None, single_precision(matrix))
