"""Join the columns of fragments, so that a take costs time per column instead of per fragment.

A projection joins the fragments that its takes have read (:mod:`glaive.file.v2.reader`) and keeps
the result: random takes soon read all fragments. Other columns, such as columns of fetched files,
are taken fragment by fragment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from time import monotonic
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import inverse_permutation, number_array
from glaive.arrow.chunked import concat_arrays
from glaive.encodings.pages.full_zip import FullZipPage, PlainPlaces, PlainRun
from glaive.encodings.protocol import PageReader
from glaive.errors import CapacityError, CorruptFileError
from glaive.file.protocol import prefetch_rows
from glaive.file.v2.reader import ColumnTakes, FieldColumns, join_columns
from glaive.io.pool import gather
from glaive.kernels.distances import PlacedVectors
from glaive.scan.bound import THREADED_ROWS, BoundFragment
from glaive.scan.options import Meter
from glaive.types import Int64s

MAX_FRAGMENTS: Final = 4096
_MAX_BYTES: Final = 96 * 1024 * 1024
"""Maximum number of fragments to join, and bytes of memory of all their opened columns.

The first take reads the metadata of all columns, whatever rows it takes.
"""

_MIN_CHECK_SECONDS: Final = 0.01
"""Minimum seconds between two checks of the files, as in a running scan."""

_INTERVAL_FRAGMENTS: Final = 1000
_SIZE_CHECK_SECONDS: Final = 10.0
_RESIDENT_SECONDS: Final = 0.1
"""Seconds between checks of file sizes, and of residency in memory, for so many fragments.

With fewer fragments the intervals are shorter, in proportion.
"""

_RESIDENCY_SAMPLE: Final = 16
"""Fragments whose files a take samples to predict whether it would wait for a disk."""

_FALLBACK: Final = "joined take"


class JoinedFragments:
    """Some fragments of a projection.

    Parameters
    ----------
    fragments
        By position in the manifest's list, ascending.
    columns
        One per field; ``None`` for a field that is taken fragment by fragment.
    total
        Number of fragments in the manifest.
    """

    def __init__(
        self,
        fragments: dict[int, BoundFragment],
        columns: Sequence[FieldColumns | None],
        total: int,
    ) -> None:
        self.fragments, self.columns = fragments, columns
        positions = np.fromiter(fragments, np.int64, len(fragments))
        counts = np.array([bound.rows for bound in fragments.values()], np.int64)
        self.first_row = np.full(total, -1, np.int64)
        """Number of the first row of each fragment among all rows; -1 for other fragments."""
        self.rows = np.zeros(total, np.int64)
        """Physical rows of the fragment at each position."""
        self.first_row[positions], self.rows[positions] = counts.cumsum() - counts, counts
        present = [column for column in columns if column is not None]
        self._takes = ColumnTakes(present) if len(present) == len(columns) else None
        is_whole = all(bound.live is None for bound in fragments.values())
        self.is_all = is_whole and len(fragments) == total and self._takes is not None
        """Whether row i of the dataset is row i of the columns: all rows are live and joined."""
        # Monotonic time until which files count as complete, and as resident in memory.
        self._checked_until = self._resident_until = 0.0

    @property
    def nbytes(self) -> int:
        """Estimated bytes of memory, including the fragments that it holds."""
        own = sum(column.nbytes for column in self.columns if column is not None)
        kept = sum(fragment.nbytes for fragment in self.fragments.values())
        return own + kept + self.first_row.nbytes + self.rows.nbytes

    def holds(self, fragment: Int64s) -> bool:
        """Return whether all of these fragments are joined."""
        return len(self.fragments) == len(self.rows) or bool((self.first_row[fragment] >= 0).all())

    @cached_property
    def places(self) -> PlacedVectors | None:
        """The location of the values of a single plain column in mapped files, or ``None``."""
        column = self.columns[0] if len(self.columns) == 1 else None
        parts = [] if column is None else column.physical_pages()
        pages = parts[0][1] if len(parts) == 1 else ()
        found = _plain_locations(pages[0]) if len(pages) == 1 else None
        if found is None or not 0 < found.width <= found.memory.size or not len(found.ends):
            return None
        return PlacedVectors(*found, self.first_row, self.rows)

    def take(self, fragment: Int64s, row: Int64s, meter: Meter) -> list[pa.Array] | None:
        """Take physical rows of joined fragments; return one array per column.

        Return ``None`` where the caller must take fragment by fragment.
        """
        numbers = self.numbers(fragment, row)
        if numbers is None:
            meter.fallback(_FALLBACK, "a row is beyond its fragment")
            return None
        if self._takes is not None:
            return self.take_numbers(numbers, meter)
        takes = [
            partial(self._take_unjoined, at, fragment, row) if column is None else column.take
            for at, column in enumerate(self.columns)
        ]
        return self._take_all(takes, numbers, meter)

    def take_numbers(self, numbers: Int64s, meter: Meter) -> list[pa.Array] | None:
        """Take rows by their number among the rows of all fragments."""
        takes = self._takes
        if takes is None or len(numbers) >= THREADED_ROWS:
            return self._take_all([] if takes is None else takes.each, numbers, meter)
        return self._take_all(takes, numbers, meter)

    def _take_all(
        self,
        takes: ColumnTakes | Sequence[Callable[[Int64s], pa.Array]],
        numbers: Int64s,
        meter: Meter,
    ) -> list[pa.Array] | None:
        many = len(numbers) >= THREADED_ROWS
        try:
            if not self.prepare(numbers):
                meter.fallback(_FALLBACK, "unknown reads of cold files")
                return None
            if isinstance(takes, ColumnTakes):
                arrays = takes.take(numbers)
            else:
                arrays = list((gather if many else map)(lambda take: take(numbers), takes))
        except CapacityError as error:
            meter.fallback(_FALLBACK, "values beyond one array", error)
        except CorruptFileError as error:  # reading the single page gives a better message
            meter.fallback(_FALLBACK, "a file is damaged", error)
        else:
            meter.count("rows_taken_joined", len(numbers))
            return arrays
        return None

    def _take_unjoined(self, at: int, fragment: Int64s, row: Int64s, _numbers: Int64s) -> pa.Array:
        """Take a column that some fragments cannot join."""
        order = np.argsort(fragment, kind="stable")
        cuts = np.diff(fragment[order]).nonzero()[0] + 1
        parts = [
            self.fragments[int(fragment[some[0]])].columns[at].take(row[some])
            for some in np.split(order, cuts)
        ]
        array: pa.Array = concat_arrays(parts)
        return array.take(number_array(inverse_permutation(order)))

    def numbers(self, fragment: Int64s, row: Int64s) -> Int64s | None:
        """Number physical rows among all rows; return ``None`` if one is beyond its fragment."""
        # As unsigned numbers, negative rows are beyond any fragment.
        if len(self.rows) == 1 and len(row) and not np.count_nonzero(fragment):
            greatest = int(np.maximum.reduce(row.view(np.uint64)))
            return None if greatest >= self.rows.item(0) else row
        if bool((row.view(np.uint64) >= self.rows[fragment].view(np.uint64)).any()):
            return None
        numbers: Int64s = self.first_row[fragment] + row
        return numbers

    def is_resident(self) -> bool:
        """Return whether a sample of the files is in memory.

        glaive checks all files at most once in 10 ms; of a thousand fragments, once in ten seconds.

        Raises
        ------
        CorruptFileError
            A file has become shorter.
        """
        now = monotonic()
        if now >= self._checked_until:
            for fragment in self.fragments.values():
                fragment.expect("random")
            self._checked_until = now + self._check_seconds(_SIZE_CHECK_SECONDS)
        if now < self._resident_until:
            return True
        every = list(self.fragments.values())
        if any(fragment.is_cold() for fragment in every[:: -(-len(every) // _RESIDENCY_SAMPLE)]):
            return False
        self._resident_until = now + self._check_seconds(_RESIDENT_SECONDS)
        return True

    def prepare(self, numbers: Int64s) -> bool:
        """Have the system read the parts of cold files that some rows need.

        Return whether these parts are known, or :meth:`is_resident`.
        """
        if self.is_resident():
            return True
        if None in self.columns:
            return False
        columns = [column for column in self.columns if column is not None]
        done = prefetch_rows([p for c in columns for p in c.physical_pages()], numbers)
        if not done.was_needed and done.is_complete:  # only unused parts of the files are cold
            self._resident_until = monotonic() + self._check_seconds(_RESIDENT_SECONDS)
        return done.is_complete

    def _check_seconds(self, limit: float) -> float:
        """Return the seconds to the next check: ``limit`` with many fragments."""
        return max(_MIN_CHECK_SECONDS, limit * min(1.0, len(self.fragments) / _INTERVAL_FRAGMENTS))


def _plain_locations(page: PageReader) -> PlainPlaces | None:
    if isinstance(page, PlainRun):
        return page.places
    if isinstance(page, FullZipPage) and page.page.at_hand and page.page_signature() is not None:
        start, end = np.zeros(1, np.int64), np.array([page.rows], np.int64)
        return PlainPlaces(page.page.at_hand[0], start, end, page.entry.width)
    return None


def are_few(fragments: dict[int, BoundFragment], budget: int, count: int | None = None) -> bool:
    """Return whether fragments are few and small enough to join within a budget of bytes.

    With ``count``, assume that many fragments of the same mean size.
    """
    count = len(fragments) if count is None else count
    if count > MAX_FRAGMENTS:
        return False
    size = sum(fragment.nbytes for fragment in fragments.values()) * count // len(fragments)
    # The joined columns hold a second copy of chunk tables and similar metadata.
    return size <= _MAX_BYTES and 4 * size <= budget


def join_fragments(fragments: dict[int, BoundFragment], total: int) -> JoinedFragments | None:
    """Join the columns of fragments, in the order of their positions among ``total``.

    Returns
    -------
    JoinedFragments or None
        ``None`` if all columns must be read separately.
    """
    fragments = dict(sorted(fragments.items()))
    parts = zip(*[bound.columns for bound in fragments.values()], strict=True)
    columns = [join_columns(columns) for columns in parts]
    return JoinedFragments(fragments, columns, total) if any(columns) else None
