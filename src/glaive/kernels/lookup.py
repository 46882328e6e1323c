"""Hash tables of 64-bit words and of strings: the number of a key, if it is there.

Of equal keys the first is found. The tables of compiled kernels use open addressing with at least
two slots per key, so that a search reads little more than one slot.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.entropy import hash_secret
from glaive.errors import SchemaError
from glaive.kernels._addresses import address
from glaive.kernels._tier import HASHED_WORK, use_compiled
from glaive.kernels.native import lookup as compiled
from glaive.kernels.string_records import FindStrings
from glaive.kernels.strings import Strings, check_offsets
from glaive.memory import as_buffer
from glaive.types import Int64s, UInt8s, UInt32s, UInt64s

__all__ = ["StringTable", "WordTable", "exercise"]

_MAX_KEYS: Final = 2**31 - 1
"""Slots hold numbers of 32 bits."""


class WordTable:
    """Words, and the first number of each.

    Raises
    ------
    SchemaError
        There are 2^31 words or more.
    """

    def __init__(self, words: UInt64s) -> None:
        self.words = np.ascontiguousarray(words, np.uint64)
        self.secret = hash_secret()
        self._built: list[tuple[UInt32s, Int64s]] = []
        _check_count(len(self.words))

    @property
    def firsts(self) -> Int64s:
        """The number of the first word equal to each."""
        if use_compiled(len(self.words)):
            return self._entered[1]
        _, first, inverse = self._sorted
        numbers: Int64s = first[inverse]
        return numbers

    def find(self, words: UInt64s) -> Int64s:
        """The number of the first word equal to each of these, -1 for none."""
        words = np.ascontiguousarray(words, np.uint64)
        if not len(self.words):
            return np.full(len(words), -1, np.int64)
        if not use_compiled(len(words)):
            values, first, _ = self._sorted
            at = np.minimum(np.searchsorted(values, words), len(values) - 1)
            return np.where(values[at] == words, first[at], -1)
        slots, _ = self._entered
        numbers = np.empty(len(words), np.int64)
        bits = len(slots).bit_length() - 1
        if len(words):
            compiled.find_words(
                address(self.words), address(slots), bits, address(words), len(words),
                address(numbers), self.secret,
            )  # fmt: skip
        return numbers

    @property
    def slots(self) -> UInt32s:
        """The slots of the compiled table, a power of two of them."""
        return self._entered[0]

    @property
    def _entered(self) -> tuple[UInt32s, Int64s]:
        if not self._built:
            # Several threads may build a table at once. All of these stay alive, because running
            # kernels read them by address; the first one is used from now on.
            self._built.append(self._enter())
        return self._built[0]

    def _enter(self) -> tuple[UInt32s, Int64s]:
        count = len(self.words)
        slots, bits = _slots(count)
        firsts = np.empty(count, np.int64)
        if count:
            compiled.build_words(
                address(self.words), count, address(slots), bits, address(firsts), self.secret
            )
        return slots, firsts

    @cached_property
    def _sorted(self) -> tuple[UInt64s, Int64s, Int64s]:
        return np.unique(self.words, return_index=True, return_inverse=True)


class StringTable:
    """Byte strings, and the first number of each.

    Raises
    ------
    SchemaError
        There are 2^31 of them or more, or their offsets descend or leave the data.
    """

    def __init__(self, strings: Strings, count: int) -> None:
        _check_count(count)
        check_offsets(strings.offsets, strings.offset_bits, strings.data, count)
        self.strings, self.count, self._secret = strings, count, hash_secret()

    @property
    def firsts(self) -> Int64s:
        """The number of the first string equal to each."""
        if use_compiled(HASHED_WORK * self.count):
            return self._entered[2]
        return _index_in(_as_arrow(self.strings, self.count), _as_arrow(self.strings, self.count))

    def find(self, queries: Strings, count: int) -> Int64s:
        """The number of the first string equal to each of these, -1 for none.

        Raises
        ------
        SchemaError
            The offsets descend, or leave the data.
        """
        check_offsets(queries.offsets, queries.offset_bits, queries.data, count)
        if not use_compiled(HASHED_WORK * (self.count + count)):
            return _index_in(_as_arrow(queries, count), _as_arrow(self.strings, self.count))
        slots, hashes, _, prefilter = self._entered
        numbers = np.empty(count, np.int64)
        if count:
            offsets, width, data = _addresses(self.strings)
            query_offsets, query_width, query_data = _addresses(queries)
            call = FindStrings(
                offsets=offsets, width=width, data=data, hashes=address(hashes),
                slots=address(slots), bits=len(slots).bit_length() - 1,
                prefilter=address(prefilter), queries=query_offsets, query_width=query_width,
                query_data=query_data, query_count=count, target=address(numbers),
                secret=self._secret,
            )  # fmt: skip
            compiled.find_strings(*call)
        return numbers

    @cached_property
    def _entered(self) -> tuple[UInt32s, UInt64s, Int64s, UInt8s]:
        slots, bits = _slots(self.count)
        hashes, firsts = np.empty(self.count, np.uint64), np.empty(self.count, np.int64)
        prefilter = np.zeros(len(slots), np.uint8)
        if self.count:
            compiled.build_strings(
                *_addresses(self.strings), self.count, address(hashes), address(slots), bits,
                address(prefilter), address(firsts), self._secret,
            )  # fmt: skip
        return slots, hashes, firsts, prefilter


def _check_count(count: int) -> None:
    if count > _MAX_KEYS:
        raise SchemaError(f"{count} keys are more than the {_MAX_KEYS} that a table can hold")


def _slots(count: int) -> tuple[UInt32s, int]:
    """Free slots for so many keys, and the binary logarithm of their number."""
    bits = max(3, (2 * count - 1).bit_length()) if count else 3
    return np.zeros(1 << bits, np.uint32), bits


def _addresses(strings: Strings) -> tuple[int, int, int]:
    return address(strings.offsets), strings.offset_bits // 8, address(strings.data)


def _as_arrow(strings: Strings, count: int) -> Any:
    data_type = pa.binary() if strings.offset_bits == 32 else pa.large_binary()
    array: Any = pa.Array.from_buffers(data_type, count, [None, strings.offsets, strings.data])
    return array.cast(pa.large_binary())


def _index_in(queries: Any, among: Any) -> Int64s:
    import pyarrow.compute as pc

    indices: Any = pc.fill_null(pc.index_in(queries, value_set=among), -1)
    numbers: Int64s = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def exercise() -> None:
    """Call every wrapper once with little data."""
    words = WordTable(np.arange(3, dtype=np.uint64))
    words.find(words.words)
    strings = Strings(as_buffer(np.array([0, 1, 2], np.int32)), 32, pa.py_buffer(b"ab"))
    StringTable(strings, 2).find(strings, 2)
