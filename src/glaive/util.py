"""K-means, a check of vector indices, and times, under the names of ``lance.util``."""

from __future__ import annotations

from glaive.compat.absent import REFUSED, absent_names
from glaive.dataset.indexing.clustering import KMeans, validate_vector_index
from glaive.dataset.version import sanitize_ts, td_to_micros

__all__ = ["KMeans", "sanitize_ts", "td_to_micros", "validate_vector_index"]

__getattr__ = absent_names(__name__, REFUSED[__name__], globals())
