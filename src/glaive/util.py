"""K-means, and a check of vector indices, under the names of ``lance.util``."""

from __future__ import annotations

from glaive.dataset.indexing.clustering import KMeans
from glaive.dataset.indexing.self_search import validate_vector_index

__all__ = ["KMeans", "validate_vector_index"]
