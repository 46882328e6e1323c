"""Into how many pages an array is cut, where each page would repeat a dictionary.

Pages of about 8 MiB are encoded side by side and read apart. A column of few, long values
is little more than its dictionary, which every page has again: such arrays are cut into
fewer pages.

Specification: "Writer choices" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from glaive.arrow.blocks import FixedWidth, Variable
from glaive.arrow.build import block_from_array
from glaive.encodings.writing.string_stats import likely_items
from glaive.kernels.strings import as_offsets

__all__ = ["page_count"]

MOST_REPEATED = 0.01
"""Share of a column that dictionaries may take which another page has already."""

MOST_PAGES_IN_ONE = 64
"""Pages that are left together at most, so that no page takes very much memory."""

_BITS = (64, 128)
"""Widths of numbers that become dictionaries."""


def page_count(array: pa.Array, wanted: int) -> int:
    """Return in how many pages to write ``array``: at most ``wanted``.

    Cost: looks at some thousand values of each leaf, and at nothing if ``wanted`` is 1.
    """
    pages = wanted
    fewest = -(-wanted // MOST_PAGES_IN_ONE)
    for leaf in _leaves(array):
        if pages <= fewest:
            return fewest
        items, indices = _dictionary_bytes(leaf)
        if items:
            more = int(MOST_REPEATED * (items + indices) / items)
            pages = min(pages, max(fewest, 1 + more))
    return pages


def _leaves(array: Any) -> Iterator[Any]:
    """Arrays of values; those of null lists and structs may be among them."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaves(array.storage)
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _leaves(array.field(at))
    elif pa.types.is_fixed_size_list(kind):
        return
    elif isinstance(array, pa.MapArray):
        first, length = _extent(array)
        yield from _leaves(array.keys.slice(first, length))
        yield from _leaves(array.items.slice(first, length))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(array.values.slice(*_extent(array)))
    else:
        yield array


def _extent(array: Any) -> tuple[int, int]:
    """First item of the first list, and the items of all."""
    if not len(array):
        return 0, 0
    first = array.offsets[0].as_py()
    return first, array.offsets[len(array)].as_py() - first


def _dictionary_bytes(leaf: Any) -> tuple[int, int]:
    """Estimate the bytes of a dictionary's items and of its indices; zeros without one."""
    if pa.types.is_dictionary(leaf.type):
        return leaf.dictionary.nbytes, _index_bytes(len(leaf), len(leaf.dictionary))
    if pa.types.is_null(leaf.type) or not len(leaf):
        return 0, 0
    block = block_from_array(leaf)
    if isinstance(block, Variable):
        ends = as_offsets(block.offsets, block.offset_bits)
        width = (int(ends[block.count]) - int(ends[0])) / block.count + block.offset_bits // 8
    elif isinstance(block, FixedWidth) and block.bits in _BITS:
        width = block.bits / 8
    else:
        return 0, 0
    items = likely_items(block)
    return (0, 0) if items is None else (int(items * width), _index_bytes(block.count, items))


def _index_bytes(count: int, items: int) -> int:
    return count * max(items - 1, 1).bit_length() // 8
