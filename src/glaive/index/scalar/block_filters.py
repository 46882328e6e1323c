"""Bloom filters of zones of rows, and of what values they are made.

Specification: "BLOOMFILTER" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.format.split_blocks import (
    BLOCK_BYTES,
    BLOCK_WORDS,
    bit_numbers,
    block_numbers,
    word_masks,
)
from glaive.index.scalar.ordering import bytes_of, is_number
from glaive.index.scalar.zones import ZoneBatch
from glaive.kernels.strings import Strings
from glaive.kernels.xxh64 import hash_strings, hash_words
from glaive.memory import as_buffer, items_of
from glaive.types import Flags, UInt64s

__all__ = ["FilterBuilder", "filter_bytes", "hash_values", "is_hashed", "may_have"]

_MAX_BYTES = 1 << 27
_CROWDED = 4096
"""Values of a block of 256 bits that leave none of them: an index may say any number."""

_MOST_PER_VALUE = 1024
"""Bytes of a filter for each value, at most: one of 10^12 other values passes it. An index that
asks for less would take any amount of memory."""


def is_hashed(kind: pa.DataType) -> bool:
    """Whether filters can be made for values of a type."""
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    is_number_or_time = is_number(kind) and not (types.is_float16(kind) or types.is_duration(kind))
    return is_number_or_time or any(test(kind) for test in texts)


def hash_values(values: Any) -> UInt64s:
    """XXH64 of the bytes of values of a hashed type, of which none is null."""
    count = len(values)
    if not count:
        return np.empty(0, np.uint64)
    if not is_number(values.type):
        plain = bytes_of(values)
        _, offsets, data = plain.buffers()
        bits = 64 if pa.types.is_large_binary(plain.type) else 32
        start = plain.offset * bits // 8
        return hash_strings(Strings(offsets.slice(start), bits, data or pa.py_buffer(b"")), count)
    width = values.type.bit_width // 8
    words = items_of(values.buffers()[1], f"<u{width}", count, values.offset * width)
    if width == 8:
        return hash_words(words)
    ends = as_buffer(np.arange(count + 1, dtype=np.int64) * width)
    return hash_strings(Strings(ends, 64, as_buffer(np.ascontiguousarray(words))), count)


class FilterBuilder:
    """Makes the filter of each zone, batch by batch.

    Parameters
    ----------
    size
        Bytes of a filter.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._bits = np.empty((0, size * 8), np.bool_)
        self._finished: list[NDArray[np.uint8]] = []
        self._first = 0

    def add(self, batch: ZoneBatch) -> None:
        """Take the values of a batch into account."""
        values, zones, starts = batch
        for first in range(0, len(zones), self._at_once):
            last = min(len(zones), first + self._at_once)
            stop = starts[last] if last < len(zones) else len(values)
            start = int(starts[first])
            self._close(int(zones[first]))
            self._open(int(zones[last - 1]))
            part = values[start : int(stop)]
            owner = np.repeat(
                zones[first:last] - self._first,
                np.diff(np.append(starts[first:last], stop)),
            )
            if part.null_count:
                owner = owner[np.asarray(part.is_valid())]
                part = part.drop_null()
            self._set(owner, hash_values(part))

    @property
    def _at_once(self) -> int:
        """Zones whose filters are made at a time."""
        return max(1, _MAX_BYTES // (8 * self._size))

    def _set(self, owner: NDArray[np.int64], hashes: UInt64s) -> None:
        flat = self._bits.reshape(-1)
        blocks = block_numbers(hashes, self._size // BLOCK_BYTES)
        base = (owner * self._size + blocks * BLOCK_BYTES) * 8
        for word in range(BLOCK_WORDS):
            flat[base + word * 32 + bit_numbers(hashes, word)] = True

    def _open(self, zone: int) -> None:
        """Make room for the filters up to a zone."""
        missing = zone + 1 - self._first - len(self._bits)
        if missing > 0:
            more = np.zeros((missing, self._size * 8), np.bool_)
            self._bits = np.concatenate((self._bits, more)) if len(self._bits) else more

    def _close(self, zone: int) -> None:
        """Finish the filters before a zone."""
        done = min(zone - self._first, len(self._bits))
        if done > 0:
            packed = np.packbits(self._bits[:done], axis=1, bitorder="little")
            self._finished.append(packed.reshape(-1))
            self._bits = self._bits[done:]
            self._first += done

    def finish(self) -> pa.Array:
        """The filters of all zones."""
        self._close(self._first + len(self._bits))
        data = np.concatenate([np.empty(0, np.uint8), *self._finished])
        fixed: Any = pa.binary(self._size)
        count = len(data) // self._size
        filters: Any = pa.Array.from_buffers(fixed, count, [None, as_buffer(data)])
        cast: pa.Array = filters.cast(pa.binary())
        return cast


def may_have(filters: NDArray[np.uint32], hashes: UInt64s) -> Flags:
    """Which filters may have which values.

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
    """Bytes of a filter of so many values: the smallest power of two with that probability."""
    size, most = BLOCK_BYTES, min(_MAX_BYTES, _MOST_PER_VALUE * items)
    while size < most and _false_positives(items, size // BLOCK_BYTES) > probability:
        size *= 2
    return size


def _false_positives(items: int, blocks: int) -> float:
    """Probability that a value that was not inserted is found: values per block are Poisson."""
    mean = items / blocks
    if mean > _CROWDED:
        return 1.0
    most = int(mean + 12 * mean**0.5 + 32)
    counts = np.arange(most + 1)
    logs = np.concatenate((np.zeros(1), np.cumsum(np.log(counts[1:]))))
    chances = np.exp(counts * np.log(mean) - mean - logs)
    return float((chances * (1 - (1 - 1 / 32) ** counts) ** BLOCK_WORDS).sum())
