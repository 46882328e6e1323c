"""K-means over arrays in memory.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import one_array
from glaive.errors import OptionError, TrainingError
from glaive.index.vector.coder import Clusters, Training, assign_all, train_clusters
from glaive.index.vector.storage import metric_named, normalized
from glaive.options import integer
from glaive.types import Float32s

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


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
        self, k: int, metric_type: str = "l2", max_iters: int = 50, centroids: object = None
    ) -> None:
        self.k = integer(1).check("k", k)
        self._max_iters = integer(1).check("max_iters", max_iters)
        if metric_type.lower() not in ("l2", "euclidean", "cosine", "dot"):
            raise OptionError(
                f"Invalid metric_type: {metric_type}. Expected l2, euclidean, cosine or dot"
            )
        self._metric = metric_named(metric_type)
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
        values = self._clusters.centroids
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        kind = pa.fixed_shape_tensor(pa.float32(), [values.shape[1]])
        centroids: Any = pa.FixedShapeTensorArray.from_storage(kind, vectors)
        return centroids  # type: ignore[no-any-return]  # the stubs have another class

    def fit(self, data: object) -> None:
        """Train the centroids.

        Parameters
        ----------
        data
            ``float32`` of shape ``(n, dimension)``, as an array of NumPy or fixed-size lists.

        Raises
        ------
        OptionError
            It is something else.
        TrainingError
            There are fewer vectors than clusters.
        """
        vectors = self._fitting(data)
        if len(vectors) < self.k:
            raise TrainingError(
                "KMeans: training does not have sufficient data points: "
                f"n({len(vectors)}) is smaller than k({self.k})"
            )
        training = Training(self._metric, self._max_iters)
        self._clusters = Clusters(train_clusters(vectors, self.k, training)[0], self._metric)

    def predict(self, data: object) -> pa.Array[Any]:
        """The cluster of each vector; ``data`` as for :meth:`fit`.

        Raises
        ------
        TrainingError
            There are no centroids.
        OptionError
            The vectors have another dimension.
        """
        if self._clusters is None:
            raise TrainingError("KMeans must fit (train) first: call fit, or pass centroids")
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
        kind: Any = data.type
        if len(kind.shape) != 1:
            found = f"got {len(kind.shape)}-D"
            raise OptionError(f"data: Fixed shape tensor array must be a 1-D array, {found}")
        data = data.storage
    if isinstance(data, pa.FixedSizeListArray):
        if data.null_count or data.flatten().null_count:
            raise OptionError("data: expected vectors, found nulls")
        data = data.flatten().to_numpy(zero_copy_only=False).reshape(-1, data.type.list_size)
    if not isinstance(data, np.ndarray):
        kinds = "a FixedSizeListArray, Tensor or numpy array"
        raise OptionError(f"data: Data must be {kinds}, got: {type(data).__name__}")
    if data.dtype != np.float32:
        raise OptionError(f"data: Numpy array must be float32 type, got: {data.dtype}")
    if data.ndim != 2:
        raise OptionError(f"data: Numpy array must be a 2-D array, got {data.ndim}-D")
    if not np.isfinite(data).all():
        raise OptionError("data: expected finite numbers, found NaN or infinity")
    return np.ascontiguousarray(data)


# --- Check a vector index: every vector is nearest to itself ----------------------------
# Specification: "Searching" in ``docs/format/indices.md``.

_NEAR = 1e-6


def validate_vector_index(
    dataset: LanceDataset,
    column: str,
    refine_factor: int = 5,
    sample_size: int | None = None,
    pass_threshold: float = 1.0,
) -> None:
    """Search for vectors of a dataset, each in the partition it should be in.

    Parameters
    ----------
    dataset, column
        What is indexed.
    refine_factor
        Candidates whose distance is computed again.
    sample_size
        Vectors to search for; None for all. One search for each.
    pass_threshold
        Share of them that must be found.

    Raises
    ------
    TrainingError
        Fewer were found.
    OptionError
        The column has no vectors.
    """
    count = dataset.count_rows() if sample_size is None else sample_size
    rows = dataset.sample(count, columns=[column])
    lists: Any = one_array(rows[column]).drop_null()
    if not pa.types.is_fixed_size_list(lists.type):
        raise OptionError(f"column: expected a column of vectors, found {lists.type} {column!r}")
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    vectors = flat.reshape(-1, lists.type.list_size)
    vectors = vectors[np.isfinite(vectors).all(axis=1)]
    found = 0
    for vector in vectors:
        search = {
            "column": column, "q": vector, "k": 1, "nprobes": 1, "refine_factor": refine_factor,
        }  # fmt: skip
        distances = dataset.to_table(columns=["_distance"], nearest=search)["_distance"]
        found += len(distances) > 0 and abs(distances[0].as_py()) < _NEAR
    if len(vectors) and found / len(vectors) < pass_threshold:
        raise TrainingError(
            f"Vector index failed sanity check, only {found}/{len(vectors)} passed: build the "
            f"index of column {column!r} again"
        )
