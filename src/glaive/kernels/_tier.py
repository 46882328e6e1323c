"""Which implementation a kernel calls: compiled loops or the NumPy reference.

Every kernel module has a **checked wrapper** per kernel: a plain function that takes arrays and
buffers, checks every range against its memory, and then calls one of two tiers:

* the **loop** in ``glaive.kernels.loops``, compiled by numba, which sees only integer
  addresses and trusts them;
* the **reference implementation** beside the wrapper, in NumPy, slow and obviously right.

numba is imported on the first call that is large enough to be worth it; a cold process that
reads a few rows never loads it. The parity tests force each tier in turn.

Decision and figures: ``docs/adr/0002-kernels.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from glaive.config import settings
from glaive.kernels import native

__all__ = ["SMALL_WORK", "Tier", "force_tier", "use_loops"]

Tier = Literal["auto", "numba", "numpy"]

SMALL_WORK = 65_536
"""Values below which numpy is quicker than loading numba (about 0.3 s, once per process)."""

ENOUGH_WORK = 1_000_000
"""Values in all after which many small calls have cost about what loading numba costs."""

_tier: str = "numba" if settings.kernels == "checked" else settings.kernels
_small_work = 0


def use_loops(work: int) -> bool:
    """Whether a wrapper should call its compiled loop for ``work`` values.

    Work that numpy did before counts: a process that goes on reading small pages ends up
    with the compiled loops, one that stops after a few never loads them.
    """
    global _small_work  # noqa: PLW0603  # a tally; a lost update only delays the switch
    if _tier != "auto":
        return _tier == "numba"
    if work >= SMALL_WORK or native.is_loaded():
        return True
    _small_work += work
    return _small_work >= ENOUGH_WORK


@contextmanager
def force_tier(tier: Tier) -> Iterator[None]:
    """Make all kernels use one tier inside the block; for tests and ``glaive warmup``."""
    global _tier  # noqa: PLW0603  # the one switch of this module
    before, _tier = _tier, tier
    try:
        yield
    finally:
        _tier = before
