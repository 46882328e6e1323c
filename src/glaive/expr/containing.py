"""Whether strings contain a word, for LIKE '%word%' and contains()."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.scalars import FALSE
from glaive.arrow.slices import slice_bits
from glaive.kernels.contains import contains
from glaive.kernels.strings import Strings

__all__ = ["containing", "prefiltered"]

_OFFSET_BITS: dict[pa.DataType, Literal[32, 64]] = {
    pa.string(): 32,
    pa.binary(): 32,
    pa.large_string(): 64,
    pa.large_binary(): 64,
}

_RARE = 4
"""If at most one row in so many contains the word, only those rows are tested further."""


def containing(strings: Any, word: str) -> Any:
    """Which strings contain a word; null for nulls."""
    bits, rows = _OFFSET_BITS.get(strings.type), len(strings)
    validity, *parts = strings.buffers()
    if bits is None or not rows or any(part is None for part in parts):
        return pc.match_substring(strings, word)
    width = bits // 8
    offsets = parts[0].slice(strings.offset * width, (rows + 1) * width)
    passing = contains(Strings(offsets, bits, parts[1]), rows, word.encode())
    nulls = strings.null_count
    bitmap = slice_bits(validity, strings.offset, rows) if nulls else None
    return pa.Array.from_buffers(pa.bool_(), rows, [bitmap, passing], nulls)


def prefiltered(strings: Any, word: str, test: Any) -> Any:
    """``test(strings)``, where only strings that contain ``word`` can pass.

    If few do, only those are tested.
    """
    candidates = containing(strings, word)
    rows = np.flatnonzero(np.asarray(pc.fill_null(candidates, FALSE)))
    if len(rows) * _RARE > len(strings):
        return test(strings)
    flags = np.zeros(len(strings), np.bool_)
    if len(rows):
        flags[rows] = np.asarray(test(strings.take(pa.array(rows))))
    nulls = np.asarray(strings.is_null()) if strings.null_count else None
    return pa.array(flags, mask=nulls)
