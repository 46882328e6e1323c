"""Filters of inserted keys, to detect that two writers inserted the same key.

A filter has the hashes of the keys, or a split-block Bloom filter of them
(:mod:`glaive.format.bitmaps`). Two filters of the same shape share no key if no block has, in
each word, a bit that is set in both.

Specification: "Update" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.bitmaps import BLOCK_BYTES, BLOCK_WORDS, block_numbers, word_masks
from glaive.format.pb import table_pb2
from glaive.kernels.hashing import hash_strings, hash_words
from glaive.kernels.strings import Strings
from glaive.memory import as_buffer

_BYTES: Final = 32768
_ITEMS: Final = 8192
_PROBABILITY: Final = 0.00057

Filter = table_pb2.Transaction.Update.KeyExistenceFilter


def hash_keys(columns: Sequence[Any]) -> NDArray[np.uint64] | None:
    """XXH64 with seed 0 of the bytes of each key.

    Parameters
    ----------
    columns
        Arrays of the key columns, of equal length.

    Returns
    -------
    numpy.ndarray or None
        None for unsupported keys. Supported are integers of 32 and 64 bits, strings and binary,
        without nulls.
    """
    import pyarrow.compute as pc

    if not all(_is_hashed(column.type) and not column.null_count for column in columns):
        return None
    if len(columns) == 1 and pa.types.is_integer(columns[0].type):
        return hash_words(_numbers(columns[0]))
    parts: Any = [_bytes_of(column) for column in columns]
    keys = parts[0]
    if len(parts) > 1:  # a zero byte follows each part
        ends = [pa.scalar(end, pa.large_binary()) for end in (b"", b"\0")]
        keys = pc.binary_join_element_wise(*parts, *ends)
    _, offsets, data = keys.buffers()
    strings = Strings(offsets.slice(8 * keys.offset), 64, data or pa.py_buffer(b""))
    return hash_strings(strings, len(keys)) if len(keys) else np.empty(0, np.uint64)


def _is_hashed(data_type: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(data_type) or types.is_large_string(data_type)
    binary = types.is_binary(data_type) or types.is_large_binary(data_type)
    return bool(text or binary or (types.is_integer(data_type) and data_type.bit_width >= 32))


def _numbers(column: Any) -> NDArray[np.uint64]:
    """Integers of any width as 64-bit words."""
    signed = pa.types.is_signed_integer(column.type)
    words: NDArray[Any] = column.cast(pa.int64() if signed else pa.uint64()).to_numpy()
    return words.view(np.uint64)


def _bytes_of(column: Any) -> Any:
    if pa.types.is_integer(column.type):
        words = as_buffer(_numbers(column))
        fixed: Any = pa.Array.from_buffers(pa.binary(8), len(column), [None, words])
        return fixed.cast(pa.large_binary())
    return column.cast(pa.large_binary())


def key_filter(field_ids: Sequence[int], hashes: NDArray[np.uint64]) -> Filter:
    """The bloom filter of keys given by the XXH64 of their bytes, seed 0.

    Parameters
    ----------
    field_ids
        Ids of the key columns.
    hashes
        One hash per key. Shape ``(keys,)``.
    """
    words = np.zeros((_BYTES // BLOCK_BYTES, BLOCK_WORDS), np.uint32)
    np.bitwise_or.at(words, block_numbers(hashes, len(words)), word_masks(hashes))
    made = Filter(field_ids=field_ids)
    made.bloom.bitmap = words.astype("<u4").tobytes()
    made.bloom.num_bits = _BYTES * 8
    made.bloom.number_of_items = _ITEMS
    made.bloom.probability = _PROBABILITY
    return made


def may_share_keys(mine: Filter, theirs: Filter) -> bool:
    """Whether a key may be in both filters; True if they cannot be compared.

    Raises
    ------
    CorruptFileError
        The bitmap of a bloom filter does not consist of blocks.
    """
    if list(mine.field_ids) != list(theirs.field_ids):
        return True
    exact = [key_filter.WhichOneof("data") == "exact" for key_filter in (mine, theirs)]
    if all(exact):
        return bool(set(mine.exact.key_hashes) & set(theirs.exact.key_hashes))
    if any(exact):
        listed, other = (mine, theirs) if exact[0] else (theirs, mine)
        if other.WhichOneof("data") is None:
            return True
        return _any_in(np.array(listed.exact.key_hashes, np.uint64), _words(other))
    if None in (mine.WhichOneof("data"), theirs.WhichOneof("data")):
        return True
    my_words, their_words = _words(mine), _words(theirs)
    if my_words.shape != their_words.shape:
        return True
    return bool(((my_words & their_words) != 0).all(axis=1).any())


def _words(key_filter: Filter) -> NDArray[np.uint32]:
    bitmap = key_filter.bloom.bitmap
    if not bitmap or len(bitmap) % BLOCK_BYTES:
        raise CorruptFileError(
            "filter of inserted keys",
            expected=f"blocks of {BLOCK_BYTES} bytes",
            found=f"{len(bitmap)} bytes",
            where="a transaction",
        )
    return np.frombuffer(bitmap, "<u4").astype(np.uint32, copy=False).reshape(-1, BLOCK_WORDS)


def _any_in(hashes: NDArray[np.uint64], words: NDArray[np.uint32]) -> bool:
    bits = word_masks(hashes)
    return bool(((words[block_numbers(hashes, len(words))] & bits) == bits).all(axis=1).any())
