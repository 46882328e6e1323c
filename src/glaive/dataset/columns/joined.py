"""Look up rows of another table by a key: a left join that yields row numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.chunked import join_batches, join_column
from glaive.dataset.columns.column_files import physical_rows, view_of
from glaive.dataset.writing.source import batches_of, read_source
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.format.rowids import check_at_once
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID, SystemColumns

__all__ = ["Lookup"]

_SYSTEM = (ROW_ID, ROW_ADDRESS)


@dataclass(frozen=True, slots=True)
class Lookup:
    """The right side of a join, and the key column of the dataset."""

    rows: pa.Table
    left: str
    right: str

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        data: object,
        left_on: str,
        right_on: str | None,
        schema: pa.Schema | None,
    ) -> Lookup:
        """Read the rows, all into memory.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError
            A key does not exist, the key types differ, or there is no column but the key.
        """
        right = left_on if right_on is None else right_on
        kind, rows = read_source(data, schema)
        if left_on not in snapshot.manifest.schema.names and left_on not in _SYSTEM:
            names = [*snapshot.manifest.schema.names, *_SYSTEM]
            raise ColumnNotFoundError.among(left_on, names, where=snapshot.manifest.where)
        if right not in kind.names:
            raise ColumnNotFoundError.among(right, kind.names, where="the rows to be joined")
        if len(kind.names) < 2:
            raise OptionError(
                f"the rows to be joined have no column but the key {right!r}; expected columns to "
                "take values from"
            )
        wanted = (
            pa.uint64()
            if left_on in _SYSTEM
            else snapshot.manifest.schema.to_arrow().field(left_on).type
        )
        key_type = kind.field(right).type
        if not key_type.equals(wanted):
            raise SchemaError(
                f"key column {right!r} is {key_type}, but {left_on!r} of the dataset is {wanted}. "
                "Cast it first."
            )
        joined = join_batches(pa.Table.from_batches(list(batches_of(rows)), kind))
        table = pa.Table.from_batches(joined, kind)
        return cls(table, left_on, right)

    @property
    def columns(self) -> pa.Schema:
        """The columns to take values from."""
        return pa.schema([field for field in self.rows.schema if field.name != self.right])

    def find(self, snapshot: Snapshot, positions: Sequence[int]) -> list[NDArray[np.int64]]:
        """The matching row for each live row of the fragments, -1 for none.

        Of several rows with the same key the last one is used; null is a key like any other.
        """
        keys: Any = join_column(self.rows.column(self.right))
        backwards = keys[::-1]
        parts = [self._keys_of(snapshot, position) for position in positions]
        try:
            cast = [chunk.cast(keys.type) for part in parts for chunk in part]
            chunks = pa.chunked_array(cast, keys.type)
            at: Any = pc.index_in(chunks, value_set=backwards)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SchemaError(
                f"key column {self.left!r} of type {keys.type} cannot be joined by: {error}"
            ) from error
        matched = at.fill_null(-1).to_numpy().astype(np.int64)
        rows = np.where(matched < 0, -1, len(keys) - 1 - matched)
        ends = np.cumsum([sum(map(len, part)) for part in parts])
        return np.split(rows, ends[:-1]) if parts else []

    def _keys_of(self, snapshot: Snapshot, position: int) -> list[Any]:
        """Values of the key for the live rows of a fragment."""
        fragment = snapshot.manifest.fragment(position)
        if self.left in _SYSTEM:
            snapshot.check_rows(fragment)
            check_at_once(fragment.physical_rows, snapshot.manifest.where)
            live = snapshot.live_rows(fragment)
            if live is None:
                rows = np.arange(fragment.physical_rows)
            else:
                rows = live.physical_run(0, live.count)
            return [pa.array(SystemColumns(snapshot, position).of(self.left, rows))]
        view = view_of(snapshot, [f"`{self.left}`"])
        kept = snapshot.live_rows(fragment)
        arrays, start = [], 0
        for batch in physical_rows(view, position):
            array: Any = batch.column(0)
            stop = start + len(array)
            arrays.append(array if kept is None else kept.keep(start, stop, [array])[0])
            start = stop
        return arrays
