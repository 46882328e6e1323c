"""A dataset read by a process of its own, under the names of ``lance.torch.async_dataset``.

torch is imported when one of the names is used; without it they raise at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glaive.torch.installed import from_torch_module

if TYPE_CHECKING:
    from glaive.torch.background import AsyncDataset, async_dataset

__all__ = ["AsyncDataset", "async_dataset"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return from_torch_module(__name__, name, "glaive.torch.background")
