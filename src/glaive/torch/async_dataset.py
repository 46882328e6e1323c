"""A dataset read by a process of its own, under the names of ``lance.torch.async_dataset``.

torch is imported when one of the names is used; without it they raise at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glaive.torch.installed import torch_names

if TYPE_CHECKING:
    from glaive.torch.datasets import AsyncDataset, async_dataset

__all__ = ["AsyncDataset", "async_dataset"]

__getattr__ = torch_names(__name__, dict.fromkeys(__all__, "glaive.torch.datasets"))
