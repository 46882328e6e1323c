"""Number distinct values: the items of a dictionary, and an index for every value.

Items are numbered in the order of their first appearance. Counting stops as soon as there
are more items, or more bytes in them, than the caller accepts.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.entropy import hash_secret
from glaive.errors import SchemaError
from glaive.kernels._addresses import address
from glaive.kernels._bounds import outside
from glaive.kernels._tier import HASHED_WORK, use_compiled
from glaive.kernels.native import hashing as compiled
from glaive.kernels.string_records import NumberStrings
from glaive.kernels.strings import Strings, _gather_strings, as_offsets, check_offsets
from glaive.memory import allocate, as_array, as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt32s, UInt64s

__all__ = [
    "Numbered",
    "NumberedStrings",
    "copy_ranges",
    "exercise",
    "number_strings",
    "number_words",
    "select_strings",
]

_LEAST_SLOTS = 8192
"""Slots that few items may take: ``SPARSE_SLOTS`` of the kernels."""


class NumberedStrings(NamedTuple):
    """32-bit indices, the distinct strings, and how many there are."""

    indices: pa.Buffer
    items: Strings
    number: int


class Numbered(NamedTuple):
    """32-bit indices, the distinct values back to back, and how many there are."""

    indices: pa.Buffer
    items: pa.Buffer
    number: int


def number_strings(
    strings: Strings, count: int, max_items: int, max_bytes: int
) -> NumberedStrings | None:
    """Number ``count`` strings; one hash and one comparison per value.

    Parameters
    ----------
    strings, count
        Offsets and bytes, and how many strings to number.
    max_items, max_bytes
        Distinct strings, and bytes in them, beyond which None is returned.
    """
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    if not use_compiled(HASHED_WORK * count):
        return _number_arrow(strings, count, max_items, max_bytes)
    slots, hashes, firsts = _tables(count, max_items)
    indices = allocate(4 * count)
    call = NumberStrings(
        offsets=address(offsets), width=bits // 8, data=address(data), data_size=data.size,
        strings=count, max_items=max_items, max_bytes=max_bytes, slots=address(slots),
        hashes=address(hashes), firsts=address(firsts), indices=address(indices),
        secret=hash_secret(),
    )  # fmt: skip
    number = compiled.number_strings(*call)
    if number < 0:
        return None
    return NumberedStrings(indices, select_strings(strings, firsts[:number]), number)


def number_words(values: pa.Buffer, bits: int, count: int, max_items: int) -> Numbered | None:
    """Number ``count`` values of 64 or 128 bits.

    Parameters
    ----------
    values
        ``count`` values of ``bits`` bits.
    bits
        64 or 128.
    count
        How many values to number.
    max_items
        Distinct values beyond which None is returned.
    """
    if bits not in (64, 128) or values.size < count * bits // 8:
        raise SchemaError(
            f"dictionaries of fixed width take values of 64 or 128 bits, found {count} of "
            f"{bits} bits in {values.size} bytes"
        )
    if not use_compiled(HASHED_WORK * count):
        data_type = pa.binary(bits // 8)
        encoded = pa.Array.from_buffers(data_type, count, [None, values]).dictionary_encode()
        number = len(encoded.dictionary)
        if number > max_items:
            return None
        return Numbered(_buffer(encoded.indices, 1), _buffer(encoded.dictionary, 1), number)
    tables = _tables(count, max_items)
    indices = allocate(4 * count)
    source = [address(values), bits // 64, count, max_items]
    results = [*(address(array) for array in (*tables, as_array(indices))), hash_secret()]
    number = compiled.number_words(*source, *results)
    if number < 0:
        return None
    rows = as_array(values, np.dtype((np.void, bits // 8)))
    return Numbered(indices, pa.py_buffer(rows[tables[2][:number]].tobytes()), number)


def select_strings(strings: Strings, rows: Int64s) -> Strings:
    """Copy the strings at ``rows``, which the caller knows to exist.

    Raises
    ------
    SchemaError
        The offsets of one of them descend or leave the data.
    """
    ends = as_offsets(strings.offsets, strings.offset_bits)
    starts = ends[rows].astype(np.int64)
    return copy_ranges(strings.data, starts, ends[rows + 1] - starts, strings.offset_bits)


def copy_ranges(data: pa.Buffer, starts: Int64s, sizes: Int64s, offset_bits: int) -> Strings:
    """Copy ranges of ``data`` as strings.

    Parameters
    ----------
    data
        Memory of all ranges.
    starts, sizes
        ``int64`` of shape ``(strings,)``: first byte and number of bytes of each.
    offset_bits
        Width of the offsets; 64 is used where 32 is too little.

    Raises
    ------
    SchemaError
        A range leaves ``data``: the offsets it comes from are damaged.
    """
    wrong = outside(starts, sizes, data.size)
    if wrong.any():
        bad = int(wrong.argmax())
        raise SchemaError(
            f"a string of {sizes[bad]} bytes at {starts[bad]} leaves its {data.size} bytes: "
            "validate the array with array.validate(full=True)"
        )
    return _gather_strings(data, starts, np.cumsum(sizes), offset_bits)


def _tables(count: int, max_items: int) -> tuple[UInt32s, UInt64s, Int64s]:
    """Slots, hashes and first rows for the worst case; only used pages take memory."""
    items = min(max_items, count)
    slots = max(_LEAST_SLOTS, 1 << max(2 * items - 1, 1).bit_length())
    return np.empty(slots, np.uint32), np.empty(items + 1, np.uint64), np.empty(items + 1, np.int64)


def _number_arrow(
    strings: Strings, count: int, max_items: int, max_bytes: int
) -> NumberedStrings | None:
    offsets, bits, data = strings
    data_type = pa.binary() if bits == 32 else pa.large_binary()
    encoded = pa.Array.from_buffers(data_type, count, [None, offsets, data]).dictionary_encode()
    number = len(encoded.dictionary)
    items = Strings(_buffer(encoded.dictionary, 1), bits, _buffer(encoded.dictionary, 2))
    if number > max_items or int(as_offsets(items.offsets, bits)[number]) > max_bytes:
        return None
    return NumberedStrings(_buffer(encoded.indices, 1), items, number)


def _buffer(array: pa.Array, number: int) -> pa.Buffer:
    """Return a buffer of an array; Arrow may leave out those without bytes."""
    buffer = array.buffers()[number]
    return pa.py_buffer(b"") if buffer is None else buffer


def exercise() -> None:
    """Call every wrapper once with little data."""
    offsets = as_buffer(np.array([0, 1, 2], np.int32))
    number_strings(Strings(offsets, 32, pa.py_buffer(b"aa")), 2, 2, 2)
    for bits in (64, 128):
        number_words(pa.py_buffer(bytes(bits // 4)), bits, 2, 2)
