"""What indices answer to a test of a filter: which rows, of which fragments, and how surely.

Three values as in SQL: rows for which a test is null neither pass it nor its opposite.

Specification: "Searching" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from glaive.dataclass import dataclass
from glaive.index.protocol import Candidates, ScalarIndex
from glaive.index.row_set import RowSet
from glaive.named_tuple import NamedTuple
from glaive.scan.indexed.predicates import AllOf, AnyOf, Leaf, Negated, Predicate
from glaive.scan.indices import FragmentIds, IndexedSegment, SnapshotIndices
from glaive.scan.metrics import Meter

__all__ = ["IndexAnswer", "OpenedSegment", "Searched", "answer", "common_fragments"]


class OpenedSegment(NamedTuple):
    """A segment of an index that is going to be searched."""

    segment: IndexedSegment
    opened: ScalarIndex


class Searched(NamedTuple):
    """The index that answers a leaf.

    Parameters
    ----------
    name
        Of the index.
    segments
        Those that answer it.
    fragments
        Ids of the fragments that these answer for.
    estimate
        Rows that it finds, about.
    rows
        Physical rows of the fragments.
    """

    name: str
    segments: tuple[OpenedSegment, ...]
    fragments: FragmentIds
    estimate: int
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class IndexAnswer:
    """Rows that pass a test, as far as indices know.

    Parameters
    ----------
    fragments
        Ids of the fragments that the answer is about.
    rows
        Addresses of rows in them; deleted ones may be among them.
    exact
        Whether all of them pass; else they have to be tested.
    """

    fragments: FragmentIds
    rows: RowSet
    exact: bool

    def count_in(self, fragment: int, start: int, stop: int) -> int:
        """Number of the rows between two of a fragment."""
        first = fragment << 32
        return self.rows.within(first + start, first + stop).count

    def rows_in(
        self, fragment: int, start: int, stop: int
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Physical rows between two of a fragment, ascending."""
        first = fragment << 32
        found = self.rows.within(first + start, first + stop).rows()
        return (found - np.uint64(first)).astype(np.int64)


def answer(
    indices: SnapshotIndices,
    predicate: Predicate,
    chosen: Mapping[Leaf, Searched],
    fragments: FragmentIds,
    meter: Meter,
) -> IndexAnswer:
    """Search the indices that were chosen for the leaves of a predicate.

    ``fragments`` are those that all of these answer for.

    Raises
    ------
    CorruptFileError, DataFileMissingError
        An index is damaged; the message names the file and the remedy.
    """
    search = _Search(indices, chosen, fragments, meter)
    found = search.evaluate(predicate, nulls=False)
    return IndexAnswer(fragments, found.rows, found.exact)


def common_fragments(chosen: Mapping[Leaf, Searched]) -> FragmentIds:
    """Ids of the fragments that all of some indices answer for."""
    first, *others = (searched.fragments for searched in chosen.values())
    return first.intersection(*others) if others else first


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """Searches within the rows of some fragments, which all leaves are answered for."""

    indices: SnapshotIndices
    chosen: Mapping[Leaf, Searched]
    fragments: FragmentIds
    meter: Meter

    @property
    def extent(self) -> RowSet:
        """All rows of the fragments."""
        return self.indices.extent(self.fragments)

    def evaluate(self, predicate: Predicate, *, nulls: bool) -> Candidates:
        """Rows that pass, by address; and those for which the test is null, if that is needed."""
        match predicate:
            case Leaf():
                return self._leaf(predicate, nulls=nulls)
            case Negated(operand):
                return self._negated(self.evaluate(operand, nulls=True))
            case AllOf(operands, complete):
                parts = [self.evaluate(operand, nulls=nulls) for operand in operands]
                return _all_of(parts, complete=complete)
            case AnyOf(operands):
                return _any_of([self.evaluate(operand, nulls=nulls) for operand in operands])

    def _leaf(self, leaf: Leaf, *, nulls: bool) -> Candidates:
        rows: list[RowSet] = []
        absent: list[RowSet] = []
        exact = True
        for segment, opened in self.chosen[leaf].segments:
            found = opened.search(leaf.query, nulls=nulls)
            self.meter.count("index_rows_found", found.rows.count)
            rows.append(self.indices.addresses(segment, found.rows, self.fragments))
            if found.nulls is not None:
                absent.append(self.indices.addresses(segment, found.nulls, self.fragments))
            exact = exact and found.exact
        return Candidates(RowSet.union(rows), RowSet.union(absent) if nulls else None, exact)

    def _negated(self, found: Candidates) -> Candidates:
        nulls = found.nulls or RowSet.union([])
        if not found.exact:  # Some of its rows may pass the opposite.
            return Candidates(self.extent, nulls, exact=False)
        return Candidates(
            self.extent.difference(RowSet.union([found.rows, nulls])), nulls, exact=True
        )


def _all_of(parts: list[Candidates], *, complete: bool) -> Candidates:
    rows = RowSet.intersection([part.rows for part in parts])
    exact = complete and all(part.exact for part in parts)
    if any(part.nulls is None for part in parts):
        return Candidates(rows, None, exact)
    # Null where none is false and one is null.
    not_false = RowSet.intersection([RowSet.union([part.rows, _nulls(part)]) for part in parts])
    return Candidates(rows, not_false.difference(rows), exact)


def _any_of(parts: list[Candidates]) -> Candidates:
    rows = RowSet.union([part.rows for part in parts])
    exact = all(part.exact for part in parts)
    if any(part.nulls is None for part in parts):
        return Candidates(rows, None, exact)
    # Null where none is true and one is null.
    return Candidates(rows, RowSet.union([_nulls(part) for part in parts]).difference(rows), exact)


def _nulls(part: Candidates) -> RowSet:
    return RowSet.union([]) if part.nulls is None else part.nulls
