"""Distances between tensors of vectors, under the names of ``lance.torch.distance``.

torch is imported when one of the names is used; without it they raise at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glaive.torch.installed import torch_names

if TYPE_CHECKING:
    from glaive.torch.vectors import (
        argmin_l2,
        cosine_distance,
        dot_distance,
        l2_distance,
        pairwise_cosine,
        pairwise_l2,
    )

__all__ = [
    "argmin_l2",
    "cosine_distance",
    "dot_distance",
    "l2_distance",
    "pairwise_cosine",
    "pairwise_l2",
]

__getattr__ = torch_names(__name__, dict.fromkeys(__all__, "glaive.torch.vectors"))
