"""torch, if it is installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from glaive.compat.absent import needs_package
from glaive.errors import MissingDependencyError

__all__ = ["INSTALL", "from_torch_module", "installed_torch"]

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


def from_torch_module(module: str, name: str, home: str) -> Any:
    """A name of a module that imports torch; a stand-in that raises if torch is not installed."""
    try:
        import_module("torch")
    except ImportError:
        return needs_package(module, name, "torch", INSTALL)
    return getattr(import_module(home), name)
