"""Trigrams of texts: three neighbouring digits or letters of ASCII, after folding, as numbers.

Specification: "NGRAM" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import ascending
from glaive.index.text.tokenizers.case import lower_case
from glaive.index.text.tokenizers.filters import fold
from glaive.memory import as_array
from glaive.types import Int64s, UInt8s, UInt32s

__all__ = ["certain_trigrams", "trigrams_of"]

_SYMBOLS: Final = 37


def _positions() -> UInt8s:
    """Number of each byte: 1 to 10 for digits, 11 to 36 for letters of either case, else 0."""
    numbers = np.zeros(256, np.uint8)
    numbers[ord("0") : ord("9") + 1] = np.arange(1, 11)
    for first in "aA":
        numbers[ord(first) : ord(first) + 26] = np.arange(11, 37)
    return numbers


_NUMBERS: Final = _positions()


def trigrams_of(texts: Any) -> tuple[UInt32s, Int64s]:
    """The distinct trigrams of each text, and the position of the text each is in.

    Parameters
    ----------
    texts
        Strings; nulls have no trigram.

    Returns
    -------
    tokens, owners
        Sorted by token, then by owner.
    """
    data, ends = _folded(texts)
    symbols = _NUMBERS[data].astype(np.uint32)
    if len(symbols) < 3:
        return np.empty(0, np.uint32), np.empty(0, np.int64)
    first, second, third = symbols[:-2], symbols[1:-1], symbols[2:]
    at = np.flatnonzero((first > 0) & (second > 0) & (third > 0))
    owners = np.searchsorted(ends, at, side="right")
    inside = at + 2 < ends[owners]
    at, owners = at[inside], owners[inside]
    tokens = (first[at] * _SYMBOLS + second[at]) * _SYMBOLS + third[at]
    pairs = ascending((tokens.astype(np.int64) << 32) | owners)
    return (pairs >> 32).astype(np.uint32), pairs & 0xFFFF_FFFF


def _folded(texts: Any) -> tuple[UInt8s, Int64s]:
    """All bytes of some texts, folded if they are not all of ASCII; and where each text ends."""
    import pyarrow.compute as pc

    filled: Any = texts.fill_null("").cast(pa.large_string())
    offsets = as_array(filled.buffers()[1], np.int64)[filled.offset :][: len(filled) + 1]
    stored = filled.buffers()[2]
    data = as_array(stored)[offsets[0] : offsets[-1]] if stored else np.empty(0, np.uint8)
    if not bool((data >= 128).any()):
        return data, offsets[1:] - offsets[0]
    # Folded all at once, with a byte between texts that none of them has.
    plain: Any = pc.replace_substring(filled, "\0", " ")
    listed = pa.ListArray.from_arrays(pa.array([0, len(plain)], pa.int32()), plain)
    whole: Any = pc.binary_join(listed, pa.scalar("\0", pa.large_string()))
    # Other kinds of indices of texts replace damaged letters, too.
    text = whole[0].as_buffer().to_pybytes().decode(errors="replace")
    encoded = fold(lower_case(text)).encode()
    folded = np.frombuffer(encoded, np.uint8)
    return folded, np.append(np.flatnonzero(folded == 0), len(folded))


def certain_trigrams(word: str) -> UInt32s:
    """Trigrams that every text with this word has, whatever it is folded to."""
    symbols = _NUMBERS[np.frombuffer(word.encode(), np.uint8)].astype(np.uint32)
    if len(symbols) < 3:
        return np.empty(0, np.uint32)
    first, second, third = symbols[:-2], symbols[1:-1], symbols[2:]
    known = (first > 0) & (second > 0) & (third > 0)
    return np.unique((first * _SYMBOLS * _SYMBOLS + second * _SYMBOLS + third)[known])
