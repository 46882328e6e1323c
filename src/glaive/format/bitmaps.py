"""Sets of 32-bit numbers as roaring bitmaps in the portable layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.wire import parse_bitmap
from glaive.types import Flags, Int64s, UInt64s

if TYPE_CHECKING:
    from pyroaring import BitMap, BitMap64


MAX_NUMBERS = 1 << 27
"""Limit of numbers decoded from a bitmap: a few bytes can encode billions."""


def offsets_of(data: bytes, where: object) -> NDArray[np.uint32]:
    """Return the numbers of a bitmap, ascending.

    Raises
    ------
    CorruptFileError
        It is invalid, or has more than 2^27 numbers.
    """
    bitmap = parse_bitmap(data, "set of numbers", where)
    if len(bitmap) > MAX_NUMBERS:
        raise CorruptFileError(
            "set of numbers", expected=f"at most {MAX_NUMBERS}", found=f"{len(bitmap)}", where=where
        )
    return np.asarray(bitmap.to_array(), dtype=np.uint32)


_MAX_LISTED_PER_BYTE = 8
"""Maximum numbers per byte of a bitmap that stores no runs."""


def is_of_runs(count: int, size: int) -> bool:
    """Return whether so many numbers take so few bytes that they should stay ranges."""
    return count > _MAX_LISTED_PER_BYTE * size


RANGE_BYTES: Final = 16
"""Bytes that a run of numbers takes as a range."""


def ranges_of(bitmap: BitMap | BitMap64, check: Callable[[int], None]) -> tuple[UInt64s, UInt64s]:
    """Return the first number of each run of a bitmap of 32 or 64 bits, and the number after it.

    Parameters
    ----------
    check
        Called with the bytes of the ranges before memory is taken for them: few bytes may encode
        many runs, where they are compressed.
    """
    numbers: Any = bitmap
    above = numbers.shift(1)  # 2^32 is beyond a bitmap
    firsts = numbers - above
    check(RANGE_BYTES * len(firsts))
    starts = np.asarray(firsts.to_array(), np.uint64)
    stops = np.asarray((above - numbers).to_array(), np.uint64)
    if len(stops) < len(starts):
        stops = np.append(stops, np.uint64(1 << 32))
    return starts, stops


def bitmap_of(numbers: Iterable[int] | NDArray[np.uint32]) -> bytes:
    """Return the bitmap of these numbers."""
    from pyroaring import BitMap

    serialized: bytes = BitMap(numbers).serialize()
    return serialized


# --- Split-block Bloom filters: blocks of eight 32-bit words, a value sets a bit in each word of
# one
#
# Specification: "BLOOMFILTER" in ``docs/format/scalar-indices.md``.

BLOCK_BYTES: Final = 32
BLOCK_WORDS: Final = 8
_SALT: Final = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    np.uint32,
)
_SHIFT: Final = np.uint32(27)
"""Of the product of a hash and a salt, the upper five bits count: a word has 32."""


def block_numbers(hashes: UInt64s, count: int) -> Int64s:
    """Return the block of each hash, in a filter of ``count`` blocks."""
    scaled = (hashes >> np.uint64(32)) * np.uint64(count)
    return (scaled >> np.uint64(32)).astype(np.int64)


def bit_numbers(hashes: UInt64s, word: int) -> NDArray[np.uint32]:
    """Return the bit that each hash sets in a word of its block."""
    bits: NDArray[np.uint32] = (hashes.astype(np.uint32) * _SALT[word]) >> _SHIFT
    return bits


def word_masks(hashes: UInt64s) -> NDArray[np.uint32]:
    """Return words with the bit of each hash set. Shape ``(hashes, BLOCK_WORDS)``."""
    return np.uint32(1) << ((hashes.astype(np.uint32)[:, None] * _SALT) >> _SHIFT)


_FULL_BLOCK_VALUES = 4096
"""Number of values that exhausts a block of 256 bits: an index may claim any number."""

_MAX_BYTES_PER_VALUE = 1024
"""Bytes of a filter for each value, at most: one of 10^12 other values passes it. An index that
asks for less would take any amount of memory."""

_MAX_FILTER_BYTES = 1 << 27


def may_have(filters: NDArray[np.uint32], hashes: UInt64s) -> Flags:
    """Return which filters may have which values.

    Parameters
    ----------
    filters
        Words of the filters. Shape ``(filters, words)``.
    hashes
        Shape ``(values,)``.

    Returns
    -------
    numpy.ndarray
        Shape ``(filters, values)``.
    """
    blocks = block_numbers(hashes, filters.shape[1] // BLOCK_WORDS)
    words = filters[:, blocks[:, None] * BLOCK_WORDS + np.arange(BLOCK_WORDS)]
    bits = word_masks(hashes)
    flags: Flags = ((words & bits) == bits).all(axis=2)
    return flags


@cache
def filter_bytes(items: int, probability: float) -> int:
    """Return a filter's bytes for so many values: the least power of two with that probability."""
    size, max_size = BLOCK_BYTES, min(_MAX_FILTER_BYTES, _MAX_BYTES_PER_VALUE * items)
    while size < max_size and _false_positives(items, size // BLOCK_BYTES) > probability:
        size *= 2
    return size


def _false_positives(items: int, blocks: int) -> float:
    """Return the probability of false positives: values per block are Poisson."""
    mean = items / blocks
    if mean > _FULL_BLOCK_VALUES:
        return 1.0
    max_count = int(mean + 12 * mean**0.5 + 32)
    counts = np.arange(max_count + 1)
    logs = np.concatenate((np.zeros(1), np.log(counts[1:]).cumsum()))
    chances = np.exp(counts * np.log(mean) - mean - logs)
    return float((chances * (1 - (1 - 1 / 32) ** counts) ** BLOCK_WORDS).sum())
