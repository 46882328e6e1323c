"""Dictionary-encoded strings: replace indices by the items they refer to."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.config import MOST_IMPLIED
from glaive.errors import CapacityError, RowIndexError
from glaive.kernels._addresses import address, allocate_with_slack
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import offsets as compiled
from glaive.kernels.string_records import TakeItems
from glaive.kernels.strings import SLACK, Strings, as_offsets, check_offsets
from glaive.memory import allocate, as_array, as_buffer
from glaive.types import MAX_OFFSET, UInt32s

__all__ = ["check_total", "exercise", "expand_dictionary", "take_items"]

_MOST_USED: Final = min(MAX_OFFSET, MOST_IMPLIED)

_ROOM: Final = 32
"""Bytes of an item for which there is room at first."""

SHORT: Final = 16
"""Items up to this many bytes are copied with one load and one store of this size."""


def expand_dictionary(indices: pa.Buffer, bits: int, count: int, items: Strings) -> Strings:
    """Replace indices by the strings they refer to.

    Items of up to 16 bytes are copied with one load and one store.

    Parameters
    ----------
    indices
        ``count`` unsigned integers of ``bits`` bits.
    bits
        8, 16, 32 or 64.
    count
        Number of values.
    items
        The dictionary.

    Raises
    ------
    CapacityError
        Several values take more than ``MOST_IMPLIED``; nothing was allocated for them.
    RowIndexError
        An index is not below the number of items.
    """
    ends = as_offsets(items.offsets, items.offset_bits)
    number = len(ends) - 1
    check_offsets(items.offsets, items.offset_bits, items.data, number)
    rows = as_array(indices, np.dtype(f"<u{bits // 8}"))[:count]
    if len(rows) < count:
        raise RowIndexError(f"{count} indices of {bits} bits need more than {indices.size} bytes")
    if not use_compiled(count):
        return _expand_numpy(rows, ends, items)
    if bits == 64 and count and int(rows.max()) >= number:
        raise _beyond(int(rows.max()), number)
    return _expand_compiled(np.ascontiguousarray(rows, np.uint32), ends, items)


def take_items(indices: pa.Buffer, bits: int, count: int, items: Strings) -> Strings | None:
    """As :func:`expand_dictionary` for few values: only the items that they refer to are looked at.

    Returns
    -------
    Strings or None
        None where an item is not there, where items take more than ``MOST_IMPLIED``, or when
        compiled kernels are not to be used.
    """
    if not use_compiled(count):
        return None
    offsets, width, word = items.offsets, items.offset_bits // 8, bits // 8
    if indices.size < count * word:
        return None
    ends, room = allocate((count + 1) * width), _ROOM * count
    while True:
        out = allocate_with_slack(room, SLACK)
        call = TakeItems(
            indices=address(indices), word=word, n=count, offsets=address(offsets), width=width,
            items=offsets.size // width - 1, data=address(items.data), size=items.data.size,
            out_offsets=address(ends), out=address(out), room=room,
        )  # fmt: skip
        used = compiled.take_items(*call)
        if not 0 <= used <= _MOST_USED:
            return None
        if used <= room:
            return Strings(ends, items.offset_bits, out.slice(0, used))
        room = used


def _beyond(index: int, number: int) -> RowIndexError:
    return RowIndexError(f"index {index} of a dictionary of {number} items")


def check_total(total: int, count: int) -> None:
    """Check what values of a dictionary take in one array, before memory is taken for them.

    Raises
    ------
    CapacityError
        Several values take more than ``MOST_IMPLIED``.
    """
    if total > _MOST_USED and count > 1:
        raise CapacityError(
            f"{total} bytes of {count} values of a dictionary in one array, at most {_MOST_USED} "
            "are made at once; read or take fewer rows at a time",
            parts=-(-total // _MOST_USED),
        )


def _expand_compiled(wanted: UInt32s, ends: NDArray[Any], items: Strings) -> Strings:
    count, number = len(wanted), len(ends) - 1
    longest = int(np.diff(ends).max(initial=0))
    width = items.offset_bits // 8
    if longest <= SHORT and longest * count <= _MOST_USED:
        padded = allocate(items.data.size + SHORT)
        as_array(padded)[: items.data.size] = as_array(items.data)
        offsets = allocate((count + 1) * width)
        out = allocate(longest * count + SLACK)
        bad = compiled.expand_short(
            address(wanted), count, address(items.offsets), width, address(padded), number, width,
            address(offsets), address(out),
        )  # fmt: skip
        if bad >= 0:
            raise _beyond(int(wanted[bad]), number)
        total = int(as_offsets(offsets, items.offset_bits)[-1])
        return Strings(offsets, items.offset_bits, out.slice(0, total))
    size = np.empty(1, np.int64)
    source = (address(items.offsets), width)
    bad = compiled.measure(address(wanted), count, *source, number, address(size))
    if bad >= 0:
        raise _beyond(int(wanted[bad]), number)
    total = int(size[0])
    check_total(total, count)
    out_bits = 64 if total > MAX_OFFSET else items.offset_bits
    offsets, out = allocate((count + 1) * (out_bits // 8)), allocate_with_slack(total, SLACK)
    compiled.expand(
        address(wanted), count, *source, address(items.data), items.data.size, out_bits // 8,
        address(offsets), address(out),
    )  # fmt: skip
    return Strings(offsets, out_bits, out)


def _expand_numpy(rows: NDArray[Any], ends: NDArray[Any], items: Strings) -> Strings:
    number = len(ends) - 1
    if len(rows) and int(rows.max()) >= number:
        raise _beyond(int(rows.max()), number)
    stops = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.diff(ends).astype(np.int64)[rows], out=stops[1:])
    check_total(int(stops[-1]), len(rows))
    memory = memoryview(items.data)
    values = [memory[a:b] for a, b in pairwise(ends.tolist())]
    joined = b"".join(map(values.__getitem__, rows.tolist()))
    out_bits = 64 if len(joined) > MAX_OFFSET else items.offset_bits
    offsets = stops if out_bits == 64 else stops.astype(np.int32)
    return Strings(as_buffer(offsets), out_bits, pa.py_buffer(joined))


def exercise() -> None:
    """Call every wrapper once with little data."""
    for size in (1, SHORT + 1):
        offsets = as_buffer(np.array([0, size], np.int32))
        items = Strings(offsets, 32, pa.py_buffer(bytes(size)))
        expand_dictionary(pa.py_buffer(bytes(4)), 32, 1, items)
        take_items(pa.py_buffer(bytes(4)), 32, 1, items)
