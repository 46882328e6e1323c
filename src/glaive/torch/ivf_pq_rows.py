"""Vectors of a dataset on a device of torch: read, assigned to partitions, encoded, written."""

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

from glaive.arrow.buffers import NUMPY_TYPES
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset as open_dataset
from glaive.dataset.write import write_dataset
from glaive.errors import OptionError, TrainingError
from glaive.format.column_path import quoted_name
from glaive.io.failures import as_store_errors
from glaive.sampler import maybe_sample
from glaive.torch.clusters import KMeans
from glaive.torch.tensors import to_tensor

__all__ = [
    "Dataset",
    "Destination",
    "assigned",
    "codebook_of",
    "codes_of",
    "device_of",
    "integers",
    "lists_of",
    "number_type",
    "opened_dataset",
    "parts_of",
    "residual_columns",
    "residual_names",
    "rows_of",
    "sample_of",
    "trained",
    "without_gradients",
    "written",
]

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
