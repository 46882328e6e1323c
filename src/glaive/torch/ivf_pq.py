"""Training of IVF and PQ on a device of torch, and what rows become by it.

The functions of ``lance.vector`` that take an accelerator. Rows are streamed: what is held in
memory is a sample while centroids are trained, and a batch afterwards.
"""

from __future__ import annotations

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
from glaive.torch.clusters import KMeans
from glaive.torch.tensors import to_tensor

# --- Vectors of a dataset on a device of torch: read, assigned to partitions, encoded, written

CODES = 256
"""Centroids of each part of a codebook: a code is a byte."""

Dataset = LanceDataset | str | os.PathLike[str]
Destination = str | os.PathLike[str] | None


def opened_dataset(dataset: Dataset) -> LanceDataset:
    """The dataset, opened if it is a place."""
    return dataset if isinstance(dataset, LanceDataset) else open_dataset(dataset)


def device_of(accelerator: Any) -> Any:
    """The device of torch; ``OptionError`` for a name that is none of an accelerator."""
    if isinstance(accelerator, str) and not re.fullmatch(r"cuda(:\d+)?|mps", accelerator):
        raise OptionError(
            "Train ivf centroids on accelerator: only support 'cuda' or 'mps' as accelerator, got "
            f"'{accelerator}'. On the processor, use IndicesBuilder, or torch.device('cpu')"
        )
    return torch.device(accelerator)


def number_type(dataset: LanceDataset, column: str) -> Any:
    """NumPy type of the numbers of a column of vectors."""
    kind: Any = dataset.lance_schema.find(column)[-1].to_arrow().type
    return NUMPY_TYPES[kind.value_type]


def sample_of(
    dataset: LanceDataset, column: str, rows: int, device: Any, *, filter_nan: bool
) -> Any:
    """Vectors of rows chosen at random, on the device."""
    present = _is_present(dataset, column) if filter_nan else None
    batches = maybe_sample(dataset, rows, [column], filt=present)
    found = [_tensor(batch.column(0)) for batch in batches if batch.num_rows]
    if not found:
        raise TrainingError(f"column {column!r} has no vector to train with")
    vectors = torch.cat(found).to(device)
    return vectors[_finite(vectors)] if filter_nan else vectors


def rows_of(
    dataset: LanceDataset,
    column: str,
    device: Any,
    batch_size: int,
    *,
    filter_nan: bool,
    sample_size: int | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Ids of rows, and their vectors on the device, batch by batch."""
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
    """Ids of rows, their partitions, and what is left of the vectors without the centroids.

    Vectors with NaN have no partition, and are left out.
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
    """A model whose centroids start at vectors chosen at random."""
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
    """The codebook of residuals, and the model of each part."""
    kind = "dot" if metric.lower() == "dot" else "l2"
    models = [trained(part.to(device), CODES, kind, device, 50) for part in parts]
    numbers = np.stack([model.centroids.cpu().numpy() for model in models])
    return numbers.astype(dtype), models


def codes_of(parts: Sequence[Any], models: Sequence[KMeans]) -> Any:
    """The nearest centroid of each part."""
    found = [
        model.transform(part.to(model.centroids.dtype))
        for part, model in zip(parts, models, strict=True)
    ]
    return torch.stack(found, dim=1).to(torch.uint8)


def parts_of(residuals: Any, count: int) -> list[Any]:
    """The columns in so many parts; ``OptionError`` if they cannot be divided so."""
    dimension = int(residuals.shape[1])
    if count < 1 or dimension % count:
        raise OptionError(f"num_sub_vectors: {count} does not divide the dimension {dimension}")
    return list(residuals.split(dimension // count, dim=1))


def residual_names(count: int) -> list[str]:
    """Names of the columns of residuals."""
    return [f"__residual_subvec_{part + 1}" for part in range(count)]


def residual_columns(batch: pa.RecordBatch, names: Sequence[str], device: Any) -> list[Any]:
    """Columns of residuals on the device."""
    return [_tensor(batch.column(name)).to(device) for name in names]


def integers(numbers: Any, kind: Any = np.uint64) -> Any:
    """Integers as an array of Arrow."""
    return pa.array(np.asarray(numbers).astype(kind))


def lists_of(matrix: Any) -> Any:
    """A matrix as fixed-size lists."""
    flat = pa.array(matrix.contiguous().cpu().numpy().reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, int(matrix.shape[1]))


def written(
    schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]], target: Destination
) -> LanceDataset:
    """A new dataset with the batches, by default in a temporary folder."""
    with as_store_errors("a temporary folder (TMPDIR chooses it)", "write"):
        place = tempfile.mkdtemp(prefix="glaive-ivf-") if target is None else os.fspath(target)
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    return write_dataset(reader, place)


def without_gradients(
    batches: Iterator[pa.RecordBatch], *, allow_cuda_tf32: bool
) -> Iterator[pa.RecordBatch]:
    """Make each batch without gradients: these settings of torch are undone between batches."""
    while True:
        with _tf32_allowed(allow_cuda_tf32), torch.no_grad():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@contextmanager
def _tf32_allowed(allowed: bool) -> Iterator[None]:
    """Multiply with 19 bits of each number on CUDA meanwhile, or not."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def _is_present(dataset: LanceDataset, column: str) -> str:
    """A filter for rows with a vector."""
    fields = dataset.lance_schema.find(column)
    return ".".join(quoted_name(field.name) for field in fields) + " is not null"


def _finite(vectors: Any) -> Any:
    return vectors.isfinite().all(dim=1)


def _tensor(column: Any) -> Any:
    """Vectors, also out of structs that hold nothing else."""
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
    """Centroids of a sample of a column, and the model that assigns vectors to them.

    Parameters
    ----------
    dataset
        A dataset, or where it is.
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
        Vectors for each centroid that are read.
    max_iters
        Iterations at most.
    filter_nan
        Whether null vectors and those with NaN are left out.

    Returns
    -------
    tuple
        The centroids as an array of NumPy, of shape ``(k, dimension)`` and the column's type;
        the model.

    Raises
    ------
    OptionError
        The accelerator or the metric is not known.
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
    """The codebook of residuals, which :func:`compute_partitions` wrote.

    Parameters
    ----------
    dataset
        With a column of residuals for each part, or where it is.
    metric_type
        Of the index; residuals of ``cosine`` are compared by ``l2``.
    accelerator
        A device, as for :func:`train_ivf_centroids_on_accelerator`.
    num_sub_vectors
        Number of parts.
    batch_size
        Accepted for pylance compatibility; ignored.
    dtype
        Of the codebook.

    Returns
    -------
    tuple
        The codebook as an array of NumPy, of shape ``(num_sub_vectors, 256, width)``; the model
        of each part.

    Raises
    ------
    OptionError, TrainingError
        The accelerator is not known; there are fewer than 256 rows.
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
        A dataset, or where it is.
    column
        Path of a column of vectors.
    kmeans
        The partitions.
    batch_size
        Rows that are on the device at a time.
    dst_dataset_uri
        Where to write; default: a new temporary folder.
    allow_cuda_tf32
        Whether CUDA may multiply with 19 bits of each number.
    num_sub_vectors
        Also write what is left of the vectors without their centroids, in so many parts.
    filter_nan
        Whether null vectors are left out before they are read. Those with NaN always are.
    sample_size
        Rows chosen at random; default: all.

    Returns
    -------
    str
        Where the dataset is: ``row_id``, ``partition`` and the parts.

    Raises
    ------
    OptionError
        The dimension is not divisible by the number of parts.
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

    return str(
        written(
            schema,
            lambda: without_gradients(batches(), allow_cuda_tf32=allow_cuda_tf32),
            dst_dataset_uri,
        ).uri
    )


def compute_pq_codes(
    dataset: Dataset,
    kmeans_list: Sequence[KMeans],
    batch_size: int = 40960,
    dst_dataset_uri: Destination = None,
    allow_cuda_tf32: bool = True,
) -> tuple[str, list[str]]:
    """Write a dataset with the codes of residuals, which :func:`compute_partitions` wrote.

    Parameters
    ----------
    dataset
        With ids, partitions and residuals, or where it is.
    kmeans_list
        The model of each part.
    batch_size, dst_dataset_uri, allow_cuda_tf32
        As for :func:`compute_partitions`.

    Returns
    -------
    tuple
        Where the dataset is: ``row_id``, ``__ivf_part_id`` and ``__pq_code``; names of its files.
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

    return _with_files(
        written(
            schema,
            lambda: without_gradients(batches(), allow_cuda_tf32=allow_cuda_tf32),
            dst_dataset_uri,
        )
    )


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
    """Centroids and the codebook; residuals stay in memory.

    Parameters and errors are those of :func:`train_ivf_centroids_on_accelerator` and
    :func:`train_pq_codebook_on_accelerator`.

    Returns
    -------
    tuple
        Centroids, their model, codebook, the model of each part.
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
    metric_type: str,  # noqa: ARG001  # pylance has it; that of the model counts
    accelerator: Any,
    ivf_kmeans: KMeans,
    pq_kmeans_list: Sequence[KMeans],
    dst_dataset_uri: Destination = None,
    batch_size: int = 40960,
    *,
    filter_nan: bool = True,
    allow_cuda_tf32: bool = True,
) -> tuple[str, list[str]]:
    """Write a dataset with partition and codes of each row; residuals stay in memory.

    Parameters are those of :func:`compute_partitions`; the models are those of
    :func:`one_pass_train_ivf_pq_on_accelerator`.

    Returns
    -------
    tuple
        As of :func:`compute_pq_codes`.
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

    return _with_files(
        written(
            schema,
            lambda: without_gradients(batches(), allow_cuda_tf32=allow_cuda_tf32),
            dst_dataset_uri,
        )
    )


def _schema_of_codes(parts: int) -> pa.Schema:
    codes = pa.list_(pa.uint8(), parts)
    return pa.schema(
        [("row_id", pa.uint64()), ("__ivf_part_id", pa.uint32()), ("__pq_code", codes)]
    )


def _with_files(dataset: LanceDataset) -> tuple[str, list[str]]:
    fragments = dataset.get_fragments()
    return str(dataset.uri), [file.path for one in fragments for file in one.data_files()]
