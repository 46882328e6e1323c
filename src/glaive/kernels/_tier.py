"""Which implementation a wrapper calls: the compiled kernel or the NumPy reference.

Every kernel has a **checked wrapper**: a plain function that takes arrays and buffers, checks
every range against its memory, and then calls one of two tiers:

* the **compiled kernel** in ``glaive.kernels.loops``, which sees only integer addresses and
  trusts them;
* the **reference implementation** beside the wrapper, in NumPy, slow and obviously right.

The first kernel is linked on the first call that is large enough to be worth it (see
``glaive.kernels.native``); a process that only reads a few rows never does. The parity tests force
each tier in turn.

Decision and figures: ``docs/adr/0002-kernels.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time
from typing import Literal

from glaive.config import settings
from glaive.kernels import native

__all__ = ["HASHED_WORK", "SMALL_WORK", "Tier", "force_tier", "use_compiled"]

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
    if native.is_loaded():
        _has_kernels = True
        return True
    if work < SMALL_WORK:
        _small_work += work + CALL_WORK
        if _small_work < ENOUGH_WORK:
            return False
    return native.is_kept() or _is_worth_compiling(work)


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
