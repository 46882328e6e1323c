"""NumPy references of ``glaive.kernels.match``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.kernels import _bitpack as checks
from glaive.kernels._bitpack import BLOCK
from glaive.kernels.bitpack import unpack_inline
from glaive.kernels.flat import join_bits
from glaive.kernels.match import IntegerRanges, _check_bits, _range_error
from glaive.types import Flags, Int64s, as_array, as_buffer


def match_inline(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    test: IntegerRanges,
    where: object,
) -> pa.Buffer:
    """Which of the first ``counts[i]`` ≤ 1,024 values of every inline chunk pass."""
    bits = test.bits
    starts, sizes, counts = checks.aligned(bits, starts, sizes, counts)
    total = checks.total_values(counts, BLOCK * len(counts), where)
    words = unpack_inline(data, starts, sizes, counts, bits, where)
    return _match_numpy(as_array(words, f"<u{bits // 8}")[:total], test, where)


def match_plain(
    data: pa.Buffer, starts: Int64s, counts: Int64s, test: IntegerRanges, where: object
) -> pa.Buffer:
    """Which plain words pass: one bit per word, chunk after chunk without gaps."""
    bits = test.bits
    starts, counts = checks.aligned(bits, starts, counts)
    word = bits // 8
    bad = (starts < 0) | (counts < 0) | (starts > data.size)
    bad |= counts > (data.size - starts) // word
    if bad.any():
        at = int(bad.argmax())
        raise CorruptFileError(
            "plain values",
            expected=f"{counts[at]} values of {bits} bits within {data.size} bytes",
            found=f"they begin at byte {starts[at]}",
            where=where,
        )
    total = int(counts.sum())
    words = join_bits(data, starts, counts * bits, where)
    return _match_numpy(as_array(words, f"<u{word}")[:total], test, where)


def count_rows(bits: pa.Buffer, begin: int, count: int) -> int:
    """How many of ``count`` bits from bit ``begin`` on are set."""
    _check_bits(bits, begin, count)
    return int(np.count_nonzero(_flags(bits, begin, count)))


def list_rows(bits: pa.Buffer, begin: int, count: int, first: int) -> Int64s:
    """Row numbers of the set bits, ascending."""
    _check_bits(bits, begin, count)
    return np.flatnonzero(_flags(bits, begin, count)) + first


def _match_numpy(
    words: NDArray[np.unsignedinteger], test: IntegerRanges, where: object
) -> pa.Buffer:
    if test.limit >= 0 and len(words) and int(words.max()) > test.limit:
        raise _range_error(test, where)
    return as_buffer(np.packbits(test.flags(words), bitorder="little"))


def _flags(bits: pa.Buffer, begin: int, count: int) -> Flags:
    first, skip = divmod(begin, 8)
    part = as_array(bits)[first : (begin + count + 7) // 8]
    return np.unpackbits(part, count=skip + count, bitorder="little")[skip:].view(np.bool_)
