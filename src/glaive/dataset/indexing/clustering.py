"""K-means over arrays in memory.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pyarrow as pa

from glaive.errors import OptionError
from glaive.index.vector.kmeans import Clusters, Training, assign_all, train_clusters
from glaive.index.vector.metric import metric_named, normalized
from glaive.types import Float32s

__all__ = ["KMeans"]


class KMeans:
    """Clusters of vectors around centroids.

    Parameters
    ----------
    k
        Number of clusters.
    metric_type
        ``l2``, ``cosine`` or ``dot``.
    max_iters
        Iterations of training at most.
    centroids
        Fixed-size lists of ``float``; None: to be trained by :meth:`fit`.

    Raises
    ------
    OptionError
        An argument is wrong.
    """

    def __init__(
        self,
        k: int,
        metric_type: str = "l2",
        max_iters: int = 50,
        centroids: object = None,
    ) -> None:
        numbers: dict[str, object] = {"k": k, "max_iters": max_iters}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise OptionError(f"{name}: expected an integer from 1 on, found {value!r}")
        self.k, self._max_iters, self._metric = k, max_iters, metric_named(metric_type)
        if self._metric == "hamming":
            raise OptionError("metric_type: expected l2, cosine or dot, found 'hamming'")
        self._clusters: Clusters | None = None
        if centroids is not None:
            self._clusters = Clusters(_matrix(centroids), self._metric)
            if len(self._clusters) != k:
                raise OptionError(f"centroids: expected {k}, found {len(self._clusters)}")

    def __repr__(self) -> str:
        return f"glaive.KMeans(k={self.k}, metric_type={self._metric})"

    @property
    def centroids(self) -> pa.FixedShapeTensorArray | None:
        """The centroids; None before training."""
        if self._clusters is None:
            return None
        return pa.FixedShapeTensorArray.from_numpy_ndarray(self._clusters.centroids)

    def fit(self, data: object) -> Self:
        """Train the centroids.

        Parameters
        ----------
        data
            ``float32`` of shape ``(n, dimension)``, as an array of NumPy or fixed-size lists.

        Raises
        ------
        OptionError
            It is something else, or there are fewer vectors than clusters.
        """
        vectors = self._fitting(data)
        if len(vectors) < self.k:
            raise OptionError(f"data: expected at least {self.k} vectors, found {len(vectors)}")
        training = Training(self._metric, self._max_iters)
        self._clusters = Clusters(train_clusters(vectors, self.k, training)[0], self._metric)
        return self

    def predict(self, data: object) -> pa.Array[Any]:
        """The cluster of each vector; ``data`` as for :meth:`fit`.

        Raises
        ------
        OptionError
            Nothing was trained, or the vectors have another dimension.
        """
        if self._clusters is None:
            raise OptionError("data: nothing was trained yet, call fit first")
        vectors = self._fitting(data)
        expected = self._clusters.centroids.shape[1]
        if vectors.shape[1] != expected:
            raise OptionError(f"data: expected dimension {expected}, found {vectors.shape[1]}")
        ids, _ = assign_all(self._clusters, vectors, parallel=True)
        return pa.array(ids.astype(np.uint32))

    def _fitting(self, data: object) -> Float32s:
        """Vectors as the metric compares them."""
        vectors = _matrix(data)
        if self._metric == "cosine":
            vectors = np.nan_to_num(np.asarray(normalized(vectors), np.float32))
        return vectors


def _matrix(data: Any) -> Float32s:
    if isinstance(data, pa.FixedShapeTensorArray):
        data = data.storage
    if isinstance(data, pa.FixedSizeListArray):
        if data.null_count or data.flatten().null_count:
            raise OptionError("data: expected vectors, found nulls")
        data = data.flatten().to_numpy(zero_copy_only=False).reshape(-1, data.type.list_size)
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.dtype != np.float32:
        found = f"{getattr(data, 'dtype', type(data).__name__)}"
        raise OptionError(f"data: expected a matrix of float32 or fixed-size lists, found {found}")
    if not np.isfinite(data).all():
        raise OptionError("data: expected finite numbers, found NaN or infinity")
    return np.ascontiguousarray(data)
