"""Compile all kernels once, so that later processes find their machine code on disk.

Every module of this folder that has wrappers has a function ``exercise`` that calls each of
them with little data. A process that forks after :func:`warm_up` passes its compiled kernels
on to its children.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from time import perf_counter

from glaive.kernels._tier import force_tier

__all__ = ["warm_up"]


def warm_up(progress: Callable[[int, int], object] | None = None) -> dict[str, float]:
    """Call every compiled kernel once.

    Parameters
    ----------
    progress
        Called as ``progress(done, total)`` with numbers of modules, before the first and
        after each.

    Returns
    -------
    dict
        Seconds per module. The first includes the start of the compiler, about 0.3 s.
    """
    from glaive import kernels

    seconds: dict[str, float] = {}
    with force_tier("numba"):
        modules = [
            import_module(f"glaive.kernels.{module.name}")
            for module in iter_modules(kernels.__path__)
        ]
        exercises = {
            module.__name__.rpartition(".")[2]: module.exercise
            for module in modules
            if hasattr(module, "exercise")
        }
        if progress is not None:
            progress(0, len(exercises))
        for name, exercise in exercises.items():
            started = perf_counter()
            exercise()
            seconds[name] = perf_counter() - started
            if progress is not None:
                progress(len(seconds), len(exercises))
    return seconds
