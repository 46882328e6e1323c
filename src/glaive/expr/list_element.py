"""Elements of lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.views import without_views

__all__ = ["element"]


def element(lists: Any, index: Any) -> Any:
    """The ``index``-th item of each list, from the end when negative; null when there is none.

    Parameters
    ----------
    index
        An int64 array or scalar; counts from 1.
    """
    rows = len(lists)
    if pa.types.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        starts = (np.arange(rows, dtype=np.int64) + lists.offset) * size
        sizes = np.full(rows, size, np.int64)
    else:
        offsets = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        starts, sizes = offsets[:-1], np.diff(offsets)
    valid = lists.is_valid().to_numpy(zero_copy_only=False)
    if isinstance(index, pa.Scalar):
        wanted: Any = np.int64(index.as_py() or 0)
    else:
        wanted = index.fill_null(0).to_numpy(zero_copy_only=False)
    inside = valid & (wanted != 0) & (wanted <= sizes) & (wanted >= -sizes)
    places = np.where(wanted > 0, starts + wanted - 1, starts + sizes + wanted)
    items: Any = lists.values
    items = items.cast(without_views(items.type))
    found: Any = items.take(pa.array(places, pa.int64(), mask=~inside))
    return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found
