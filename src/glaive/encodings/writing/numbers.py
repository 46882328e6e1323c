"""Choose how a sequence of unsigned numbers is stored, and encode it as one block.

The smallest encoding wins, and among equals the one that is cheaper to read. Sequences that
the message describes alone come first: repeated numbers, numbers at equal distances, and
deltas, dictionaries and runs of such numbers.

Specification: "Number sequences" and "Writer choices" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.blocks import Dictionary as DictionaryBlock
from glaive.arrow.blocks import FixedWidth
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack_out_of_line import OutOfLineBitpacking
from glaive.encodings.values.constant import Constant
from glaive.encodings.values.delta import Delta
from glaive.encodings.values.dictionary import Dictionary
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.general import General
from glaive.encodings.values.nested_runs import NestedRuns, runs_of
from glaive.encodings.values.range import Range
from glaive.kernels.bitpack import out_of_line_sizes
from glaive.memory import as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import UInt8s

__all__ = ["EncodedNumbers", "encode_numbers"]

Words = NDArray[np.unsignedinteger[Any]]

_INDEX_BITS = 32
"""Width of the indices of a dictionary and of the lengths of runs."""

_MAX_ITEMS = 1024
"""Distinct numbers of a dictionary at most; with more, indices are hardly narrower."""

_MAX_COUNTED = 65_536
"""Distinct numbers are found by counting below this value, else by sorting up to as many."""

_DICTIONARY_HEADER = 16
_RUNS_HEADER = 8

_GENERAL_MIN = 1024
"""Fewer bytes are not compressed."""

_GENERAL_GAIN = 0.97
"""Compressed bytes must be below this share of the uncompressed ones."""


class EncodedNumbers(NamedTuple):
    """How numbers are stored, and the bytes they take besides the message, if any."""

    encoding: ValueEncoding
    payload: UInt8s | None

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return 0 if self.payload is None else len(self.payload)


def encode_numbers(words: Words) -> EncodedNumbers:
    """Encode contiguous numbers of 32 or 64 bits in the fewest bytes."""
    bits = words.dtype.itemsize * 8
    implied = _implied_encoding(words, bits)
    if implied is not None:
        return EncodedNumbers(implied, None)
    size, encoding = min(_candidates(words, bits), key=lambda candidate: candidate[0])
    chosen = EncodedNumbers(encoding, _payload(encoding, words))
    if size < _GENERAL_MIN:
        return chosen
    packed = General("zstd", Flat(bits), None)
    payload = _payload(packed, words)
    if payload is not None and len(payload) < _GENERAL_GAIN * size:
        return EncodedNumbers(packed, payload)
    return chosen


def _implied_encoding(words: Words, bits: int) -> ValueEncoding | None:
    """The encoding that describes all numbers without a payload, if there is one."""
    if not len(words):
        return Constant(b"")
    if len(words) == 1 or (words == words[0]).all():
        return Constant(int(words[0]).to_bytes(bits // 8, "little"))
    steps = np.diff(words)
    if (steps == steps[0]).all() and (words[1:] > words[:-1]).all():
        return Range(bits, int(words[0]), int(steps[0]))
    return None


def _candidates(words: Words, bits: int) -> Iterator[tuple[int, ValueEncoding]]:
    """Encodings with their bytes, the cheapest to read first."""
    yield len(words) * bits // 8, Flat(bits)
    yield _packed(words, bits)
    if (words[1:] >= words[:-1]).all():
        size, inner = _plain(np.diff(words), bits)
        yield size, Delta(bits, int(words[0]), inner)
    encoded = _dictionary(words, bits)
    if encoded is not None:
        yield encoded
    runs = _runs(words, bits)
    if runs is not None:
        yield runs


def _plain(words: Words, bits: int) -> tuple[int, ValueEncoding]:
    """The smallest encoding that is allowed within another encoding."""
    implied = _implied_encoding(words, bits)
    if implied is not None:
        return 0, implied
    flat, packed = (len(words) * bits // 8, Flat(bits)), _packed(words, bits)
    return packed if packed[0] < flat[0] else flat


def _packed(words: Words, bits: int) -> tuple[int, ValueEncoding]:
    """All words with the width of the widest."""
    width = max(int(words.max()).bit_length(), 1)
    if width == bits:
        return len(words) * bits // 8, Flat(bits)
    size = int(out_of_line_sizes(np.array([len(words)]), bits, width).sum())
    return size, OutOfLineBitpacking(bits, width)


def _dictionary(words: Words, bits: int) -> tuple[int, ValueEncoding] | None:
    items = _distinct(words)
    if items is None or not 1 < len(items) <= min(_MAX_ITEMS, len(words) // 2):
        return None
    width = (len(items) - 1).bit_length()
    if width >= int(words.max()).bit_length():
        return None
    item_bytes, of_items = _plain(items, bits)
    index_bytes = len(words) * _INDEX_BITS // 8
    of_indices: ValueEncoding = Flat(_INDEX_BITS)
    packed = int(out_of_line_sizes(np.array([len(words)]), _INDEX_BITS, width).sum())
    if packed < index_bytes:
        index_bytes, of_indices = packed, OutOfLineBitpacking(_INDEX_BITS, width)
    size = _DICTIONARY_HEADER + index_bytes + item_bytes
    return size, Dictionary(of_indices, of_items, len(items))


def _distinct(words: Words) -> Words | None:
    """The distinct numbers, ascending; None when finding them costs too much."""
    if int(words.max()) < _MAX_COUNTED:
        seen = np.bincount(words.astype(np.int64, copy=False))
        return np.flatnonzero(seen).astype(words.dtype)
    return np.unique(words) if len(words) <= _MAX_COUNTED else None


def _runs(words: Words, bits: int) -> tuple[int, ValueEncoding] | None:
    """Runs of equal numbers, if they are at least two long on average."""
    if 2 * np.count_nonzero(words[1:] != words[:-1]) > len(words):
        return None
    values, lengths = runs_of(words)
    value_bytes, of_values = _plain(values, bits)
    length_bytes, of_lengths = _length_encoding(lengths)
    size = value_bytes + length_bytes
    return size + _RUNS_HEADER * (size > 0), NestedRuns(of_values, of_lengths)


def _length_encoding(lengths: Words) -> tuple[int, ValueEncoding]:
    implied = _implied_encoding(lengths.astype(np.uint32), _INDEX_BITS)
    if implied is not None:
        return 0, implied
    # pylance reads narrower lengths in chunks only.
    return len(lengths) * _INDEX_BITS // 8, Flat(_INDEX_BITS)


def _payload(encoding: ValueEncoding, words: Words) -> UInt8s | None:
    """The encoded block of the numbers; None when there is nothing to store."""
    if not encoding.has_payload:
        return None
    bits = words.dtype.itemsize * 8
    block: Any = FixedWidth(as_buffer(words), bits, len(words))
    if isinstance(encoding, Dictionary):
        items, indices = np.unique(words, return_inverse=True)
        block = DictionaryBlock(
            FixedWidth(as_buffer(indices.astype(np.uint32)), _INDEX_BITS, len(words)),
            FixedWidth(as_buffer(items), bits, len(items)),
            len(words),
        )
    return encoding.encode_blocks(block, np.array([len(words)], np.int64)).data
