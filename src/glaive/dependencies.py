"""Optional packages, imported on first use, under the names of ``lance.dependencies``."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from glaive.dataset.writing.source import model_to_dict
from glaive.errors import MissingDependencyError

__all__ = ["datasets", "model_to_dict", "numpy", "pandas", "polars", "torch"]


class _LazyModule(ModuleType):
    """A module that is imported when one of its names is first used."""

    __lazy__ = True

    def __init__(self, module_name: str, *, module_available: bool) -> None:
        super().__init__(module_name)
        self._module_name = module_name
        self._module_available = module_available

    def __getattr__(self, name: str) -> Any:
        special = name.startswith("__") and name.endswith("__")
        if name == "__wrapped__" or (special and not self._module_available):
            raise AttributeError(f"{self._module_name!r} object has no attribute {name!r}")
        if not self._module_available:
            raise MissingDependencyError(
                f"{self._module_name}.{name} requires {self._module_name!r} module to be "
                f"installed: pip install {self._module_name}"
            )
        return getattr(import_module(self._module_name), name)


def _lazy_import(module_name: str) -> tuple[ModuleType, bool]:
    """Return the module, or a proxy that imports it on first use, and whether it is installed."""
    if module_name in sys.modules:
        return sys.modules[module_name], True
    try:
        available = find_spec(module_name) is not None
    except (ImportError, ValueError):
        available = False
    return _LazyModule(module_name, module_available=available), available


numpy, _NUMPY_AVAILABLE = _lazy_import("numpy")
pandas, _PANDAS_AVAILABLE = _lazy_import("pandas")
polars, _POLARS_AVAILABLE = _lazy_import("polars")
torch, _TORCH_AVAILABLE = _lazy_import("torch")
datasets, _HUGGING_FACE_AVAILABLE = _lazy_import("datasets")
_PYDANTIC_AVAILABLE = _lazy_import("pydantic")[1]


def _is_of(package: str, obj: Any, *, check_type: bool = True) -> bool:
    """Return whether an object, or a class itself, comes from a package; import nothing."""
    kind: Any = type(obj) if check_type else obj
    bases = getattr(kind, "__mro__", ())
    return any(str(base.__module__).partition(".")[0] == package for base in bases)


_check_for_numpy = partial(_is_of, "numpy")
_check_for_pandas = partial(_is_of, "pandas")
_check_for_polars = partial(_is_of, "polars")
_check_for_torch = partial(_is_of, "torch")
_check_for_hugging_face = partial(_is_of, "datasets")
_check_for_pydantic = partial(_is_of, "pydantic")
