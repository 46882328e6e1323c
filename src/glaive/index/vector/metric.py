"""Distances that vector indices are built for.

Specification: "Files" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import NDArray

from glaive.errors import OptionError

__all__ = ["Metric", "normalized"]


class Metric(Enum):
    """A distance, by the name that files store; the order is that of details messages."""

    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"
    HAMMING = "hamming"

    @classmethod
    def of(cls, name: object) -> Metric:
        """The metric of this name, in any case; ``euclidean`` is ``l2``.

        Raises
        ------
        OptionError
            There is none.
        """
        text = name.lower() if isinstance(name, str) else ""
        for metric in cls:
            if text == metric.value or (text == "euclidean" and metric is cls.L2):
                return metric
        raise OptionError(f"metric: expected l2, cosine, dot or hamming, found {name!r}")

    @property
    def number(self) -> int:
        """Its number in details messages."""
        return list(Metric).index(self)


def normalized(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Vectors of length one, in their own type; NaN for those without a direction.

    Parameters
    ----------
    vectors
        Of shape ``(n, dimension)``.
    """
    wide = vectors if vectors.dtype == np.float64 else vectors.astype(np.float32, copy=False)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        unit: NDArray[np.floating] = (wide / lengths).astype(vectors.dtype, copy=False)
    return unit
