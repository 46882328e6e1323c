"""What a version of a simulated table holds, and what it should hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Values = dict[str, Any]
"""Values of a row by column, without the key."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it is read; ``created`` and ``updated`` are 0 without stable row ids."""

    values: Values
    row_id: int
    created: int
    updated: int

    @property
    def value(self) -> int:
        """The value of the column that every version has."""
        value: int = self.values["value"]
        return value


Rows = Mapping[int, Row]
"""Rows by key."""


def words(number: int) -> str:
    """A text of two words, of which many rows have the first and few the second."""
    return f"w{number % 4} n{number}"


VECTOR = "fixed_size_list:float:2"
"""Type of columns of vectors."""


def vector(number: int) -> list[float]:
    """A vector whose distance from zero tells the number."""
    return [float(number), float(number % 5)]


def typed(kind: str, number: int | None) -> int | str | list[float] | None:
    """What a column of a type gets for a number."""
    if number is None:
        return None
    match kind:
        case "string":
            return words(number)
        case _ if kind == VECTOR:
            return vector(number)
        case _:
            return number


Columns = Mapping[str, tuple[int, str]]
"""Ids and types of the columns by name, without the key."""


class Contents(NamedTuple):
    """What a version holds."""

    columns: Columns
    rows: Rows

    @property
    def types(self) -> dict[str, str]:
        """The types of the columns."""
        return {name: kind for name, (_, kind) in self.columns.items()}

    @property
    def values(self) -> dict[int, Values]:
        """The values of the rows, for a change to change them."""
        return {key: row.values for key, row in self.rows.items()}

    def new_row(self, value: int, more: Collection[int] = (), other: int | None = None) -> Values:
        """A row with a value, ``other`` in the columns with ids in ``more``, and nulls."""
        columns = self.columns.items()
        row = {name: typed(kind, other) if at in more else None for name, (at, kind) in columns}
        return {**row, "value": value}


NOTHING = Contents({}, {})


class Expected(NamedTuple):
    """What a change makes of a version.

    ``touched`` are the keys of the rows that it gave values, equal to the old ones or not. Of the
    rows in ``free`` it is not known whether the change met them: another version gave them their
    state.
    """

    types: Mapping[str, str]
    rows: Mapping[int, Values]
    touched: Collection[int] = ()
    free: Collection[int] = ()


def changed_meanwhile(before: Contents, opened: Contents) -> set[int]:
    """Keys of rows that are not as they were in the version that was opened."""
    return {
        key
        for key, row in before.rows.items()
        if key not in opened.rows or opened.rows[key].value != row.value
    }
