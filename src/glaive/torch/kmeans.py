"""Clusters of vectors on any device of torch, under the name of ``lance.torch.kmeans``.

torch is imported when one of the names is used; without it they raise at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glaive.torch.installed import torch_names

if TYPE_CHECKING:
    from glaive.torch.vectors import KMeans

__all__ = ["KMeans"]

__getattr__ = torch_names(__name__, dict.fromkeys(__all__, "glaive.torch.vectors"))
