"""MinHash signatures of texts, and the keys of their bands.

Specification: "MINHASHLSH" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import Variable
from glaive.arrow.build import block_from_array
from glaive.arrow.scalars import scalar
from glaive.errors import SchemaError
from glaive.index.scalar.minhash_parameters import MinHashParams
from glaive.index.text.tokenizers.token_numbers import TokenChain, TokenNumbers
from glaive.kernels.signatures import Permutations, sign
from glaive.kernels.xxh64 import hash_ranges
from glaive.memory import as_array, as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt16s, UInt64s

__all__ = ["SignedTexts", "TextSigner", "band_keys"]

_SEED: Final = 42
_SEPARATOR: Final = b"\x1f"
_JOINT, _NOTHING = (scalar(part, pa.large_binary()) for part in (_SEPARATOR, b""))
_BAND_SHIFT: Final = 56
_KEY_BITS: Final = np.uint64((1 << _BAND_SHIFT) - 1)
_STEP, _FIRST_MIX, _SECOND_MIX = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_VOCABULARY_BYTES: Final = 64 << 20
"""Bytes of distinct tokens from which on they are forgotten."""

_TEXTS_AT_ONCE: Final = 1 << 13
"""Texts whose shingles are made at a time."""


class SignedTexts(NamedTuple):
    """Texts that have tokens: where they are in the array, and a row of 16-bit values for each."""

    texts: Int64s
    signatures: UInt16s


class TextSigner:
    """Makes signatures of texts. Not safe to share between threads."""

    def __init__(self, params: MinHashParams) -> None:
        self._params = params
        self._chain = TokenChain.of(params.tokenizer)
        self._numbers = TokenNumbers(self._chain)
        self._permutations = _permutations(params.num_hashes)

    def sign(self, texts: Any) -> SignedTexts:
        """The signatures of an array of texts; those that are null or have no token have none.

        Cost: some steps of kernels per token, and one per shingle and value of a signature.
        """
        parts = [
            self._sign(texts[start : start + _TEXTS_AT_ONCE], start)
            for start in range(0, len(texts), _TEXTS_AT_ONCE)
        ]
        if not parts:
            return SignedTexts(
                np.empty(0, np.int64), np.empty((0, self._params.num_hashes), np.uint16)
            )
        places, signatures = zip(*parts, strict=True)
        return SignedTexts(np.concatenate(places), np.concatenate(signatures))

    def _sign(self, texts: Any, start: int) -> SignedTexts:
        if self._numbers.nbytes > _VOCABULARY_BYTES:
            self._numbers = TokenNumbers(self._chain)
        found = self._numbers.number(texts)
        places = np.flatnonzero(found.counts)
        counts = found.counts[places]
        # The tokens of all texts, each with a separator behind it: a shingle is a range of them.
        ended = pc.binary_join_element_wise(self._numbers.strings, _JOINT, _NOTHING)
        block = block_from_array(ended.take(pa.array(found.numbers)))
        if not isinstance(block, Variable):
            raise SchemaError(f"tokens are bytes, not {ended.type}")
        ends = as_array(block.offsets, np.int64)[: len(found.numbers) + 1]
        bounds, first, tokens = _shingles(counts, self._params.shingle_size)
        sizes = ends[first + tokens] - ends[first] - len(_SEPARATOR)
        hashes = hash_ranges(block.data, ends[first], sizes, _SEED)
        return SignedTexts(places + start, sign(hashes, bounds, self._permutations))


def _shingles(counts: Int64s, size: int) -> tuple[Int64s, Int64s, Int64s]:
    """Bounds of the shingles of texts; the first token of each shingle, and how many it has.

    ``counts`` are the tokens of each text, none of them 0.
    """
    shingles = np.maximum(counts - size + 1, 1)
    bounds = np.concatenate([[0], np.cumsum(shingles)])
    first_token = np.cumsum(counts) - counts
    first = np.repeat(first_token - bounds[:-1], shingles) + np.arange(bounds[-1])
    return bounds, first, np.repeat(np.minimum(counts, size), shingles)


def band_keys(signatures: UInt16s, bands: int) -> UInt64s:
    """The key of each band of each signature, of shape ``(texts, bands)``."""
    texts, values = signatures.shape
    size = 2 * (values // bands)
    data = as_buffer(np.ascontiguousarray(signatures, "<u2"))
    starts = np.arange(texts * bands, dtype=np.int64) * size
    hashes = hash_ranges(data, starts, np.full(len(starts), size), _SEED).reshape(texts, bands)
    band = np.arange(bands, dtype=np.uint64) << np.uint64(_BAND_SHIFT)
    return (hashes & _KEY_BITS) | band


@cache
def _permutations(values: int) -> Permutations:
    """The permutations of signatures of so many values: numbers of SplitMix64."""
    with np.errstate(over="ignore"):
        state = np.arange(1, 3 * values + 1, dtype=np.uint64) * _STEP + np.uint64(_SEED)
        state = (state ^ (state >> np.uint64(30))) * _FIRST_MIX
        state = (state ^ (state >> np.uint64(27))) * _SECOND_MIX
        drawn = state ^ (state >> np.uint64(31))
    odd = np.uint64(1)
    return Permutations(
        drawn[: 2 * values : 2] | odd, drawn[1 : 2 * values : 2].copy(), drawn[2 * values :] | odd
    )
