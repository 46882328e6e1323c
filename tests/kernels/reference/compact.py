"""NumPy references of ``glaive.kernels.compact``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels import _bitpack as checks
from glaive.kernels._bitpack import BLOCK
from glaive.kernels.bitpack import unpack_inline
from glaive.kernels.compact import DeletionMask
from glaive.kernels.strings import Strings, as_offsets
from glaive.types import Int64s, as_array, as_buffer


def compact_fixed(values: pa.Buffer, width: int, deleted: DeletionMask) -> pa.Buffer:
    """The live values, each of ``width`` bytes."""
    deleted.check()
    if width < 1 or values.size < deleted.rows * width:
        raise ValueError(f"{deleted.rows} values of {width} bytes in {values.size} bytes")
    rows = as_array(values)[: deleted.rows * width].reshape(deleted.rows, width)
    return as_buffer(np.ascontiguousarray(rows[deleted.mask()]).reshape(-1))


def compact_inline(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    word_bits: int,
    low: int,
    deleted: DeletionMask,
    where: object,
) -> pa.Buffer:
    """The live values of inline bit-packed chunks."""
    deleted.check()
    starts, sizes, counts = checks.aligned(word_bits, starts, sizes, counts)
    total = checks.total_values(counts, BLOCK * len(counts), where)
    if low < 0 or low + deleted.rows > total:
        raise ValueError(f"{deleted.rows} rows from value {low} on of {total}")
    width = word_bits // 8
    words = unpack_inline(data, starts, sizes, counts, word_bits, where)
    return compact_fixed(words.slice(low * width, deleted.rows * width), width, deleted)


def compact_bits(bits: pa.Buffer, begin: int, deleted: DeletionMask) -> pa.Buffer:
    """The live bits, where the first row is bit ``begin``."""
    deleted.check()
    if begin < 0 or begin + deleted.rows > 8 * bits.size:
        raise ValueError(f"{deleted.rows} bits from bit {begin} on of {bits.size} bytes")
    first, skip = divmod(begin, 8)
    part = as_array(bits)[first : (begin + deleted.rows + 7) // 8]
    flags = np.unpackbits(part, count=skip + deleted.rows, bitorder="little")[skip:]
    return as_buffer(np.packbits(flags[deleted.mask()], bitorder="little"))


def compact_variable(strings: Strings, deleted: DeletionMask) -> Strings:
    """The live strings, of at least as many as there are rows."""
    deleted.check()
    bits = strings.offset_bits
    ends = as_offsets(strings.offsets, bits)[: deleted.rows + 1]
    if len(ends) < deleted.rows + 1:
        raise ValueError(f"{len(ends)} offsets for {deleted.rows} strings")
    numbers, _width = deleted.numbers, bits // 8
    at = numbers - deleted.base
    if len(at) and not 0 <= int(at.min()) <= int(at.max()) < deleted.rows:
        raise deleted.not_ascending()
    deleted_bytes = int((ends[at + 1].astype(np.int64) - ends[at]).sum())
    capacity = int(ends[-1]) - int(ends[0]) - deleted_bytes
    if not 0 <= capacity <= strings.data.size:
        raise ValueError(f"{capacity} bytes of strings in {strings.data.size}")
    return _keep_variable_numpy(strings, ends, deleted)


def _keep_variable_numpy(
    strings: Strings, ends: NDArray[np.signedinteger], deleted: DeletionMask
) -> Strings:
    live = deleted.mask()
    sizes = np.diff(ends)
    if len(sizes) and (int(sizes.min()) < 0 or ends[0] < 0 or ends[-1] > strings.data.size):
        raise ValueError(f"offsets from {ends[0]} to {ends[-1]} of {strings.data.size} bytes")
    offsets = np.zeros(deleted.live + 1, ends.dtype)
    np.cumsum(sizes[live], out=offsets[1:])
    data = as_array(strings.data)[int(ends[0]) : int(ends[-1])]
    return Strings(as_buffer(offsets), strings.offset_bits, as_buffer(data[np.repeat(live, sizes)]))
