"""Steps of building vector indices as functions, under the names of ``lance.lance.indices``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from glaive.dataset.indexing.builder import IndicesBuilder
from glaive.dataset.indexing.create import IndexConfig
from glaive.dataset.indexing.describe import IndexDescription, IndexSegmentDescription
from glaive.dataset.indexing.vector_models import IvfModel, ivf_model
from glaive.dataset.lance_operation import Index as IndexSegment
from glaive.errors import OptionError

__all__ = [
    "IndexConfig",
    "IndexDescription",
    "IndexSegment",
    "IndexSegmentDescription",
    "IvfModel",
    "build_rq_model",
    "get_ivf_model",
    "train_ivf_model",
    "train_pq_model",
]


def train_ivf_model(
    dataset: Any,
    column: str,
    dimension: int,
    num_partitions: int,
    distance_type: str,
    sample_rate: int,
    max_iters: int,
    fragment_ids: Sequence[int] | None = None,
) -> Any:
    """Centroids as fixed-size lists; see :meth:`glaive.indices.IndicesBuilder.train_ivf`.

    Parameters
    ----------
    dataset
        The dataset, or its ``_ds``.
    column
        Path of a column of vectors, also within structs.
    dimension
        Elements of a vector, as the column has it.
    sample_rate
        Rows for each partition that are read; fewer where there are fewer.

    Raises
    ------
    OptionError
        An argument is wrong, or there are fewer rows than the sample needs.
    """
    trained = _builder(dataset, column, dimension).train_ivf(
        num_partitions,
        distance_type=distance_type,
        sample_rate=_rate(dataset, sample_rate, num_partitions, fragment_ids),
        max_iters=max_iters,
        fragment_ids=fragment_ids,
    )
    return trained.centroids


def train_pq_model(  # noqa: PLR0913, PLR0917  # pylance has them
    dataset: Any,
    column: str,
    dimension: int,
    num_subvectors: int,
    distance_type: str,
    sample_rate: int,
    max_iters: int,
    ivf_centroids: Any,
    fragment_ids: Sequence[int] | None = None,
    num_bits: int = 8,
) -> Any:
    """A codebook as fixed-size lists; see :meth:`glaive.indices.IndicesBuilder.train_pq`.

    Parameters
    ----------
    ivf_centroids
        What :func:`train_ivf_model` returned; the others as there.

    Raises
    ------
    OptionError
        An argument is wrong, or there are fewer rows than the sample needs.
    """
    trained = _builder(dataset, column, dimension).train_pq(
        IvfModel(ivf_centroids, distance_type),
        num_subvectors,
        sample_rate=_rate(dataset, sample_rate, 1 << num_bits, fragment_ids),
        max_iters=max_iters,
        num_bits=num_bits,
        fragment_ids=fragment_ids,
    )
    return trained.codebook


def get_ivf_model(dataset: Any, index_name: str) -> IvfModel:
    """The centroids of a vector index.

    Raises
    ------
    IndexNotFoundError
        There is no index of this name.
    OptionError
        It is none of vectors.
    """
    return ivf_model(dataset.opened.snapshot, index_name)


def build_rq_model(dimension: int, num_bits: int = 5, dtype: str = "float32") -> str:  # noqa: ARG001  # pylance has it
    """A rotation at random that several tasks build an index with: ``rabitq_model``, as JSON.

    Parameters
    ----------
    dimension
        Elements of a vector, divisible by 8.
    num_bits
        Bits of a code for each of them.
    dtype
        Accepted for pylance compatibility; ignored.

    Raises
    ------
    OptionError
        The dimension is not divisible by 8.
    """
    if dimension < 1 or dimension % 8:
        raise OptionError(f"dimension must be divisible by 8 for IVF_RQ, found {dimension}")
    signs = np.random.default_rng().integers(0, 256, dimension // 2)
    model = {
        "rotate_mat_position": None, "fast_rotation_signs": signs.tolist(),
        "rotation_type": "fast", "code_dim": dimension, "num_bits": num_bits, "packed": False,
        "query_estimator": "raw_query",
    }  # fmt: skip
    return json.dumps(model)


def _builder(dataset: Any, column: str, dimension: int) -> IndicesBuilder:
    builder = IndicesBuilder(dataset, column)
    if dimension != builder.dimension:
        raise OptionError(
            f"dimension: vectors of column {column!r} have {builder.dimension}, found {dimension}"
        )
    return builder


def _rate(dataset: Any, rate: int, count: int, fragment_ids: Sequence[int] | None) -> int:
    """Rows to read for each of ``count``: all there are, where these are fewer."""
    fragments = dataset.get_fragments()
    rows: int = sum(
        one.count_rows()
        for one in fragments
        if fragment_ids is None or one.fragment_id in fragment_ids
    )
    return min(rate, max(2, rows // max(1, count)))
