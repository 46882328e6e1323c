"""MinHash signatures of texts by the hashes of their shingles.

A value of a signature is the least of the hashes after a permutation, mixed and cut to 16 bits: two
texts have the same value with a probability that is the share of shingles that they have in common.
"""

from __future__ import annotations

import numpy as np

from glaive.errors import SchemaError
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import signatures as compiled
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt16s, UInt64s

__all__ = ["Permutations", "exercise", "sign"]


class Permutations(NamedTuple):
    """Numbers of as many permutations as a signature has values, all modulo 2^64.

    Parameters
    ----------
    factors, terms
        A hash is multiplied by the first, which is odd, and the second added.
    mixers
        What the least one is multiplied by, before its upper 16 bits are taken.
    """

    factors: UInt64s
    terms: UInt64s
    mixers: UInt64s


def sign(hashes: UInt64s, bounds: Int64s, permutations: Permutations) -> UInt16s:
    """The signature of each text.

    Parameters
    ----------
    hashes
        Of the shingles, one text after the other.
    bounds
        ``int64`` of shape ``(texts + 1,)``: where those of each text begin, and the end of the
        last. Each has at least one.

    Returns
    -------
    numpy.ndarray
        ``uint16`` of shape ``(texts, values)``.

    Raises
    ------
    SchemaError
        The bounds do not ascend, or leave the hashes; permutations differ in number.
    """
    values = len(permutations.factors)
    if any(len(numbers) != values for numbers in permutations):
        raise SchemaError(f"permutations need three times {values} numbers")
    texts = max(0, len(bounds) - 1)
    if texts and not (
        bounds[0] >= 0 and bounds[-1] <= len(hashes) and bool((bounds[1:] > bounds[:-1]).all())
    ):
        raise SchemaError(f"bounds of texts must ascend within their {len(hashes)} hashes")
    signatures = np.empty((texts, values), np.uint16)
    if not signatures.size:
        return signatures
    if not use_compiled(len(hashes) * values):
        return _sign_numpy(hashes, bounds, permutations)
    numbers = [np.ascontiguousarray(part, np.uint64) for part in permutations]
    hashes, bounds = np.ascontiguousarray(hashes), np.ascontiguousarray(bounds, np.int64)
    factors, terms, mixers = map(address, numbers)
    places = address(hashes), address(bounds)
    compiled.sign(*places, texts, factors, terms, mixers, values, address(signatures))
    return signatures


def _sign_numpy(hashes: UInt64s, bounds: Int64s, permutations: Permutations) -> UInt16s:
    """One permutation at a time."""
    signatures = np.empty((len(bounds) - 1, len(permutations.factors)), np.uint16)
    first, used = int(bounds[0]), hashes[: int(bounds[-1])]
    for value, (factor, term, mixer) in enumerate(zip(*permutations, strict=True)):
        least = np.minimum.reduceat((used * factor + term)[first:], bounds[:-1] - first)
        signatures[:, value] = (least * mixer) >> np.uint64(48)
    return signatures


def exercise() -> None:
    """Call every wrapper once with little data."""
    numbers = np.ones(2, np.uint64)
    sign(np.arange(3, dtype=np.uint64), np.array([0, 3]), Permutations(numbers, numbers, numbers))
