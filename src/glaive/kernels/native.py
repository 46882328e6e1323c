"""Compiled kernels as machine code: loaded without the compiler, kept on disk.

``native.offsets.unpack`` is the kernel ``unpack`` of ``glaive.kernels.loops.offsets``: a builtin
function that releases the interpreter lock. On first use it is read from the cache on disk and
linked by llvmlite, which takes about a millisecond, after 40 for the first kernel of a process.
Only where the cache has none is numba imported, the kernel compiled, and its code kept for
later processes (``glaive.kernels.code_cache``).

Decision and figures: ``docs/adr/0002-kernels.md``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from time import process_time
from typing import TYPE_CHECKING, Any, Literal

from glaive.config import settings
from glaive.errors import MissingDependencyError
from glaive.kernels.library import find, library
from glaive.kernels.machine import builtin, has_linked, link

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
    """Wait until no thread compiles or links: locks of llvmlite and numba stay as they are then."""
    _LOCK.acquire()


def _after_fork() -> None:
    """Let other threads go on."""
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
            if name not in self.__dict__:  # else another thread was first
                kernel = _compiled if settings.kernels == "checked" else _linked
                self.__dict__[name] = kernel(self._module, name)
        return self.__dict__[name]


def __getattr__(module: str) -> Any:
    if module.startswith("_") or find_spec(f"glaive.kernels.loops.{module}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {module!r}")
    kernels = globals()[module] = _Kernels(module)
    return kernels


def is_loaded() -> bool:
    """Whether kernels of this process are linked already, so that the next one costs little."""
    return library() is not None or has_linked() or "glaive.kernels.loops.memory" in sys.modules


@cache
def is_kept() -> bool:
    """Whether machine code of some kernel is on disk, so that most calls compile nothing."""
    from glaive.kernels.code_cache import has_code

    return settings.kernels == "checked" or has_code()


def _compiled(module: str, name: str) -> Any:
    """The kernel as numba makes it; with ``GLAIVE_KERNELS=checked``, what is called."""
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
    from glaive.kernels.code_cache import read_code

    code = read_code(module, name) or _made(module, name, symbol)
    return link(code, symbol, name)


@cache
def _say_once() -> None:
    """Tell users why the first calls on a machine take seconds."""
    import logging

    text = (
        "glaive compiles kernels for this machine, once: some seconds for each new kind of call. "
        "`glaive warmup` compiles all."
    )
    logging.getLogger(__name__).info(text)
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")


def _made(module: str, name: str, symbol: str) -> bytes:
    """The code of a kernel, compiled and kept; or that of a process which did so just now."""
    from glaive.kernels.code_cache import alone_in, has_code, keep_code, read_code, shared_folder

    with alone_in(shared_folder(), lambda: has_code(module, name)):
        code = read_code(module, name)
        if code is None:
            _say_once()
            kernel = _compiled(module, name)
            from glaive.kernels.loops.entry import compile_entry
            from glaive.kernels.machine import has_settings_of_a_file

            code = compile_entry(kernel, symbol)
            if not has_settings_of_a_file():
                keep_code(module, name, code)
        return code


# --- Which implementation a wrapper calls: the compiled kernel or the NumPy reference ---
# Every kernel has a **checked wrapper**: a plain function that takes arrays and buffers, checks
# every range against its memory, and then calls one of two tiers:
#
# * the **compiled kernel** in ``glaive.kernels.loops``, which sees only integer addresses and
#   trusts them;
# * the **reference implementation** beside the wrapper, in NumPy, slow and obviously right.
#
# The first kernel is linked on the first call that is large enough to be worth it (see
# ``glaive.kernels.native``); a process that only reads a few rows never does. The parity tests
# force each tier in turn.
#
# Decision and figures: ``docs/adr/0002-kernels.md``.

Tier = Literal["auto", "numba", "numpy"]

SMALL_WORK = 65_536
"""Values below which numpy is quicker than loading llvmlite (about 30 ms, once per process)."""

CALL_WORK = 2_000
"""Values that numpy works on in the time that it needs for a call alone."""

ENOUGH_WORK = 1_000_000
"""Values in small calls after which numpy has cost about as much as loading llvmlite."""

COLD_WORK = 4_000_000
"""Values in one call from which compiling is quicker than numpy, where nothing is compiled yet."""

COLD_SECONDS = 1.0
"""Processor seconds of numpy before a process compiles kernels, where none is on disk."""

HASHED_WORK = 8
"""What a value to hash counts: Arrow's hashes are known, and chosen values take long there."""

_tier: str = "numba" if settings.kernels == "checked" else settings.kernels
_small_work = 0
_cold_seconds = 0.0
_last_cold_call = 0.0
_has_kernels = False


def use_compiled(work: int) -> bool:
    """Whether a wrapper should call its compiled kernel for ``work`` values.

    Earlier work of numpy counts: a process that keeps reading small pages switches to the
    compiled kernels, one that stops after a few never loads them. Where no kernel is on disk,
    numpy answers what it can in about a second: compiling takes some ten.
    """
    global _small_work, _has_kernels  # noqa: PLW0603  # a lost update only delays the switch
    if _tier != "auto":
        return _tier == "numba"
    if _has_kernels:
        return True
    if is_loaded():
        _has_kernels = True
        return True
    if work < SMALL_WORK:
        _small_work += work + CALL_WORK
        if _small_work < ENOUGH_WORK:
            return False
    return is_kept() or _is_worth_compiling(work)


def _is_worth_compiling(work: int) -> bool:
    """Whether numpy would take longer for a call, or has taken longer for those before it."""
    global _cold_seconds, _last_cold_call  # noqa: PLW0603  # as above
    now = process_time()
    if _last_cold_call:
        # A call of numpy and what comes after it; a longer pause was that of the caller.
        _cold_seconds += min(now - _last_cold_call, COLD_SECONDS / 4)
    _last_cold_call = now
    return work >= COLD_WORK or _cold_seconds >= COLD_SECONDS


@contextmanager
def force_tier(tier: Tier) -> Iterator[None]:
    """Make all kernels use one tier inside the block; for tests and ``glaive warmup``."""
    global _tier  # noqa: PLW0603  # the one switch of this module
    before, _tier = _tier, tier
    try:
        yield
    finally:
        _tier = before
