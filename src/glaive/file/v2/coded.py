"""Text that keeps the dictionaries of its pages on its way into other pages.

A compaction reads text that was written as numbers of a few items, and will write it so
again. Such a column travels as an Arrow dictionary although its field is plain text, which
spares making up the text and finding the items anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Dictionary
from glaive.encodings.protocol import Leaf
from glaive.file.v2.columns import Node
from glaive.file.v2.unshred import unshred_flat
from glaive.types import Where

__all__ = ["can_be_coded", "coded_array", "fits_coded", "is_coded", "plain_bytes", "renumbered"]


def can_be_coded(kind: pa.DataType) -> bool:
    """Whether values of this type may travel with a dictionary."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def is_coded(found: pa.DataType, wanted: Any) -> bool:
    """Whether arrays of type ``found`` are coded values of type ``wanted``."""
    if not pa.types.is_dictionary(found) or not can_be_coded(wanted):
        return False
    return bool(pa.dictionary(pa.int32(), wanted).equals(found))


def fits_coded(rows: pa.RecordBatch | pa.Table, wanted: pa.Schema) -> bool:
    """Whether rows have the columns of a schema, some of them coded with items that are values."""
    schema = rows.schema
    if schema.names != wanted.names:
        return False
    for column, found, other in zip(rows.columns, schema.types, wanted.types, strict=True):
        if found.equals(other):
            continue
        whole: Any = column
        chunks = whole.chunks if isinstance(column, pa.ChunkedArray) else [whole]
        if not is_coded(found, other) or any(one.dictionary.null_count for one in chunks):
            return False
    return True


def coded_array(node: Node, leaf: Leaf, where: Where) -> Any:
    """The array of a top-level leaf with one dictionary; ``None`` where its pages have none."""
    if not isinstance(leaf.values, Dictionary) or not can_be_coded(node.type):
        return None
    kind: Any = node.type
    kept = replace(node, type=pa.dictionary(pa.int32(), kind))
    array: Any = unshred_flat(kept, leaf, where)
    distinct = array.dictionary.dictionary_encode()
    if len(distinct.dictionary) == len(array.dictionary):
        return array
    return renumbered(array, np.asarray(distinct.indices), distinct.dictionary)


def renumbered(array: Any, number: Any, items: Any) -> Any:
    """The same values by other items; ``number`` of each item it has now."""
    indices = array.indices
    old = np.frombuffer(indices.buffers()[1], np.int32)[indices.offset :][: len(array)]
    buffers = [None, pa.py_buffer(number.astype(np.int32)[old])]
    if indices.null_count:
        buffers[0] = array.is_valid().buffers()[1]
    new = pa.Array.from_buffers(pa.int32(), len(array), buffers, indices.null_count)
    return pa.DictionaryArray.from_arrays(new, items, safe=False)


def plain_bytes(array: Any) -> int:
    """Bytes of the values of a coded array and their offsets, about, where they stood alone."""
    items = array.dictionary
    size: int = len(array) * (4 + items.nbytes // max(1, len(items)))
    return size
