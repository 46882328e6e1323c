"""Write indexed values: a dictionary too large for chunks, its items in a full-zip page.

Specification: "Indexed values" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Variable
from glaive.arrow.build import block_from_array
from glaive.encodings.leaf import Layer
from glaive.encodings.options import EncodingOptions
from glaive.encodings.pages.full_zip import encode_full_zip_page
from glaive.encodings.protocol import EncodedPage, ValueEncoding
from glaive.encodings.values.general import General
from glaive.encodings.values.variable import Variable as Plain
from glaive.encodings.writing.numbers import EncodedNumbers, encode_numbers
from glaive.encodings.writing.string_stats import VariableStats, build_dictionary
from glaive.encodings.writing.variable_width import zip_text_encoding
from glaive.memory import as_array
from glaive.named_tuple import NamedTuple

__all__ = ["LARGE_ITEMS", "IndexedValues", "encode_indexed", "size_of"]

LARGE_ITEMS = 32 * 1024
"""Bytes from which on the items of a dictionary may be stored one by one."""

_COMPRESSED_ITEM = 64
"""Average bytes of an item from which on compressing each item by itself is tried."""


class IndexedValues(NamedTuple):
    """Indices and the page of the items; ``size`` bytes in all."""

    indices: EncodedNumbers
    items: EncodedPage

    @property
    def buffers(self) -> list[Any]:
        """Indices, if they have a payload, items and their positions."""
        payload = self.indices.payload
        return [*([] if payload is None else [payload]), *self.items.buffers]

    @property
    def size(self) -> int:
        """Bytes of the buffers."""
        return sum(map(size_of, self.buffers))


def encode_indexed(array: pa.Array, wanted: EncodingOptions) -> IndexedValues | None:
    """Encode repeating strings or binary as indices and items; None for other values."""
    values = block_from_array(array)
    if not isinstance(values, Variable):
        return None  # dictionary arrays included: pylance does not read those as indexed values
    block = build_dictionary(values, divisor=wanted.dict_divisor, size_ratio=wanted.dict_size_ratio)
    if block is None or not isinstance(block.items, Variable):
        return None
    stats = VariableStats.of(block.items)
    candidates: list[ValueEncoding] = [zip_text_encoding(stats, array.type, wanted)]
    if wanted.compression != "none" and stats.plain_bytes >= _COMPRESSED_ITEM * block.items.count:
        candidates.append(General("zstd", Plain(block.items.offset_bits), None))
    pages = [_items(block.items, encoding) for encoding in dict.fromkeys(candidates)]
    items = min(pages, key=lambda page: sum(map(size_of, page.buffers)))
    indices = as_array(block.indices.values, np.uint32)[: block.count]
    return IndexedValues(encode_numbers(np.ascontiguousarray(indices)), items)


def _items(items: Variable, encoding: ValueEncoding) -> EncodedPage:
    return encode_full_zip_page(items, encoding, layers=(Layer.ALL_VALID_ITEM,), rows=items.count)


def size_of(buffer: Any) -> int:
    """Bytes of a buffer of a page (a ``PageBuffer``)."""
    parts = buffer if isinstance(buffer, tuple) else (buffer,)
    return sum(memoryview(part).nbytes for part in parts)
