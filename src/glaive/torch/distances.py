"""Distances between vectors in tensors, of all pairs or to the nearest, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from glaive.errors import OptionError

__all__ = [
    "argmin_l2",
    "cosine_distance",
    "dot_distance",
    "l2_distance",
    "pairwise_cosine",
    "pairwise_l2",
]

_PAIRS = 1 << 24
"""Distances that are held at once: 64 MiB of ``float32``."""

Nearest = tuple[Any, Any]
"""Numbers of the nearest vectors, and the distances to them."""


def pairwise_cosine(x: Any, y: Any, *, y2: Any = None) -> Any:
    """Cosine distances of all pairs.

    Parameters
    ----------
    x, y
        Tensors of shape ``(m, dimension)`` and ``(n, dimension)``.
    y2
        The lengths of the vectors of ``y``, if they are known.

    Returns
    -------
    tensor
        Of shape ``(m, n)``.

    Raises
    ------
    OptionError
        A tensor is no matrix.
    """
    _check_matrices(x, y)
    lengths = torch.linalg.norm(y, dim=1) if y2 is None else y2
    return 1 - (x @ y.T) / torch.linalg.norm(x, dim=1)[:, None] / lengths.reshape(1, -1)


def pairwise_l2(x: Any, y: Any, y2: Any = None) -> Any:
    """Squared Euclidean distances of all pairs.

    Parameters
    ----------
    x, y
        Tensors of shape ``(m, dimension)`` and ``(n, dimension)``, of one type.
    y2
        The squared lengths of the vectors of ``y``, if they are known.

    Returns
    -------
    tensor
        Of shape ``(m, n)`` and the type of ``x``; floats of 16 bits are summed in ``float32``.

    Raises
    ------
    OptionError
        A tensor is no matrix, or types differ.
    """
    _check_matrices(x, y)
    if x.dtype != y.dtype or (y2 is not None and y2.dtype != x.dtype):
        raise OptionError(f"pairwise_l2 data types do not match: {x.dtype} and {y.dtype}")
    left, right = _summable(x), _summable(y)
    squares = (right * right).sum(dim=1) if y2 is None else _summable(y2)
    products = left @ right.T
    return ((left * left).sum(dim=1)[:, None] + squares[None, :] - 2 * products).to(x.dtype)


def argmin_l2(x: Any, y: Any) -> Nearest:
    """The nearest vector of ``y`` for each of ``x``.

    Returns
    -------
    tuple of tensor
        Squared Euclidean distances and numbers, both of shape ``(m, 1)``.
    """
    distances, numbers = torch.cdist(_summable(x), _summable(y)).min(dim=1, keepdim=True)
    return distances.pow(2).to(x.dtype), numbers


def l2_distance(vectors: Any, centroids: Any, y2: Any = None) -> Nearest:  # noqa: ARG001  # pylance's
    """The nearest centroid of each vector by squared Euclidean distance.

    Parameters
    ----------
    vectors, centroids
        Tensors of shape ``(n, dimension)`` and ``(k, dimension)``.
    y2
        Accepted for pylance compatibility; ignored.

    Returns
    -------
    tuple of tensor
        Numbers of centroids, -1 for vectors with NaN, and distances, both of shape ``(n,)``.

    Raises
    ------
    OptionError
        A tensor is no matrix.
    """

    def nearest(part: Any) -> Nearest:
        distances, numbers = argmin_l2(part, centroids)
        return numbers, distances

    return _in_parts(nearest, vectors, centroids)


def cosine_distance(vectors: Any, centroids: Any) -> Nearest:
    """The nearest centroid of each vector by cosine distance; otherwise as :func:`l2_distance`."""
    lengths = torch.linalg.norm(centroids, dim=-1)

    def nearest(part: Any) -> Nearest:
        distances, numbers = pairwise_cosine(part, centroids, y2=lengths).min(dim=1)
        return numbers, distances

    return _in_parts(nearest, vectors, centroids)


def dot_distance(x: Any, y: Any) -> Nearest:
    """The nearest of ``y`` for each of ``x`` by ``1 - dot``; otherwise as :func:`l2_distance`."""

    def nearest(part: Any) -> Nearest:
        distances, numbers = (1 - part @ y.T).min(dim=1)
        return numbers, distances

    return _in_parts(nearest, x, y)


def _in_parts(nearest: Callable[[Any], Nearest], vectors: Any, centroids: Any) -> Nearest:
    """The nearest of all vectors, with so many distances at once as memory is taken for."""
    _check_matrices(vectors, centroids)
    parts = vectors.split(max(1, _PAIRS // max(1, len(centroids))))
    found = [nearest(part) for part in parts]
    numbers = torch.cat([one.reshape(-1) for one, _ in found])
    distances = torch.cat([one.reshape(-1) for _, one in found])
    return torch.where(distances.isnan(), -1, numbers), distances


def _summable(values: Any) -> Any:
    """Floats of 16 bits as ``float32`` on the processor, which multiplies no matrices of them."""
    short = values.dtype in (torch.float16, torch.bfloat16)
    return values.float() if short and values.device.type == "cpu" else values


def _check_matrices(x: Any, y: Any) -> None:
    if x.ndim != 2 or y.ndim != 2:
        raise OptionError(
            f"x and y must be 2-D matrix, got: x.shape={tuple(x.shape)}, y.shape={tuple(y.shape)}"
        )
