"""Clusters of vectors on any device of torch, under the name of ``lance.torch.kmeans``.

torch is imported when one of the names is used; without it they raise at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glaive.torch.installed import from_torch_module

if TYPE_CHECKING:
    from glaive.torch.clusters import KMeans

__all__ = ["KMeans"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return from_torch_module(__name__, name, "glaive.torch.clusters")
