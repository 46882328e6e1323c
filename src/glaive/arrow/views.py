"""Rows with texts or bytes as views: cut before they are copied.

Views may share their bytes, so that few of them are many texts. Arrow casts them to texts behind
offsets of 32 bits without a look at whether these can count the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.row_bytes import row_bytes
from glaive.errors import CapacityError
from glaive.types import MAX_OFFSET

__all__ = ["check_views", "cut_views", "has_views"]

_PLAIN: Final = frozenset(
    kind.id
    for kind in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
        pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(),
        pa.large_string(), pa.binary(), pa.large_binary(), pa.date32(), pa.timestamp("us"),
    )
)  # fmt: skip
"""Types that are neither views nor have others in them."""

_PART_BYTES: Final = 2**28
"""Bytes of rows that are copied at once, unless a single row has more."""


def has_views(kind: Any) -> bool:
    """Whether a type is, or contains, one of views."""
    if kind.id in _PLAIN:  # first, as tables may have thousands of columns
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return has_views(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return has_views(kind.value_type)
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return kind in (pa.string_view(), pa.binary_view()) or any(map(has_views, inner))


def check_views(array: Any, where: object) -> None:
    """Refuse views, at any depth, of more bytes than offsets of 32 bits can count.

    Raises
    ------
    CapacityError
        Says how many there are.
    """
    if has_views(array.type):
        total = int(np.broadcast_to(row_bytes(array), len(array)).sum(dtype=np.int64))
        if total > MAX_OFFSET:
            raise CapacityError.of(total, f"bytes of {array.type}", where=where)


def cut_views(rows: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch | pa.Table]:
    """The rows, in parts whose views are not too many bytes to copy them; a view of each."""
    numbers = [at for at, kind in enumerate(rows.schema.types) if has_views(kind)]
    if not numbers or not rows.num_rows:
        yield rows
        return
    for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
        sizes: Any = sum(row_bytes(batch.column(at)) for at in numbers)
        ends = np.cumsum(np.broadcast_to(sizes, batch.num_rows), dtype=np.int64)
        start = 0
        while start < batch.num_rows:
            limit = _PART_BYTES + (int(ends[start - 1]) if start else 0)
            stop = max(start + 1, int(np.searchsorted(ends, limit, side="right")))
            yield batch.slice(start, stop - start)
            start = stop
