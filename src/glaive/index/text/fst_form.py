"""Constants of token sets that are automata.

Specification: "Token sets" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["CODE_OF", "COMMON", "FOOTER", "HEADER", "INDEX", "MANY", "VERSION"]

VERSION: Final = 3
HEADER: Final = 16
"""Bytes before the first node: version and kind, 64 bits each."""
FOOTER: Final = 20
"""Bytes behind the last one: tokens, address of the root, checksum."""
MANY: Final = 32
"""Transitions of a node from which on it has an index of bytes."""
INDEX: Final = 256

COMMON: Final[NDArray[np.uint8]] = np.frombuffer(
    b"\0te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG", np.uint8
)
"""Bytes that have codes from 1 on of six bits."""


def _codes() -> NDArray[np.int64]:
    codes = np.zeros(256, np.int64)
    codes[COMMON[1:]] = np.arange(1, len(COMMON))
    return codes


CODE_OF: Final = _codes()
"""Code of each byte; 0 for those without."""
