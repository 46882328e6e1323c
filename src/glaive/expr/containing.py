"""Whether texts contain a word: what LIKE '%word%' and contains() ask."""

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
"""One hit among so many rows, or less: worth looking at the hits alone."""


def containing(texts: Any, word: str) -> Any:
    """Which texts hold a word; null where the text is."""
    bits, rows = _OFFSET_BITS.get(texts.type), len(texts)
    validity, *parts = texts.buffers()
    if bits is None or not rows or any(part is None for part in parts):
        return pc.match_substring(texts, word)
    width = bits // 8
    ends = parts[0].slice(texts.offset * width, (rows + 1) * width)
    found = contains(Strings(ends, bits, parts[1]), rows, word.encode())
    bitmap = slice_bits(validity, texts.offset, rows) if texts.null_count else None
    nulls = texts.null_count
    return pa.Array.from_buffers(pa.bool_(), rows, [bitmap, found], nulls)


def prefiltered(texts: Any, word: str, test: Any) -> Any:
    """``test(texts)``, where no text passes that does not hold a word.

    The test is made of the texts with the word alone where these are few.
    """
    found = containing(texts, word)
    rows = np.flatnonzero(np.asarray(pc.fill_null(found, FALSE)))
    if len(rows) * _RARE > len(texts):
        return test(texts)
    flags = np.zeros(len(texts), np.bool_)
    if len(rows):
        flags[rows] = np.asarray(test(texts.take(pa.array(rows))))
    result: Any = pa.array(flags, mask=np.asarray(texts.is_null()) if texts.null_count else None)
    return result
