"""Values of key columns as numbers: equal values have equal numbers, whatever their type.

Each kind of value knows those of the source. Numbers, times, booleans and floats are looked
up as words, by their bits; texts, binary and wide decimals by their bytes. Structs and lists
are made of the numbers of what they hold, in which a null equals a null. So values that equal
each other are those of pylance: -0.0 is not 0.0, and a NaN is one with the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import decode_large
from glaive.errors import SchemaError
from glaive.kernels.lookup import TextTable, WordTable
from glaive.kernels.strings import Strings
from glaive.memory import as_buffer, items_of

__all__ = ["Combined", "KeyValues", "has_words", "key_values", "storage_of"]

Int64s = NDArray[np.int64]


class KeyValues(ABC):
    """The values of one column of the source, or of what is in it.

    Parameters
    ----------
    array
        The values, as :func:`storage_of` makes them.

    Attributes
    ----------
    codes
        One number per value: which one is the first that equals it. That of a null is
        ``size - 1``, the number of values.
    """

    def __init__(self, array: Any) -> None:
        self.size = len(array) + 1
        self._rows: Int64s | None = None
        if array.null_count:
            self._rows = np.flatnonzero(~_nulls_of(array))
            self.codes = np.full(len(array), len(array), np.int64)
            self.codes[self._rows] = self._rows[self._enter(array.drop_null())]
        else:
            self.codes = self._enter(array)

    def find(self, array: Any) -> Int64s:
        """The numbers of other values, -1 where the source does not have them."""
        array = storage_of(array)
        found = self._look_up(array)
        if self._rows is not None:
            known = found >= 0
            found[known] = self._rows[found[known]]
        if array.null_count:
            found[_nulls_of(array)] = self.size - 1
        return found

    @abstractmethod
    def _enter(self, array: Any) -> Int64s:
        """The first equal value of each, none of which is null."""

    @abstractmethod
    def _look_up(self, array: Any) -> Int64s:
        """The numbers of values as they were entered, -1 for others; anything for nulls."""


def key_values(name: str, array: Any) -> KeyValues:
    """The values of an array, whose column has this name.

    Raises
    ------
    SchemaError
        No two values of the type are known to be equal.
    """
    array, types = storage_of(array), pa.types
    kind = array.type
    if has_words(kind):
        return _Words(array)
    if _is_text(kind):
        return _Texts(array)
    if types.is_struct(kind):
        return _Structs(name, array)
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind)
    if lists or types.is_fixed_size_list(kind):
        return _Lists(name, array)
    if types.is_null(kind):
        return _Nulls(array)
    raise SchemaError(f"rows cannot be matched by column {name!r} of type {kind}")


def storage_of(array: Any) -> Any:
    """The array with its values as such: no extension, no dictionary, no views."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = decode_large(array)
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    return array


def has_words(kind: pa.DataType) -> bool:
    """Whether values are words of at most 64 bits."""
    types = pa.types
    if types.is_boolean(kind):
        return True
    wide = types.is_decimal(kind) or types.is_primitive(kind)
    return bool(wide and kind.bit_width in (8, 16, 32, 64))


def _nulls_of(array: Any) -> NDArray[np.bool_]:
    """Which values are null."""
    mask: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask


class Combined:
    """Rows of several numbers each as one number: that of the first row with the same.

    Parameters
    ----------
    parts
        Numbers of all rows, one array per column, and what they are below.
    """

    def __init__(self, parts: list[tuple[Int64s, int]]) -> None:
        self._tables: list[tuple[int, WordTable]] = []
        codes, _ = parts[0]
        self.codes = codes
        for codes, size in parts[1:]:
            table = WordTable(_joined(self.codes, codes, size))
            self._tables.append((size, table))
            self.codes = table.firsts

    def find(self, parts: list[Int64s]) -> Int64s:
        """The first row with these numbers, or that of the first column if it is alone."""
        found = parts[0]
        for (size, table), codes in zip(self._tables, parts[1:], strict=True):
            unknown = (found < 0) | (codes < 0)
            found = table.find(_joined(found, codes, size))
            found[unknown] = -1
        return found


def _joined(high: Int64s, low: Int64s, size: int) -> NDArray[np.uint64]:
    # Both are below 2^31, so that this is below 2^63.
    return (high * size + low).view(np.uint64)


class _Words(KeyValues):
    """Numbers, times, booleans and floats."""

    def _enter(self, array: Any) -> Int64s:
        self._table = WordTable(_words_of(array))
        return self._table.firsts

    def _look_up(self, array: Any) -> Int64s:
        return self._table.find(_words_of(array))


def _words_of(array: Any) -> NDArray[np.uint64]:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    width = array.type.bit_width // 8
    if not len(array):
        return np.empty(0, np.uint64)
    words = items_of(array.buffers()[1], f"<u{width}", len(array), array.offset * width)
    return words.astype(np.uint64, copy=False)


class _Texts(KeyValues):
    """Texts, binary, and values of more than 64 bits."""

    def _enter(self, array: Any) -> Int64s:
        self._table = TextTable(_texts_of(array), len(array))
        return self._table.firsts

    def _look_up(self, array: Any) -> Int64s:
        return self._table.find(_texts_of(array), len(array))


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    wide = types.is_fixed_size_binary(kind) or types.is_decimal(kind) or types.is_interval(kind)
    return bool(_offset_bits(kind) or wide)


def _offset_bits(kind: pa.DataType) -> int:
    types = pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return 32
    return 64 if types.is_large_string(kind) or types.is_large_binary(kind) else 0


def _texts_of(array: Any) -> Strings:
    """The values as byte strings."""
    bits = _offset_bits(array.type)
    if not len(array):
        return Strings(as_buffer(np.zeros(1, np.int64)), 64, _EMPTY)
    buffers = array.buffers()
    if bits:
        return Strings(buffers[1].slice(array.offset * bits // 8), bits, buffers[2] or _EMPTY)
    width = int(array.type.bit_width) // 8
    ends = np.arange(len(array) + 1, dtype=np.int64) * width
    return Strings(as_buffer(ends), 64, buffers[1].slice(array.offset * width))


_EMPTY: Any = pa.py_buffer(b"")


class _Structs(KeyValues):
    """Structs, by the numbers of their members."""

    def __init__(self, name: str, array: Any) -> None:
        self._name = name
        super().__init__(array)

    def _enter(self, array: Any) -> Int64s:
        self._members = [
            key_values(f"{self._name}.{one.name}", column)
            for one, column in zip(array.type, array.flatten(), strict=True)
        ]
        nothing = np.zeros(len(array), np.int64), 1
        self._combined = Combined(
            [nothing, *[(member.codes, member.size) for member in self._members]]
        )
        return self._combined.codes

    def _look_up(self, array: Any) -> Int64s:
        columns = zip(self._members, array.flatten(), strict=True)
        nothing = np.zeros(len(array), np.int64)
        return self._combined.find([nothing, *[one.find(column) for one, column in columns]])


class _Lists(KeyValues):
    """Lists and maps, as strings of the numbers of their items."""

    def __init__(self, name: str, array: Any) -> None:
        self._name = name
        super().__init__(array)

    def _enter(self, array: Any) -> Int64s:
        starts, items = _items_of(array)
        self._items = key_values(f"{self._name}.item", items)
        self._table = TextTable(_as_text(starts, self._items.codes), len(array))
        return self._table.firsts

    def _look_up(self, array: Any) -> Int64s:
        starts, items = _items_of(array)
        return self._table.find(_as_text(starts, self._items.find(items)), len(array))


def _items_of(array: Any) -> tuple[Int64s, Any]:
    """Where each list begins and the last ends, and the items from there on."""
    if pa.types.is_fixed_size_list(array.type):
        size, count = array.type.list_size, len(array)
        items = array.values.slice(array.offset * size, count * size)
        return np.arange(count + 1, dtype=np.int64) * size, items
    ends: Any = array.offsets.to_numpy().astype(np.int64)
    first, last = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    starts = ends - first if len(ends) else np.zeros(1, np.int64)
    return starts, array.values.slice(first, last - first)


def _as_text(starts: Int64s, codes: Int64s) -> Strings:
    return Strings(as_buffer(starts * 4), 64, as_buffer(codes.astype("<i4")))


class _Nulls(KeyValues):
    """Nothing but nulls."""

    def _enter(self, array: Any) -> Int64s:
        return np.empty(0, np.int64)

    def _look_up(self, array: Any) -> Int64s:
        return np.full(len(array), -1, np.int64)
