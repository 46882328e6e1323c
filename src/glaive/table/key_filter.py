"""Filters of inserted keys: may two writers have inserted the same key?

A filter holds the hashes of the keys, or a bloom filter of blocks of eight 32-bit words: each
key sets one bit in each word of one block. Two filters of one shape share no key if no block
has, in each word, a bit that is set in both.

Specification: "Update" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.pb import table_pb2

__all__ = ["hash_words", "key_filter", "may_share_keys"]

_SALT: Final = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    np.uint32,
)
_PRIMES: Final = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_BLOCK: Final = 32
_BYTES: Final = 32768
_ITEMS: Final = 8192
_PROBABILITY: Final = 0.00057

Filter = table_pb2.Transaction.Update.KeyExistenceFilter


def hash_words(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """XXH64 with seed 0 of the eight bytes of each word: of whole numbers as keys."""
    one, two, three, four, five = map(np.uint64, _PRIMES)
    lane = _rotated(words * two, 31) * one
    found = _rotated(lane ^ (five + np.uint64(8)), 27) * one + four
    found = (found ^ (found >> np.uint64(33))) * two
    found = (found ^ (found >> np.uint64(29))) * three
    return found ^ (found >> np.uint64(32))


def _rotated(values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def key_filter(field_ids: Sequence[int], hashes: NDArray[np.uint64]) -> Filter:
    """The bloom filter of keys given by the XXH64 of their bytes, seed 0.

    Parameters
    ----------
    field_ids
        Ids of the key columns.
    hashes
        One per key. Shape ``(keys,)``.
    """
    words = np.zeros((_BYTES // _BLOCK, 8), np.uint32)
    blocks = _blocks(hashes, len(words))
    np.bitwise_or.at(words, blocks, _bits(hashes))
    made = Filter(field_ids=field_ids)
    made.bloom.bitmap = words.astype("<u4").tobytes()
    made.bloom.num_bits = _BYTES * 8
    made.bloom.number_of_items = _ITEMS
    made.bloom.probability = _PROBABILITY
    return made


def may_share_keys(mine: Filter, theirs: Filter) -> bool:
    """Whether a key may be in both; always when the two cannot be compared.

    Raises
    ------
    CorruptFileError
        The bitmap of a bloom filter is not made of blocks.
    """
    if list(mine.field_ids) != list(theirs.field_ids):
        return True
    exact = [one.WhichOneof("data") == "exact" for one in (mine, theirs)]
    if all(exact):
        return bool(set(mine.exact.key_hashes) & set(theirs.exact.key_hashes))
    if any(exact):
        listed, other = (mine, theirs) if exact[0] else (theirs, mine)
        if other.WhichOneof("data") is None:
            return True
        return _any_in(np.array(listed.exact.key_hashes, np.uint64), _words(other))
    if None in (mine.WhichOneof("data"), theirs.WhichOneof("data")):
        return True
    one, two = _words(mine), _words(theirs)
    if one.shape != two.shape:
        return True
    return bool(((one & two) != 0).all(axis=1).any())


def _words(one: Filter) -> NDArray[np.uint32]:
    bitmap = one.bloom.bitmap
    if not bitmap or len(bitmap) % _BLOCK:
        raise CorruptFileError(
            "filter of inserted keys",
            expected=f"blocks of {_BLOCK} bytes",
            found=f"{len(bitmap)} bytes",
            where="a transaction",
        )
    return np.frombuffer(bitmap, "<u4").astype(np.uint32, copy=False).reshape(-1, 8)


def _blocks(hashes: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    scaled = (hashes >> np.uint64(32)) * np.uint64(count)
    return (scaled >> np.uint64(32)).astype(np.int64)


def _bits(hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    low = hashes.astype(np.uint32)
    return np.uint32(1) << ((low[:, None] * _SALT) >> np.uint32(27))


def _any_in(hashes: NDArray[np.uint64], words: NDArray[np.uint32]) -> bool:
    bits = _bits(hashes)
    return bool(((words[_blocks(hashes, len(words))] & bits) == bits).all(axis=1).any())
