"""Constants of token sets stored as a finite-state transducer (FST).

Specification: "Token sets" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from glaive.types import Int64s, UInt8s

__all__ = ["CODE_OF", "COMMON", "FOOTER", "HEADER", "INDEX", "MANY", "VERSION"]

VERSION: Final = 3
HEADER: Final = 16
"""Bytes before the first node: version and type, 64 bits each."""
FOOTER: Final = 20
"""Bytes after the last node: number of tokens, address of the root, checksum."""
MANY: Final = 32
"""Nodes with more transitions have an index with an entry per byte."""
INDEX: Final = 256

COMMON: Final[UInt8s] = np.frombuffer(
    b"\0te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG", np.uint8
)
"""Frequent bytes: their positions, from 1 on, are their codes of six bits."""


def _codes() -> Int64s:
    codes = np.zeros(256, np.int64)
    codes[COMMON[1:]] = np.arange(1, len(COMMON))
    return codes


CODE_OF: Final = _codes()
"""Code of each byte; 0: none."""
