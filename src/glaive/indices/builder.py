"""Building vector indices step by step, under the names of ``lance.indices.builder``."""

from __future__ import annotations

from glaive.dataset.indexing.builder import IndicesBuilder
from glaive.dataset.indexing.parameters import IndexConfig
from glaive.dataset.indexing.vector_models import IvfModel, PqModel

__all__ = ["IndexConfig", "IndicesBuilder", "IvfModel", "PqModel"]
