"""Bytes in memory of the values of a type: known, estimated for want of data, or as they were seen.

The size of a file says how large texts and lists are, unless they are compressed well: a few
megabytes may rightly hold gigabytes of them. What was decoded last says it for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import has_dictionary
from glaive.dataclass import NamedTuple
from glaive.errors import CapacityError
from glaive.types import MAX_OFFSET, Int64s

_STRING_BYTES: Final = 32
"""Estimate for a string or a binary value."""

_LIST_ITEMS: Final = 8
"""Estimate for the items of a list."""

_ITEM_NUMBER: Final = 8
"""Bytes that Arrow takes for each item of a vector while it chooses rows: its number. Numbers and
texts of one size are copied without, but items may have no bytes of their own, as nulls."""

_BIT: Final = 1 / 8


class Width(NamedTuple):
    """Bytes of a value.

    Parameters
    ----------
    known
        Bytes of the parts with a fixed width.
    guessed
        Estimate for the other parts.
    variable
        Number of parts without a fixed width: strings and lists.
    """

    known: float
    guessed: float = 0
    variable: int = 0

    @property
    def total(self) -> float:
        """All bytes, about."""
        return self.known + self.guessed


def width_of(kind: Any) -> Width:
    """Bytes of a value of a type."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return width_of(kind.storage_type)
    if types.is_fixed_size_list(kind):
        known, guessed, variable = width_of(kind.value_type)
        if types.is_null(kind.value_type) or types.is_nested(kind.value_type):
            known = max(known, _ITEM_NUMBER)
        size = kind.list_size
        return Width(known * size, guessed * size, variable * size)
    if types.is_struct(kind):
        known, guessed, variable = total_width(member.type for member in kind)
        return Width(known or _BIT, guessed, variable)  # of nulls alone: whether it is one
    if types.is_map(kind):
        items = total_width([kind.key_type, kind.item_type])
        return Width(0, _LIST_ITEMS * items.total, 1)
    if types.is_list(kind) or types.is_large_list(kind):
        return Width(0, _LIST_ITEMS * width_of(kind.value_type).total, 1)
    try:
        return Width(kind.bit_width / 8)
    except ValueError:  # variable width
        return Width(0) if types.is_null(kind) else Width(0, _STRING_BYTES, 1)


def total_width(kinds: Iterable[Any]) -> Width:
    """Bytes of one value of each type."""
    widths = [width_of(data_type) for data_type in kinds]
    return Width(
        sum(width.known for width in widths),
        sum(width.guessed for width in widths),
        sum(width.variable for width in widths),
    )


def value_bytes(kind: Any) -> int:
    """Bytes of a decoded value, about; at least 1."""
    return max(1, int(width_of(kind).total))


def has_known_width(kind: Any) -> bool:
    """Whether all values have one size, so that :func:`value_bytes` is exact."""
    return not width_of(kind).variable


def most_bytes(kinds: Iterable[Any]) -> float:
    """Bytes of one value of each type, at most; infinite where that is not known."""
    kinds = list(kinds)
    width = total_width(kinds)
    # Any rows may have all of a dictionary.
    return math.inf if width.variable or any(map(has_dictionary, kinds)) else width.known


class RowSizes:
    """Bytes of a decoded row: known, guessed, and as they were seen.

    Parameters
    ----------
    kinds
        Types of the fields.

    Attributes
    ----------
    width
        What the types say.
    most
        At most, or infinite.
    """

    __slots__ = ("_others", "_seen", "most", "width")

    def __init__(self, kinds: Iterable[pa.DataType]) -> None:
        kinds = list(kinds)
        self.width, self.most = total_width(kinds), most_bytes(kinds)
        # All rows that share a dictionary are counted with all of it: no measure of them.
        self._seen = {
            at: 0
            for at, kind in enumerate(kinds)
            if width_of(kind).variable and not has_dictionary(kind)
        }
        self._others = int(
            total_width(kind for at, kind in enumerate(kinds) if at not in self._seen).total
        )

    @property
    def are_known(self) -> bool:
        """Whether the types say it, or all others were seen."""
        return all(self._seen.values())

    @property
    def seen(self) -> int:
        """Bytes of a row, by what was seen of its fields."""
        return self._others + sum(self._seen.values())

    def seen_of(self, at: int) -> int:
        """Bytes of a value of a field as it was seen last; 0 where it was not, or has one size."""
        return self._seen.get(at, 0)

    def see(self, at: int, array: Any) -> None:
        """Note what values of a field took."""
        if at in self._seen and len(array):
            self._seen[at] = max(1, array.nbytes // len(array))

    def see_all(self, arrays: Sequence[Any]) -> None:
        """The same of all fields."""
        for at in self._seen:
            self.see(at, arrays[at])


# --- The bytes that the value of each row takes, whatever its type ----------------------

_OFFSET_BYTES: Final = {
    pa.string().id: 4, pa.binary().id: 4, pa.large_string().id: 8, pa.large_binary().id: 8,
    pa.list_(pa.null()).id: 4, pa.large_list(pa.null()).id: 8, pa.map_(pa.int8(), pa.int8()).id: 4,
}  # fmt: skip
_VIEW_BYTES: Final = 16


def row_bytes(array: Any, null: int = 0) -> Int64s | int:
    """Bytes of each row's value; one integer if all take the same.

    Those of values below nulls count, validity and the row's own offset do not. Values of
    dictionaries count as the largest one.

    Parameters
    ----------
    null
        What a value of the type null counts as, and a struct besides its members.
    """
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return row_bytes(array.storage, null)
    if types.is_dictionary(kind):
        return int(np.max(row_bytes(array.dictionary, null), initial=0))
    if types.is_struct(kind):
        total: Int64s | int = null
        for at in range(kind.num_fields):
            total = total + row_bytes(array.field(at), null)
        return total
    if types.is_fixed_size_list(kind):
        size = int(kind.list_size)
        inner = _item_bytes(array.values.slice(array.offset * size, len(array) * size), null)
        if isinstance(inner, int):
            return size * inner
        summed: Int64s = inner.reshape(len(array), size).sum(axis=1)
        return summed
    if kind.id in _OFFSET_BYTES:
        return _bytes_between(array, null)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _lengths_of_views(array)
    return null if types.is_null(kind) else (int(kind.bit_width) + 7) // 8


def _bytes_between(array: Any, null: int) -> Int64s | int:
    """Bytes of texts, lists and maps by their offsets."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return 0
    width = _OFFSET_BYTES[array.type.id]
    dtype = np.dtype(f"<i{width}")
    ends: NDArray[Any] = np.frombuffer(buffer, dtype, len(array) + 1, array.offset * width)
    sizes: Int64s = np.diff(ends).astype(np.int64)
    if not pa.types.is_nested(array.type):
        return sizes
    parts = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    first, total = int(ends[0]), np.zeros(len(array), np.int64)
    for part in parts:
        inner = _item_bytes(part.slice(first, int(ends[-1]) - first), null)
        if isinstance(inner, int):
            total += sizes * inner
        else:
            sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(inner)])
            total += np.diff(sums[ends - first])
    return total


def _item_bytes(items: Any, null: int) -> Int64s | int:
    """Bytes of each item, its offset included."""
    return row_bytes(items, null) + _OFFSET_BYTES.get(items.type.id, 0)


def _lengths_of_views(array: Any) -> Int64s:
    count = len(array)
    views = np.frombuffer(array.buffers()[1] or b"", np.dtype("<i4")).reshape(-1, _VIEW_BYTES // 4)
    lengths: Int64s = views[array.offset : array.offset + count, 0].astype(np.int64)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return lengths + _VIEW_BYTES


# --- Rows with texts or bytes as views: cut before they are copied ----------------------
# Views may share their bytes, so that few of them are many texts. Arrow casts them to texts behind
# offsets of 32 bits without a look at whether these can count the bytes.

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
