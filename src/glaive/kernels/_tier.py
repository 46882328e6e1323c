"""Which implementation a kernel door calls: compiled loops or the numpy twin.

Every kernel module has a **door** per kernel: a plain function that takes arrays and
buffers, checks every range against its memory, and then calls one of two tiers:

* the **loop** in ``glaive.kernels.loops``, compiled by numba, which sees only integer
  addresses and trusts them;
* the **twin** beside the door, in numpy, slow and obviously right.

numba is imported on the first call that is large enough to be worth it; a cold process that
reads a few rows never loads it. The parity tests force each tier in turn.

Decision and figures: ``docs/adr/0002-kernels.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.config import settings
from glaive.kernels import _sanitizer

__all__ = [
    "SMALL_WORK",
    "Tier",
    "address",
    "allocate",
    "as_array",
    "as_buffer",
    "force_tier",
    "use_loops",
]

Tier = Literal["auto", "numba", "numpy"]

SMALL_WORK = 65_536
"""Values below which numpy is quicker than loading numba (about 0.3 s, once per process)."""

ENOUGH_WORK = 1_000_000
"""Values in all after which many small calls have cost about what loading numba costs."""

_tier: str = "numba" if settings.kernels == "checked" else settings.kernels
_small_work = 0

_CHECKED = settings.kernels == "checked"


def use_loops(work: int) -> bool:
    """Whether a door should call its compiled loop for ``work`` values.

    Work that numpy did before counts: a process that goes on reading small pages ends up
    with the compiled loops, one that stops after a few never loads them.
    """
    global _small_work  # noqa: PLW0603  # a tally; a lost update only delays the switch
    if _tier != "auto":
        return _tier == "numba"
    if work >= SMALL_WORK or "glaive.kernels.loops.memory" in sys.modules:
        return True
    _small_work += work
    return _small_work >= ENOUGH_WORK


@contextmanager
def force_tier(tier: Tier) -> Iterator[None]:
    """Make all doors use one tier inside the block; for tests and ``glaive warmup``."""
    global _tier  # noqa: PLW0603  # the one switch of this module
    before, _tier = _tier, tier
    try:
        yield
    finally:
        _tier = before


def address(memory: NDArray[Any] | pa.Buffer) -> int:
    """Address of the first byte; the caller keeps ``memory`` alive while it is used."""
    # The way over a buffer is ten times quicker than the array's own ``__array_interface__``.
    buffer = memory if isinstance(memory, pa.Buffer) else as_buffer(memory)
    if _CHECKED:
        _sanitizer.enter(buffer)
    return buffer.address


def as_array(buffer: pa.Buffer, dtype: Any = np.uint8) -> NDArray[Any]:
    """View a buffer as a one-dimensional array; a partial last item is left out."""
    dtype = np.dtype(dtype)
    count = buffer.size // dtype.itemsize
    if count == 0:
        return np.empty(0, dtype)
    view: NDArray[Any] = np.frombuffer(cast("Any", buffer), dtype, count)
    return view


def as_buffer(array: NDArray[Any]) -> pa.Buffer:
    """View the memory of a contiguous array as a buffer, which keeps it alive."""
    return pa.py_buffer(cast("Any", array))


def allocate(size: int, slack: int = 0) -> pa.Buffer:
    """Uninitialised memory from Arrow's pool, which keeps pages warm between uses.

    ``slack`` bytes more are allocated behind the returned buffer, for loops that store
    whole words past the last item.
    """
    buffer = pa.allocate_buffer(size + slack)
    if _CHECKED:
        _sanitizer.enter(buffer)
    return buffer.slice(0, size) if slack else buffer
