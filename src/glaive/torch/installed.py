"""torch, if it is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from glaive.compat.absent import needs_package
from glaive.errors import MissingDependencyError

__all__ = ["INSTALL", "installed_torch", "torch_names"]

INSTALL = "pip install torch"


def installed_torch(needed_for: str) -> Any:
    """The package torch.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    try:
        return import_module("torch")
    except ImportError as error:
        raise MissingDependencyError(
            f"{needed_for} needs torch, which is not installed ({error}). Install it: {INSTALL}"
        ) from error


def torch_names(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """``__getattr__`` of a module: names from modules that import torch when they are used.

    Without torch they are stand-ins that raise.
    """

    def found(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            import_module("torch")
        except ImportError:
            return needs_package(module, name, "torch", INSTALL)
        return getattr(import_module(homes[name]), name)

    return found
