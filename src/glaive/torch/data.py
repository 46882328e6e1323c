"""Datasets of PyTorch over Lance datasets, under the names of ``lance.torch.data``.

torch is imported when one of the names is used; without it they raise at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glaive.torch.installed import torch_names

if TYPE_CHECKING:
    from glaive.torch.datasets import LanceDataset, LanceLoader, SafeLanceDataset, get_safe_loader
    from glaive.torch.tensors import TensorDataset, concat_batches, to_tensor

__all__ = [
    "LanceDataset",
    "LanceLoader",
    "SafeLanceDataset",
    "TensorDataset",
    "concat_batches",
    "get_safe_loader",
    "to_tensor",
]

_ELSEWHERE = {
    "CachedDataset": "glaive._dataset.cache",
    "FullScanSampler": "glaive.sampler",
    "Sampler": "glaive.sampler",
    "ShardedBatchSampler": "glaive.sampler",
    "ShardedFragmentSampler": "glaive.sampler",
    "get_global_rank": "glaive.torch.dist",
    "get_global_world_size": "glaive.torch.dist",
    "maybe_sample": "glaive.sampler",
}
"""Names that programs import from pylance's module, too; they have no torch in them."""


_TENSORS = ("TensorDataset", "concat_batches", "to_tensor")
_of_torch = torch_names(
    __name__,
    dict.fromkeys(__all__, "glaive.torch.datasets")
    | dict.fromkeys(_TENSORS, "glaive.torch.tensors"),
)


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    return _of_torch(name)
