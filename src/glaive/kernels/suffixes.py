"""Sort the suffixes of a text: its suffix array."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.errors import SchemaError
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import suffixes as compiled
from glaive.kernels.string_records import SortSuffixes
from glaive.types import UInt8s

__all__ = ["MOST_BYTES", "exercise", "sort_suffixes"]

MOST_BYTES: Final = (1 << 31) - 1
"""Bytes of a text whose suffixes can be sorted."""

_BYTES: Final = 256


def sort_suffixes(text: UInt8s) -> NDArray[np.int32]:
    """Where the suffixes of a text begin, in their order: a suffix comes before longer ones
    that begin with it.

    Some steps of a kernel for each byte, and nine bytes of memory.

    Parameters
    ----------
    text
        At most 2^31 - 1 bytes.

    Raises
    ------
    SchemaError
        It is longer.
    """
    if len(text) > MOST_BYTES:
        raise SchemaError(f"a text of {len(text)} bytes, of at most {MOST_BYTES}")
    if not use_compiled(len(text)):
        return _sort_numpy(text)
    return _sorted(np.ascontiguousarray(text), _BYTES)


def _sorted(text: NDArray[Any], symbols: int) -> NDArray[np.int32]:
    """The order of the suffixes of numbers below ``symbols``: of bytes, or of ``int32``."""
    size = len(text)
    order = np.full(size, -1, np.int32)
    if not size:
        return order
    starts, heads = np.empty(symbols + 1, np.int64), np.empty(symbols, np.int64)
    minima, names = np.empty(size // 2 + 1, np.int32), np.full(size // 2 + 1, -1, np.int32)
    count = np.zeros(1, np.int64)

    def arguments() -> SortSuffixes:
        return SortSuffixes(
            text=address(text), width=text.itemsize, size=size, symbols=symbols,
            starts=address(starts), heads=address(heads), minima=address(minima),
            found_count=address(count), names=address(names), order=address(order),
        )  # fmt: skip

    distinct = compiled.sort_substrings(*arguments())
    found = int(count[0])
    numbers = names[:found]
    if distinct < found:  # Some are equal: what follows them decides.
        by_suffix = _sorted(np.ascontiguousarray(numbers), distinct)
    else:
        by_suffix = np.empty(found, np.int32)
        by_suffix[numbers] = np.arange(found, dtype=np.int32)
    names = minima[by_suffix]
    order.fill(-1)
    compiled.sort_suffixes(*arguments())
    return order


def _sort_numpy(text: UInt8s) -> NDArray[np.int32]:
    """By the first 1, 2, 4, … bytes, until all suffixes differ."""
    size = len(text)
    rank = text.astype(np.int64) + 1
    length = 1
    while True:
        behind = np.zeros(size, np.int64)
        behind[: max(0, size - length)] = rank[length:]
        order = np.lexsort((behind, rank))
        changes = np.ones(size, np.int64)
        first, second = rank[order], behind[order]
        changes[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        rank[order] = np.cumsum(changes)
        if size == 0 or rank[order[-1]] == size:
            return order.astype(np.int32)
        length *= 2


def exercise() -> None:
    """Call every wrapper once with little data."""
    sort_suffixes(np.frombuffer(b"abracadabra abracadabra", np.uint8))
