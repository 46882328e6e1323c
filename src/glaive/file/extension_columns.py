"""Columns with extension types instead of storage types.

Files have storage types and metadata. Readers of datasets see Arrow's extension types, and
JSON as text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from glaive.arrow.conditions import Condition, IsNull
from glaive.arrow.extensions import to_type
from glaive.encodings.fetch import Fetch, and_then
from glaive.file.protocol import BoundColumn, BoundColumns, Entries, Searchable
from glaive.kernels.compact import DeletionMask
from glaive.types import Int64s, RowRange

__all__ = ["ExtensionColumn", "ExtensionColumns", "as_extension"]


class ExtensionColumn(Searchable):
    """One field as an extension type (a ``BoundColumn``)."""

    def __init__(self, column: BoundColumn, field: pa.Field) -> None:
        self._column = column
        where = f"column {field.name!r}"
        self._convert: Callable[[Any], Any] = partial(to_type, kind=field.type, where=where)
        self.field = field
        self.num_rows = column.num_rows
        kind = field.type
        storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        self._has_storage_type = column.field.type.equals(storage)

    @property
    def value_bytes(self) -> int:
        """Bytes of a decoded value, about."""
        return self._column.value_bytes

    def cuts(self) -> Int64s:
        """Row numbers at which pages begin."""
        return self._column.cuts()

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start`` to ``stop`` as one array."""
        return self._convert(self._column.read(start, stop))

    def take(self, rows: Int64s) -> Any:
        """The rows at these positions, in this order."""
        return self._convert(self._column.take(rows))

    def find(self, condition: Condition, start: int, stop: int) -> Int64s | None:
        """The rows that pass, where conditions apply to the stored values."""
        if self._has_storage_type or isinstance(condition, IsNull):
            return self._column.find(condition, start, stop)
        return None

    def match(self, condition: Condition, start: int, stop: int) -> Any:
        """The rows that pass, one bit each."""
        if self._has_storage_type or isinstance(condition, IsNull):
            return self._column.match(condition, start, stop)
        return None

    def find_entries(self, passing: Entries, start: int, stop: int) -> Int64s | None:
        """The rows that pass, where conditions apply to the stored values."""
        return self._column.find_entries(passing, start, stop) if self._has_storage_type else None

    def prune(self, condition: Condition, start: int, stop: int) -> list[RowRange]:
        """The ranges in which rows may pass."""
        if self._has_storage_type:
            return self._column.prune(condition, start, stop)
        return super().prune(condition, start, stop)

    def read_live(self, start: int, stop: int, deleted: DeletionMask) -> Any:
        """``read`` without deleted rows."""
        array = self._column.read_live(start, stop, deleted)
        return None if array is None else self._convert(array)

    def plan_read(self, start: int, stop: int) -> Any:
        """``read`` as a value."""
        return and_then(self._column.plan_read(start, stop), self._convert)

    def plan_take(self, rows: Int64s) -> Any:
        """``take`` as a value."""
        return and_then(self._column.plan_take(rows), self._convert)


def as_extension(column: BoundColumn, field: pa.Field) -> BoundColumn:
    """The column with the type of ``field``; the column itself if that is its type."""
    return column if column.field.type.equals(field.type) else ExtensionColumn(column, field)


class ExtensionColumns:
    """Several fields of one file, with the types of a schema (a ``BoundColumns``)."""

    def __init__(self, columns: BoundColumns, schema: pa.Schema) -> None:
        self._columns = columns
        self.schema = schema
        self.num_rows = columns.num_rows
        self.columns: Sequence[BoundColumn] = list(map(as_extension, columns.columns, schema))

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by all columns; an estimate."""
        return self._columns.nbytes

    def cuts(self) -> Int64s:
        """Row numbers at which a page of any of the fields begins, both ends included."""
        return self._columns.cuts()

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Rows ``start`` to ``stop``, one array per field."""
        return self._convert(self._columns.read(start, stop))

    def take(self, rows: Int64s) -> list[pa.Array]:
        """The rows at these positions, one array per field."""
        return self._convert(self._columns.take(rows))

    def prefetch(self, rows: Int64s) -> bool:
        """Have the system read the bytes that a take of these rows needs."""
        return self._columns.prefetch(rows)

    def open_pages(self, most: int) -> None:
        """Fetch what at most so many pages read before any row."""
        self._columns.open_pages(most)

    def plan_read(self, start: int, stop: int) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``read`` as a value."""
        return and_then(self._columns.plan_read(start, stop), self._convert)

    def plan_take(self, rows: Int64s) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``take`` as a value."""
        return and_then(self._columns.plan_take(rows), self._convert)

    def _convert(self, arrays: list[pa.Array]) -> list[pa.Array]:
        return [
            to_type(array, field.type, f"column {field.name!r}")
            for array, field in zip(arrays, self.schema, strict=True)
        ]
