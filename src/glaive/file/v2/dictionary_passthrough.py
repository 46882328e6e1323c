"""Text that keeps the dictionaries of its pages on its way into other pages.

A compaction reads text that was written as indices of a few items, and will write it so
again. Such a column travels as an Arrow dictionary although its field is plain text, which
spares decoding the text and finding the items again.

Specification: "What writers choose" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Dictionary
from glaive.arrow.build import block_from_array
from glaive.encodings.options import AUTOMATIC, EncodingOptions
from glaive.encodings.protocol import Leaf
from glaive.encodings.writing.dictionary import SURE_SHARE
from glaive.encodings.writing.string_stats import MAX_ITEMS, MIN_VALUES, dictionary_bytes
from glaive.file.v2.reading.columns import Node
from glaive.file.v2.reading.unshred import unshred_flat
from glaive.types import Where

__all__ = [
    "can_pass_through",
    "decode_or_keep",
    "decoded_bytes",
    "dictionary_array",
    "fits_with_dictionaries",
    "is_passed_through",
]


def can_pass_through(kind: pa.DataType) -> bool:
    """Whether values of this type may travel with a dictionary."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def is_passed_through(found: pa.DataType, wanted: Any) -> bool:
    """Whether arrays of type ``found`` are coded values of type ``wanted``."""
    if not pa.types.is_dictionary(found) or not can_pass_through(wanted):
        return False
    return bool(pa.dictionary(pa.int32(), wanted).equals(found))


def fits_with_dictionaries(rows: pa.RecordBatch | pa.Table, wanted: pa.Schema) -> bool:
    """Whether rows have the columns of a schema, some of them coded with items that are values."""
    schema = rows.schema
    if schema.names != wanted.names:
        return False
    for column, found, other in zip(rows.columns, schema.types, wanted.types, strict=True):
        if found.equals(other):
            continue
        whole: Any = column
        chunks = whole.chunks if isinstance(column, pa.ChunkedArray) else [whole]
        if not is_passed_through(found, other) or any(
            chunk.dictionary.null_count for chunk in chunks
        ):
            return False
    return True


def dictionary_array(node: Node, leaf: Leaf, where: Where) -> Any:
    """The array of a top-level leaf with one dictionary; ``None`` where its pages have none."""
    if not isinstance(leaf.values, Dictionary) or not can_pass_through(node.type):
        return None
    kind: Any = node.type
    kept = replace(node, type=pa.dictionary(pa.int32(), kind))
    array: Any = unshred_flat(kept, leaf, where)
    distinct = array.dictionary.dictionary_encode()
    if len(distinct.dictionary) == len(array.dictionary):
        return array
    return _with_items(array, np.asarray(distinct.indices), distinct.dictionary)


def _with_items(array: Any, number: Any, items: Any) -> Any:
    """The same values by other items; ``number`` of each item it has now."""
    indices = array.indices
    old = np.frombuffer(indices.buffers()[1], np.int32)[indices.offset :][: len(array)]
    buffers = [None, pa.py_buffer(number.astype(np.int32)[old])]
    if indices.null_count:
        buffers[0] = array.is_valid().buffers()[1]
    new = pa.Array.from_buffers(pa.int32(), len(array), buffers, indices.null_count)
    return pa.DictionaryArray.from_arrays(new, items, safe=False)


def decoded_bytes(array: Any) -> int:
    """Bytes of the values of a coded array and their offsets, about, where they stood alone."""
    items = array.dictionary
    size: int = len(array) * (4 + items.nbytes // max(1, len(items)))
    return size


def decode_or_keep(array: Any, kind: pa.DataType, wanted: EncodingOptions | None) -> Any:
    """A coded array as it is to be written: with its dictionary, or plain.

    Parameters
    ----------
    kind
        Type of the field.
    wanted
        What the author of the column asks for; ``None`` where no coded values can be
        written.

    Notes
    -----
    It stays coded only where a writer of the plain values would make the same choice
    without comparing: where a dictionary takes a fifth of the bytes, and nothing was asked.
    """
    if not is_passed_through(array.type, kind):
        return array
    used = _used_only(array) if wanted == AUTOMATIC and len(array) >= MIN_VALUES else None
    if used is None or not 2 <= len(used.dictionary) <= min(MAX_ITEMS, len(array) // 2):
        return array.cast(kind)
    block = block_from_array(used)
    if not isinstance(block, Dictionary):
        return array.cast(kind)
    small = dictionary_bytes(block) < SURE_SHARE * decoded_bytes(used)
    return used if small else array.cast(kind)


def _used_only(array: Any) -> Any:
    """The same without items that no value has, in the order of their first values."""
    indices = array.indices
    if indices.null_count:
        indices = indices.drop_null()
    times = np.bincount(np.asarray(indices), minlength=len(array.dictionary))
    if times.all():
        return array
    used = np.flatnonzero(times)
    number = np.zeros(len(times), np.int32)
    number[used] = np.arange(len(used))
    return _with_items(array, number, array.dictionary.take(pa.array(used)))
