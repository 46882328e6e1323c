"""What the wrappers of FSST kernels share: memory for decoded text, and the error for damage."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels.string_records import DecodeState
from glaive.kernels.strings import Strings, as_offsets
from glaive.memory import allocate
from glaive.types import MAX_OFFSET, UInt32s, UInt64s, Where

__all__ = ["Output", "damaged_codes", "new_checkpoints", "new_packed"]


class Output:
    """Memory that kernels decode strings to, and how far they have come; grows on demand."""

    def __init__(self, count: int, offset_bits: int, capacity: int) -> None:
        self._count = count
        self._bits = 64 if capacity > MAX_OFFSET else offset_bits
        self._capacity = capacity
        self._data = pa.allocate_buffer(capacity, None, resizable=True)
        self._offsets = self._new_offsets()
        self._state = np.zeros(len(DecodeState._fields), np.int64)

    def _new_offsets(self) -> pa.Buffer:
        offsets = allocate((self._count + 1) * (self._bits // 8))
        as_offsets(offsets, self._bits)[0] = 0
        return offsets

    def arguments(self) -> dict[str, int]:
        """The members of a record that describe the output."""
        return {
            "out_width": self._bits // 8,
            "out_offsets": address(self._offsets),
            "out": address(self._data),
            "capacity": self._capacity,
            "state": address(self._state),
        }

    def grow(self, more: int = 0) -> None:
        """Take half as much memory again, and ``more``; start again if offsets become too small."""
        self._capacity += self._capacity // 2 + more
        self._data.resize(self._capacity)
        if self._capacity > MAX_OFFSET and self._bits == 32:
            self._bits = 64
            self._offsets = self._new_offsets()
            self._state[:] = 0

    def strings(self) -> Strings:
        """What has been decoded."""
        size = DecodeState(*self._state.tolist()).size
        return Strings(self._offsets, self._bits, self._data.slice(0, size))


def new_checkpoints(codes: int) -> UInt32s:
    """Memory for the checkpoints of a stream of at most so many codes."""
    return np.empty(codes // 2 + 8, np.uint32)


def new_packed() -> UInt64s:
    """Memory for symbols with their lengths in the top byte."""
    return np.empty(256, np.uint64)


def damaged_codes(part: str, where: Where) -> CorruptFileError:
    """The error for codes that cannot be decoded."""
    return CorruptFileError(
        f"FSST codes of {part}",
        expected="codes with a symbol, and a byte after each escape",
        found="other codes",
        where=where,
    )
