"""Number distinct values: the items of a dictionary, and an index for every value.

Items are numbered in the order of their first appearance. Counting stops as soon as there
are more items, or more bytes in them, than the caller would take.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import SchemaError
from glaive.kernels._addresses import address, allocate_with_slack
from glaive.kernels._bounds import outside
from glaive.kernels._tier import use_loops
from glaive.kernels.native import hashing as hashing_loops
from glaive.kernels.native import offsets as offsets_loops
from glaive.kernels.string_records import NumberStrings
from glaive.kernels.strings import MAX_32, SLACK, Strings, as_offsets, check_offsets
from glaive.memory import allocate, as_array, as_buffer

__all__ = [
    "Numbered",
    "NumberedStrings",
    "copy_pieces",
    "exercise",
    "number_strings",
    "number_words",
    "pick_strings",
]

_FIRST_SLOTS = 1024


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
    strings: Strings, count: int, most: int, most_bytes: int
) -> NumberedStrings | None:
    """Number ``count`` strings; None when items exceed ``most`` or their bytes ``most_bytes``.

    Cost: one hash and one comparison per value.
    """
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    if not use_loops(count):
        return _number_arrow(strings, count, most, most_bytes)
    slots, hashes, firsts = _tables(count, most)
    indices = allocate(4 * count)
    call = NumberStrings(
        offsets=address(offsets),
        width=bits // 8,
        data=address(data),
        data_size=data.size,
        strings=count,
        most=most,
        most_bytes=most_bytes,
        slots=address(slots),
        hashes=address(hashes),
        firsts=address(firsts),
        indices=address(indices),
    )
    number = hashing_loops.number_strings(*call)
    if number < 0:
        return None
    return NumberedStrings(indices, pick_strings(strings, firsts[:number]), number)


def number_words(values: pa.Buffer, bits: int, count: int, most: int) -> Numbered | None:
    """Number ``count`` values of 64 or 128 bits; None when items exceed ``most``."""
    if bits not in (64, 128) or values.size < count * bits // 8:
        raise SchemaError(
            f"dictionaries of fixed width take values of 64 or 128 bits, found {count} of "
            f"{bits} bits in {values.size} bytes"
        )
    if not use_loops(count):
        kind = pa.binary(bits // 8)
        coded = pa.Array.from_buffers(kind, count, [None, values]).dictionary_encode()
        number = len(coded.dictionary)
        if number > most:
            return None
        return Numbered(_buffer(coded.indices, 1), _buffer(coded.dictionary, 1), number)
    tables = _tables(count, most)
    indices = allocate(4 * count)
    source = [address(values), bits // 64, count, most]
    results = [address(array) for array in (*tables, as_array(indices))]
    number = hashing_loops.number_words(*source, *results)
    if number < 0:
        return None
    rows = as_array(values, np.dtype((np.void, bits // 8)))
    return Numbered(indices, pa.py_buffer(rows[tables[2][:number]].tobytes()), number)


def pick_strings(strings: Strings, rows: NDArray[np.int64]) -> Strings:
    """Copy the strings at ``rows``, which the caller knows to exist.

    Raises
    ------
    SchemaError
        The offsets of one of them descend or leave the data.
    """
    ends = as_offsets(strings.offsets, strings.offset_bits)
    starts = ends[rows].astype(np.int64)
    return copy_pieces(strings.data, starts, ends[rows + 1] - starts, strings.offset_bits)


def copy_pieces(
    data: pa.Buffer, starts: NDArray[np.int64], sizes: NDArray[np.int64], offset_bits: int
) -> Strings:
    """Copy pieces of ``data`` as strings.

    Offsets have ``offset_bits``, or 64 where those are too few.

    Raises
    ------
    SchemaError
        A piece leaves ``data``: the offsets it comes from are damaged.
    """
    wrong = outside(starts, sizes, data.size)
    if wrong.any():
        bad = int(wrong.argmax())
        raise SchemaError(
            f"a string of {sizes[bad]} bytes at {starts[bad]} leaves its {data.size} bytes: "
            "validate the array with array.validate(full=True)"
        )
    starts, sizes = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(sizes, np.int64)
    stops = np.cumsum(sizes)
    total = int(stops[-1]) if len(stops) else 0
    bits = 64 if total > MAX_32 else offset_bits
    offsets = allocate((len(starts) + 1) * (bits // 8))
    if use_loops(len(starts)):
        out = allocate_with_slack(total, SLACK)
        offsets_loops.gather(
            address(data),
            data.size,
            address(starts),
            address(stops),
            len(starts),
            bits // 8,
            address(offsets),
            address(out),
        )
        return Strings(offsets, bits, out)
    written = as_offsets(offsets, bits)
    written[0], written[1:] = 0, stops
    memory = memoryview(data)
    bounds = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    return Strings(offsets, bits, pa.py_buffer(b"".join([memory[a:b] for a, b in bounds])))


def _tables(
    count: int, most: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.int64]]:
    """Slots, hashes and first rows: as many as can be needed, touched only as they are."""
    most = min(most, count)
    slots = max(_FIRST_SLOTS, 1 << max(2 * most - 1, 1).bit_length())
    return np.empty(slots, np.uint32), np.empty(most + 1, np.uint64), np.empty(most + 1, np.int64)


def _number_arrow(
    strings: Strings, count: int, most: int, most_bytes: int
) -> NumberedStrings | None:
    offsets, bits, data = strings
    kind = pa.binary() if bits == 32 else pa.large_binary()
    coded = pa.Array.from_buffers(kind, count, [None, offsets, data]).dictionary_encode()
    number = len(coded.dictionary)
    items = Strings(_buffer(coded.dictionary, 1), bits, _buffer(coded.dictionary, 2))
    if number > most or int(as_offsets(items.offsets, bits)[number]) > most_bytes:
        return None
    return NumberedStrings(_buffer(coded.indices, 1), items, number)


def _buffer(array: pa.Array, number: int) -> pa.Buffer:
    """Return a buffer of an array; Arrow may leave out those without bytes."""
    found = array.buffers()[number]
    return pa.py_buffer(b"") if found is None else found


def exercise() -> None:
    """Call every wrapper once with a tiny input."""
    offsets = as_buffer(np.array([0, 1, 2], np.int32))
    number_strings(Strings(offsets, 32, pa.py_buffer(b"aa")), 2, 2, 2)
    for bits in (64, 128):
        number_words(pa.py_buffer(bytes(bits // 4)), bits, 2, 2)
