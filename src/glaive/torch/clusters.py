"""K-means over tensors and loaders: on any device of torch, a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from glaive.errors import OptionError, TrainingError
from glaive.torch import preferred_device
from glaive.torch.distances import dot_distance, l2_distance
from glaive.torch.tensor_dataset import TensorDataset

__all__ = ["KMeans"]

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
