"""Codes of key values: equal values have equal codes, whatever their type.

Numbers, times, booleans and floats are hashed as machine words, by their bits; strings, binary
and wide decimals by their bytes. Structs and lists combine the codes of their members or items,
where null equals null. Equality is that of pylance: -0.0 differs from 0.0, and NaNs are equal if
their bits are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import decode_large
from glaive.errors import SchemaError
from glaive.expr.coerce import is_list
from glaive.kernels.lookup import StringTable, WordTable
from glaive.kernels.strings import Strings
from glaive.memory import as_buffer, items_of
from glaive.types import Int64s

__all__ = ["Combined", "KeyValues", "is_word_type", "key_values", "storage_of"]


class KeyValues(ABC):
    """The values of one column of the source, or of a member or item in it.

    Parameters
    ----------
    array
        The values, from :func:`storage_of`.

    Attributes
    ----------
    codes
        For each value the position of the first equal one; for a null ``size - 1``, the number
        of values.
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
        """The codes of other values, -1 for those not in the source."""
        array = storage_of(array)
        codes = self._look_up(array)
        if self._rows is not None:
            known = codes >= 0
            codes[known] = self._rows[codes[known]]
        if array.null_count:
            codes[_nulls_of(array)] = self.size - 1
        return codes

    @abstractmethod
    def _enter(self, array: Any) -> Int64s:
        """The position of the first equal value of each; there are no nulls."""

    @abstractmethod
    def _look_up(self, array: Any) -> Int64s:
        """The positions of equal entered values, -1 for none; arbitrary for nulls."""


def key_values(name: str, array: Any) -> KeyValues:
    """The values of an array; ``name`` is that of its column, for messages.

    Raises
    ------
    SchemaError
        Values of the type cannot be compared.
    """
    array, types = storage_of(array), pa.types
    data_type = array.type
    if is_word_type(data_type):
        return _Words(array)
    if _is_byte_string(data_type):
        return _ByteStrings(array)
    if types.is_struct(data_type):
        return _Structs(name, array)
    if is_list(data_type, fixed=True) or types.is_map(data_type):
        return _Lists(name, array)
    if types.is_null(data_type):
        return _Nulls(array)
    raise SchemaError(f"rows cannot be matched by column {name!r} of type {data_type}")


def storage_of(array: Any) -> Any:
    """The array without extension types, dictionaries and views."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = decode_large(array)
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    return array


def is_word_type(data_type: pa.DataType) -> bool:
    """Whether values fit in a machine word of 64 bits."""
    types = pa.types
    if types.is_boolean(data_type):
        return True
    wide = types.is_decimal(data_type) or types.is_primitive(data_type)
    return bool(wide and data_type.bit_width in (8, 16, 32, 64))


def _nulls_of(array: Any) -> NDArray[np.bool_]:
    """Which values are null."""
    mask: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask


class Combined:
    """Rows of several codes as one code: the position of the first equal row.

    Parameters
    ----------
    parts
        For each column the codes of all rows, and an exclusive upper bound of them.
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
        """The position of the first row with these codes; with one column, its codes."""
        rows = parts[0]
        for (size, table), codes in zip(self._tables, parts[1:], strict=True):
            unknown = (rows < 0) | (codes < 0)
            rows = table.find(_joined(rows, codes, size))
            rows[unknown] = -1
        return rows


def _joined(high: Int64s, low: Int64s, size: int) -> NDArray[np.uint64]:
    # Both are below 2^31, so the result is below 2^63.
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


class _ByteStrings(KeyValues):
    """Strings, binary, and values of more than 64 bits."""

    def _enter(self, array: Any) -> Int64s:
        self._table = StringTable(_strings_of(array), len(array))
        return self._table.firsts

    def _look_up(self, array: Any) -> Int64s:
        return self._table.find(_strings_of(array), len(array))


def _is_byte_string(data_type: pa.DataType) -> bool:
    types = pa.types
    wide = (
        types.is_fixed_size_binary(data_type)
        or types.is_decimal(data_type)
        or types.is_interval(data_type)
    )
    return bool(_offset_bits(data_type) or wide)


def _offset_bits(data_type: pa.DataType) -> int:
    types = pa.types
    if types.is_string(data_type) or types.is_binary(data_type):
        return 32
    return 64 if types.is_large_string(data_type) or types.is_large_binary(data_type) else 0


def _strings_of(array: Any) -> Strings:
    """The values as byte strings."""
    bits = _offset_bits(array.type)
    if not len(array):
        return Strings(as_buffer(np.zeros(1, np.int64)), 64, _EMPTY)
    buffers = array.buffers()
    if bits:
        return Strings(buffers[1].slice(array.offset * bits // 8), bits, buffers[2] or _EMPTY)
    width = int(array.type.bit_width) // 8
    offsets = np.arange(len(array) + 1, dtype=np.int64) * width
    return Strings(as_buffer(offsets), 64, buffers[1].slice(array.offset * width))


_EMPTY: Any = pa.py_buffer(b"")


class _Structs(KeyValues):
    """Structs, by the codes of their members."""

    def __init__(self, name: str, array: Any) -> None:
        self._name = name
        super().__init__(array)

    def _enter(self, array: Any) -> Int64s:
        self._members = [
            key_values(f"{self._name}.{field.name}", column)
            for field, column in zip(array.type, array.flatten(), strict=True)
        ]
        zeros = np.zeros(len(array), np.int64), 1
        members = [(member.codes, member.size) for member in self._members]
        self._combined = Combined([zeros, *members])
        return self._combined.codes

    def _look_up(self, array: Any) -> Int64s:
        columns = zip(self._members, array.flatten(), strict=True)
        zeros = np.zeros(len(array), np.int64)
        return self._combined.find([zeros, *[values.find(column) for values, column in columns]])


class _Lists(KeyValues):
    """Lists and maps, as strings of the codes of their items."""

    def __init__(self, name: str, array: Any) -> None:
        self._name = name
        super().__init__(array)

    def _enter(self, array: Any) -> Int64s:
        starts, items = _items_of(array)
        self._items = key_values(f"{self._name}.item", items)
        self._table = StringTable(_as_strings(starts, self._items.codes), len(array))
        return self._table.firsts

    def _look_up(self, array: Any) -> Int64s:
        starts, items = _items_of(array)
        return self._table.find(_as_strings(starts, self._items.find(items)), len(array))


def _items_of(array: Any) -> tuple[Int64s, Any]:
    """The offsets of the lists, from 0, and their items."""
    if pa.types.is_fixed_size_list(array.type):
        size, count = array.type.list_size, len(array)
        items = array.values.slice(array.offset * size, count * size)
        return np.arange(count + 1, dtype=np.int64) * size, items
    offsets: Any = array.offsets.to_numpy().astype(np.int64)
    if not len(offsets):
        return np.zeros(1, np.int64), array.values.slice(0, 0)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, array.values.slice(first, last - first)


def _as_strings(starts: Int64s, codes: Int64s) -> Strings:
    return Strings(as_buffer(starts * 4), 64, as_buffer(codes.astype("<i4")))


class _Nulls(KeyValues):
    """A column of null type."""

    def _enter(self, array: Any) -> Int64s:
        return np.empty(0, np.int64)

    def _look_up(self, array: Any) -> Int64s:
        return np.full(len(array), -1, np.int64)
