"""Fragments whose columns are taken from as one: a take costs per column, not per fragment.

The columns of the fragments that takes met are joined (:mod:`glaive.file.v2.reader`),
once for all takes of a projection: random rows meet all fragments soon. What cannot be joined,
such as files that must be fetched, is taken fragment by fragment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from time import monotonic
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import integer_array, inverse_permutation
from glaive.arrow.chunked import concat_arrays
from glaive.encodings.pages.full_zip import FullZipPage, PlainPlaces, PlainRun
from glaive.encodings.protocol import PageReader
from glaive.errors import CapacityError, CorruptFileError
from glaive.file.protocol import prefetch_rows
from glaive.file.v2.reader import ColumnTakes, FieldColumns, join_columns
from glaive.io.pool import gather
from glaive.kernels.distances import PlacedVectors
from glaive.scan.bound import BoundFragment
from glaive.scan.options import Meter
from glaive.types import Int64s

MAX_FRAGMENTS: Final = 4096
_MAX_BYTES: Final = 96 * 1024 * 1024
"""Fragments that are joined at most, and bytes of memory of all their columns, opened.

All of these are read by the first take, whatever rows it wants.
"""

THREADED_ROWS: Final = 16 * 1024
"""Rows below which a take is more interpreted than compiled: threads would only wait."""

_TRUSTED_SECONDS: Final = 0.01
"""Seconds for which files are not looked at again: as long as a scan trusts them while it runs."""

_MANY: Final = 1000
_LOOKED_AT_SECONDS: Final = 10.0
_SAMPLED_SECONDS: Final = 0.1
"""Seconds for which the sizes of the files of so many fragments are not looked at again, and for
which these files are taken to be in memory. Of fewer fragments: fewer, in proportion.
"""

_SAMPLES: Final = 16
"""Fragments whose files are looked at to tell whether a take would wait for a disk."""

_WHAT: Final = "joined take"


class JoinedFragments:
    """Some fragments of a projection.

    Parameters
    ----------
    fragments
        By position in the manifest's list, ascending.
    columns
        One per field; None for a field that is taken fragment by fragment.
    total
        Fragments of the manifest.
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
        """Number of the first row of each position among all rows; -1 of one that is missing."""
        self.rows = np.zeros(total, np.int64)
        """Physical rows of the fragment at each position."""
        self.first_row[positions], self.rows[positions] = np.cumsum(counts) - counts, counts
        present = [column for column in columns if column is not None]
        self._together = ColumnTakes(present) if len(present) == len(columns) else None
        is_whole = all(bound.live is None for bound in fragments.values())
        self.is_all = is_whole and len(fragments) == total and self._together is not None
        """Whether row i of the dataset is row i of the columns: nothing is missing or deleted."""
        # Until when, on the monotonic clock, files have not become shorter and are in memory.
        self._whole = self._warm = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of memory, those of the fragments included, which it keeps; an estimate."""
        own = sum(column.nbytes for column in self.columns if column is not None)
        kept = sum(fragment.nbytes for fragment in self.fragments.values())
        return own + kept + self.first_row.nbytes + self.rows.nbytes

    def holds(self, fragment: Int64s) -> bool:
        """Whether all of these fragments are among them."""
        return len(self.fragments) == len(self.rows) or bool((self.first_row[fragment] >= 0).all())

    @cached_property
    def places(self) -> PlacedVectors | None:
        """Where the values of the only column lie plain in mapped files; None: they do not."""
        column = self.columns[0] if len(self.columns) == 1 else None
        parts = [] if column is None else column.physical_pages()
        pages = parts[0][1] if len(parts) == 1 else ()
        found = _plain_places(pages[0]) if len(pages) == 1 else None
        if found is None or not 0 < found.width <= found.memory.size or not len(found.ends):
            return None
        return PlacedVectors(*found, self.first_row, self.rows)

    def take(self, fragment: Int64s, row: Int64s, meter: Meter) -> list[pa.Array] | None:
        """Physical rows of fragments, all of them joined; one array per column.

        None where it has to be done fragment by fragment.
        """
        numbers = self.numbers(fragment, row)
        if numbers is None:
            meter.fallback(_WHAT, "a row is beyond its fragment")
            return None
        if self._together is not None:
            return self.take_numbers(numbers, meter)
        takes = [
            partial(self._take_apart, at, fragment, row) if column is None else column.take
            for at, column in enumerate(self.columns)
        ]
        return self._taken(takes, numbers, meter)

    def take_numbers(self, numbers: Int64s, meter: Meter) -> list[pa.Array] | None:
        """``take`` of rows by their number among the rows of all."""
        takes = self._together
        if takes is None or len(numbers) >= THREADED_ROWS:
            return self._taken([] if takes is None else takes.each, numbers, meter)
        return self._taken(takes, numbers, meter)

    def _taken(
        self,
        takes: ColumnTakes | Sequence[Callable[[Int64s], pa.Array]],
        numbers: Int64s,
        meter: Meter,
    ) -> list[pa.Array] | None:
        many = len(numbers) >= THREADED_ROWS
        try:
            if not self.prepare(numbers):
                meter.fallback(_WHAT, "unknown what cold files have to read")
                return None
            if isinstance(takes, ColumnTakes):
                arrays = takes.take(numbers)
            else:
                arrays = list((gather if many else map)(lambda take: take(numbers), takes))
        except CapacityError as error:
            meter.fallback(_WHAT, "values beyond one array", error)
        except CorruptFileError as error:  # a page alone says more
            meter.fallback(_WHAT, "a file is damaged", error)
        else:
            meter.count("rows_taken_joined", len(numbers))
            return arrays
        return None

    def _take_apart(self, at: int, fragment: Int64s, row: Int64s, _numbers: Int64s) -> pa.Array:
        """A column that some fragments cannot join."""
        order = np.argsort(fragment, kind="stable")
        cuts = np.flatnonzero(np.diff(fragment[order])) + 1
        parts = [
            self.fragments[int(fragment[some[0]])].columns[at].take(row[some])
            for some in np.split(order, cuts)
        ]
        array: pa.Array = concat_arrays(parts)
        return array.take(integer_array(inverse_permutation(order)))

    def numbers(self, fragment: Int64s, row: Int64s) -> Int64s | None:
        """Numbers of physical rows among the rows of all; None where one is beyond its fragment."""
        # As numbers without a sign, those below 0 are beyond any fragment.
        if len(self.rows) == 1 and len(row) and not np.count_nonzero(fragment):
            greatest = int(np.maximum.reduce(row.view(np.uint64)))
            return None if greatest >= self.rows.item(0) else row
        if bool((row.view(np.uint64) >= self.rows[fragment].view(np.uint64)).any()):
            return None
        numbers: Int64s = self.first_row[fragment] + row
        return numbers

    def prepare(self, numbers: Int64s) -> bool:
        """Have the system read what some rows need of files that are not in memory.

        Looks at all files at most once in 10 ms, of a thousand fragments once in ten seconds.

        Returns
        -------
        bool
            Whether it is known what they need, or all is in memory, by a sample.

        Raises
        ------
        CorruptFileError
            A file has become shorter.
        """
        now = monotonic()
        if now >= self._whole:
            for fragment in self.fragments.values():
                fragment.expect("random")
            self._whole = now + self._trusted_seconds(_LOOKED_AT_SECONDS)
        if now < self._warm:
            return True
        every = list(self.fragments.values())
        if any(fragment.is_cold() for fragment in every[:: -(-len(every) // _SAMPLES)]):
            if None in self.columns:
                return False
            columns = [column for column in self.columns if column is not None]
            done = prefetch_rows([p for c in columns for p in c.physical_pages()], numbers)
            # Where nothing was needed, the rest of the files is not in memory, but nobody reads it.
            if not done.is_complete or done.was_needed:
                return done.is_complete
        self._warm = now + self._trusted_seconds(_SAMPLED_SECONDS)
        return True

    def _trusted_seconds(self, most: float) -> float:
        """Seconds for which nothing is asked again: at most so many, of a thousand fragments."""
        return max(_TRUSTED_SECONDS, most * min(1.0, len(self.fragments) / _MANY))


def _plain_places(page: PageReader) -> PlainPlaces | None:
    if isinstance(page, PlainRun):
        return page.places
    if isinstance(page, FullZipPage) and page.page.at_hand and page.page_signature() is not None:
        start, end = np.zeros(1, np.int64), np.array([page.rows], np.int64)
        return PlainPlaces(page.page.at_hand[0], start, end, page.entry.width)
    return None


def are_few(fragments: dict[int, BoundFragment], budget: int, count: int | None = None) -> bool:
    """Whether fragments are few and small enough to be joined, within a budget of bytes.

    With ``count``, whether so many like them would be.
    """
    count = len(fragments) if count is None else count
    if count > MAX_FRAGMENTS:
        return False
    size = sum(fragment.nbytes for fragment in fragments.values()) * count // len(fragments)
    # Chunk tables and the like are there once more for all of them.
    return size <= _MAX_BYTES and 4 * size <= budget


def join_fragments(fragments: dict[int, BoundFragment], total: int) -> JoinedFragments | None:
    """Join the columns of fragments, given by position among ``total``, in the order of these.

    Returns
    -------
    JoinedFragments or None
        None where none of their columns can be read as one.
    """
    fragments = dict(sorted(fragments.items()))
    parts = zip(*[bound.columns for bound in fragments.values()], strict=True)
    columns = [join_columns(columns) for columns in parts]
    return JoinedFragments(fragments, columns, total) if any(columns) else None
