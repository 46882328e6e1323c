"""Dictionary strings: indices replaced by the items they point to."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import RowIndexError
from glaive.kernels._addresses import address, allocate_with_slack
from glaive.kernels._tier import use_loops
from glaive.kernels.native import offsets as loops
from glaive.kernels.strings import MAX_32, SLACK, Strings, as_offsets, check_offsets
from glaive.memory import allocate, as_array, as_buffer

__all__ = ["exercise", "expand_dictionary"]

SLOT: Final = 16
"""Items up to this many bytes are expanded through slots of this size."""


def expand_dictionary(indices: pa.Buffer, bits: int, count: int, items: Strings) -> Strings:
    """Replace ``count`` unsigned indices of ``bits`` bits by the strings they point to.

    Raises
    ------
    RowIndexError
        An index is not below the number of items.

    Notes
    -----
    Items of up to 16 bytes are copied through slots of that size: one load and one store.
    """
    ends = as_offsets(items.offsets, items.offset_bits)
    number = len(ends) - 1
    check_offsets(items.offsets, items.offset_bits, items.data, number)
    found = as_array(indices, np.dtype(f"<u{bits // 8}"))[:count]
    if len(found) < count:
        raise RowIndexError(f"{count} indices of {bits} bits need more than {indices.size} bytes")
    if not use_loops(count):
        return _expand_numpy(found, ends, items)
    if bits == 64 and count and int(found.max()) >= number:
        raise RowIndexError(f"index {int(found.max())} of a dictionary of {number} items")
    wanted = np.ascontiguousarray(found, np.uint32)
    return _expand_loops(wanted, ends, items)


def _expand_loops(wanted: NDArray[np.uint32], ends: NDArray[Any], items: Strings) -> Strings:
    count, number = len(wanted), len(ends) - 1
    sizes = np.diff(ends).astype(np.uint32)
    longest = int(sizes.max(initial=0))
    width = items.offset_bits // 8
    if longest <= SLOT and longest * count <= MAX_32:
        slots = np.zeros((number, SLOT), np.uint8)
        memory = as_array(items.data)[int(ends[0]) : int(ends[-1])]
        slots[np.arange(SLOT) < sizes[:, None]] = memory
        offsets = allocate((count + 1) * width)
        out = allocate(longest * count + SLACK)
        bad = loops.expand_slots(
            address(wanted),
            count,
            address(slots),
            address(sizes),
            number,
            width,
            address(offsets),
            address(out),
        )
        if bad >= 0:
            raise RowIndexError(f"index {wanted[bad]} of a dictionary of {number} items")
        total = int(as_offsets(offsets, items.offset_bits)[-1])
        return Strings(offsets, items.offset_bits, out.slice(0, total))
    whole = np.empty(1, np.int64)
    source = (address(items.offsets), width)
    bad = loops.measure(address(wanted), count, *source, number, address(whole))
    if bad >= 0:
        raise RowIndexError(f"index {wanted[bad]} of a dictionary of {number} items")
    total = int(whole[0])
    out_bits = 64 if total > MAX_32 else items.offset_bits
    offsets, out = allocate((count + 1) * (out_bits // 8)), allocate_with_slack(total, SLACK)
    loops.expand(
        address(wanted),
        count,
        *source,
        address(items.data),
        items.data.size,
        out_bits // 8,
        address(offsets),
        address(out),
    )
    return Strings(offsets, out_bits, out)


def _expand_numpy(found: NDArray[Any], ends: NDArray[Any], items: Strings) -> Strings:
    number = len(ends) - 1
    if len(found) and int(found.max()) >= number:
        raise RowIndexError(f"index {int(found.max())} of a dictionary of {number} items")
    memory = memoryview(items.data)
    bounds = ends.tolist()
    pieces = [memory[a:b] for a, b in pairwise(bounds)]
    joined = b"".join(map(pieces.__getitem__, found.tolist()))
    stops = np.zeros(len(found) + 1, np.int64)
    np.cumsum(np.diff(ends).astype(np.int64)[found], out=stops[1:])
    out_bits = 64 if len(joined) > MAX_32 else items.offset_bits
    offsets = stops if out_bits == 64 else stops.astype(np.int32)
    return Strings(as_buffer(offsets), out_bits, pa.py_buffer(joined))


def exercise() -> None:
    """Call every wrapper once with a tiny input."""
    for size in (1, SLOT + 1):
        offsets = as_buffer(np.array([0, size], np.int32))
        items = Strings(offsets, 32, pa.py_buffer(bytes(size)))
        expand_dictionary(pa.py_buffer(bytes(4)), 32, 1, items)
