"""MinHash signatures: the least of permuted hashes. Wrappers: ``glaive.kernels.signatures``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import kernel, load_i64, load_u64, store_u16

__all__ = ["sign"]

MOST = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@kernel
def sign(
    hashes: int, bounds: int, texts: int, factors: int, terms: int, mixers: int, values: int,
    target: int,
) -> None:  # fmt: skip
    """Store ``values`` numbers of 16 bits for each text."""
    for text in range(texts):
        first = load_i64(bounds + 8 * text)
        last = load_i64(bounds + 8 * text + 8)
        for value in range(values):
            factor = load_u64(factors + 8 * value)
            term = load_u64(terms + 8 * value)
            least = MOST
            for at in range(first, last):
                permuted = load_u64(hashes + 8 * at) * factor + term
                least = min(least, permuted)
            mixed = load_u64(mixers + 8 * value) * least
            store_u16(target + 2 * (text * values + value), mixed >> np.uint64(48))
