"""Values without some of their rows: what deletion files leave of a page.

Rows between two that are gone are copied as one run, so the cost is that of a copy plus a
few nanoseconds for each row that is gone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels._tier import address, allocate, as_array, as_buffer, use_loops
from glaive.kernels.strings import Strings, as_offsets

__all__ = ["Gone", "exercise", "keep_bits", "keep_fixed", "keep_variable"]

Int64s = NDArray[np.int64]

_SLACK = 64
"""Bytes that loops may write behind the last value."""


class Gone:
    """Which of ``rows`` rows are gone: ascending row numbers, of which ``base`` is the first here.

    Parameters
    ----------
    numbers
        Ascending, each once, from ``base`` to below ``base + rows``.
    base, rows
        The first row, and how many there are.
    """

    __slots__ = ("base", "numbers", "rows")

    def __init__(self, numbers: Int64s, base: int, rows: int) -> None:
        self.numbers = np.ascontiguousarray(numbers, np.int64)
        self.base = base
        self.rows = rows

    @property
    def kept(self) -> int:
        """Rows that stay."""
        return self.rows - len(self.numbers)

    def mask(self) -> NDArray[np.bool_]:
        """Which rows stay."""
        at = self.numbers - self.base
        if len(at) and (at[0] < 0 or at[-1] >= self.rows or (np.diff(at) <= 0).any()):
            raise self.not_ascending()
        stay = np.ones(self.rows, np.bool_)
        stay[at] = False
        return stay

    def not_ascending(self) -> ValueError:
        """The error for numbers that do not ascend, or lie elsewhere."""
        return ValueError(
            f"{len(self.numbers)} row numbers: expected ascending ones from {self.base} to below "
            f"{self.base + self.rows}"
        )

    def check(self) -> None:
        """Refuse more numbers than rows."""
        if self.rows < len(self.numbers):
            raise self.not_ascending()


def keep_fixed(values: pa.Buffer, width: int, gone: Gone) -> pa.Buffer:
    """The values of ``width`` bytes that stay.

    Raises
    ------
    ValueError
        There are fewer values than rows, or the row numbers do not ascend.
    """
    gone.check()
    if width < 1 or values.size < gone.rows * width:
        raise ValueError(f"{gone.rows} values of {width} bytes in {values.size} bytes")
    if not use_loops(gone.rows):
        rows = as_array(values)[: gone.rows * width].reshape(gone.rows, width)
        return as_buffer(np.ascontiguousarray(rows[gone.mask()]).reshape(-1))
    from glaive.kernels.loops import keep as loops

    target = allocate(gone.kept * width, _SLACK)
    numbers = gone.numbers
    if loops.keep_fixed(
        values.address, width, gone.rows, address(numbers), len(numbers), gone.base,
        target.address,
    ) >= 0:  # fmt: skip
        raise gone.not_ascending()
    return target


def keep_bits(bits: pa.Buffer, begin: int, gone: Gone) -> pa.Buffer:
    """The bits that stay, where the first row is bit ``begin``.

    Raises
    ------
    ValueError
        There are fewer bits than rows, or the row numbers do not ascend.
    """
    gone.check()
    if begin < 0 or begin + gone.rows > 8 * bits.size:
        raise ValueError(f"{gone.rows} bits from bit {begin} on of {bits.size} bytes")
    if not use_loops(gone.rows):
        first, skip = divmod(begin, 8)
        part = as_array(bits)[first : (begin + gone.rows + 7) // 8]
        flags = np.unpackbits(part, count=skip + gone.rows, bitorder="little")[skip:]
        return as_buffer(np.packbits(flags[gone.mask()], bitorder="little"))
    from glaive.kernels.loops import keep as loops

    target = allocate((gone.kept + 7) // 8, _SLACK)
    numbers = gone.numbers
    if loops.keep_bits(
        bits.address, begin, gone.rows, address(numbers), len(numbers), gone.base,
        target.address,
    ) >= 0:  # fmt: skip
        raise gone.not_ascending()
    return target


def keep_variable(strings: Strings, gone: Gone) -> Strings:
    """The strings that stay, of at least as many as there are rows.

    Raises
    ------
    ValueError
        There are fewer strings than rows, offsets descend or leave the data, or the row
        numbers do not ascend.
    """
    gone.check()
    bits = strings.offset_bits
    ends = as_offsets(strings.offsets, bits)[: gone.rows + 1]
    if len(ends) < gone.rows + 1:
        raise ValueError(f"{len(ends)} offsets for {gone.rows} strings")
    numbers, width = gone.numbers, bits // 8
    at = numbers - gone.base
    if len(at) and not 0 <= int(at.min()) <= int(at.max()) < gone.rows:
        raise gone.not_ascending()
    lost = int((ends[at + 1].astype(np.int64) - ends[at]).sum())
    room = int(ends[-1]) - int(ends[0]) - lost
    if not 0 <= room <= strings.data.size:
        raise ValueError(f"{room} bytes of strings in {strings.data.size}")
    if not use_loops(gone.rows):
        return _keep_variable_numpy(strings, ends, gone)
    from glaive.kernels.loops import keep as loops

    offsets = allocate((gone.kept + 1) * width)
    out = allocate(room, _SLACK)
    if loops.keep_variable(
        address(strings.offsets), width, strings.data.address, strings.data.size, gone.rows,
        address(numbers), len(numbers), gone.base, offsets.address, out.address, room,
    ) >= 0:  # fmt: skip
        raise gone.not_ascending()
    return Strings(offsets, bits, out)


def _keep_variable_numpy(strings: Strings, ends: NDArray[np.signedinteger], gone: Gone) -> Strings:
    stay = gone.mask()
    sizes = np.diff(ends)
    if len(sizes) and (int(sizes.min()) < 0 or ends[0] < 0 or ends[-1] > strings.data.size):
        raise ValueError(f"offsets from {ends[0]} to {ends[-1]} of {strings.data.size} bytes")
    offsets = np.zeros(gone.kept + 1, ends.dtype)
    np.cumsum(sizes[stay], out=offsets[1:])
    data = as_array(strings.data)[int(ends[0]) : int(ends[-1])]
    return Strings(as_buffer(offsets), strings.offset_bits, as_buffer(data[np.repeat(stay, sizes)]))


def exercise() -> None:
    """Call every door once with little data."""
    gone = Gone(np.array([1]), 0, 3)
    keep_fixed(pa.py_buffer(bytes(24)), 8, gone)
    keep_bits(pa.py_buffer(b"\1"), 0, gone)
    for bits in (32, 64):
        offsets = as_buffer(np.arange(4, dtype=f"<i{bits // 8}"))
        keep_variable(Strings(offsets, bits, pa.py_buffer(b"abc")), gone)
