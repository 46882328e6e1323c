"""Distances between tensors of vectors, under the names of ``lance.torch.distance``.

torch is imported when one of the names is used; without it they raise at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glaive.torch.installed import from_torch_module

if TYPE_CHECKING:
    from glaive.torch.clusters import (
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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return from_torch_module(__name__, name, "glaive.torch.clusters")
