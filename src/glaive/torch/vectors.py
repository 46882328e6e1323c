"""Vectors on a torch device: distances, k-means, true neighbours, and models of IVF and PQ.

Rows are streamed. In memory is a sample while centroids are trained, and a batch afterwards.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from glaive.arrow.blocks import NUMPY_TYPES
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset as open_dataset
from glaive.dataset.write import write_dataset
from glaive.errors import OptionError, TrainingError
from glaive.format.field import quoted_name
from glaive.io.failures import as_store_errors
from glaive.sampler import maybe_sample
from glaive.torch import datasets, preferred_device
from glaive.torch.tensors import TensorDataset, to_tensor

# --- Distances between vectors in tensors, of all pairs or to the nearest, on any device --

_MAX_DISTANCES = 1 << 24
"""Most distances in memory at once: 64 MiB of ``float32``."""

Nearest = tuple[Any, Any]
"""Numbers of the nearest vectors, and the distances to them."""


def pairwise_cosine(x: Any, y: Any, *, y2: Any = None) -> Any:
    """Return the cosine distances of all pairs.

    Parameters
    ----------
    x, y
        Tensors of shape ``(m, dimension)`` and ``(n, dimension)``.
    y2
        Lengths of the vectors of ``y``, if known. Shape ``(n,)``.

    Returns
    -------
    tensor
        Distances. Shape ``(m, n)``.

    Raises
    ------
    OptionError
        A tensor does not have two dimensions.
    """
    _check_matrices(x, y)
    lengths = torch.linalg.norm(y, dim=1) if y2 is None else y2
    return 1 - (x @ y.T) / torch.linalg.norm(x, dim=1)[:, None] / lengths.reshape(1, -1)


def pairwise_l2(x: Any, y: Any, y2: Any = None) -> Any:
    """Return the squared Euclidean distances of all pairs.

    Parameters
    ----------
    x, y
        Tensors of shape ``(m, dimension)`` and ``(n, dimension)``, of one type.
    y2
        Squared lengths of the vectors of ``y``, if known. Shape ``(n,)``.

    Returns
    -------
    tensor
        Distances with the type of ``x``; 16-bit floats are summed in ``float32``. Shape
        ``(m, n)``.

    Raises
    ------
    OptionError
        A tensor does not have two dimensions, or types differ.
    """
    _check_matrices(x, y)
    if x.dtype != y.dtype or (y2 is not None and y2.dtype != x.dtype):
        raise OptionError(f"pairwise_l2 data types do not match: {x.dtype} and {y.dtype}")
    left, right = _summable(x), _summable(y)
    squares = (right * right).sum(dim=1) if y2 is None else _summable(y2)
    products = left @ right.T
    return ((left * left).sum(dim=1)[:, None] + squares[None, :] - 2 * products).to(x.dtype)


def argmin_l2(x: Any, y: Any) -> Nearest:
    """Find the nearest vector of ``y`` for each vector of ``x``.

    Returns
    -------
    tuple of tensor
        Squared Euclidean distances and numbers. Shape ``(m, 1)`` each.
    """
    distances, numbers = torch.cdist(_summable(x), _summable(y)).min(dim=1, keepdim=True)
    return distances.pow(2).to(x.dtype), numbers


def l2_distance(vectors: Any, centroids: Any, y2: Any = None) -> Nearest:  # noqa: ARG001  # pylance's
    """Find the nearest centroid of each vector by squared Euclidean distance.

    Parameters
    ----------
    vectors, centroids
        Tensors of shape ``(n, dimension)`` and ``(k, dimension)``.
    y2
        Accepted for pylance compatibility; ignored.

    Returns
    -------
    tuple of tensor
        Numbers of centroids, -1 for vectors with NaN, and distances. Shape ``(n,)`` each.

    Raises
    ------
    OptionError
        A tensor does not have two dimensions.
    """

    def nearest(part: Any) -> Nearest:
        distances, numbers = argmin_l2(part, centroids)
        return numbers, distances

    return _in_parts(nearest, vectors, centroids)


def cosine_distance(vectors: Any, centroids: Any) -> Nearest:
    """Find the nearest centroid of each vector by cosine distance, like :func:`l2_distance`."""
    lengths = torch.linalg.norm(centroids, dim=-1)

    def nearest(part: Any) -> Nearest:
        distances, numbers = pairwise_cosine(part, centroids, y2=lengths).min(dim=1)
        return numbers, distances

    return _in_parts(nearest, vectors, centroids)


def dot_distance(x: Any, y: Any) -> Nearest:
    """Find the nearest vector of ``y`` for each of ``x`` by ``1 - dot``, like
    :func:`l2_distance`.
    """

    def nearest(part: Any) -> Nearest:
        distances, numbers = (1 - part @ y.T).min(dim=1)
        return numbers, distances

    return _in_parts(nearest, x, y)


def _in_parts(nearest: Callable[[Any], Nearest], vectors: Any, centroids: Any) -> Nearest:
    """Find the nearest of all vectors in parts, so that the distances fit into memory."""
    _check_matrices(vectors, centroids)
    parts = vectors.split(max(1, _MAX_DISTANCES // max(1, len(centroids))))
    found = [nearest(part) for part in parts]
    numbers = torch.cat([one.reshape(-1) for one, _ in found])
    distances = torch.cat([one.reshape(-1) for _, one in found])
    return torch.where(distances.isnan(), -1, numbers), distances


def _summable(values: Any) -> Any:
    """Return 16-bit floats as ``float32`` on the processor, which cannot multiply them."""
    short = values.dtype in (torch.float16, torch.bfloat16)
    return values.float() if short and values.device.type == "cpu" else values


def _check_matrices(x: Any, y: Any) -> None:
    if x.ndim != 2 or y.ndim != 2:
        raise OptionError(
            f"x and y must be 2-D matrix, got: x.shape={tuple(x.shape)}, y.shape={tuple(y.shape)}"
        )


_BATCH_ROWS = 10_240
_SPLIT_DISTANCE = 0.01
"""Relative distance between the halves of a split cluster, which replace an empty cluster."""


class KMeans:
    """Clusters of vectors around centroids, trained on a torch device.

    Parameters
    ----------
    k
        Number of clusters.
    metric
        ``l2``, ``cosine`` or ``dot``.
    init
        Only ``random``: centroids start at vectors chosen at random.
    max_iters
        Most passes over the vectors.
    tolerance
        Training ends when the sum of distances changes by less than this share of it.
    centroids
        Tensor of shape ``(k, dimension)`` to start from; required if :meth:`fit` gets a loader.
    seed
        Seed of the random choice.
    device
        Device of torch; default: CUDA or MPS if available, else the processor.

    Raises
    ------
    OptionError
        The metric or ``init`` is unknown.
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
        """Train the centroids, starting with the current centroids if there are any.

        Parameters
        ----------
        data
            Vectors: a tensor or array of shape ``(n, dimension)``, or an Arrow array of fixed-size
            lists. Or an iterable of such tensors, such as a loader, which is read once per pass.
        column
            The column of vectors, if the batches of the iterable are dictionaries.

        Raises
        ------
        OptionError
            The data is something else.
        TrainingError
            There are fewer vectors than clusters. Or an iterable is given, and centroids are
            missing.
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
        """Return the cluster of each vector, -1 with NaN; see :meth:`fit` for ``data``."""
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
        """Move each centroid to the mean of its vectors; return the previous sum of distances."""
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
        """Normalise vectors for cosine, so that Euclidean distances have the same order."""
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
    """Return means, with halves of the largest clusters in place of empty clusters."""
    means = sums / counts.clamp(min=1)[:, None]
    for empty in (counts == 0).nonzero().flatten().tolist():
        largest = int(counts.argmax())
        step = means[largest] * _SPLIT_DISTANCE * (torch.rand_like(means[largest]) - 0.5)
        means[empty], means[largest] = means[largest] + step, means[largest] - step
        counts[empty] = counts[largest] = counts[largest] / 2
    return means


# --- True neighbours of vectors by brute force, and the recall of a search ----------------


def sort_tensors(source: Any, other: Any, k: int) -> tuple[Any, Any]:
    """Sort each row of ``source``, and ``other`` like it; return the first ``k`` columns."""
    values, order = torch.sort(source, dim=1)
    return values[:, :k], torch.gather(other, 1, order[:, :k])


def ground_truth(  # pylance's parameters
    ds: LanceDataset,
    column: str,
    query: Any,
    metric_type: str = "L2",
    k: int = 100,
    batch_size: int = 10_240,
    device: Any = None,
) -> Any:
    """Find the row ids of the nearest vectors by brute force, nearest first.

    Distances are computed in ``float64``, because distances of vectors far from the origin are
    small differences of large numbers.

    Parameters
    ----------
    ds
        The dataset.
    column
        Column of vectors.
    query
        Array or tensor of shape ``(n, dimension)``.
    metric_type
        ``L2`` or ``cosine``.
    k
        Number of neighbours of each query.
    batch_size
        Number of rows to read at once.
    device
        Device of torch; default: CUDA or MPS if available, else the processor. MPS, which lacks
        ``float64``, only holds the result.

    Returns
    -------
    tensor
        Row ids, ``int64``. Shape ``(n, k)``; fewer columns if the dataset has fewer rows.

    Raises
    ------
    OptionError
        The metric is unknown.
    """
    measures = {"l2": pairwise_l2, "cosine": pairwise_cosine}
    measure = measures.get(metric_type.lower())
    if measure is None:
        raise OptionError(f"Unknown metric type: {metric_type}. Expected L2 or cosine")
    place = preferred_device(device)
    exact = torch.device("cpu") if place.type == "mps" else place
    wanted = torch.as_tensor(query).to(exact, torch.float64)
    distances = torch.empty((len(wanted), 0), device=exact, dtype=wanted.dtype)
    ids = torch.empty((len(wanted), 0), device=exact, dtype=torch.int64)
    for batch in datasets.LanceDataset(ds, batch_size, columns=[column], with_row_id=True):
        found = measure(wanted, batch[column].to(exact, wanted.dtype))
        rows = batch["_rowid"].to(exact).expand(len(wanted), -1)
        distances, ids = sort_tensors(
            torch.cat([distances, found], 1), torch.cat([ids, rows], 1), k
        )
    return ids.to(place)


def recall(expected: Any, actual: Any) -> Any:
    """Return for each row the share of ``expected`` that ``actual`` contains, as an array."""
    left, right = np.asarray(expected), np.asarray(actual)
    if left.shape != right.shape:
        raise OptionError(f"recall: shapes differ: {left.shape} and {right.shape}")
    shares = [np.isin(one, other).mean() for one, other in zip(left, right, strict=True)]
    return np.array(shares)


def infer_vector_column(ds: LanceDataset) -> str | None:
    """Return the first column of vectors, or ``None``."""
    for column in ds.schema:
        if pa.types.is_fixed_size_list(column.type):
            return column.name
        if isinstance(column.type, pa.FixedShapeTensorType) and len(column.type.shape) == 1:
            return column.name
    return None


# --- Training of IVF and PQ on a torch device, and assignment of rows ---------------------
# The functions of ``lance.vector`` that take an accelerator. Rows are streamed. In memory is a
# sample while centroids are trained, and a batch afterwards.

# --- Vectors of a dataset on a torch device: read, assign to partitions, encode, write ----

CODES = 256
"""Centroids of each part of a codebook: a code is a byte."""

Dataset = LanceDataset | str | os.PathLike[str]
Destination = str | os.PathLike[str] | None


def opened_dataset(dataset: Dataset) -> LanceDataset:
    """Return the dataset, opened if a path or URI is given."""
    return dataset if isinstance(dataset, LanceDataset) else open_dataset(dataset)


def device_of(accelerator: Any) -> Any:
    """Return the torch device; ``OptionError`` for a name that is not an accelerator."""
    if isinstance(accelerator, str) and not re.fullmatch(r"cuda(:\d+)?|mps", accelerator):
        raise OptionError(
            "Train ivf centroids on accelerator: only support 'cuda' or 'mps' as accelerator, got "
            f"'{accelerator}'. On the processor, use IndicesBuilder, or torch.device('cpu')"
        )
    return torch.device(accelerator)


def number_type(dataset: LanceDataset, column: str) -> Any:
    """Return the NumPy type of the numbers of a column of vectors."""
    kind: Any = dataset.lance_schema.find(column)[-1].to_arrow().type
    return NUMPY_TYPES[kind.value_type]


def sample_of(
    dataset: LanceDataset, column: str, rows: int, device: Any, *, filter_nan: bool
) -> Any:
    """Read vectors of rows chosen at random, to the device."""
    present = _is_present(dataset, column) if filter_nan else None
    batches = maybe_sample(dataset, rows, [column], filt=present)
    found = [_tensor(batch.column(0)) for batch in batches if batch.num_rows]
    if not found:
        raise TrainingError(f"column {column!r} has no vector to train with")
    vectors = torch.cat(found).to(device)
    return vectors[vectors.isfinite().all(dim=1)] if filter_nan else vectors


def rows_of(
    dataset: LanceDataset,
    column: str,
    device: Any,
    batch_size: int,
    *,
    filter_nan: bool,
    sample_size: int | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Yield ids of rows, and their vectors on the device, batch by batch."""
    present = _is_present(dataset, column) if filter_nan else None
    batches: Iterable[pa.RecordBatch] = (
        maybe_sample(dataset, sample_size, [column, "_rowid"], batch_size, filt=present)
        if sample_size
        else dataset.to_batches([column], present, batch_size=batch_size, with_row_id=True)
    )
    for batch in batches:
        if batch.num_rows:
            yield batch.column(1).to_numpy(), _tensor(batch.column(0)).to(device)


def assigned(rows: Iterable[tuple[Any, Any]], model: KMeans) -> Iterator[tuple[Any, Any, Any]]:
    """Yield ids of rows, their partitions, and residuals: vectors minus their centroids.

    Vectors with NaN are omitted.
    """
    for ids, vectors in rows:
        numbers = model.transform(vectors)
        known = numbers >= 0
        kept = vectors[known]
        if model.metric == "cosine":
            kept = torch.nn.functional.normalize(kept)
        centroids = model.centroids.to(vectors.device)[numbers[known]]
        yield ids[known.cpu().numpy()], numbers[known].cpu().numpy(), kept - centroids


def trained(vectors: Any, k: int, metric: str, device: Any, max_iters: int) -> KMeans:
    """Train a model whose centroids start at vectors chosen at random."""
    if len(vectors) < k:
        raise TrainingError(
            f"Cannot initialize centroids: {k} need as many vectors that are not null and finite, "
            f"found {len(vectors)}"
        )
    start = vectors[torch.randperm(len(vectors))[:k].to(vectors.device)]
    model = KMeans(k, metric=metric, max_iters=max_iters, centroids=start, device=device)
    model.fit(vectors)
    return model


def codebook_of(
    parts: Sequence[Any], metric: str, device: Any, dtype: Any
) -> tuple[Any, list[KMeans]]:
    """Return the codebook of residuals, and the model of each part."""
    kind = "dot" if metric.lower() == "dot" else "l2"
    models = [trained(part.to(device), CODES, kind, device, 50) for part in parts]
    numbers = np.stack([model.centroids.cpu().numpy() for model in models])
    return numbers.astype(dtype), models


def codes_of(parts: Sequence[Any], models: Sequence[KMeans]) -> Any:
    """Return the number of the nearest centroid of each part."""
    found = [
        model.transform(part.to(model.centroids.dtype))
        for part, model in zip(parts, models, strict=True)
    ]
    return torch.stack(found, dim=1).to(torch.uint8)


def parts_of(residuals: Any, count: int) -> list[Any]:
    """Split the columns into ``count`` parts; ``OptionError`` if that is impossible."""
    dimension = int(residuals.shape[1])
    if count < 1 or dimension % count:
        raise OptionError(f"num_sub_vectors: {count} does not divide the dimension {dimension}")
    return list(residuals.split(dimension // count, dim=1))


def residual_names(count: int) -> list[str]:
    """Return the names of the columns of residuals."""
    return [f"__residual_subvec_{part + 1}" for part in range(count)]


def residual_columns(batch: pa.RecordBatch, names: Sequence[str], device: Any) -> list[Any]:
    """Return columns of residuals on the device."""
    return [_tensor(batch.column(name)).to(device) for name in names]


def integers(numbers: Any, kind: Any = np.uint64) -> Any:
    """Return integers as an Arrow array."""
    return pa.array(np.asarray(numbers).astype(kind))


def lists_of(matrix: Any) -> Any:
    """Return a matrix as fixed-size lists."""
    flat = pa.array(matrix.contiguous().cpu().numpy().reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, int(matrix.shape[1]))


def written(
    schema: pa.Schema,
    batches: Callable[[], Iterator[pa.RecordBatch]],
    target: Destination,
    *,
    allow_cuda_tf32: bool,
) -> LanceDataset:
    """Write a new dataset with the batches, by default in a temporary folder."""
    with as_store_errors("a temporary folder (TMPDIR chooses it)", "write"):
        place = tempfile.mkdtemp(prefix="glaive-ivf-") if target is None else os.fspath(target)
    made = without_gradients(batches(), allow_cuda_tf32=allow_cuda_tf32)
    reader = pa.RecordBatchReader.from_batches(schema, made)
    return write_dataset(reader, place)


def without_gradients(
    batches: Iterator[pa.RecordBatch], *, allow_cuda_tf32: bool
) -> Iterator[pa.RecordBatch]:
    """Yield each batch, made without gradients. torch's settings change only meanwhile."""
    while True:
        with _tf32_allowed(allow_cuda_tf32), torch.no_grad():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@contextmanager
def _tf32_allowed(allowed: bool) -> Iterator[None]:
    """Allow or forbid CUDA to multiply with 19 bits of each number in a block."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def _is_present(dataset: LanceDataset, column: str) -> str:
    """Return a filter for rows with a vector."""
    fields = dataset.lance_schema.find(column)
    return ".".join(quoted_name(field.name) for field in fields) + " is not null"


def _tensor(column: Any) -> Any:
    """Return vectors as a tensor, also vectors in structs with only one field."""
    while pa.types.is_struct(column.type):
        (column,) = column.flatten()
    return to_tensor({"": column})


def train_ivf_centroids_on_accelerator(
    dataset: Dataset,
    column: str,
    k: int,
    metric_type: str,
    accelerator: Any,
    batch_size: int = 40960,  # noqa: ARG001  # pylance has it
    *,
    sample_rate: int = 256,
    max_iters: int = 50,
    filter_nan: bool = True,
) -> tuple[Any, KMeans]:
    """Train centroids with a sample of a column, and a model that assigns vectors to them.

    Parameters
    ----------
    dataset
        A dataset, or its path or URI.
    column
        Path of a column of vectors.
    k
        Number of centroids.
    metric_type
        ``l2``, ``cosine`` or ``dot``.
    accelerator
        ``cuda``, ``cuda:1``, ``mps``, or any device of torch.
    batch_size
        Accepted for pylance compatibility; ignored.
    sample_rate
        Number of vectors to read for each centroid.
    max_iters
        Most iterations.
    filter_nan
        Whether to omit null vectors and vectors with NaN.

    Returns
    -------
    tuple
        The centroids as a NumPy array of the column's type, shape ``(k, dimension)``; the model.

    Raises
    ------
    OptionError
        The accelerator or the metric is unknown.
    TrainingError
        There are fewer vectors than centroids.
    """
    device = device_of(accelerator)
    opened = opened_dataset(dataset)
    sample = sample_of(opened, column, k * sample_rate, device, filter_nan=filter_nan)
    model = trained(sample, k, metric_type, device, max_iters)
    return model.centroids.cpu().numpy().astype(number_type(opened, column)), model


def train_pq_codebook_on_accelerator(
    dataset: Dataset,
    metric_type: str,
    accelerator: Any,
    num_sub_vectors: int,
    batch_size: int = 40960,  # noqa: ARG001  # pylance has it
    dtype: Any = np.float32,
) -> tuple[Any, list[KMeans]]:
    """Train the codebook of residuals that :func:`compute_partitions` wrote.

    Parameters
    ----------
    dataset
        Dataset with a column of residuals for each part, or its path or URI.
    metric_type
        Metric of the index; residuals of ``cosine`` are compared by ``l2``.
    accelerator
        See :func:`train_ivf_centroids_on_accelerator`.
    num_sub_vectors
        Number of parts.
    batch_size
        Accepted for pylance compatibility; ignored.
    dtype
        NumPy type of the codebook.

    Returns
    -------
    tuple
        The codebook as a NumPy array, shape ``(num_sub_vectors, 256, width)``; the model of each
        part.

    Raises
    ------
    OptionError, TrainingError
        The accelerator is unknown; or there are fewer than 256 rows.
    """
    device, opened = device_of(accelerator), opened_dataset(dataset)
    names = residual_names(num_sub_vectors)
    batches = maybe_sample(opened, CODES * CODES, names)
    columns = [residual_columns(batch, names, device) for batch in batches]
    if not columns:
        raise TrainingError("the dataset has no residuals to train a codebook with")
    parts = [torch.cat([batch[part] for batch in columns]) for part in range(num_sub_vectors)]
    return codebook_of(parts, metric_type, device, dtype)


def compute_partitions(  # noqa: PLR0917  # pylance has them
    dataset: Dataset,
    column: str,
    kmeans: KMeans,
    batch_size: int = 40960,
    dst_dataset_uri: Destination = None,
    allow_cuda_tf32: bool = True,
    num_sub_vectors: int | None = None,
    filter_nan: bool = True,
    sample_size: int | None = None,
) -> str:
    """Write a dataset with the partition of each row.

    Parameters
    ----------
    dataset
        A dataset, or its path or URI.
    column
        Path of a column of vectors.
    kmeans
        Model of the partitions.
    batch_size
        Number of rows on the device at a time.
    dst_dataset_uri
        Path or URI to write to; default: a new temporary folder.
    allow_cuda_tf32
        Whether CUDA may multiply with 19 bits of each number.
    num_sub_vectors
        Number of parts of residuals to write, too; ``None`` omits residuals.
    filter_nan
        Whether to omit null vectors before they are read. Vectors with NaN are always omitted.
    sample_size
        Number of rows to choose at random; default: all rows.

    Returns
    -------
    str
        Path or URI of the dataset with ``row_id``, ``partition`` and the parts.

    Raises
    ------
    OptionError
        The dimension is not a multiple of the number of parts.
    """
    rows = rows_of(
        opened_dataset(dataset),
        column,
        kmeans.device,
        batch_size,
        filter_nan=filter_nan,
        sample_size=sample_size,
    )
    parts = num_sub_vectors or 0
    width = parts_of(kmeans.centroids, parts)[0].shape[1] if parts else 0
    kind = pa.list_(pa.float32(), width)
    schema = pa.schema(
        [("row_id", pa.uint64()), ("partition", pa.uint32())]
        + [(name, kind) for name in residual_names(parts)]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for ids, numbers, residuals in assigned(rows, kmeans):
            cut = [lists_of(part) for part in parts_of(residuals, parts)] if parts else []
            yield pa.record_batch(
                [integers(ids), integers(numbers, np.uint32), *cut], schema=schema
            )

    return str(written(schema, batches, dst_dataset_uri, allow_cuda_tf32=allow_cuda_tf32).uri)


def compute_pq_codes(
    dataset: Dataset,
    kmeans_list: Sequence[KMeans],
    batch_size: int = 40960,
    dst_dataset_uri: Destination = None,
    allow_cuda_tf32: bool = True,
) -> tuple[str, list[str]]:
    """Write a dataset with the codes of residuals that :func:`compute_partitions` wrote.

    Parameters
    ----------
    dataset
        Dataset with ids, partitions and residuals, or its path or URI.
    kmeans_list
        The model of each part.
    batch_size, dst_dataset_uri, allow_cuda_tf32
        See :func:`compute_partitions`.

    Returns
    -------
    tuple
        Path or URI of the dataset with ``row_id``, ``__ivf_part_id`` and ``__pq_code``; names of
        its files.
    """
    names = residual_names(len(kmeans_list))
    opened, device = opened_dataset(dataset), kmeans_list[0].device
    schema = _schema_of_codes(len(kmeans_list))

    def batches() -> Iterator[pa.RecordBatch]:
        read = opened.to_batches(columns=["row_id", "partition", *names], batch_size=batch_size)
        for batch in read:
            codes = codes_of(residual_columns(batch, names, device), kmeans_list)
            columns = [batch.column("row_id"), batch.column("partition"), lists_of(codes)]
            yield pa.record_batch(columns, schema=schema)

    return _with_files(written(schema, batches, dst_dataset_uri, allow_cuda_tf32=allow_cuda_tf32))


def one_pass_train_ivf_pq_on_accelerator(
    dataset: Dataset,
    column: str,
    k: int,
    metric_type: str,
    accelerator: Any,
    num_sub_vectors: int,
    batch_size: int = 40960,
    *,
    sample_rate: int = 256,
    max_iters: int = 50,
    filter_nan: bool = True,
) -> tuple[Any, KMeans, Any, list[KMeans]]:
    """Train centroids and the codebook; residuals stay in memory.

    :func:`train_ivf_centroids_on_accelerator` and :func:`train_pq_codebook_on_accelerator` explain
    the parameters and errors.

    Returns
    -------
    tuple
        The centroids, their model, the codebook, and the model of each part.
    """
    opened = opened_dataset(dataset)
    centroids, model = train_ivf_centroids_on_accelerator(
        opened, column, k, metric_type, accelerator, batch_size,
        sample_rate=sample_rate, max_iters=max_iters, filter_nan=filter_nan,
    )  # fmt: skip
    parts_of(model.centroids, num_sub_vectors)
    sample = sample_of(opened, column, CODES * CODES, model.device, filter_nan=filter_nan)
    ((_, _, residuals),) = assigned(iter([(np.arange(len(sample)), sample)]), model)
    parts = parts_of(residuals, num_sub_vectors)
    codebook, models = codebook_of(parts, metric_type, model.device, centroids.dtype)
    return centroids, model, codebook, models


def one_pass_assign_ivf_pq_on_accelerator(
    dataset: Dataset,
    column: str,
    metric_type: str,  # noqa: ARG001  # pylance has it; the model's metric counts
    accelerator: Any,
    ivf_kmeans: KMeans,
    pq_kmeans_list: Sequence[KMeans],
    dst_dataset_uri: Destination = None,
    batch_size: int = 40960,
    *,
    filter_nan: bool = True,
    allow_cuda_tf32: bool = True,
) -> tuple[str, list[str]]:
    """Write a dataset with the partition and codes of each row; residuals stay in memory.

    :func:`compute_partitions` explains the parameters. The models come from
    :func:`one_pass_train_ivf_pq_on_accelerator`.

    Returns
    -------
    tuple
        See :func:`compute_pq_codes`.
    """
    rows = rows_of(
        opened_dataset(dataset), column, device_of(accelerator), batch_size, filter_nan=filter_nan
    )
    schema = _schema_of_codes(len(pq_kmeans_list))

    def batches() -> Iterator[pa.RecordBatch]:
        for ids, numbers, residuals in assigned(rows, ivf_kmeans):
            codes = codes_of(parts_of(residuals, len(pq_kmeans_list)), pq_kmeans_list)
            columns = [integers(ids), integers(numbers, np.uint32), lists_of(codes)]
            yield pa.record_batch(columns, schema=schema)

    return _with_files(written(schema, batches, dst_dataset_uri, allow_cuda_tf32=allow_cuda_tf32))


def _schema_of_codes(parts: int) -> pa.Schema:
    codes = pa.list_(pa.uint8(), parts)
    return pa.schema(
        [("row_id", pa.uint64()), ("__ivf_part_id", pa.uint32()), ("__pq_code", codes)]
    )


def _with_files(dataset: LanceDataset) -> tuple[str, list[str]]:
    fragments = dataset.get_fragments()
    return str(dataset.uri), [file.path for one in fragments for file in one.data_files()]
