"""Run glaive by compiled kernels, or by their references in NumPy.

``tests/kernels/reference`` has a reference for most public functions of ``glaive.kernels``: slow,
obviously right, and under the same name. ``force_tier("numpy")`` puts them into all modules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from inspect import isclass, isfunction
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

Tier = Literal["numba", "numpy"]

REFERENCE = "tests.kernels.reference"
PACKAGES = ("glaive", "tests")


@cache
def references() -> dict[str, tuple[Any, Any]]:
    """Each kernel that has a reference and the reference, by module and name."""
    pairs = {}
    for path in sorted(Path(__file__).with_name("reference").glob("*.py")):
        reference = import_module(f"{REFERENCE}.{path.stem}")
        kernels = import_module(f"glaive.kernels.{path.stem}")
        for name, theirs in vars(reference).items():
            is_own = getattr(theirs, "__module__", "") == reference.__name__
            if is_own and (isfunction(theirs) or isclass(theirs)) and hasattr(kernels, name):
                pairs[f"{path.stem}.{name}"] = getattr(kernels, name), theirs
    return pairs


@contextmanager
def force_tier(tier: Tier) -> Iterator[None]:
    """Put references in place of kernels inside the block, where ``tier`` is ``numpy``."""
    if tier == "numba":
        yield
        return
    pairs = references().values()
    functions = {ours: theirs for ours, theirs in pairs if isfunction(ours)}
    methods = [
        (ours, name, vars(ours)[name], value)
        for ours, theirs in pairs
        if isclass(ours)
        for name, value in vars(theirs).items()
        if isfunction(value) or isinstance(value, property)
    ]
    try:
        _replace(functions)
        for ours, name, _, value in methods:
            setattr(ours, name, value)
        yield
    finally:
        # Modules that were loaded meanwhile hold references, too.
        _replace({theirs: ours for ours, theirs in functions.items()})
        for ours, name, value, _ in methods:
            setattr(ours, name, value)


def _replace(functions: Mapping[Any, Any]) -> None:
    for module in list(sys.modules.values()):
        if not _is_ours(module):
            continue
        for name, value in list(vars(module).items()):
            if isfunction(value) and value in functions:
                setattr(module, name, functions[value])


def _is_ours(module: ModuleType) -> bool:
    name = getattr(module, "__name__", "")
    return name.partition(".")[0] in PACKAGES
