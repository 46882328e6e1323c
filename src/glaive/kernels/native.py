"""Compiled kernels as machine code, cached on disk and loaded without a compiler.

``native.offsets.unpack`` is the kernel ``unpack`` of ``glaive.kernels.loops.offsets``: a builtin
function that releases the interpreter lock. On first use it is found in the library of the wheel
(``glaive.kernels.library``). If the processor lacks a library, llvmlite links it from the cache
on disk (``glaive.kernels.code_cache``). If the cache lacks the code, numba compiles the kernel.

Decision and figures: ``docs/adr/0002-kernels.md``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, Any

from glaive.config import settings
from glaive.errors import MissingDependencyError
from glaive.kernels.library import find
from glaive.kernels.machine import builtin, link

if TYPE_CHECKING:
    from glaive.kernels.loops import bitpack as bitpack
    from glaive.kernels.loops import chunks as chunks
    from glaive.kernels.loops import codes as codes
    from glaive.kernels.loops import compact as compact
    from glaive.kernels.loops import distances as distances
    from glaive.kernels.loops import flat as flat
    from glaive.kernels.loops import full_zip as full_zip
    from glaive.kernels.loops import hashing as hashing
    from glaive.kernels.loops import levels as levels
    from glaive.kernels.loops import list_levels as list_levels
    from glaive.kernels.loops import list_takes as list_takes
    from glaive.kernels.loops import match as match
    from glaive.kernels.loops import offsets as offsets
    from glaive.kernels.loops import products as products
    from glaive.kernels.loops import rotation as rotation
    from glaive.kernels.loops import row_takes as row_takes
    from glaive.kernels.loops import runs as runs
    from glaive.kernels.loops import text_search as text_search
    from glaive.kernels.loops import wavelet as wavelet


_LOCK = RLock()


def _before_fork() -> None:
    """Wait until all threads have compiled and linked, and locks of llvmlite and numba are free."""
    _LOCK.acquire()


def _after_fork() -> None:
    """Let other threads continue."""
    _LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )


class _Kernels:
    """The kernels of one module, each linked on first use."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        with _LOCK:
            if name not in self.__dict__:  # otherwise another thread was first
                kernel = _compiled if settings.kernels == "checked" else _linked
                self.__dict__[name] = kernel(self._module, name)
        return self.__dict__[name]


def __getattr__(module: str) -> Any:
    if module.startswith("_") or find_spec(f"glaive.kernels.loops.{module}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {module!r}")
    kernels = globals()[module] = _Kernels(module)
    return kernels


def _compiled(module: str, name: str) -> Any:
    """Return the kernel as numba compiles it; checked builds call this function."""
    from glaive.kernels.machine import import_numba

    import_numba()
    return getattr(import_module(f"glaive.kernels.loops.{module}"), name)


def _linked(module: str, name: str) -> Any:
    symbol = f"glaive_{module}_{name}"
    if (found := find(symbol)) is not None:
        return builtin(name, *found)
    if find_spec("numba") is None:
        raise MissingDependencyError(
            "glaive has no machine code of its kernels for this processor, or their sources were "
            "changed: pip install 'glaive[jit]' for a compiler"
        )
    from glaive.kernels.code_cache import keep_code, read_code

    code = read_code(module, name)
    if code is None:
        _inform_once()
        kernel = _compiled(module, name)
        from glaive.kernels.loops.entry import compile_entry
        from glaive.kernels.machine import uses_settings_file

        code = compile_entry(kernel, symbol)
        if not uses_settings_file():
            keep_code(module, name, code)
    return link(code, symbol, name)


@cache
def _inform_once() -> None:
    """Tell users why the first calls on a machine take seconds."""
    import logging

    text = (
        "glaive compiles kernels for this machine, once: some seconds for each new kind of call. "
        "`glaive warmup` compiles all."
    )
    logging.getLogger(__name__).info(text)
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")


# --- Compile all kernels once, so that later processes find their machine code on disk ---
#
# The children of a process that forks later have its linked kernels.

_IMPORT = re.compile(r"from glaive\.kernels\.native import (\w+)(?: as (\w+))?")


def called_kernels() -> dict[str, list[str]]:
    """Return the kernels that the wrappers here name, by module."""
    from pathlib import Path  # processes that only take rows skip it

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
        Function called as ``progress(done, total)`` with numbers of modules, before the first
        module and after each.

    Returns
    -------
    dict
        Seconds per module. The first module includes the start of the compiler, about 0.3 s.
    """
    kernels, seconds = called_kernels(), dict[str, float]()
    if progress is not None:
        progress(0, len(kernels))
    for module, names in kernels.items():
        started = perf_counter()
        for name in names:
            kernel = getattr(getattr(sys.modules[__name__], module), name)
            if settings.kernels == "checked":
                from glaive.kernels.loops.entry import argument_types

                kernel.compile(argument_types(kernel))
        seconds[module] = perf_counter() - started
        if progress is not None:
            progress(len(seconds), len(kernels))
    return seconds
