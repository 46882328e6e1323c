"""Distinct values of an array, in a time that nobody who chose the values can make long.

Arrow's hashes are known: of a megabyte of texts or numbers that were chosen for it, each is
compared with all before, which takes minutes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.kernels.hashing import number_strings, number_words
from glaive.kernels.strings import Strings
from glaive.memory import as_array, as_buffer, items_of
from glaive.types import Int64s

__all__ = ["is_numbered", "numbered"]

_NO_BYTES: Any = pa.py_buffer(b"")


def numbered(array: Any) -> Any:
    """The distinct values in the order of their first appearance, and the index of each value.

    As ``array.dictionary_encode()``: indices have 32 bits, those of nulls are null. Arrow does it
    where values are of a type that has no hash here: nested ones, and those of up to two bytes, of
    which there are not many.
    """
    known = array.drop_null() if array.null_count else array
    if not len(known) or not is_numbered(array.type):
        return array.dictionary_encode()
    numbers = _numbers(known)
    last = np.maximum.accumulate(numbers)
    firsts = np.flatnonzero(np.diff(last, prepend=-1))
    indices = pa.array(numbers)
    if len(known) < len(array):
        valid = array.is_valid()
        spread = np.zeros(len(array), np.int32)
        spread[np.asarray(valid)] = numbers
        indices = pa.array(spread, mask=~np.asarray(valid))
    return pa.DictionaryArray.from_arrays(indices, known.take(pa.array(firsts)), safe=False)


def is_numbered(kind: pa.DataType) -> bool:
    """Whether values of a type may be so many, and have a hash here."""
    return bool(_offset_bits(kind)) or _bits(kind) > 16


def _offset_bits(kind: pa.DataType) -> int:
    types = pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return 32
    return 64 if types.is_large_string(kind) or types.is_large_binary(kind) else 0


def _bits(kind: pa.DataType) -> int:
    """Bits of each value; 0 where it is not flat."""
    types = pa.types
    flat = types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    return int(kind.bit_width) if flat and not isinstance(kind, pa.BaseExtensionType) else 0


def _numbers(array: Any) -> Any:
    """The number of each value, ``int32``; the array has no nulls."""
    kind, count = array.type, len(array)
    if offset_bits := _offset_bits(kind):
        return _of_strings(array, offset_bits)
    bits = _bits(kind)
    values = array.buffers()[1]
    if bits == 32:
        words = items_of(values, "<u4", count, 4 * array.offset).astype(np.uint64)
        return _of(number_words(as_buffer(words), 64, count, count))
    if bits in (64, 128):
        values = values.slice(array.offset * bits // 8)
        return _of(number_words(values, bits, count, count))
    width = bits // 8
    ends: Int64s = np.arange(count + 1, dtype=np.int64) * width
    data = values.slice(array.offset * width)
    return _of(number_strings(Strings(as_buffer(ends), 64, data), count, count, data.size))


def _of_strings(array: Any, bits: int) -> Any:
    _, offsets, data = array.buffers()
    strings = Strings(offsets.slice(array.offset * bits // 8), bits, data or _NO_BYTES)
    count = len(array)
    return _of(number_strings(strings, count, count, strings.data.size))


def _of(numbered: Any) -> Any:
    return as_array(numbered.indices, np.int32)
