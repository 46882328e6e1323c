"""Dictionary-encoded text that stays encoded while it is copied into other pages.

An ingest reads dictionary-encoded text of Parquet and writes it the same way. Such a column is
passed on as an Arrow dictionary although its field is plain text, which saves decoding the text and
finding the items again.

Specification: "What writers choose" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Dictionary
from glaive.arrow.build import block_from_array, offset_bits
from glaive.encodings.options import AUTOMATIC, EncodingOptions


def can_pass_through(kind: pa.DataType) -> bool:
    """Whether values of this type may be passed on dictionary-encoded."""
    return offset_bits(kind) is not None


def is_passed_through(found: pa.DataType, wanted: Any) -> bool:
    """Whether arrays of type ``found`` are dictionary-encoded values of type ``wanted``."""
    if not pa.types.is_dictionary(found) or not can_pass_through(wanted):
        return False
    return bool(pa.dictionary(pa.int32(), wanted).equals(found))


def fits_with_dictionaries(rows: pa.RecordBatch | pa.Table, wanted: pa.Schema) -> bool:
    """Whether rows match a schema, except that some columns are dictionaries without null items."""
    schema = rows.schema
    if schema.names != wanted.names:
        return False
    return all(
        stored.equals(other) or passes_through(column, other)
        for column, stored, other in zip(rows.columns, schema.types, wanted.types, strict=True)
    )


def passes_through(column: Any, wanted: Any) -> bool:
    """Whether a column has dictionary-encoded values of type ``wanted``, without null items."""
    if not is_passed_through(column.type, wanted):
        return False
    chunks: list[Any] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return not any(chunk.dictionary.null_count for chunk in chunks)


def with_items_of(array: Any, kind: pa.DataType) -> Any:
    """A dictionary array of any text, with items of a type that these can be cast to."""
    items = array.dictionary
    if items.type.equals(kind):
        return array
    return pa.DictionaryArray.from_arrays(array.indices, items.cast(kind), safe=False)


def _with_items(array: Any, number: Any, items: Any) -> Any:
    """The same values with other items; ``number`` maps old items to new ones."""
    indices = array.indices
    old = np.frombuffer(indices.buffers()[1], np.int32)[indices.offset :][: len(array)]
    buffers = [None, pa.py_buffer(number.astype(np.int32)[old])]
    if indices.null_count:
        buffers[0] = array.is_valid().buffers()[1]
    new = pa.Array.from_buffers(pa.int32(), len(array), buffers, indices.null_count)
    return pa.DictionaryArray.from_arrays(new, items, safe=False)


def decoded_bytes(array: Any) -> int:
    """Approximate bytes of the plain values of a dictionary array and their offsets."""
    items = array.dictionary
    size: int = len(array) * (4 + items.nbytes // max(1, len(items)))
    return size


def decode_or_keep(array: Any, kind: pa.DataType, wanted: EncodingOptions | None) -> Any:
    """A dictionary array as it is to be written: with its dictionary, or plain.

    Parameters
    ----------
    kind
        Type of the field.
    wanted
        The encoding options of the column; ``None`` where no dictionaries can be written.

    Notes
    -----
    It keeps its dictionary only where a writer of the plain values would always choose one:
    where it takes less than a fifth of the bytes, and no options are given.
    """
    if not is_passed_through(array.type, kind):
        return array
    from glaive.encodings.writing.choice import SURE_SHARE
    from glaive.encodings.writing.string_stats import MAX_ITEMS, MIN_VALUES, dictionary_bytes

    used = _used_only(array) if wanted == AUTOMATIC and len(array) >= MIN_VALUES else None
    if used is None or not 2 <= len(used.dictionary) <= min(MAX_ITEMS, len(array) // 2):
        return array.cast(kind)
    block = block_from_array(used)
    if not isinstance(block, Dictionary):
        return array.cast(kind)
    small = dictionary_bytes(block) < SURE_SHARE * decoded_bytes(used)
    return used if small else array.cast(kind)


def _used_only(array: Any) -> Any:
    """The same without unused items."""
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
