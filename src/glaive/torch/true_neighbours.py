"""True neighbours of vectors, by comparing all, and what share of them a search found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import torch

from glaive.dataset.dataset import LanceDataset
from glaive.errors import OptionError
from glaive.torch import iterable, preferred_device
from glaive.torch.clusters import pairwise_cosine, pairwise_l2

__all__ = ["ground_truth", "infer_vector_column", "recall", "sort_tensors"]


def sort_tensors(source: Any, other: Any, k: int) -> tuple[Any, Any]:
    """Sort each row of ``source``, and ``other`` like it; the first ``k`` columns of both."""
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
    """Row ids of the nearest vectors, nearest first, by comparing all.

    Distances are computed in ``float64``: those of vectors far from the origin are small
    differences of large numbers.

    Parameters
    ----------
    ds
        The dataset.
    column
        The vectors.
    query
        Array or tensor of shape ``(n, dimension)``.
    metric_type
        ``L2`` or ``cosine``.
    k
        Neighbours of each query.
    batch_size
        Rows that are read at once.
    device
        Of torch; default: CUDA or MPS if there is one. MPS, which has no ``float64``, holds the
        result only.

    Returns
    -------
    tensor
        ``int64`` of shape ``(n, k)``; fewer columns where there are fewer rows.

    Raises
    ------
    OptionError
        The metric is not known.
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
    for batch in iterable.LanceDataset(ds, batch_size, columns=[column], with_row_id=True):
        found = measure(wanted, batch[column].to(exact, wanted.dtype))
        rows = batch["_rowid"].to(exact).expand(len(wanted), -1)
        distances, ids = sort_tensors(
            torch.cat([distances, found], 1), torch.cat([ids, rows], 1), k
        )
    return ids.to(place)


def recall(expected: Any, actual: Any) -> Any:
    """The share of each row of ``expected`` that is in that row of ``actual``, as an array."""
    left, right = np.asarray(expected), np.asarray(actual)
    if left.shape != right.shape:
        raise OptionError(f"recall: shapes differ: {left.shape} and {right.shape}")
    shares = [np.isin(one, other).mean() for one, other in zip(left, right, strict=True)]
    return np.array(shares)


def infer_vector_column(ds: LanceDataset) -> str | None:
    """The first column of vectors; None if there is none."""
    for column in ds.schema:
        if pa.types.is_fixed_size_list(column.type):
            return column.name
        if isinstance(column.type, pa.FixedShapeTensorType) and len(column.type.shape) == 1:
            return column.name
    return None
