"""Columns with extension types in place of what files store.

Files know storage types and metadata. Readers of datasets see Arrow's extension types, and
JSON as text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.conditions import Condition, IsNull
from glaive.arrow.extensions import to_type
from glaive.encodings.fetch import Fetch, chain
from glaive.file.protocol import BoundColumn, BoundColumns, Entries, Searchable
from glaive.kernels.keep import DeletionMask
from glaive.types import RowRange

__all__ = ["PresentedColumn", "PresentedColumns", "present"]


class PresentedColumn(Searchable):
    """One field as another type (a ``BoundColumn``)."""

    def __init__(self, column: BoundColumn, field: pa.Field) -> None:
        self._column = column
        where = f"column {field.name!r}"
        self._present: Callable[[Any], Any] = partial(to_type, kind=field.type, where=where)
        self.field = field
        self.num_rows = column.num_rows
        kind = field.type
        seen = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        self._stored = column.field.type.equals(seen)

    def cuts(self) -> NDArray[np.int64]:
        """Row numbers at which pages begin."""
        return self._column.cuts()

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start`` to ``stop`` as one array."""
        return self._present(self._column.read(start, stop))

    def take(self, rows: NDArray[np.int64]) -> Any:
        """The rows at these positions, in this order."""
        return self._present(self._column.take(rows))

    def find(self, condition: Condition, start: int, stop: int) -> NDArray[np.int64] | None:
        """The rows that pass, where conditions see what files store."""
        if self._stored or isinstance(condition, IsNull):
            return self._column.find(condition, start, stop)
        return None

    def match(self, condition: Condition, start: int, stop: int) -> Any:
        """The rows that pass, one bit each."""
        if self._stored or isinstance(condition, IsNull):
            return self._column.match(condition, start, stop)
        return None

    def find_entries(self, passing: Entries, start: int, stop: int) -> NDArray[np.int64] | None:
        """The rows that pass, where conditions see what files store."""
        return self._column.find_entries(passing, start, stop) if self._stored else None

    def prune(self, condition: Condition, start: int, stop: int) -> list[RowRange]:
        """The parts in which rows may pass."""
        if self._stored:
            return self._column.prune(condition, start, stop)
        return super().prune(condition, start, stop)

    def read_live(self, start: int, stop: int, gone: DeletionMask) -> Any:
        """``read`` without the rows that are gone."""
        found = self._column.read_live(start, stop, gone)
        return None if found is None else self._present(found)

    def plan_read(self, start: int, stop: int) -> Any:
        """``read`` as a value."""
        step = self._column.plan_read(start, stop)
        return chain(step, self._present) if isinstance(step, Fetch) else self._present(step)

    def plan_take(self, rows: NDArray[np.int64]) -> Any:
        """``take`` as a value."""
        step = self._column.plan_take(rows)
        return chain(step, self._present) if isinstance(step, Fetch) else self._present(step)


def present(column: BoundColumn, field: pa.Field) -> BoundColumn:
    """The column as the type of ``field``; the column itself if that is its type."""
    return column if column.field.type.equals(field.type) else PresentedColumn(column, field)


class PresentedColumns:
    """Several fields of one file, as the types of a schema (a ``BoundColumns``)."""

    def __init__(self, columns: BoundColumns, schema: pa.Schema) -> None:
        self._whole = columns
        self.schema = schema
        self.num_rows = columns.num_rows
        self.columns: Sequence[BoundColumn] = [
            present(one, field) for one, field in zip(columns.columns, schema, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by all columns; an estimate."""
        return self._whole.nbytes

    def cuts(self) -> NDArray[np.int64]:
        """Row numbers at which a page of any of the fields begins, both ends included."""
        return self._whole.cuts()

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Rows ``start`` to ``stop``, one array per field."""
        return self._present(self._whole.read(start, stop))

    def take(self, rows: NDArray[np.int64]) -> list[pa.Array]:
        """The rows at these positions, one array per field."""
        return self._present(self._whole.take(rows))

    def prefetch(self, rows: NDArray[np.int64]) -> bool:
        """Have the system read what a take of these rows touches."""
        return self._whole.prefetch(rows)

    def plan_read(self, start: int, stop: int) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``read`` as a value."""
        step = self._whole.plan_read(start, stop)
        return chain(step, self._present) if isinstance(step, Fetch) else self._present(step)

    def plan_take(self, rows: NDArray[np.int64]) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``take`` as a value."""
        step = self._whole.plan_take(rows)
        return chain(step, self._present) if isinstance(step, Fetch) else self._present(step)

    def _present(self, arrays: list[pa.Array]) -> list[pa.Array]:
        return [
            to_type(array, field.type, f"column {field.name!r}")
            for array, field in zip(arrays, self.schema, strict=True)
        ]
