"""Drop deleted rows from values.

This costs little more than copying or unpacking the values. Live words are compacted 64 at a time;
other values between two deleted rows are copied at once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.kernels._addresses import address, allocate_with_slack
from glaive.kernels.native import compact as compact_loops
from glaive.types import Flags, Int64s, UInt8s, as_array

_WORDS = (1, 2, 4, 8)

_SLACK = 64
"""Bytes that kernels may write after the last value."""

_BITS_SLACK = 16
"""Bytes that kernels may read after the last bit."""


class DeletionMask:
    """The deleted rows among ``rows`` rows, as numbers and as bits; ``live`` counts the others.

    Parameters
    ----------
    numbers
        Deleted rows: ascending, each once, from ``base`` to below ``base + rows``.
    base, rows
        The number of the first row, and the number of rows.
    bits
        Bit ``base + i`` is set if row i is live; the array has 16 bytes more than needed. Made
        from the numbers when omitted.
    """

    __slots__ = ("_begin", "_bits", "_numbers", "base", "live", "rows")

    def __init__(self, numbers: Int64s, base: int, rows: int, bits: UInt8s | None = None) -> None:
        self._numbers: Int64s | None = np.ascontiguousarray(numbers, np.int64)
        self.live = rows - len(numbers)
        self.base = base
        self.rows = rows
        self._bits = bits
        self._begin = base
        if bits is not None and (base < 0 or 8 * (len(bits) - _BITS_SLACK) < base + rows):
            raise ValueError(f"{len(bits)} bytes for the bits {base} to {base + rows}")

    @classmethod
    def of_live(cls, bits: pa.Buffer, rows: int, live: int) -> DeletionMask:
        """Return a mask of rows 0 to ``rows``; ``live`` rows have their bit set in ``bits``.

        Numbers of deleted rows are made when a kernel asks for them.
        """
        padded = np.zeros((rows + 7) // 8 + _BITS_SLACK, np.uint8)
        padded[:-_BITS_SLACK] = as_array(bits)[: (rows + 7) // 8]
        mask = cls(np.empty(0, np.int64), 0, rows, padded)
        mask._numbers, mask.live = None, live
        return mask

    @property
    def numbers(self) -> Int64s:
        """The deleted rows, ascending."""
        if self._numbers is None:
            self._numbers = (~self.mask()).nonzero()[0]
        return self._numbers

    def bits(self) -> tuple[UInt8s, int]:
        """Return bits of live rows, followed by 16 bytes, and the number of the first bit."""
        if self._bits is None:
            packed = np.packbits(self.mask(), bitorder="little")
            self._bits, self._begin = np.append(packed, np.zeros(_BITS_SLACK, np.uint8)), 0
        return self._bits, self._begin

    def mask(self) -> Flags:
        """Return flags of the live rows."""
        if self._numbers is None:
            bits, first = self.bits()
            flags = np.unpackbits(bits, count=first + self.rows, bitorder="little")
            return flags[first:].view(np.bool_)
        at = self._numbers - self.base
        if len(at) and (at[0] < 0 or at[-1] >= self.rows or (at[1:] <= at[:-1]).any()):
            raise self.not_ascending()
        live = np.ones(self.rows, np.bool_)
        live[at] = False
        return live

    def not_ascending(self) -> ValueError:
        """Return the error for numbers that repeat, descend or leave the rows."""
        return ValueError(
            f"{len(self.numbers)} row numbers: expected ascending ones from {self.base} to below "
            f"{self.base + self.rows}"
        )

    def check(self) -> None:
        """Raise ``ValueError`` if there are more numbers than rows."""
        if self.live < 0:
            raise self.not_ascending()


def compact_fixed(values: pa.Buffer, width: int, deleted: DeletionMask) -> pa.Buffer:
    """Return the live values, each of ``width`` bytes.

    Raises
    ------
    ValueError
        There are fewer values than rows, or the row numbers repeat or descend.
    """
    deleted.check()
    if width < 1 or values.size < deleted.rows * width:
        raise ValueError(f"{deleted.rows} values of {width} bytes in {values.size} bytes")
    target = allocate_with_slack(deleted.live * width, _SLACK)
    if width in _WORDS:
        live, begin = deleted.bits()
        count = compact_loops.compact_words(
            8 * width, address(values), deleted.rows, values.size // width, address(live), begin,
            address(target), deleted.live,
        )  # fmt: skip
        bad = 0 if count != deleted.live else -1
    else:
        bad = compact_loops.compact_wide(
            address(values), width, deleted.rows, address(deleted.numbers), len(deleted.numbers),
            deleted.base, address(target),
        )  # fmt: skip
    if bad >= 0:
        raise deleted.not_ascending()
    return target


def compact_bits(bits: pa.Buffer, begin: int, deleted: DeletionMask) -> pa.Buffer:
    """Return the live bits; the first row is bit ``begin``.

    Raises
    ------
    ValueError
        There are fewer bits than rows, or the row numbers repeat or descend.
    """
    deleted.check()
    if begin < 0 or begin + deleted.rows > 8 * bits.size:
        raise ValueError(f"{deleted.rows} bits from bit {begin} on of {bits.size} bytes")
    target = allocate_with_slack((deleted.live + 7) // 8, _SLACK)
    numbers = deleted.numbers
    if compact_loops.compact_bits(
        address(bits), begin, deleted.rows, address(numbers), len(numbers), deleted.base,
        address(target),
    ) >= 0:  # fmt: skip
        raise deleted.not_ascending()
    return target
