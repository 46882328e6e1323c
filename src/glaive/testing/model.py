"""A table without a format: what a dataset should hold after each operation.

Rows are mappings under an ``id`` that no operation changes, so the order of rows plays no
part. Nothing here knows about files, fragments or versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

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
"""Columns of the rows that :func:`made_rows` makes."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A filter as text and the same filter as a function of a row."""

    text: str
    test: Callable[[Row], bool]

    def __repr__(self) -> str:
        return f"Predicate({self.text!r})"


def made_rows(
    ids: Iterable[int], seed: int, schema: pa.Schema = BASE, *, nulls: bool = True
) -> pa.Table:
    """Rows with values that follow from their ids and the seed; null in some if allowed.

    Columns that are not among those of :data:`BASE` are numbers.
    """
    rows = [_row(number, seed, schema.names, nulls=nulls) for number in ids]
    return pa.Table.from_pylist(rows, schema=schema)


def _row(number: int, seed: int, names: Iterable[str], *, nulls: bool) -> Row:
    mixed = (number * 2_654_435_761 + seed * 40_503) % 1_000_003
    made: Row = {
        "id": number,
        "number": None if nulls and mixed % 11 == 0 else mixed % 50,
        "text": None if nulls and mixed % 7 == 0 else f"t{mixed % 9}",
        "words": [f"w{(mixed + at) % 4}" for at in range(mixed % 3)],
        "vector": [float(mixed % 17), float(mixed % 5)],
    }
    return {name: made.get(name, mixed % 6) for name in names}


def sorted_rows(table: pa.Table) -> list[Row]:
    """The rows of a table by their id; an id that is there twice stays twice."""
    rows: list[Row] = table.to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


@dataclass(frozen=True, slots=True)
class Model:
    """Names of the columns, and the rows by id."""

    names: tuple[str, ...]
    rows: Mapping[int, Row]

    @classmethod
    def of(cls, table: pa.Table) -> Model:
        """The model of a table."""
        return cls(tuple(table.schema.names), {row["id"]: row for row in table.to_pylist()})

    def sorted(self) -> list[Row]:
        """The rows by their id, with the columns in order."""
        return [{name: row[name] for name in self.names} for _, row in sorted(self.rows.items())]

    def matching(self, predicate: Predicate) -> set[int]:
        """Ids of the rows that pass."""
        return {number for number, row in self.rows.items() if predicate.test(row)}

    def append(self, table: pa.Table) -> Model:
        """With more rows; columns they lack are null."""
        rows = dict(self.rows)
        for row in table.to_pylist():
            rows[row["id"]] = {name: row.get(name) for name in self.names}
        return replace(self, rows=rows)

    def without(self, ids: Iterable[int]) -> Model:
        """Without some rows."""
        gone = set(ids)
        return replace(self, rows={k: row for k, row in self.rows.items() if k not in gone})

    def with_values(self, ids: Iterable[int], column: str, value: Callable[[Row], Any]) -> Model:
        """With other values in a column of some rows, or with one more column."""
        rows = dict(self.rows)
        for number in ids:
            rows[number] = {**rows[number], column: value(rows[number])}
        names = self.names if column in self.names else (*self.names, column)
        return Model(names, rows)

    def renamed(self, old: str, new: str) -> Model:
        """With another name of a column."""
        names = {name: new if name == old else name for name in self.names}
        rows = {k: {names[name]: row[name] for name in self.names} for k, row in self.rows.items()}
        return Model(tuple(names.values()), rows)

    def dropped(self, column: str) -> Model:
        """Without a column."""
        return replace(self, names=tuple(name for name in self.names if name != column))
