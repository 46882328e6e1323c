"""Blocks of codes, made without looking at the processor."""

from __future__ import annotations

import numpy as np

from glaive.types import UInt8s

LANES = 64


def blocks_of(codes: UInt8s) -> UInt8s:
    """Codes of 64 rows at a time, part by part, the rows 0, 32, 1, 33 and so on side by side."""
    order = np.arange(LANES).reshape(2, -1).T.reshape(-1)
    firsts = range(0, len(codes) // LANES * LANES, LANES)
    blocks = [codes[first + order].T.reshape(-1) for first in firsts]
    return np.concatenate([np.zeros(0, np.uint8), *blocks])
