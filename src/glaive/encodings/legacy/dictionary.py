"""Dictionary: keys as plain values; the items are stored once per file.

Specification: "Dictionaries" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth
from glaive.errors import CorruptFileError
from glaive.types import Where

__all__ = ["keys_into"]


def keys_into(keys: FixedWidth, kind: pa.DictionaryType, items: pa.Array, where: Where) -> pa.Array:
    """A dictionary array of checked keys.

    Raises
    ------
    CorruptFileError
        A key is out of range.
    """
    indices = pa.Array.from_buffers(kind.index_type, keys.count, [None, keys.values], 0)
    numbers = np.asarray(indices)
    if keys.count:
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= len(items):
            raise CorruptFileError(
                "keys of a dictionary",
                expected=f"0 to {len(items) - 1}",
                found=f"{low} to {high}",
                where=where,
            )
    return pa.DictionaryArray.from_arrays(indices, items, ordered=kind.ordered, safe=False)
