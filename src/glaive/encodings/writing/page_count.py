"""The number of pages of an array, where each page would repeat a dictionary.

Pages of about 8 MiB are encoded in parallel and read independently. A column of few distinct,
long values is little more than its dictionary, which every page repeats: such arrays get fewer
pages.

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

MAX_REPEATED_SHARE = 0.01
"""Share of a column that repeated dictionaries may take."""

MAX_MERGED_PAGES = 64
"""Pages that become one at most, to limit the memory of a page."""

_BITS = (64, 128)
"""Widths of numbers that become dictionaries."""


def page_count(array: pa.Array, wanted: int) -> int:
    """Return the number of pages to write ``array`` in, at most ``wanted``.

    Cost: samples some thousand values of each leaf, or none if ``wanted`` is 1.
    """
    pages = wanted
    fewest = -(-wanted // MAX_MERGED_PAGES)
    for leaf in _leaves(array):
        if pages <= fewest:
            return fewest
        items, indices = _dictionary_bytes(leaf)
        if items:
            more = int(MAX_REPEATED_SHARE * (items + indices) / items)
            pages = min(pages, max(fewest, 1 + more))
    return pages


def _leaves(array: Any) -> Iterator[Any]:
    """Arrays of values, which may include those of null lists and structs."""
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
    """Position of the first item, and the number of items of all lists."""
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
        offsets = as_offsets(block.offsets, block.offset_bits)
        width = (int(offsets[block.count]) - int(offsets[0])) / block.count + block.offset_bits // 8
    elif isinstance(block, FixedWidth) and block.bits in _BITS:
        width = block.bits / 8
    else:
        return 0, 0
    items = likely_items(block)
    return (0, 0) if items is None else (int(items * width), _index_bytes(block.count, items))


def _index_bytes(count: int, items: int) -> int:
    return count * max(items - 1, 1).bit_length() // 8
