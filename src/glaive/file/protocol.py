"""The common face of file readers and writers of all versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.conditions import Condition
from glaive.encodings.fetch import Fetch
from glaive.format.fields import Field, LanceSchema
from glaive.io.store import RangeReader
from glaive.kernels.keep import DeletionMask
from glaive.types import FormatVersion, RowRange

__all__ = [
    "BoundColumn",
    "BoundColumns",
    "Entries",
    "FileReader",
    "FileWriter",
    "Searchable",
    "WrittenFile",
]

Entries = Callable[[pa.Array], pa.BooleanArray]
"""Which of some values pass; called with distinct values of a column, the last of them null."""


class Searchable:
    """Rows by what a condition says of their values, without an array of the values.

    These defaults know no way, and send the caller to ``read`` and the condition's ``mask``.
    """

    __slots__ = ()

    def find(self, condition: Condition, start: int, stop: int) -> NDArray[np.int64] | None:
        """The rows among ``start`` to ``stop`` that pass, ascending.

        Returns
        -------
        numpy.ndarray or None
            None when there is no quicker way than to read the rows and apply the condition.

        Raises
        ------
        CorruptFileError
            A page is damaged.
        SchemaError
            The condition is on values of another type.
        """
        return None

    def match(self, condition: Condition, start: int, stop: int) -> pa.Buffer | None:
        """``find`` with one bit per row, set for those that pass, 0 behind the last.

        None also where rows are only known by their numbers.
        """
        return None

    def find_entries(self, passing: Entries, start: int, stop: int) -> NDArray[np.int64] | None:
        """``find`` by a test that is to be made once per distinct value.

        ``passing`` must depend on nothing but the value. It is called once for each
        dictionary, with its entries and a null at the end. None where there are no
        dictionaries.
        """
        return None

    def read_live(self, start: int, stop: int, gone: DeletionMask) -> pa.Array | None:
        """``read`` without the rows that are gone, whose numbers are those of the column.

        None when there is no quicker way than to drop them from what was read.
        """
        return None

    def prune(self, condition: Condition, start: int, stop: int) -> list[RowRange]:
        """The parts of ``start`` to ``stop``, ascending, in which rows may pass.

        Reads statistics where the file has them, never values.
        """
        return [RowRange(start, stop)] if start < stop else []


class BoundColumn(Protocol):
    """One top-level field of a file, with all physical columns below it."""

    field: pa.Field
    num_rows: int

    def cuts(self) -> NDArray[np.int64]:
        """Row numbers at which pages of this field begin, ascending, both ends included."""

    def read(self, start: int, stop: int) -> pa.Array:
        """Rows ``start`` to ``stop`` as one array; without a copy where the page allows."""

    def take(self, rows: NDArray[np.int64]) -> pa.Array:
        """The rows at these positions, in this order, repeats allowed."""

    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """``read`` as a value."""

    def plan_take(self, rows: NDArray[np.int64]) -> Fetch[pa.Array] | pa.Array:
        """``take`` as a value."""

    def find(self, condition: Condition, start: int, stop: int) -> NDArray[np.int64] | None:
        """The rows among ``start`` to ``stop`` that pass; see :class:`Searchable`."""

    def match(self, condition: Condition, start: int, stop: int) -> pa.Buffer | None:
        """``find`` with one bit per row."""

    def find_entries(self, passing: Entries, start: int, stop: int) -> NDArray[np.int64] | None:
        """``find`` by a test that is to be made once per distinct value."""

    def prune(self, condition: Condition, start: int, stop: int) -> list[RowRange]:
        """The parts of ``start`` to ``stop`` in which rows may pass."""

    def read_live(self, start: int, stop: int, gone: DeletionMask) -> pa.Array | None:
        """``read`` without the rows that are gone; see :class:`Searchable`."""


class BoundColumns(Protocol):
    """Some columns of a file, tied to the fields (names, types, ids) a dataset gives them.

    Made once per (file, projection) and kept: everything here is ready to read. To build a
    whole table, read each of ``columns`` between its own ``cuts`` and keep the arrays as
    chunks; to stream, read all of them in windows.
    """

    schema: pa.Schema
    num_rows: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory held once everything was read from; an estimate."""

    @property
    def columns(self) -> Sequence[BoundColumn]:
        """The fields, one by one."""

    def cuts(self) -> NDArray[np.int64]:
        """Row numbers at which pages of these columns begin, ascending, ends included.

        A reader that stays between two cuts decodes no page twice.
        """

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Rows ``start`` to ``stop``, one array per column of ``schema``.

        Drives its own fetches. Flat pages come back as views of the memory map.
        """

    def take(self, rows: NDArray[np.int64]) -> list[pa.Array]:
        """The rows at these positions, in this order, repeats allowed."""

    def prefetch(self, rows: NDArray[np.int64]) -> bool:
        """Have the system read what a take of these rows touches in a mapped file.

        False where that is only known as requests are made; then nothing was done.
        """

    def plan_read(self, start: int, stop: int) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``read`` as a value: for callers that fetch for several files at once."""

    def plan_take(self, rows: NDArray[np.int64]) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``take`` as a value."""


class FileReader(Protocol):
    """An opened data file: footer parsed, columns parsed when first asked for."""

    reader: RangeReader
    version: FormatVersion

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, columns that are bound left out; an estimate."""

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
        """Tie columns to fields (top-level, possibly with some children left out).

        ``column_of`` maps field id to column index as a manifest's ``DataFile`` does; by
        default the file's own schema is numbered depth first. A leaf that the mapping lacks
        reads as all null. ``rows`` spares reading the file's schema; every column is checked
        to have as many.
        """


class WrittenFile(Protocol):
    """What a finished writer reports: enough for a manifest's ``DataFile``."""

    @property
    def path(self) -> str:
        """Path within the store."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def rows(self) -> int:
        """Rows."""

    @property
    def version(self) -> FormatVersion:
        """Format version."""

    @property
    def fields(self) -> list[int]:
        """Ids of the fields that own a column."""

    @property
    def column_indices(self) -> list[int]:
        """The column of each of ``fields``."""


class FileWriter(Protocol):
    """A data file being written."""

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows; the schema must be the writer's."""

    @property
    def position(self) -> int:
        """Bytes written plus bytes waiting in column buffers (estimate)."""

    def finish(self) -> WrittenFile:
        """Write what is pending and the footer; the file becomes visible."""

    def abort(self) -> None:
        """Leave nothing behind."""
