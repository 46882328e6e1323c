"""The common interface of file readers and writers of all versions."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import max_bytes, value_bytes
from glaive.arrow.conditions import Condition
from glaive.config import MAX_IMPLIED_BYTES, USUAL_RATIO
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.options import PageOptions
from glaive.encodings.protocol import Fetch, MemoryRanges, PageReader, and_then, join
from glaive.errors import CapacityError, OptionError, RowIndexError
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.io.mapped import MappedReader, prefetch
from glaive.io.store import RangeReader
from glaive.types import FormatVersion, Int64s, RowRange, Where

if TYPE_CHECKING:
    from glaive.encodings.predicate import PagePredicate


# --- One version of the file format, and its limits for a writer, as plain data ---------
#
# Readers use profiles only to identify a version; they accept every encoding they know.


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionProfile:
    """Facts that every format version has.

    Parameters
    ----------
    version
        The version by name, as in ``data_storage_version`` and manifests.
    footer
        ``(major, minor)`` written to the footer of a file.
    on_disk
        All ``(major, minor)`` pairs in footers that identify this version.
    leaf_columns
        Each leaf of a struct is a column, so that the members may be in different files.
    grows_structs
        Structs may get new members: readers add nulls for files that lack them.
    blob_type
        New blob columns are of type ``lance.blob.v2``, else binary with metadata.
    """

    version: FormatVersion
    footer: tuple[int, int]
    on_disk: tuple[tuple[int, int], ...]
    leaf_columns: bool = True
    grows_structs: bool = False
    blob_type: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatProfile(VersionProfile, PageOptions):
    """The permissions of one version of the 2.x format, for writers.

    Parameters
    ----------
    types
        Names of the types that this version supports and others do not; see
        ``glaive.file.versions.FEATURES``.
    pages
        The page grammar: ``layouts`` with levels, ``arrays`` as in 2.0, or ``planes`` of
        structure and of values as in 2.3.
    stable
        Whether all later releases will read files of this version.
    """

    types: frozenset[str] = frozenset()
    pages: Literal["layouts", "arrays", "planes"] = "layouts"
    stable: bool = True

    def __hash__(self) -> int:
        return hash(self.version)  # unique, and quick: every write looks things up by profile


Entries = Callable[[pa.Array], pa.BooleanArray]
"""Which values pass; called with distinct values of a column, and a null at the end."""

TAKEN_SHARE: Final = 0.12
TAKEN_SHARE_OF_NUMBERS: Final = 0.01
"""Shares of rows up to which a take is quicker than a read. Numbers are read at memory speed."""

_NUMBER_BYTES: Final = 16


class BoundColumn(ABC):
    """One top-level field of a file, with all physical columns below it.

    Methods for facts other than the values have defaults. Callers must then ``read`` the values
    and apply the condition's ``mask``.
    """

    __slots__ = ()

    field: pa.Field
    num_rows: int

    @abstractmethod
    def cuts(self) -> Int64s:
        """Return row numbers at which pages of this field begin, ascending, both ends included."""

    @abstractmethod
    def read(self, start: int, stop: int) -> pa.Array:
        """Return rows ``start`` to ``stop`` as one array; a view where the page allows."""

    @abstractmethod
    def take(self, rows: Int64s) -> pa.Array:
        """Return the rows at these positions, in this order, repeats allowed."""

    @abstractmethod
    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Return ``read`` as a value."""

    @abstractmethod
    def plan_take(self, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """Return ``take`` as a value."""

    @property
    def value_bytes(self) -> int:
        """Bytes of a decoded value, about; at least 1. By default by its type alone."""
        return value_bytes(self.field.type)

    @property
    def taken_share(self) -> float:
        """Share of rows up to which a take is quicker than a read. By default by its type alone."""
        kind = self.field.type
        try:
            is_number = kind.bit_width <= 8 * _NUMBER_BYTES and not pa.types.is_dictionary(kind)
        except ValueError:  # variable width
            is_number = False
        return TAKEN_SHARE_OF_NUMBERS if is_number else TAKEN_SHARE

    def find(self, condition: Condition, start: int, stop: int) -> Int64s | None:
        """Return the passing rows among ``start`` to ``stop``, ascending, without an array of them.

        Returns
        -------
        numpy.ndarray or None
            ``None`` when reading the rows and applying the condition is the quickest way.

        Raises
        ------
        CorruptFileError
            A page is damaged.
        SchemaError
            The condition is on values of another type.
        """
        return None

    def match(self, condition: Condition, start: int, stop: int) -> pa.Buffer | None:
        """Run ``find`` and return one bit per row, set for passing rows, 0 after the last.

        Return ``None`` also where only :meth:`find` is possible.
        """
        return None

    def find_entries(self, passing: Entries, start: int, stop: int) -> Int64s | None:
        """Run ``find`` with a test that is evaluated once per distinct value.

        ``passing`` must depend on the value only. It is called once for each dictionary, with
        its entries and a null at the end. Return ``None`` where the column lacks dictionaries.
        """
        return None

    def prune(self, condition: Condition, start: int, stop: int) -> list[RowRange]:
        """Return the ranges of ``start`` to ``stop``, ascending, where rows may pass.

        Reads only statistics, where the file has them.
        """
        return [RowRange(start, stop)] if start < stop else []


class BoundColumns(Protocol):
    """Some columns of a file, bound to the fields (names, types, ids) of a dataset.

    Created once per (file, projection) and cached, ready to read. To build a whole table, read
    each of ``columns`` between its own ``cuts`` and use the arrays as chunks. To stream, read
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
        """Return row numbers at which pages of these columns begin, ascending, ends included.

        A reader that stays between two cuts decodes each page once.
        """

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Return the rows ``start`` to ``stop``, one array per column of ``schema``.

        Flat pages are returned as views of the memory map.
        """

    def take(self, rows: Int64s) -> list[pa.Array]:
        """Return the rows at these positions, in this order, repeats allowed."""

    def prefetch(self, rows: Int64s) -> bool:
        """Have the system read the bytes of a mapped file that a take of these rows needs.

        Return ``False`` without effect where they are unknown in advance.
        """

    def open_pages(self, limit: int) -> None:
        """Fetch what pages read before any row, so that rows take one round of requests less.

        Only if there are at most so many pages.
        """

    def plan_read(self, start: int, stop: int) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """Return ``read`` as a value: for callers that fetch for several files at once."""

    def plan_take(self, rows: Int64s) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """Return ``take`` as a value."""


class FileReader(Protocol):
    """An opened data file: the footer is parsed, columns are parsed on first use."""

    reader: RangeReader
    version: FormatVersion

    @property
    def nbytes(self) -> int:
        """Estimated bytes of memory held, except by bound columns."""

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
        null. With ``rows`` the file's schema stays unread; every column is checked to have as many.
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
    """Return the error for an unfinished file, where some columns lack rows."""
    return OptionError(
        f"{where} is not finished: writing some of its rows ended in an error. Write the file from "
        "the start."
    )


# --- Run fetches: read what they need until a result is there ---------------------------
#
# Codecs only name the bytes that they need. Joining the fetches of all columns of a batch before
# reading makes one request out of many; see :mod:`glaive.encodings.protocol`.

T = TypeVar("T")


def run_fetch(reader: RangeReader, step: Fetch[T] | T) -> T:
    """Read what a step needs until it is a result."""
    while isinstance(step, Fetch):
        step = step.resume(reader.read(step.ranges))
    return step


# --- Have the system read all bytes of a mapped file that a take needs, at once ---------

_GAP = 16 * 1024
"""Ranges with a smaller gap are requested as one."""


class Prefetched(NamedTuple):
    """The result of a prefetch.

    Parameters
    ----------
    is_complete
        Whether all ranges are known; else only the opening ranges were prefetched.
    was_needed
        Whether something, of a sample, was missing in memory.
    """

    is_complete: bool
    was_needed: bool


def prefetch_rows(
    columns: Sequence[tuple[Sequence[int], Sequence[PageReader]]], rows: Int64s
) -> Prefetched:
    """Prefetch what a take of these rows reads of mapped columns.

    Parameters
    ----------
    columns
        The row that each page begins at, then the rows of the column; and the pages.
    """
    rows = np.sort(rows)
    parts = [part for starts, pages in columns for part in _pages(starts, pages, rows)]
    if not parts:
        return Prefetched(is_complete=True, was_needed=False)
    opening = [page.opening_ranges(positions) for page, positions in parts]
    needed = prefetch(_merged(np.concatenate(opening)))
    ranges = []
    for page, positions in parts:
        taken = page.take_ranges(positions)
        if taken is None:
            return Prefetched(is_complete=False, was_needed=needed)
        ranges.append(taken)
    needed = prefetch(_merged(np.concatenate(ranges))) or needed
    return Prefetched(is_complete=True, was_needed=needed)


def _pages(
    starts: Sequence[int], pages: Sequence[PageReader], rows: Int64s
) -> Iterator[tuple[PageReader, Int64s]]:
    """Yield the pages that contain some of the rows, with the positions of the rows in the page."""
    cuts = rows.searchsorted(starts).tolist()
    for at, page in enumerate(pages):
        if cuts[at] < cuts[at + 1]:
            yield page, rows[cuts[at] : cuts[at + 1]] - starts[at]


def _merged(ranges: MemoryRanges) -> MemoryRanges:
    """Return the ranges in order, near ones merged."""
    if not len(ranges):
        return ranges
    ranges = ranges[np.argsort(ranges[:, 0])]
    ends = np.maximum.accumulate(ranges.sum(axis=1))
    begins = (ranges[1:, 0] > ends[:-1] + _GAP).nonzero()[0] + 1
    first = np.concatenate(([0], begins))
    last = np.concatenate((begins - 1, [len(ranges) - 1]))
    starts = ranges[first, 0]
    return np.stack([starts, ends[last] - starts], axis=1)


# --- Common parts of columns bound to fields, in files of all versions ------------------

_MIN_EXACT_BYTES: Final = 4096
"""Bytes that a page may always take: ``USUAL_RATIO`` times the bytes of its metadata."""


def memory_bytes(array: Any) -> int:
    """Return ``nbytes``, which takes 10 µs; of small buffers it may count unused parts."""
    size: int = array.get_total_buffer_size()
    return size if size < _MIN_EXACT_BYTES else int(array.nbytes)


class Proportion:
    """A check of all that is made of so many rows: compression makes much of little.

    Each page has a limit of its own. Rows read at once may have any number of pages and of
    fields: see :func:`in_proportion`.

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
        self.count(memory_bytes(array), len(array))
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
        if (
            self._size > MAX_IMPLIED_BYTES
            and unfinished
            and self._size > USUAL_RATIO * self._stored
        ):
            total = self._size * self._rows // max(self._done, 1)
            raise CapacityError(
                f"about {total} bytes of values in {self._stored} bytes (in {self._where}), at "
                f"most {MAX_IMPLIED_BYTES} are made at once; read or take fewer rows at a time",
                parts=-(-total // MAX_IMPLIED_BYTES),
            )


def in_proportion(
    rows: int, fields: int, width: float, readers: Sequence[RangeReader]
) -> Callable[[pa.Array], pa.Array]:
    """Return a check of the arrays of several fields, made one by one for so many rows.

    Its ``CapacityError`` asks for fewer rows at a time: one row, or one field, always passes.
    ``width`` is the maximum bytes of a row.
    """
    if rows < _DIVISIBLE or fields < _DIVISIBLE or not readers or rows * width <= MAX_IMPLIED_BYTES:
        return _unchecked
    stored = sum(reader.size for reader in readers)
    return Proportion(rows * fields, stored, Where(readers[0].path)).array


_DIVISIBLE = 2


def _unchecked(array: pa.Array) -> pa.Array:
    return array


class BoundField(BoundColumn):
    """A top-level field with all that is stored of it below."""

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

    def read(self, start: int, stop: int) -> pa.Array:
        """Return the rows ``start`` to ``stop`` as one array."""
        return run_fetch(self.reader, self.plan_read(start, stop))

    def take(self, rows: Int64s) -> pa.Array:
        """Return the rows at these positions, in this order."""
        return run_fetch(self.reader, self.plan_take(rows))

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.num_rows:
            raise RowIndexError(
                f"rows {start}..{stop} of a file with {self.num_rows} rows (in {self._where})"
            )

    def find(self, condition: Condition, start: int, stop: int) -> Int64s | None:
        """Return the rows among ``start`` to ``stop`` that pass; see :class:`BoundColumn`."""
        from glaive.encodings.predicate import page_predicate

        return self._search(page_predicate(condition, self.field.type), start, stop)

    def find_entries(self, passing: Entries, start: int, stop: int) -> Int64s | None:
        """Run ``find`` with a test that is evaluated once per distinct value."""
        from glaive.encodings.predicate import entry_predicate

        return self._search(entry_predicate(passing, self.field.type), start, stop)

    @abstractmethod
    def _search(self, predicate: PagePredicate, start: int, stop: int) -> Int64s | None:
        """Return the rows that pass; ``None`` when reading them is the quickest way."""

    def physical_pages(self) -> list[tuple[Sequence[int], Sequence[PageReader]]] | None:
        """Return first rows and pages of the physical columns; ``None`` where a take needs more."""
        return None


class FileColumns:
    """Several fields of one file (a ``BoundColumns``)."""

    __slots__ = ("_max_row_bytes", "columns", "num_rows", "reader", "schema")

    def __init__(self, columns: Sequence[BoundField], rows: int, reader: RangeReader) -> None:
        self.columns = columns
        self.num_rows = rows
        self.schema = pa.schema([column.field for column in columns])
        self.reader = reader
        self._max_row_bytes: float | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by all columns; an estimate."""
        return sum(column.nbytes for column in self.columns)

    def cuts(self) -> Int64s:
        """Return row numbers at which a page of any of the fields begins, both ends included."""
        parts = [column.cuts() for column in self.columns]
        if not parts:
            return np.unique(np.array([0, self.num_rows], np.int64))
        return np.unique(np.concatenate(parts))

    def read(self, start: int, stop: int) -> list[pa.Array]:
        """Return the rows ``start`` to ``stop``, one array per field."""
        return run_fetch(self.reader, self.plan_read(start, stop))

    def take(self, rows: Int64s) -> list[pa.Array]:
        """Return the rows at these positions, one array per field."""
        return run_fetch(self.reader, self.plan_take(rows))

    def prefetch(self, rows: Int64s) -> bool:
        """Have the system read the bytes of a mapped file that a take of these rows needs."""
        parts = [column.physical_pages() for column in self.columns]
        known = [columns for columns in parts if columns is not None]
        if len(known) < len(parts):
            return False

        done = prefetch_rows([column for columns in known for column in columns], rows)
        if done.is_complete and not done.was_needed and isinstance(self.reader, MappedReader):
            self.reader.found_resident()
        return done.is_complete

    def open_pages(self, limit: int) -> None:
        """Fetch what at most so many pages read before any row."""
        parts = [part for column in self.columns for part in column.physical_pages() or ()]
        if sum(len(pages) for _, pages in parts) <= limit:
            steps = [page.plan_opening() for _, pages in parts for page in pages]
            run_fetch(self.reader, join([step for step in steps if step is not None], list))

    def in_proportion(self, rows: int) -> Callable[[pa.Array], pa.Array]:
        """Return a check of the arrays of so many rows, one for each field."""
        if self._max_row_bytes is None:
            self._max_row_bytes = max_bytes(self.schema.types)
        return in_proportion(rows, len(self.columns), self._max_row_bytes, [self.reader])

    def plan_read(self, start: int, stop: int) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """Return ``read`` as a value."""
        checked = self.in_proportion(stop - start)
        steps = [and_then(column.plan_read(start, stop), checked) for column in self.columns]
        return join(steps, list)

    def plan_take(self, rows: Int64s) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """Return ``take`` as a value."""
        checked = self.in_proportion(len(rows))
        return join([and_then(column.plan_take(rows), checked) for column in self.columns], list)


# --- Row positions as users give them ---------------------------------------------------

_POSITION_LIMIT: Final = 2**63


def positions(rows: object, total: int | None = None) -> NDArray[np.int64]:
    """Return row positions from a list, range, numpy or Arrow array of integers.

    Parameters
    ----------
    rows
        The positions.
    total
        Number of rows. Of a range that leaves the rows, only the end outside is returned, and
        the caller refuses it. All numbers of the range could take any memory.

    Raises
    ------
    OptionError
        Something in it is another value than an integer.
    RowIndexError
        A number has more than 64 bits.
    """
    if isinstance(rows, range) and rows and total is not None:
        low, high = min(rows[0], rows[-1]), max(rows[0], rows[-1])
        if low < 0 or high >= total:
            outside = low if low < 0 else high
            _check_size(outside)
            rows = [outside]
    if isinstance(rows, pa.Array | pa.ChunkedArray):
        if rows.null_count:
            raise OptionError("row positions: expected integers, found a null")
        try:
            rows.validate(full=True)  # pyarrow reads numbers of items out of a message as they are
        except pa.ArrowException as error:
            raise OptionError(f"row positions: expected integers: {error}") from None
        rows = (
            rows.to_numpy(zero_copy_only=False) if isinstance(rows, pa.Array) else rows.to_numpy()
        )
    if type(rows) is list and rows and type(rows[0]) is int:
        with suppress(struct.error):  # said below what is wrong
            packed = struct.pack(f"{len(rows)}q", *rows)  # takes half of NumPy's time
            return np.frombuffer(packed, np.int64)
    if isinstance(rows, np.ndarray) and type(rows) is not np.ndarray and np.ma.is_masked(rows):
        raise OptionError("row positions: expected integers, found a masked one")
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and len(numbers)):
        raise OptionError(f"row positions: expected a list of integers, found {rows!r:.60}")
    if numbers.dtype == np.uint64 and len(numbers):
        _check_size(int(numbers.max()))
    return numbers.astype(np.int64, copy=False)


def _check_size(row: int) -> None:
    if not -_POSITION_LIMIT <= row < _POSITION_LIMIT:
        raise RowIndexError(f"row position {row} is out of range: no dataset has that many rows")


def check_range(low: int, high: int, starts: NDArray[np.int64]) -> None:
    """Refuse rows beyond the rows of a dataset.

    Parameters
    ----------
    low, high
        The smallest and the largest row position.
    starts
        Where each fragment starts among the rows; the last entry counts all rows.

    Raises
    ------
    RowIndexError
        One of the two is out of range.
    """
    total = int(starts[-1])
    if low < 0 or high >= total:
        raise position_error(low if low < 0 else high, total)


def position_error(row: int, total: int) -> RowIndexError:
    """Return the error that a row position is outside of ``total`` rows."""
    return RowIndexError(
        f"row position {row} is out of range: the dataset has {total} rows. Pass 0 to {total - 1}."
    )
