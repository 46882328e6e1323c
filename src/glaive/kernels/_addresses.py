"""Addresses for compiled kernels, and memory that they may write beyond its end."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import Buffer

from glaive.config import settings
from glaive.process import renewed
from glaive.types import Int64s, as_buffer

# --- The buffers that kernels may access in a checked build: ``GLAIVE_KERNELS=checked`` -
# Kernels see addresses only. In a checked build every buffer whose address a wrapper takes is
# registered here, and every load, store and copy of a kernel is compared with the entries. Buffers
# stay registered until :func:`forget`, which a test calls before each call that it checks, or
# until ``MAX_REGIONS`` later ones have replaced them.

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


_CHECKED = settings.kernels == "checked"

KEEPS_ADDRESSES: Final = not _CHECKED
"""Whether addresses may be kept for later calls: checked kernels know the buffers of each call."""


def address(memory: NDArray[Any] | pa.Buffer | bytes) -> int:
    """Address of the first byte; the caller keeps ``memory`` alive while the address is in use."""
    # Through a buffer this is ten times quicker than by the array's ``__array_interface__``.
    buffer = memory if isinstance(memory, Buffer) else as_buffer(memory)
    if _CHECKED:
        enter(buffer)
    return buffer.address


def allocate_with_slack(size: int, slack: int) -> pa.Buffer:
    """``size`` bytes of uninitialised memory, followed by ``slack`` bytes that may be written."""
    buffer = pa.allocate_buffer(size + slack)
    if _CHECKED:
        enter(buffer)
    return buffer.slice(0, size)


def allocate_bits(count: int) -> pa.Buffer:
    """Uninitialised memory for ``count`` bits.

    For kernels that store whole words: up to 16 bytes from the word of the last bit on.
    """
    return allocate_with_slack((count + 7) // 8, slack=24)


def is_plain(numbers: NDArray[Any], kind: Any, count: int) -> bool:
    """Whether an array has so many numbers of a type, one behind the other."""
    return numbers.shape == (count,) and numbers.dtype == kind and bool(numbers.flags.c_contiguous)
