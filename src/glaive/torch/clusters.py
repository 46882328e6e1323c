"""K-means over tensors and loaders: on any device of torch, a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from glaive.errors import OptionError, TrainingError
from glaive.torch import preferred_device
from glaive.torch.tensors import TensorDataset

# --- Distances between vectors in tensors, of all pairs or to the nearest, on any device

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


_BATCH_ROWS = 10_240
_NOISE = 0.01
"""How far apart the two halves of a cluster start that replaces an empty one, relative."""


class KMeans:
    """Clusters of vectors around centroids, trained on a device of torch.

    Parameters
    ----------
    k
        Number of clusters.
    metric
        ``l2``, ``cosine`` or ``dot``.
    init
        Only ``random``: centroids start at vectors chosen at random.
    max_iters
        Passes over the vectors at most.
    tolerance
        Training ends when the sum of distances changes less than this, relative to it.
    centroids
        Tensor of shape ``(k, dimension)`` to start from; needed where :meth:`fit` gets a loader.
    seed
        Of the choice at random.
    device
        Of torch; default: CUDA or MPS if there is one.

    Raises
    ------
    OptionError
        The metric or ``init`` is not known.
    """

    def __init__(  # pylance's parameters
        self,
        k: int,
        *,
        metric: str = "l2",
        init: str = "random",
        max_iters: int = 50,
        tolerance: float = 1e-4,
        centroids: Any = None,
        seed: int | None = None,
        device: Any = None,
    ) -> None:
        named = "l2" if metric.lower() == "euclidean" else metric.lower()
        if named not in ("l2", "cosine", "dot"):
            raise OptionError(f"Invalid metric_type: {metric}. Expected l2, cosine or dot")
        if init != "random":
            raise OptionError(f"init: expected 'random', found {init!r}")
        self.k, self.metric, self.init = k, named, init
        self.max_iters, self.tolerance, self.seed = max_iters, tolerance, seed
        self.centroids = centroids
        self.device = preferred_device(device)
        self.total_distance = 0.0

    def __repr__(self) -> str:
        return f"KMeans(k={self.k}, metric={self.metric}, device={self.device})"

    def fit(self, data: Any, column: str | None = None) -> None:
        """Train the centroids, from those there are.

        Parameters
        ----------
        data
            Vectors: a tensor or array of shape ``(n, dimension)``, or an Arrow array of
            fixed-size lists; or an iterable of such tensors, such as a loader, which is read
            once per pass.
        column
            The column of vectors, if the batches of the iterable are dictionaries.

        Raises
        ------
        OptionError
            The data is something else.
        TrainingError
            There are fewer vectors than clusters, or no centroids to start from for an iterable.
        """
        batches: Iterable[Any] = data
        if isinstance(data, torch.Tensor | np.ndarray | pa.Array):
            vectors = self._vectors(data)
            if self.centroids is None:
                self.centroids = self._chosen(vectors)
            batches = TensorDataset(vectors, batch_size=_BATCH_ROWS)
        if self.centroids is None:
            raise TrainingError("KMeans: an iterable needs centroids to start from: pass centroids")
        self.centroids = self._comparable(self.centroids.to(self.device))
        self.total_distance = 0.0
        for _ in range(self.max_iters):
            total = self._improve(batches, column)
            converged = math.isclose(total, self.total_distance, rel_tol=self.tolerance)
            self.total_distance = total
            if converged or total == 0:
                return

    def transform(self, data: Any) -> Any:
        """The cluster of each vector, -1 for those with NaN; ``data`` as for :meth:`fit`."""
        if self.centroids is None:
            raise TrainingError("KMeans must fit (train) first: call fit, or pass centroids")
        return self._nearest(self._vectors(data))[0]

    def _chosen(self, vectors: Any) -> Any:
        if len(vectors) < self.k:
            raise TrainingError(
                "KMeans: training does not have sufficient data points: "
                f"n({len(vectors)}) is smaller than k({self.k})"
            )
        chosen = np.random.default_rng(self.seed).choice(len(vectors), self.k, replace=False)
        return vectors[torch.from_numpy(chosen).to(vectors.device)]

    def _improve(self, batches: Iterable[Any], column: str | None) -> float:
        """Move each centroid to the mean of its vectors; returns the sum of distances before."""
        sums = torch.zeros_like(self.centroids, dtype=torch.float32)
        counts = torch.zeros(len(sums), device=self.device)
        total = torch.zeros((), device=self.device)
        for vectors in self._batches(batches, column):
            numbers, distances = self._nearest(vectors)
            known = numbers >= 0
            members = self._comparable(vectors)[known].float()
            sums.index_add_(0, numbers[known], members)
            counts.index_add_(0, numbers[known], torch.ones(len(members), device=self.device))
            total += distances.nansum()
        if counts.sum() > 0:
            means = _without_empty(sums, counts)
            self.centroids = self._comparable(means).to(self.centroids.dtype)
        return float(total)

    def _batches(self, batches: Iterable[Any], column: str | None) -> Iterator[Any]:
        for batch in batches:
            yield (batch if column is None else batch[column]).to(self.device)

    def _nearest(self, vectors: Any) -> Any:
        measure = dot_distance if self.metric == "dot" else l2_distance
        return measure(self._comparable(vectors), self.centroids.to(self.device))

    def _comparable(self, vectors: Any) -> Any:
        """Of length 1 for cosine, so that Euclidean distances have their order."""
        return torch.nn.functional.normalize(vectors) if self.metric == "cosine" else vectors

    def _vectors(self, data: Any) -> Any:
        if isinstance(data, pa.ExtensionArray):
            data = data.storage
        if isinstance(data, pa.FixedSizeListArray):
            values = data.flatten().to_numpy(zero_copy_only=False)
            data = values.reshape(-1, data.type.list_size)
        if isinstance(data, np.ndarray):
            data = torch.from_numpy(data if data.flags.writeable else data.copy())
        if not isinstance(data, torch.Tensor):
            raise OptionError(
                "data: KMeans::fit accepts pyarrow FixedSizeListArray, np.ndarray or torch.Tensor, "
                f"got: {type(data)}"
            )
        return data.to(self.device)


def _without_empty(sums: Any, counts: Any) -> Any:
    """Means, with the halves of the largest clusters in place of empty ones."""
    means = sums / counts.clamp(min=1)[:, None]
    for empty in (counts == 0).nonzero().flatten().tolist():
        largest = int(counts.argmax())
        step = means[largest] * _NOISE * (torch.rand_like(means[largest]) - 0.5)
        means[empty], means[largest] = means[largest] + step, means[largest] - step
        counts[empty] = counts[largest] = counts[largest] / 2
    return means
