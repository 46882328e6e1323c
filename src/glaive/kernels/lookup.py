"""Tables in which words of 64 bits, or texts, are found again: which key, if any, is it?

Keys may be there several times; what is found is the first. A compiled table is one of open
addressing with at least two slots per key, so that a search looks at little more than one.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import SchemaError
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_loops
from glaive.kernels.native import lookup as loops
from glaive.kernels.string_records import FindTexts
from glaive.kernels.strings import Strings, check_offsets
from glaive.memory import as_buffer

__all__ = ["TextTable", "WordTable", "exercise"]

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

_MOST: Final = 2**31 - 1
"""Keys at most: slots hold numbers of 32 bits."""


class WordTable:
    """Words, and where each of them is first.

    Raises
    ------
    SchemaError
        There are more than 2^31 words.
    """

    def __init__(self, words: UInt64s) -> None:
        self.words = np.ascontiguousarray(words, np.uint64)
        self._made: list[tuple[NDArray[np.uint32], Int64s]] = []
        _check_count(len(self.words))

    @property
    def firsts(self) -> Int64s:
        """The number of the first word equal to each."""
        if use_loops(len(self.words)):
            return self._entered[1]
        _, first, inverse = self._sorted
        numbers: Int64s = first[inverse]
        return numbers

    def find(self, words: UInt64s) -> Int64s:
        """The number of the first word equal to each of these, -1 for none."""
        words = np.ascontiguousarray(words, np.uint64)
        if not len(self.words):
            return np.full(len(words), -1, np.int64)
        if not use_loops(len(words)):
            values, first, _ = self._sorted
            at = np.minimum(np.searchsorted(values, words), len(values) - 1)
            return np.where(values[at] == words, first[at], -1)
        slots, _ = self._entered
        found = np.empty(len(words), np.int64)
        bits = len(slots).bit_length() - 1
        if len(words):
            loops.find_words(
                address(self.words), address(slots), bits, address(words), len(words),
                address(found),
            )  # fmt: skip
        return found

    @property
    def slots(self) -> NDArray[np.uint32]:
        """The slots of the compiled table, a power of two of them."""
        return self._entered[0]

    @property
    def _entered(self) -> tuple[NDArray[np.uint32], Int64s]:
        if not self._made:
            # Threads may come here at once. What each of them made stays, for its loops read
            # it by its address; what the first one made is used from now on.
            self._made.append(self._enter())
        return self._made[0]

    def _enter(self) -> tuple[NDArray[np.uint32], Int64s]:
        count = len(self.words)
        slots, bits = _slots(count)
        firsts = np.empty(count, np.int64)
        if count:
            loops.build_words(address(self.words), count, address(slots), bits, address(firsts))
        return slots, firsts

    @cached_property
    def _sorted(self) -> tuple[UInt64s, Int64s, Int64s]:
        return np.unique(self.words, return_index=True, return_inverse=True)


class TextTable:
    """Byte strings, and where each of them is first.

    Raises
    ------
    SchemaError
        There are more than 2^31 of them, or their offsets descend or leave the data.
    """

    def __init__(self, texts: Strings, count: int) -> None:
        _check_count(count)
        check_offsets(texts.offsets, texts.offset_bits, texts.data, count)
        self.texts, self.count = texts, count

    @property
    def firsts(self) -> Int64s:
        """The number of the first text equal to each."""
        if use_loops(self.count):
            return self._entered[2]
        return _index_in(_as_arrow(self.texts, self.count), _as_arrow(self.texts, self.count))

    def find(self, texts: Strings, count: int) -> Int64s:
        """The number of the first text equal to each of these, -1 for none.

        Raises
        ------
        SchemaError
            The offsets descend, or leave the data.
        """
        check_offsets(texts.offsets, texts.offset_bits, texts.data, count)
        if not use_loops(count):
            return _index_in(_as_arrow(texts, count), _as_arrow(self.texts, self.count))
        slots, hashes, _, sieve = self._entered
        found = np.empty(count, np.int64)
        if count:
            offsets, width, data = _addresses(self.texts)
            asked, asked_width, asked_data = _addresses(texts)
            call = FindTexts(
                offsets=offsets,
                width=width,
                data=data,
                hashes=address(hashes),
                slots=address(slots),
                bits=len(slots).bit_length() - 1,
                sieve=address(sieve),
                asked=asked,
                asked_width=asked_width,
                asked_data=asked_data,
                asked_count=count,
                target=address(found),
            )
            loops.find_texts(*call)
        return found

    @cached_property
    def _entered(self) -> tuple[NDArray[np.uint32], UInt64s, Int64s, NDArray[np.uint8]]:
        slots, bits = _slots(self.count)
        hashes, firsts = np.empty(self.count, np.uint64), np.empty(self.count, np.int64)
        sieve = np.zeros(len(slots), np.uint8)
        if self.count:
            loops.build_texts(
                *_addresses(self.texts), self.count, address(hashes), address(slots), bits,
                address(sieve), address(firsts),
            )  # fmt: skip
        return slots, hashes, firsts, sieve


def _check_count(count: int) -> None:
    if count > _MOST:
        raise SchemaError(f"{count} keys are more than a table has room for, {_MOST}")


def _slots(count: int) -> tuple[NDArray[np.uint32], int]:
    """Free slots for so many keys, and which power of two they are."""
    bits = max(3, (2 * count - 1).bit_length()) if count else 3
    return np.zeros(1 << bits, np.uint32), bits


def _addresses(texts: Strings) -> tuple[int, int, int]:
    return address(texts.offsets), texts.offset_bits // 8, address(texts.data)


def _as_arrow(texts: Strings, count: int) -> Any:
    kind = pa.binary() if texts.offset_bits == 32 else pa.large_binary()
    array: Any = pa.Array.from_buffers(kind, count, [None, texts.offsets, texts.data])
    return array.cast(pa.large_binary())


def _index_in(texts: Any, among: Any) -> Int64s:
    import pyarrow.compute as pc

    found: Any = pc.fill_null(pc.index_in(texts, value_set=among), -1)
    numbers: Int64s = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def exercise() -> None:
    """Call every wrapper once with little data."""
    words = WordTable(np.arange(3, dtype=np.uint64))
    words.find(words.words)
    texts = Strings(as_buffer(np.array([0, 1, 2], np.int32)), 32, pa.py_buffer(b"ab"))
    TextTable(texts, 2).find(texts, 2)
