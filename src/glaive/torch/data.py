"""Datasets of PyTorch over Lance datasets, under the names of ``lance.torch.data``.

torch is imported when one of the names is used; without it they raise at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glaive.torch.installed import from_torch_module

if TYPE_CHECKING:
    from glaive.torch.iterable import LanceDataset
    from glaive.torch.loader import LanceLoader
    from glaive.torch.map_style import SafeLanceDataset, get_safe_loader
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

_HOMES = {
    "LanceDataset": "iterable",
    "LanceLoader": "loader",
    "SafeLanceDataset": "map_style",
    "TensorDataset": "tensors",
    "concat_batches": "tensors",
    "get_safe_loader": "map_style",
    "to_tensor": "tensors",
}


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


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return from_torch_module(__name__, name, f"glaive.torch.{_HOMES[name]}")
