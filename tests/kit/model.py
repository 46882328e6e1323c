"""An in-memory model of a table: the expected rows of a dataset after each operation.

Rows are identified by ``id``, which no operation changes; their order is ignored. The model has
no files, fragments or versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from glaive.dataclass import dataclass

__all__ = ["BASE", "Model", "Predicate", "made_rows", "sorted_rows"]

Row = dict[str, Any]

_FIELDS: list[pa.Field] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("number", pa.int64()),
    pa.field("text", pa.string()),
    pa.field("words", pa.list_(pa.string())),
    pa.field("vector", pa.list_(pa.float32(), 2)),
]

BASE = pa.schema(_FIELDS)
"""Schema of the rows of :func:`made_rows`."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A filter as a string and as an equivalent function of a row."""

    text: str
    test: Callable[[Row], bool]

    def __repr__(self) -> str:
        return f"Predicate({self.text!r})"


def made_rows(
    ids: Iterable[int], seed: int, schema: pa.Schema = BASE, *, nulls: bool = True
) -> pa.Table:
    """Return rows whose values are derived from their ids and the seed.

    Columns that are not in :data:`BASE` are numbers.
    """
    rows = [_row(row_id, seed, schema.names, nulls=nulls) for row_id in ids]
    return pa.Table.from_pylist(rows, schema=schema)


def _row(row_id: int, seed: int, names: Iterable[str], *, nulls: bool) -> Row:
    mixed = (row_id * 2_654_435_761 + seed * 40_503) % 1_000_003
    values: Row = {
        "id": row_id,
        "number": None if nulls and mixed % 11 == 0 else mixed % 50,
        "text": None if nulls and mixed % 7 == 0 else f"t{mixed % 9}",
        "words": [f"w{(mixed + at) % 4}" for at in range(mixed % 3)],
        "vector": [float(mixed % 17), float(mixed % 5)],
    }
    return {name: values.get(name, mixed % 6) for name in names}


def sorted_rows(table: pa.Table) -> list[Row]:
    """The rows of a table, sorted by id, including duplicates."""
    rows: list[Row] = table.to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


@dataclass(frozen=True, slots=True)
class Model:
    """Column names, and rows by id."""

    names: tuple[str, ...]
    rows: Mapping[int, Row]

    @classmethod
    def of(cls, table: pa.Table) -> Model:
        """The model of a table."""
        return cls(tuple(table.schema.names), {row["id"]: row for row in table.to_pylist()})

    def sorted(self) -> list[Row]:
        """The rows sorted by id, with the columns in order."""
        return [{name: row[name] for name in self.names} for _, row in sorted(self.rows.items())]

    def matching(self, predicate: Predicate) -> set[int]:
        """Ids of the rows that match."""
        return {row_id for row_id, row in self.rows.items() if predicate.test(row)}

    def append(self, table: pa.Table) -> Model:
        """Append rows; missing columns are null."""
        rows = dict(self.rows)
        for row in table.to_pylist():
            rows[row["id"]] = {name: row.get(name) for name in self.names}
        return replace(self, rows=rows)

    def without(self, ids: Iterable[int]) -> Model:
        """Delete rows."""
        deleted = set(ids)
        return replace(self, rows={k: row for k, row in self.rows.items() if k not in deleted})

    def with_values(self, ids: Iterable[int], column: str, value: Callable[[Row], Any]) -> Model:
        """Set the values of a column, which may be new, in some rows."""
        rows = dict(self.rows)
        for row_id in ids:
            rows[row_id] = {**rows[row_id], column: value(rows[row_id])}
        names = self.names if column in self.names else (*self.names, column)
        return Model(names, rows)

    def renamed(self, old: str, new: str) -> Model:
        """Rename a column."""
        names = {name: new if name == old else name for name in self.names}
        rows = {k: {names[name]: row[name] for name in self.names} for k, row in self.rows.items()}
        return Model(tuple(names.values()), rows)

    def dropped(self, column: str) -> Model:
        """Drop a column."""
        return replace(self, names=tuple(name for name in self.names if name != column))
