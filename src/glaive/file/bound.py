"""What columns bound to fields have in common, in files of all versions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from glaive.arrow.widths import most_bytes
from glaive.config import MOST_IMPLIED, USUAL_RATIO
from glaive.encodings.fetch import Fetch, and_then, join
from glaive.encodings.protocol import PageReader
from glaive.errors import CapacityError, RowIndexError
from glaive.file.protocol import Entries, Searchable
from glaive.file.run_fetch import run_fetch
from glaive.io.mapped import MappedReader
from glaive.io.store import RangeReader
from glaive.types import Int64s, Where

if TYPE_CHECKING:
    from glaive.arrow.conditions import Condition
    from glaive.encodings.predicate import PagePredicate

__all__ = ["BoundField", "FileColumns", "Proportion", "in_proportion"]


class Proportion:
    """A check of all that is made of so many rows: compression makes much of little.

    Each page has a limit of its own, but rows read at once may have any number of pages, and any
    number of fields: see :func:`in_proportion`.

    Parameters
    ----------
    stored
        Bytes of the file.
    """

    __slots__ = ("_done", "_rows", "_size", "_stored", "_where")

    def __init__(self, rows: int, stored: int, where: Where) -> None:
        self._rows, self._stored, self._where = rows, stored, where
        self._size = self._done = 0

    def array(self, array: pa.Array) -> pa.Array:
        """Check an array of some of the rows."""
        self.count(array.nbytes, len(array))
        return array

    def count(self, size: int, rows: int) -> None:
        """Count the bytes that some of the rows take.

        Raises
        ------
        CapacityError
            All rows take too many.
        """
        self._size, self._done = self._size + size, self._done + rows
        unfinished = self._done < self._rows
        if self._size > MOST_IMPLIED and unfinished and self._size > USUAL_RATIO * self._stored:
            total = self._size * self._rows // max(self._done, 1)
            raise CapacityError(
                f"about {total} bytes of values in {self._stored} bytes (in {self._where}), at "
                f"most {MOST_IMPLIED} are made at once; read or take fewer rows at a time",
                parts=-(-total // MOST_IMPLIED),
            )


def in_proportion(
    rows: int, fields: int, most: float, readers: Sequence[RangeReader]
) -> Callable[[pa.Array], pa.Array]:
    """A check of the arrays of several fields, which are made one after the other of so many rows.

    Its ``CapacityError`` asks for fewer rows at a time: one row, or one field, always passes.
    ``most`` is what a row takes at most.
    """
    if rows < _DIVISIBLE or fields < _DIVISIBLE or not readers or rows * most <= MOST_IMPLIED:
        return _unchecked
    stored = sum(reader.size for reader in readers)
    return Proportion(rows * fields, stored, Where(readers[0].path)).array


_DIVISIBLE = 2


def _unchecked(array: pa.Array) -> pa.Array:
    return array


class BoundField(Searchable, ABC):
    """A top-level field with all that is stored of it below (a ``BoundColumn``)."""

    __slots__ = ("_where", "field", "num_rows", "reader")

    def __init__(self, field: pa.Field, rows: int, reader: RangeReader, where: object) -> None:
        self.field = field
        self.num_rows = rows
        self.reader = reader
        self._where = where

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of memory held after all pages were read from; an estimate."""

    @abstractmethod
    def cuts(self) -> Int64s:
        """Row numbers at which to divide a read of all rows, ascending, both ends included."""

    def read(self, start: int, stop: int) -> pa.Array:
        """Rows ``start`` to ``stop`` as one array."""
        return run_fetch(self.reader, self.plan_read(start, stop))

    def take(self, rows: Int64s) -> pa.Array:
        """The rows at these positions, in this order."""
        return run_fetch(self.reader, self.plan_take(rows))

    @abstractmethod
    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """``read`` as a value."""

    @abstractmethod
    def plan_take(self, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """``take`` as a value."""

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.num_rows:
            raise RowIndexError(
                f"rows {start}..{stop} of a file with {self.num_rows} rows (in {self._where})"
            )

    def find(self, condition: Condition, start: int, stop: int) -> Int64s | None:
        """The rows among ``start`` to ``stop`` that pass; see ``Searchable``."""
        from glaive.encodings.predicate import page_predicate

        return self._search(page_predicate(condition, self.field.type), start, stop)

    def find_entries(self, passing: Entries, start: int, stop: int) -> Int64s | None:
        """``find`` by a test that is evaluated once per distinct value."""
        from glaive.encodings.predicate import entry_predicate

        return self._search(entry_predicate(passing, self.field.type), start, stop)

    @abstractmethod
    def _search(self, predicate: PagePredicate, start: int, stop: int) -> Int64s | None:
        """The rows that pass; None when reading them is the quickest way."""

    def physical_pages(self) -> list[tuple[Sequence[int], Sequence[PageReader]]] | None:
        """First rows and pages of each physical column below; None where a take needs more."""
        return None


class FileColumns:
    """Several fields of one file (a ``BoundColumns``)."""

    __slots__ = ("_most", "columns", "num_rows", "reader", "schema")

    def __init__(self, columns: Sequence[BoundField], rows: int, reader: RangeReader) -> None:
        self.columns = columns
        self.num_rows = rows
        self.schema = pa.schema([column.field for column in columns])
        self.reader = reader
        self._most: float | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by all columns; an estimate."""
        return sum(column.nbytes for column in self.columns)

    def cuts(self) -> Int64s:
        """Row numbers at which a page of any of the fields begins, both ends included."""
        parts = [column.cuts() for column in self.columns]
        if not parts:
            return np.unique(np.array([0, self.num_rows], np.int64))
        return np.unique(np.concatenate(parts))

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Rows ``start`` to ``stop``, one array per field."""
        return run_fetch(self.reader, self.plan_read(start, stop))

    def take(self, rows: Int64s) -> list[pa.Array]:
        """The rows at these positions, one array per field."""
        return run_fetch(self.reader, self.plan_take(rows))

    def prefetch(self, rows: Int64s) -> bool:
        """Have the system read the bytes of a mapped file that a take of these rows needs."""
        parts = [column.physical_pages() for column in self.columns]
        known = [columns for columns in parts if columns is not None]
        if len(known) < len(parts):
            return False
        from glaive.file.v2.prefetch import prefetch_rows

        done = prefetch_rows([column for columns in known for column in columns], rows)
        if done.is_complete and not done.was_needed and isinstance(self.reader, MappedReader):
            self.reader.found_resident()
        return done.is_complete

    def open_pages(self, most: int) -> None:
        """Fetch what at most so many pages read before any row."""
        parts = [part for column in self.columns for part in column.physical_pages() or ()]
        if sum(len(pages) for _, pages in parts) <= most:
            steps = [page.plan_opening() for _, pages in parts for page in pages]
            run_fetch(self.reader, join([step for step in steps if step is not None], list))

    def in_proportion(self, rows: int) -> Callable[[pa.Array], pa.Array]:
        """A check of the arrays of so many rows, one for each field."""
        if self._most is None:
            self._most = most_bytes(self.schema.types)
        return in_proportion(rows, len(self.columns), self._most, [self.reader])

    def plan_read(self, start: int, stop: int) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``read`` as a value."""
        checked = self.in_proportion(stop - start)
        steps = [and_then(column.plan_read(start, stop), checked) for column in self.columns]
        return join(steps, list)

    def plan_take(self, rows: Int64s) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``take`` as a value."""
        return join([column.plan_take(rows) for column in self.columns], list)
