"""Addresses for compiled kernels, and memory that they may write beyond its end."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import Buffer

from glaive.config import settings
from glaive.kernels import _sanitizer
from glaive.memory import as_buffer

__all__ = ["KEEPS_ADDRESSES", "address", "allocate_bits", "allocate_with_slack", "is_plain"]

_CHECKED = settings.kernels == "checked"

KEEPS_ADDRESSES: Final = not _CHECKED
"""Whether addresses may be kept for later calls: checked kernels know the buffers of each call."""


def address(memory: NDArray[Any] | pa.Buffer | bytes) -> int:
    """Address of the first byte; the caller keeps ``memory`` alive while the address is in use."""
    # Through a buffer this is ten times quicker than by the array's ``__array_interface__``.
    buffer = memory if isinstance(memory, Buffer) else as_buffer(memory)
    if _CHECKED:
        _sanitizer.enter(buffer)
    return buffer.address


def allocate_with_slack(size: int, slack: int) -> pa.Buffer:
    """``size`` bytes of uninitialised memory, followed by ``slack`` bytes that may be written."""
    buffer = pa.allocate_buffer(size + slack)
    if _CHECKED:
        _sanitizer.enter(buffer)
    return buffer.slice(0, size)


def allocate_bits(count: int) -> pa.Buffer:
    """Uninitialised memory for ``count`` bits.

    For kernels that store whole words: up to 16 bytes from the word of the last bit on.
    """
    return allocate_with_slack((count + 7) // 8, slack=24)


def is_plain(numbers: NDArray[Any], kind: Any, count: int) -> bool:
    """Whether an array has so many numbers of a type, one behind the other."""
    return numbers.shape == (count,) and numbers.dtype == kind and bool(numbers.flags.c_contiguous)
