"""The common interface of file readers and writers of all versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from glaive.arrow.conditions import Condition
from glaive.arrow.widths import value_bytes
from glaive.dataclass import dataclass
from glaive.encodings.fetch import Fetch
from glaive.errors import OptionError
from glaive.format.fields import Field, LanceSchema
from glaive.io.store import RangeReader
from glaive.kernels.compact import DeletionMask
from glaive.types import FormatVersion, Int64s, RowRange

__all__ = [
    "BoundColumn",
    "BoundColumns",
    "Entries",
    "FileReader",
    "FileWriter",
    "Searchable",
    "WrittenFile",
    "unfinished",
]

Entries = Callable[[pa.Array], pa.BooleanArray]
"""Which of some values pass; called with distinct values of a column, the last of them null."""


class Searchable:
    """What a :class:`BoundColumn` may know beside its values, and what holds where it does not.

    Finds the rows that pass a condition without building an array of their values. By default
    callers must ``read`` the values and apply the condition's ``mask``.
    """

    __slots__ = ()

    field: pa.Field

    @property
    def value_bytes(self) -> int:
        """Bytes of a decoded value, about; at least 1. By default by its type alone."""
        return value_bytes(self.field.type)

    def find(self, condition: Condition, start: int, stop: int) -> Int64s | None:
        """The rows among ``start`` to ``stop`` that pass, ascending.

        Returns
        -------
        numpy.ndarray or None
            None when reading the rows and applying the condition is the quickest way.

        Raises
        ------
        CorruptFileError
            A page is damaged.
        SchemaError
            The condition is on values of another type.
        """
        return None

    def match(self, condition: Condition, start: int, stop: int) -> pa.Buffer | None:
        """``find`` with one bit per row, set for those that pass, 0 after the last.

        None also where only :meth:`find` is possible.
        """
        return None

    def find_entries(self, passing: Entries, start: int, stop: int) -> Int64s | None:
        """``find`` by a test that is evaluated once per distinct value.

        ``passing`` must depend on the value only. It is called once for each dictionary, with
        its entries and a null at the end. None where there are no dictionaries.
        """
        return None

    def read_live(self, start: int, stop: int, deleted: DeletionMask) -> pa.Array | None:
        """``read`` without deleted rows, which are numbered like those of the column.

        None when dropping them after the read is the quickest way.
        """
        return None

    def prune(self, condition: Condition, start: int, stop: int) -> list[RowRange]:
        """The ranges of ``start`` to ``stop``, ascending, in which rows may pass.

        Reads statistics where the file has them, never values.
        """
        return [RowRange(start, stop)] if start < stop else []


class BoundColumn(Protocol):
    """One top-level field of a file, with all physical columns below it."""

    field: pa.Field
    num_rows: int

    @property
    def value_bytes(self) -> int:
        """Bytes of a decoded value, about; at least 1."""

    def cuts(self) -> Int64s:
        """Row numbers at which pages of this field begin, ascending, both ends included."""

    def read(self, start: int, stop: int) -> pa.Array:
        """Rows ``start`` to ``stop`` as one array; without a copy where the page allows."""

    def take(self, rows: Int64s) -> pa.Array:
        """The rows at these positions, in this order, repeats allowed."""

    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """``read`` as a value."""

    def plan_take(self, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """``take`` as a value."""

    def find(self, condition: Condition, start: int, stop: int) -> Int64s | None:
        """The rows among ``start`` to ``stop`` that pass; see :class:`Searchable`."""

    def match(self, condition: Condition, start: int, stop: int) -> pa.Buffer | None:
        """``find`` with one bit per row."""

    def find_entries(self, passing: Entries, start: int, stop: int) -> Int64s | None:
        """``find`` by a test that is evaluated once per distinct value."""

    def prune(self, condition: Condition, start: int, stop: int) -> list[RowRange]:
        """The ranges of ``start`` to ``stop`` in which rows may pass."""

    def read_live(self, start: int, stop: int, deleted: DeletionMask) -> pa.Array | None:
        """``read`` without deleted rows; see :class:`Searchable`."""


class BoundColumns(Protocol):
    """Some columns of a file, bound to the fields (names, types, ids) of a dataset.

    Created once per (file, projection) and cached, ready to read. To build a whole table, read
    each of ``columns`` between its own ``cuts`` and use the arrays as chunks; to stream, read
    all of them in windows.
    """

    schema: pa.Schema
    num_rows: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory held after all pages were read from; an estimate."""

    @property
    def columns(self) -> Sequence[BoundColumn]:
        """The fields, one by one."""

    def cuts(self) -> Int64s:
        """Row numbers at which pages of these columns begin, ascending, ends included.

        A reader that stays between two cuts decodes no page twice.
        """

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Rows ``start`` to ``stop``, one array per column of ``schema``.

        Flat pages are returned as views of the memory map.
        """

    def take(self, rows: Int64s) -> list[pa.Array]:
        """The rows at these positions, in this order, repeats allowed."""

    def prefetch(self, rows: Int64s) -> bool:
        """Have the system read the bytes of a mapped file that a take of these rows needs.

        False where they are not known in advance; then nothing was done.
        """

    def open_pages(self, most: int) -> None:
        """Fetch what pages read before any row, so that rows take one round of requests less.

        Only if there are at most so many pages.
        """

    def plan_read(self, start: int, stop: int) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``read`` as a value: for callers that fetch for several files at once."""

    def plan_take(self, rows: Int64s) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``take`` as a value."""


class FileReader(Protocol):
    """An opened data file: the footer is parsed, columns are parsed on first use."""

    reader: RangeReader
    version: FormatVersion

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, without bound columns; an estimate."""

    @property
    def num_columns(self) -> int:
        """Physical columns."""

    @property
    def num_rows(self) -> int:
        """Rows in the file."""

    @property
    def schema(self) -> LanceSchema:
        """The schema stored in the file."""

    def bind(
        self,
        fields: Sequence[Field],
        column_of: Mapping[int, int] | None = None,
        rows: int | None = None,
    ) -> BoundColumns:
        """Bind columns to fields (top-level, possibly with some children left out).

        ``column_of`` maps field id to column index like a manifest's ``DataFile``; by default
        the file's own schema is numbered depth first. A leaf that the mapping lacks reads as all
        null. With ``rows`` the file's schema is not read; every column is checked to have as
        many.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A finished file: all that a manifest's ``DataFile`` needs.

    ``fields`` are the ids of the fields that own a column, ``column_indices`` the column of each.
    """

    path: str
    size: int
    rows: int
    version: FormatVersion
    fields: list[int]
    column_indices: list[int]


class FileWriter(Protocol):
    """A data file being written."""

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows; the schema must be the writer's."""

    @property
    def position(self) -> int:
        """Bytes written plus bytes waiting in column buffers (estimate)."""

    def finish(self) -> WrittenFile:
        """Write what is pending and the footer; the file becomes visible.

        Raises
        ------
        OptionError
            Writing rows ended in an error after some columns had taken them.
        """

    def abort(self) -> None:
        """Discard the file."""


def unfinished(where: str) -> OptionError:
    """Why a file is not finished that some of its columns lack rows of."""
    return OptionError(
        f"{where} is not finished: writing some of its rows ended in an error. Write the file from "
        "the start."
    )
