"""Compile all kernels once, so that later processes find them in numba's cache on disk.

Every module of this folder that has doors has a function ``exercise`` that calls each of
them with little data. A process that forks after :func:`warm_up` hands its compiled kernels
down to its children.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from time import perf_counter

from glaive.kernels._tier import force_tier

__all__ = ["warm_up"]


def warm_up(progress: Callable[[int, int], object] | None = None) -> dict[str, float]:
    """Call every kernel once through its compiled loop.

    Parameters
    ----------
    progress
        Called as ``progress(done, total)`` with numbers of modules, before the first and
        after each.

    Returns
    -------
    dict
        Seconds per module. The first bears the start of the compiler, about 0.3 s.
    """
    from glaive import kernels

    names = [module.name for module in iter_modules(kernels.__path__) if _has_doors(module.name)]
    seconds: dict[str, float] = {}
    if progress is not None:
        progress(0, len(names))
    with force_tier("numba"):
        for name in names:
            started = perf_counter()
            import_module(f"glaive.kernels.{name}").exercise()
            seconds[name] = perf_counter() - started
            if progress is not None:
                progress(len(seconds), len(names))
    return seconds


def _has_doors(name: str) -> bool:
    return not name.startswith("_") and name not in ("loops", "warmup")
