"""Compile all kernels once, so that later processes find their machine code on disk.

A process that forks after :func:`warm_up` passes its compiled kernels on to its children.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from glaive.config import settings
from glaive.kernels import native

_IMPORT = re.compile(r"from glaive\.kernels\.native import (\w+)(?: as (\w+))?")


def called_kernels() -> dict[str, list[str]]:
    """Return the kernels that Python calls, by module: those that the wrappers here name."""
    found: dict[str, set[str]] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text("utf-8")
        for module, alias in _IMPORT.findall(text):
            names = re.findall(rf"\b{alias or module}\.([a-z]\w*)", text)
            found.setdefault(module, set()).update(names)
    return {module: sorted(names) for module, names in sorted(found.items()) if names}


def warm_up(progress: Callable[[int, int], object] | None = None) -> dict[str, float]:
    """Compile every kernel that Python calls, or link it if its code is on disk.

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
    kernels, seconds = called_kernels(), dict[str, float]()
    if progress is not None:
        progress(0, len(kernels))
    for module, names in kernels.items():
        started = perf_counter()
        for name in names:
            kernel = getattr(getattr(native, module), name)
            if settings.kernels == "checked":
                from glaive.kernels.loops.entry import argument_types

                kernel.compile(argument_types(kernel))
        seconds[module] = perf_counter() - started
        if progress is not None:
            progress(len(seconds), len(kernels))
    return seconds
