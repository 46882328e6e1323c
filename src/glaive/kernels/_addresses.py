"""Addresses for compiled kernels, and memory with extra bytes that they may write."""

from __future__ import annotations

from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import Buffer

from glaive.config import settings
from glaive.errors import CorruptFileError
from glaive.process import fork_safe
from glaive.types import Flags, Int64s, Where, as_buffer

# --- The buffers that kernels may access in a checked build: ``GLAIVE_KERNELS=checked`` -
#
# Kernels see addresses only. In a checked build, a wrapper registers each buffer whose address it
# takes. Every load, store and copy of a kernel is compared with these entries. Buffers
# stay registered until :func:`forget`, which a test calls before each call that it checks, or
# until ``MAX_REGIONS`` later buffers have replaced them.

READ: Final = 0
WRITE: Final = 1

_ENTRY: Final = 3
MAX_REGIONS: Final = 4096

REGIONS: Final[Int64s] = np.zeros(1 + _ENTRY * MAX_REGIONS, np.int64)
"""The number of registered buffers; then start, end and a writable flag for each of the last."""

_LOCK: Final = fork_safe(Lock())


class UnsafeKernelError(AssertionError):
    """A kernel was about to leave the buffers of its call or to overflow: a bug in glaive."""


def enter(buffer: pa.Buffer) -> None:
    """Let kernels read a buffer, and write it if its memory is mutable."""
    owner = buffer
    while not owner.is_mutable and owner.parent is not None:
        owner = owner.parent  # a slice of a mutable buffer lacks the mark as mutable
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
"""Whether later calls may use stored addresses: checked kernels know the buffers of each call."""

if TYPE_CHECKING:
    kept_address = property
else:
    kept_address = cached_property if KEEPS_ADDRESSES else property


def address(memory: NDArray[Any] | pa.Buffer | bytes) -> int:
    """Return the address of the first byte; the caller keeps ``memory`` alive during its use."""
    # Through a buffer this is ten times faster than by the array's ``__array_interface__``.
    buffer = memory if isinstance(memory, Buffer) else as_buffer(memory)
    if _CHECKED:
        enter(buffer)
    return buffer.address


def given(memory: NDArray[Any] | pa.Buffer | None) -> int:
    """Return the address of optional memory; 0 for ``None`` and for empty memory."""
    return 0 if memory is None or not len(memory) else address(memory)


def allocate_with_slack(size: int, slack: int) -> pa.Buffer:
    """Return ``size`` uninitialised bytes, followed by ``slack`` bytes that may be written."""
    buffer = pa.allocate_buffer(size + slack)
    if _CHECKED:
        enter(buffer)
    return buffer.slice(0, size)


def allocate_bits(count: int) -> pa.Buffer:
    """Return uninitialised memory for ``count`` bits.

    Kernels may store whole words: up to 16 bytes from the word of the last bit on.
    """
    return allocate_with_slack((count + 7) // 8, slack=24)


def is_plain(numbers: NDArray[Any], kind: Any, count: int) -> bool:
    """Return whether an array has ``count`` contiguous numbers of a type."""
    return numbers.shape == (count,) and numbers.dtype == kind and bool(numbers.flags.c_contiguous)


# --- Checks that ranges read from a file lie within its memory, for many chunks at once -
#
# The numbers may have any value. Compare a number before adding to it: a sum past 2^63 would wrap
# around, be small itself, and pass.


def outside(starts: Int64s, sizes: Int64s, limit: int) -> Flags:
    """Return which ranges ``[start, start + size)`` leave ``[0, limit)``."""
    # If either number is negative, so is their OR; otherwise the difference is exact.
    mask: Flags = ((starts | sizes) < 0) | (starts > limit - sizes)
    return mask


def check_within(part: str, starts: Int64s, sizes: Int64s, limit: int, where: object) -> None:
    """Raise ``CorruptFileError`` about ``part`` unless all ranges lie within ``[0, limit)``."""
    wrong = outside(starts, sizes, limit)
    if np.count_nonzero(wrong):
        bad = int(wrong.argmax())
        raise CorruptFileError(
            part,
            expected=f"ranges within {limit} bytes",
            found=f"{sizes[bad]} bytes at byte {starts[bad]}",
            where=where,
        )


def check_apart(
    part: str, rows: Int64s, sizes: Int64s, stored: int, where: object, unit: str = "bytes"
) -> None:
    """Refuse values of different rows with more bytes or items in total than are stored.

    Such values overlap: each would be copied, and few bytes would take any amount of memory.

    Parameters
    ----------
    rows, sizes
        ``int64`` of shape ``(values,)``: the number of each row, which may occur more than
        once, and the bytes of its value, within ``stored``.
    stored
        Number of bytes that contain all values.
    where, unit
        File, column and page, and the word for bytes, for messages.

    Raises
    ------
    CorruptFileError
        The values have more bytes.
    """
    total = int(sizes.sum(dtype=np.float64))  # exact enough, and safe from wrapping
    if total <= stored:
        return
    _, first = np.unique(rows, return_index=True)
    total = int(sizes[first].sum(dtype=np.float64))
    if total > stored:
        raise CorruptFileError(
            part,
            expected=f"at most {stored} {unit} in all, as they do not overlap",
            found=f"{total} {unit} in {len(first)} rows",
            where=where,
        )


def check_offset_chunks(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    width: int,
    where: Where,
    *,
    numbers: int = 1,
) -> Int64s:
    """Check chunks that begin with offsets; return the bytes of the offsets of each.

    Parameters
    ----------
    data
        Memory of all chunks.
    starts, sizes, counts
        ``int64`` of shape ``(chunks,)``: first byte, bytes and values of each chunk. It has
        ``counts[i] + numbers`` numbers of ``width`` bytes, then the bytes of the values.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, or is shorter than its offsets.
    """
    # If any number is negative, so is the result of the ORs; otherwise the differences are exact.
    wrong = ((starts | sizes | counts) < 0) | (starts > data.size - sizes)
    # Shift sizes instead of multiplying counts, which may wrap. A width is a power of two.
    wrong |= counts > (sizes >> (width.bit_length() - 1)) - numbers
    if np.count_nonzero(wrong):
        bad = int(wrong.argmax())
        raise CorruptFileError(
            f"variable-width values of chunk {bad}",
            expected=f"{counts[bad] if counts[bad] >= 0 else '0 or more'} values with their "
            f"offsets within {data.size} bytes",
            found=f"{sizes[bad]} bytes at {starts[bad]}",
            where=where,
        )
    heads: Int64s = (counts + numbers) * width
    return heads
