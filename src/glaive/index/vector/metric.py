"""Distances that vector indices are built for: their names, and vectors as they compare them.

Specification: "Files" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glaive.errors import OptionError
from glaive.kernels.distances import LEAST_LENGTH, METRICS, MOST_LENGTH, Metric

__all__ = ["metric_named", "normalized"]

_OTHER_NAMES = {"euclidean": "l2"}


def metric_named(name: object) -> Metric:
    """The distance of this name, in any case; ``euclidean`` is ``l2``.

    Raises
    ------
    OptionError
        There is none.
    """
    text = name.lower() if isinstance(name, str) else ""
    text = _OTHER_NAMES.get(text, text)
    if text not in METRICS:
        raise OptionError(
            f"Metric {name} not supported. metric: expected one of {', '.join(METRICS)}, found "
            f"{name!r}"
        )
    return text


def normalized(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Vectors of length one, in their own type; NaN for those without a direction.

    Parameters
    ----------
    vectors
        Of shape ``(n, dimension)``.
    """
    wide = vectors if vectors.dtype == np.float64 else vectors.astype(np.float32, copy=False)
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
        unit: NDArray[np.floating] = wide / lengths[:, None]
        odd = np.flatnonzero(~((lengths > LEAST_LENGTH) & (lengths < MOST_LENGTH)))
        if len(odd):  # their squares may be 0, inexact or infinite
            rows = wide[odd] / np.abs(wide[odd]).max(axis=1, keepdims=True)
            unit[odd] = rows / np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        return unit.astype(vectors.dtype, copy=False)
