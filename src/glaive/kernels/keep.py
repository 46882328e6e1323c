"""Values without some of their rows: what deletion files leave of a page.

The cost is that of a copy, or of unpacking, with little on top: words that stay are put side
by side 64 at a time, and of other values the rows between two that are gone are copied as one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels import _bitpack_checks as checks
from glaive.kernels._addresses import address, allocate_with_slack
from glaive.kernels._bitpack_checks import BLOCK
from glaive.kernels._tier import use_loops
from glaive.kernels.bitpack import chunk_widths, pack_inline, unpack_inline
from glaive.kernels.native import keep as loops
from glaive.kernels.records import KeepInline
from glaive.kernels.string_records import KeepVariable
from glaive.kernels.strings import Strings, as_offsets
from glaive.memory import allocate, as_array, as_buffer

__all__ = ["DeletionMask", "exercise", "keep_bits", "keep_fixed", "keep_inline", "keep_variable"]

Int64s = NDArray[np.int64]

_WORDS = (1, 2, 4, 8)

_SLACK = 64
"""Bytes that loops may write behind the last value."""


class DeletionMask:
    """Which of ``rows`` rows are gone, as numbers and as bits.

    Parameters
    ----------
    numbers
        Ascending, each once, from ``base`` to below ``base + rows``.
    base, rows
        The number of the first row, and how many there are.
    bits
        Bit ``base + i`` is set if row i stays; with 16 bytes more than that. Made of the
        numbers when omitted.
    """

    __slots__ = ("_begin", "_bits", "base", "numbers", "rows")

    def __init__(
        self, numbers: Int64s, base: int, rows: int, bits: NDArray[np.uint8] | None = None
    ) -> None:
        self.numbers = np.ascontiguousarray(numbers, np.int64)
        self.base = base
        self.rows = rows
        self._bits = bits
        self._begin = base
        if bits is not None and (base < 0 or 8 * (len(bits) - 16) < base + rows):
            raise ValueError(f"{len(bits)} bytes for the bits {base} to {base + rows}")

    def bits(self) -> tuple[NDArray[np.uint8], int]:
        """Bits of rows that stay, with 16 bytes behind them, and which is the first."""
        if self._bits is None:
            packed = np.packbits(self.mask(), bitorder="little")
            self._bits, self._begin = np.append(packed, np.zeros(16, np.uint8)), 0
        return self._bits, self._begin

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


def keep_fixed(values: pa.Buffer, width: int, gone: DeletionMask) -> pa.Buffer:
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
    target = allocate_with_slack(gone.kept * width, _SLACK)
    if width in _WORDS:
        stay, begin = gone.bits()
        kept = loops.keep_words(
            8 * width, address(values), gone.rows, values.size // width, address(stay), begin,
            address(target), gone.kept,
        )  # fmt: skip
        bad = 0 if kept != gone.kept else -1
    else:
        bad = loops.keep_wide(
            address(values), width, gone.rows, address(gone.numbers), len(gone.numbers),
            gone.base, address(target),
        )  # fmt: skip
    if bad >= 0:
        raise gone.not_ascending()
    return target


def keep_inline(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    word_bits: int,
    low: int,
    gone: DeletionMask,
    where: object,
) -> pa.Buffer:
    """The words that stay of inline bit-packed chunks, the first row being value ``low``.

    Other parameters are those of :func:`glaive.kernels.bitpack.unpack_inline`.

    Parameters
    ----------
    data
        Memory of all chunks.
    starts, sizes
        ``int64`` of shape ``(chunks,)``, in bytes: chunk ``c`` is
        ``data[starts[c] : starts[c] + sizes[c]]``.
    counts
        ``int64`` of shape ``(chunks,)``: values of each chunk.
    word_bits
        Width of a value: 8, 16, 32 or 64.
    low
        Which value of the chunks the first row is.
    gone
        Deleted rows, counted from the first one.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A chunk lies outside ``data``, its width is above ``word_bits``, or its size is not
        the one its width asks for.
    ValueError
        There are fewer values than rows, or the row numbers do not ascend.
    """
    gone.check()
    starts, sizes, counts = checks.aligned(word_bits, starts, sizes, counts)
    total = checks.total(counts, BLOCK * len(counts), where)
    if low < 0 or low + gone.rows > total:
        raise ValueError(f"{gone.rows} rows from value {low} on of {total}")
    width = word_bits // 8
    if not use_loops(total):
        words = unpack_inline(data, starts, sizes, counts, word_bits, where)
        return keep_fixed(words.slice(low * width, gone.rows * width), width, gone)
    target = allocate_with_slack(gone.kept * width, _SLACK)
    scratch = pa.allocate_buffer(BLOCK * 8)
    stay, begin = gone.bits()
    chunks = len(starts)
    call = KeepInline(
        data=address(data),
        data_size=data.size,
        starts=address(starts),
        sizes=address(sizes),
        counts=address(counts),
        chunks=chunks,
        word_bits=word_bits,
        low=low,
        rows=gone.rows,
        bits=address(stay),
        begin=begin,
        target=address(target),
        room=gone.kept,
        scratch=address(scratch),
    )
    bad = loops.keep_inline(*call)
    if bad >= chunks:
        raise gone.not_ascending()
    if bad >= 0:
        raise checks.damaged_inline(data, starts[bad], sizes[bad], counts[bad], word_bits, where)
    return target


def keep_bits(bits: pa.Buffer, begin: int, gone: DeletionMask) -> pa.Buffer:
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
    target = allocate_with_slack((gone.kept + 7) // 8, _SLACK)
    numbers = gone.numbers
    if loops.keep_bits(
        address(bits), begin, gone.rows, address(numbers), len(numbers), gone.base,
        address(target),
    ) >= 0:  # fmt: skip
        raise gone.not_ascending()
    return target


def keep_variable(strings: Strings, gone: DeletionMask) -> Strings:
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
    offsets = allocate((gone.kept + 1) * width)
    out = allocate_with_slack(room, _SLACK)
    call = KeepVariable(
        offsets=address(strings.offsets),
        width=width,
        data=address(strings.data),
        data_size=strings.data.size,
        rows=gone.rows,
        gone=address(numbers),
        gone_count=len(numbers),
        base=gone.base,
        out_offsets=address(offsets),
        out=address(out),
        room=room,
    )
    if loops.keep_variable(*call) >= 0:
        raise gone.not_ascending()
    return Strings(offsets, bits, out)


def _keep_variable_numpy(
    strings: Strings, ends: NDArray[np.signedinteger], gone: DeletionMask
) -> Strings:
    stay = gone.mask()
    sizes = np.diff(ends)
    if len(sizes) and (int(sizes.min()) < 0 or ends[0] < 0 or ends[-1] > strings.data.size):
        raise ValueError(f"offsets from {ends[0]} to {ends[-1]} of {strings.data.size} bytes")
    offsets = np.zeros(gone.kept + 1, ends.dtype)
    np.cumsum(sizes[stay], out=offsets[1:])
    data = as_array(strings.data)[int(ends[0]) : int(ends[-1])]
    return Strings(as_buffer(offsets), strings.offset_bits, as_buffer(data[np.repeat(stay, sizes)]))


def exercise() -> None:
    """Call every wrapper once with little data."""
    gone = DeletionMask(np.array([1]), 0, 3)
    keep_fixed(pa.py_buffer(bytes(24)), 8, gone)
    keep_fixed(pa.py_buffer(bytes(9)), 3, gone)
    values = as_buffer(np.arange(3, dtype="<u2"))
    packed, sizes = pack_inline(values, 3, 16, chunk_widths(values, 3, 16))
    each = np.zeros(1, np.int64), sizes, np.array([3])
    keep_inline(as_buffer(packed), *each, 16, 0, gone, "warm-up")
    keep_bits(pa.py_buffer(b"\1"), 0, gone)
    for bits in (32, 64):
        offsets = as_buffer(np.arange(4, dtype=f"<i{bits // 8}"))
        keep_variable(Strings(offsets, bits, pa.py_buffer(b"abc")), gone)
