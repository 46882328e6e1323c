"""Building vector indices step by step, under the names of ``lance.indices.builder``."""

from __future__ import annotations

from glaive.dataset.indexing.builder import IndicesBuilder
from glaive.dataset.indexing.create import IndexConfig
from glaive.dataset.indexing.vector_models import PARTITION as PARTITION_COLUMN
from glaive.dataset.indexing.vector_models import IvfModel, PqModel
from glaive.index.vector.storage import PRODUCT as PQ_COLUMN

__all__ = [
    "PARTITION_COLUMN",
    "PQ_COLUMN",
    "RESIDUAL_COLUMN",
    "IndexConfig",
    "IndicesBuilder",
    "IvfModel",
    "PqModel",
]

RESIDUAL_COLUMN = "__residual_vector"
"""What pylance calls the column of residuals; :class:`IndicesBuilder` keeps none in files."""
