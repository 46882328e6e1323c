"""Tables of vectors, near duplicates, training on accelerators, as ``lance.vector`` names them.

torch is imported when a function that needs it is asked for; without it these raise when used.
"""

from __future__ import annotations

from typing import Any

from glaive.dataset.indexing.duplicates import (
    find_duplicate_pairs,
    find_duplicate_pairs_in_partition,
    get_ivf_partition_info,
    hamming_clustering_for_ivf_partition,
    hamming_clustering_for_range,
    hamming_clustering_for_sample,
)
from glaive.dataset.vectors_table import vec_to_table
from glaive.dataset.write import write_dataset
from glaive.torch.installed import from_torch_module

__all__ = [
    "find_duplicate_pairs",
    "find_duplicate_pairs_in_partition",
    "get_ivf_partition_info",
    "hamming_clustering_for_ivf_partition",
    "hamming_clustering_for_range",
    "hamming_clustering_for_sample",
    "vec_to_table",
    "write_dataset",
]

_OF_TORCH = (
    "compute_partitions",
    "compute_pq_codes",
    "one_pass_assign_ivf_pq_on_accelerator",
    "one_pass_train_ivf_pq_on_accelerator",
    "train_ivf_centroids_on_accelerator",
    "train_pq_codebook_on_accelerator",
)


def __getattr__(name: str) -> Any:
    if name in _OF_TORCH:
        return from_torch_module(__name__, name, "glaive.torch.ivf_pq")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
