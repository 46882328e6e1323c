"""Tables of vectors and training on accelerators, under the names of ``lance.vector``.

torch is imported when a function that needs it is asked for; without it these raise when used.
"""

from __future__ import annotations

from typing import Any

from glaive.compat.absent import absent_names
from glaive.compat.refusals import REFUSED
from glaive.dataset.vectors_table import vec_to_table
from glaive.torch.installed import from_torch_module

__all__ = ["vec_to_table"]

_OF_TORCH = (
    "compute_partitions",
    "compute_pq_codes",
    "one_pass_assign_ivf_pq_on_accelerator",
    "one_pass_train_ivf_pq_on_accelerator",
    "train_ivf_centroids_on_accelerator",
    "train_pq_codebook_on_accelerator",
)

_refused = absent_names(__name__, REFUSED[__name__], globals())


def __getattr__(name: str) -> Any:
    if name in _OF_TORCH:
        return from_torch_module(__name__, name, "glaive.torch.ivf_pq")
    return _refused(name)
