"""K-means, a check of vector indices, and times."""

from typing import Any

from glaive.dataset.indexing.duplicates import KMeans as KMeans
from glaive.dataset.indexing.duplicates import validate_vector_index as validate_vector_index
from glaive.dataset.version import sanitize_ts as sanitize_ts
from glaive.dataset.version import td_to_micros as td_to_micros

def __getattr__(name: str) -> Any: ...
