"""The buffers that kernels may access in a checked build: ``GLAIVE_KERNELS=checked``.

Kernels see addresses only. In a checked build every buffer whose address a wrapper takes is
registered here, and every load, store and copy of a kernel is compared with the entries. Buffers
stay registered until :func:`forget`, which a test calls before each call that it checks, or until
``MAX_REGIONS`` later ones have replaced them.
"""

from __future__ import annotations

from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.forks import renewed
from glaive.types import Int64s

__all__ = ["MAX_REGIONS", "READ", "REGIONS", "WRITE", "UnsafeKernelError", "enter", "forget"]

READ: Final = 0
WRITE: Final = 1

_ENTRY: Final = 3
MAX_REGIONS: Final = 4096

REGIONS: Final[Int64s] = np.zeros(1 + _ENTRY * MAX_REGIONS, np.int64)
"""How many were registered; then start, end and whether writable of the last ones."""

_LOCK: Final = renewed(Lock())


class UnsafeKernelError(AssertionError):
    """A kernel was about to leave the buffers of its call or to overflow: a bug in glaive."""


def enter(buffer: pa.Buffer) -> None:
    """Let kernels read a buffer, and write it if its memory is mutable."""
    owner = buffer
    while not owner.is_mutable and owner.parent is not None:
        owner = owner.parent  # a slice of a mutable buffer is not marked as mutable
    start = buffer.address
    entry = (start, start + buffer.size, owner.is_mutable)
    with _LOCK:  # threads would replace each other's entries
        count = int(REGIONS[0])
        at = 1 + _ENTRY * (count % MAX_REGIONS)
        REGIONS[at : at + _ENTRY] = entry
        REGIONS[0] = count + 1


def forget() -> None:
    """Let kernels access nothing."""
    REGIONS[0] = 0
