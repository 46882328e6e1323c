"""The buffers that a checked build of the loops may touch: ``GLAIVE_KERNELS=checked``.

Loops see addresses only. In a checked build every buffer whose address a wrapper takes is
entered here, and every load, store and copy of a loop is compared with the entries. Buffers
stay entered until :func:`forget`, which a test calls before each call that it checks, or until
thousands of others followed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["MOST", "READ", "REGIONS", "WRITE", "UnsafeKernelError", "enter", "forget"]

READ: Final = 0
WRITE: Final = 1

_ENTRY: Final = 3
MOST: Final = 4096

REGIONS: Final[NDArray[np.int64]] = np.zeros(1 + _ENTRY * MOST, np.int64)
"""How many were entered, then start, end and whether it may be written of the last ones."""


class UnsafeKernelError(AssertionError):
    """A loop was about to leave the buffers of its call or to overflow: a defect of glaive."""


def enter(buffer: pa.Buffer) -> None:
    """Let loops read a buffer, and write it if its memory is mutable."""
    count = int(REGIONS[0])
    owner = buffer
    while not owner.is_mutable and owner.parent is not None:
        owner = owner.parent  # a slice does not say that what it was cut from is mutable
    start = buffer.address
    entry = (start, start + buffer.size, owner.is_mutable)
    place = 1 + _ENTRY * (count % MOST)
    REGIONS[place : place + _ENTRY] = entry
    REGIONS[0] = count + 1


def forget() -> None:
    """Let loops touch nothing."""
    REGIONS[0] = 0
