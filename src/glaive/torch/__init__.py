"""Datasets for PyTorch, under the names of ``lance.torch``. Importing it leaves torch for later."""

from __future__ import annotations

from typing import Any

__all__ = ["preferred_device"]


def preferred_device(device: Any = None) -> Any:
    """Return the device to compute on: the given device, else CUDA, MPS or the processor.

    Raises
    ------
    MissingDependencyError
        torch is missing.
    """
    try:
        import torch
    except ImportError as error:
        from glaive.errors import MissingDependencyError

        raise MissingDependencyError(
            f"preferred_device needs torch, which is not installed ({error}). "
            "Install it: pip install torch"
        ) from error
    if device is not None:
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
