"""Sorting values with their rows, nulls first.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.dictionaries import dictionary_encoded
from glaive.index.scalar.ordering import bytes_of, is_number, sort_keys, values_of_keys
from glaive.index.source import ValueBatch
from glaive.memory import items_of
from glaive.types import Int64s

__all__ = ["sorted_batch"]

_SAMPLE = 4096
"""Values that tell whether texts repeat."""

_PREFIX = 8
"""Bytes of a text that are compared as one number."""


def sorted_batch(batch: ValueBatch) -> ValueBatch:
    """The rows by value, nulls first.

    Takes 24 bytes of memory for each row besides the result.
    """
    values: Any = batch.values
    nulls = int(values.null_count)
    rows = batch.rows
    present = np.empty(0, np.int64)
    if nulls:
        valid = np.asarray(values.is_valid())
        present = np.flatnonzero(valid)
        absent = rows[~valid]
        values, rows = values.drop_null(), rows[present]
    if is_number(values.type):
        keys, order = _sorted_numbers(sort_keys(values))
        if order is not None:
            values, rows = values_of_keys(keys, values.type), rows[order]
    else:
        values, order = _sorted_objects(values)
        rows = rows[order]
    if not nulls:
        return ValueBatch(values, rows)
    none: Any = pa.nulls(nulls, values.type)
    return ValueBatch(pa.concat_arrays([none, values]), np.concatenate((absent, rows)))


def _sorted_numbers(keys: NDArray[Any]) -> tuple[NDArray[Any], Int64s | None]:
    """Keys in order, and the positions that they had; None if they were in order."""
    if len(keys) < 2 or bool((keys[1:] >= keys[:-1]).all()):
        return keys, None
    low, high = int(keys.min()), int(keys.max())
    bits = (len(keys) - 1).bit_length()
    if (high - low).bit_length() + bits > 64:
        order = np.argsort(keys)
        return keys[order], order
    # Sorted together with their positions in one word: quicker, and equal keys keep their order.
    unsigned = f"<u{keys.itemsize}"
    base = np.array(low, keys.dtype).view(unsigned)
    words = (keys.view(unsigned) - base).astype(np.uint64)
    words <<= np.uint64(bits)
    words |= np.arange(len(keys), dtype=np.uint64)
    words.sort()
    ordered = (words >> np.uint64(bits)).astype(unsigned) + base
    words &= np.uint64((1 << bits) - 1)
    return ordered.view(keys.dtype), words.view(np.int64)


def _sorted_objects(values: Any) -> tuple[Any, Int64s]:
    """Values without nulls that are no numbers, sorted, and the positions that they had."""
    binary = bytes_of(values)
    kind = binary.type
    if len(values) <= _SAMPLE or not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        order = _order(values)
    elif len(binary[:_SAMPLE].unique()) < _SAMPLE // 2:
        return _sorted_repeated(values)
    else:
        order = _order_of_texts(binary)
    return values.take(pa.array(order)), order


def _order(values: Any) -> Int64s:
    import pyarrow.compute as pc

    return np.asarray(pc.sort_indices(values)).astype(np.int64)


def _sorted_repeated(values: Any) -> tuple[Any, Int64s]:
    """Distinct values are sorted, then their ranks; the values are made of these."""
    encoded = dictionary_encoded(values)
    by_value = _order(bytes_of(encoded.dictionary))
    ranks = np.empty(len(by_value), np.int32)
    ranks[by_value] = np.arange(len(ranks), dtype=np.int32)
    ordered, order = _sorted_numbers(ranks[encoded.indices.to_numpy()])
    if order is None:
        return values, np.arange(len(values))
    distinct = encoded.dictionary.take(pa.array(by_value))
    return distinct.take(pa.array(ordered)), order


def _order_of_texts(values: Any) -> Int64s:
    """By the first bytes that differ; those that have these in common once more."""
    keys, more = _prefixes(values)
    order = np.argsort(keys)
    ordered = keys[order]
    same = np.concatenate((np.zeros(1, np.bool_), ordered[1:] == ordered[:-1]))
    tied = same.copy()
    tied[:-1] |= same[1:]
    # Without further bytes, texts are equal, or one ends in zero bytes that the other lacks.
    tied &= more[order] | bool((keys & np.uint64(0xFF) == 0).any())
    at = np.flatnonzero(tied)
    if not len(at):
        return order
    if len(at) > len(values) // 4:
        return _order(values)
    groups = np.cumsum(~same)[at]
    subset = pa.table({"group": groups, "value": values.take(pa.array(order[at]))})
    keyed: Any = [("group", "ascending"), ("value", "ascending")]
    import pyarrow.compute as pc

    order[at] = order[at][np.asarray(pc.sort_indices(subset, sort_keys=keyed))]
    return order


def _prefixes(values: Any) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Eight bytes of each text after those that all have in common; and whether there are more."""
    import pyarrow.compute as pc

    bits = 8 if pa.types.is_large_binary(values.type) else 4
    _, stored, data = values.buffers()
    offsets = items_of(stored, f"<i{bits}", len(values) + 1, values.offset * bits)
    extremes: Any = pc.min_max(values)
    common = _common(extremes["min"].as_py(), extremes["max"].as_py())
    starts = offsets[:-1].astype(np.int64) + common
    sizes = offsets[1:].astype(np.int64) - starts
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + _PREFIX, np.uint8)
    padded[:-_PREFIX] = items_of(data, np.uint8, last - first, first) if data else 0
    windows = np.ndarray(last - first + 1, ">u8", padded, strides=(1,))
    keys = windows[starts - first].astype(np.uint64)
    # Bytes of the next text do not count.
    cut = np.clip(_PREFIX - sizes, 0, _PREFIX).astype(np.uint64) * np.uint64(8)
    keys = np.where(cut == 64, np.uint64(0), keys >> np.minimum(cut, 63) << np.minimum(cut, 63))
    return keys, sizes > _PREFIX


def _common(first: bytes, second: bytes) -> int:
    """Bytes that two texts begin with."""
    size = min(len(first), len(second))
    differing = (at for at in range(size) if first[at] != second[at])
    return next(differing, size)
