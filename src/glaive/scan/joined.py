"""Fragments whose columns are taken from as one: a take costs per column, not per fragment.

The columns of the fragments that takes met are joined (:mod:`glaive.file.v2.bound`),
once for all takes of a projection: random rows meet all fragments soon. What cannot be joined,
such as files that must be fetched, is taken fragment by fragment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from time import monotonic
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.blocks import distinct
from glaive.dataclass import dataclass
from glaive.encodings.pages.full_zip import FullZipPage, PlainPlaces, PlainRun
from glaive.encodings.protocol import PageReader
from glaive.file.protocol import prefetch_rows
from glaive.file.v2.bound import ColumnTakes, FieldColumns, join_columns
from glaive.kernels.distances import PlacedVectors
from glaive.scan.bound import BoundFragment
from glaive.types import Flags, Int64s

MAX_FRAGMENTS: Final = 4096
_MAX_BYTES: Final = 96 * 1024 * 1024
"""Fragments that are joined at most, and bytes of memory of all their columns, opened.

All of these are read by the first take, whatever rows it wants.
"""

_TRUSTED_SECONDS: Final = 0.01
"""Seconds for which files are not looked at again: as long as a scan trusts them while it runs."""

_MANY: Final = 1000
_LOOKED_AT_SECONDS: Final = 10.0
_SAMPLED_SECONDS: Final = 0.1
"""Seconds for which the sizes of the files of so many fragments are not looked at again, and for
which these files are taken to be in memory. Of fewer fragments: fewer, in proportion.
"""

_SAMPLES: Final = 16
"""Fragments of a take whose files are looked at to tell whether it would wait for a disk."""


@dataclass(slots=True, eq=False)
class _Trust:
    """Until when, on the monotonic clock, nobody need look at the files of fragments again.

    Parameters
    ----------
    sizes
        ``float64``, one per fragment of the manifest: its files have not become shorter.
    memory
        All files are in memory, as far as a sample says.
    all_sizes
        No file of any fragment of the manifest has become shorter.
    is_new
        Whether no file was looked at yet.
    """

    sizes: NDArray[np.float64]
    memory: float = 0.0
    all_sizes: float = 0.0
    is_new: bool = True


@dataclass(slots=True, eq=False)
class _Kept:
    """What was worked out once: where the values of the only column lie, if they are plain."""

    places: PlacedVectors | None = None
    is_known: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class JoinedFragments:
    """Some fragments of a projection.

    Parameters
    ----------
    fragments
        By position in the manifest's list.
    first_row, rows
        Number of the first row of each position among the rows of all fragments, -1 for one that
        is not among them; and its physical rows.
    are_whole
        Whether no row of the fragment at each position is deleted.
    columns
        One per field; None for a field that is taken fragment by fragment.
    """

    fragments: dict[int, BoundFragment]
    first_row: Int64s
    rows: Int64s
    are_whole: Flags
    columns: Sequence[FieldColumns | None]
    together: ColumnTakes | None = field(init=False)
    """All columns, for takes of few rows; None where some are taken fragment by fragment."""
    _trust: _Trust = field(init=False)
    _kept: _Kept = field(init=False)
    is_all: bool = field(init=False)
    """Whether row i of the dataset is row i of the columns: nothing is missing or deleted."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_trust", _Trust(np.zeros(len(self.rows))))
        object.__setattr__(self, "_kept", _Kept())
        in_order = np.array_equal(self.first_row, np.cumsum(self.rows) - self.rows)
        columns = [column for column in self.columns if column is not None]
        is_whole = len(columns) == len(self.columns)
        object.__setattr__(self, "together", ColumnTakes(columns) if is_whole else None)
        is_all = in_order and bool(self.are_whole.all()) and is_whole
        object.__setattr__(self, "is_all", is_all)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, those of the fragments included, which it keeps; an estimate."""
        own = sum(column.nbytes for column in self.columns if column is not None)
        kept = sum(fragment.nbytes for fragment in self.fragments.values())
        return own + kept + self.first_row.nbytes + self.rows.nbytes + self.are_whole.nbytes

    def holds(self, positions: Int64s) -> bool:
        """Whether all of these fragments are among them."""
        return bool((self.first_row[positions] >= 0).all())

    @property
    def places(self) -> PlacedVectors | None:
        """Where the values of the only column lie plain in mapped files; None: they do not."""
        kept = self._kept
        if not kept.is_known:
            kept.places, kept.is_known = self._places(), True
        return kept.places

    def _places(self) -> PlacedVectors | None:
        column = self.columns[0] if len(self.columns) == 1 else None
        parts = [] if column is None else column.physical_pages()
        pages = parts[0][1] if len(parts) == 1 else ()
        found = _plain_places(pages[0]) if len(pages) == 1 else None
        if found is None or not 0 < found.width <= found.memory.size or not len(found.ends):
            return None
        return PlacedVectors(*found, self.first_row, self.rows)

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

    def is_trusted(self, fragment: Int64s) -> bool:
        """Whether nobody need look at the files of these fragments, or ask for what they have."""
        now, trust = monotonic(), self._trust
        if now >= trust.memory:
            return False
        return now < trust.all_sizes or bool((trust.sizes[fragment] > now).all())

    def prepare(self, positions: Int64s | None, numbers: Int64s) -> bool:
        """Have the system read what some rows need of files that are not in memory.

        Looks at each file at most once in 10 ms, of a thousand fragments once in ten seconds: a
        take out of a hundred fragments is else spent on asking the system about their files.

        Parameters
        ----------
        positions, numbers
            Fragments by position, all of them joined, and the rows among those of all. Without
            positions, of all rows of the dataset: they are found where they are needed.

        Returns
        -------
        bool
            Whether it is known what they need, or all is in memory, by a sample.

        Raises
        ------
        CorruptFileError
            A file has become shorter.
        """
        now, trust = monotonic(), self._trust
        if positions is None:
            if now < trust.memory and bool((trust.sizes > now).all()):
                return True
            positions = self._fragments_of(numbers)
        self._look(positions, now)
        if now < trust.memory:
            return True
        sample = positions[:: -(-len(positions) // _SAMPLES)].tolist()
        if not any(self.fragments[position].is_cold() for position in sample):
            trust.memory = now + self._trusted_seconds(_SAMPLED_SECONDS)
            return True
        columns = [column for column in self.columns if column is not None]
        pages = [part for column in columns for part in column.physical_pages()]
        if len(columns) < len(self.columns):
            return False
        done = prefetch_rows(pages, numbers)
        if done.is_complete and not done.was_needed:
            # The rest of the files is not in memory, but nobody reads it.
            trust.memory = now + self._trusted_seconds(_SAMPLED_SECONDS)
        return done.is_complete

    def _look(self, positions: Int64s, now: float) -> None:
        """Raise if files became shorter since they were opened, unless that was asked lately."""
        trust, until = self._trust, self._trust.sizes
        if trust.is_new and self.is_all:  # all at once, for the takes that follow
            positions = np.arange(len(until))
        trust.is_new = False
        due = positions[until[positions] <= now]
        if not len(due):
            return
        for position in due.tolist():
            self.fragments[position].expect("random")
        until[due] = now + self._trusted_seconds(_LOOKED_AT_SECONDS)
        trust.all_sizes = float(until.min())

    def _trusted_seconds(self, most: float) -> float:
        """Seconds for which nothing is asked again: at most so many, of a thousand fragments."""
        return max(_TRUSTED_SECONDS, most * min(1.0, len(self.fragments) / _MANY))

    def _fragments_of(self, numbers: Int64s) -> Int64s:
        """Fragments by position that hold rows of the dataset; all where there are few."""
        if len(self.rows) <= _SAMPLES:
            return np.arange(len(self.rows))
        return distinct(np.searchsorted(self.first_row, numbers, side="right") - 1)


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
    bounds = list(fragments.values())
    columns = [join_columns(parts) for parts in zip(*[b.columns for b in bounds], strict=True)]
    if not any(columns):
        return None
    positions = np.fromiter(fragments, np.int64, len(fragments))
    counts = np.array([bound.rows for bound in bounds], np.int64)
    first_row, rows = np.full(total, -1, np.int64), np.zeros(total, np.int64)
    first_row[positions], rows[positions] = np.cumsum(counts) - counts, counts
    are_whole = np.zeros(total, np.bool_)
    are_whole[positions] = [bound.live is None for bound in bounds]
    return JoinedFragments(fragments, first_row, rows, are_whole, columns)
