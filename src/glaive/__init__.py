"""Lance datasets and files in pure Python.

Names are loaded when first used: ``import glaive`` costs a millisecond and loads neither
Arrow nor numba, object stores or Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glaive.config import settings
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.fragment import LanceFragment
    from glaive.dataset.open import dataset, write_dataset
    from glaive.dataset.scanner import Scanner
    from glaive.errors import GlaiveError
    from glaive.format.fields import LanceSchema

__all__ = [
    "GlaiveError",
    "LanceDataset",
    "LanceFragment",
    "LanceSchema",
    "Scanner",
    "dataset",
    "settings",
    "write_dataset",
]

__version__ = "0.1.0"

_HOMES = {
    "GlaiveError": "glaive.errors",
    "LanceDataset": "glaive.dataset.dataset",
    "LanceFragment": "glaive.dataset.fragment",
    "LanceSchema": "glaive.format.fields",
    "Scanner": "glaive.dataset.scanner",
    "settings": "glaive.config",
    "write_dataset": "glaive.dataset.open",
}

_MODULES = ("dataset", "errors", "file", "spark")
"""Reached as ``glaive.errors`` and so on without an import of their own."""


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"glaive.{name}")
    raise AttributeError(f"module 'glaive' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
