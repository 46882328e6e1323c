"""Answer filters by scalar indices: the tests, the index of each, and the rows that it finds."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import value_bytes
from glaive.arrow.conditions import HasText
from glaive.arrow.extensions import GeometryType
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import UnsupportedFeatureError
from glaive.expr import tree
from glaive.expr.filters import Test, merged, one_column
from glaive.expr.tree import Literal, Node
from glaive.format.fields import LanceSchema
from glaive.index.protocol import (
    Candidates,
    HasLabels,
    HasTokens,
    IndexQuery,
    MatchesPattern,
    MeetsBox,
    ScalarIndex,
)
from glaive.index.row_sets import RowSet
from glaive.scan.indices import FragmentIds, IndexedSegment, LogicalIndex, SnapshotIndices, union_of
from glaive.scan.options import Meter, ScanOptions
from glaive.scan.plan import MAX_FOUND_ROWS
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.expr.filters import Term


# --- The tests of a filter that an index may answer, as a tree of queries on single columns
# Specification: "Searching" in ``docs/format/indices.md``.


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A query on the values of a column.

    Parameters
    ----------
    path
        Path of the column.
    query
        The query, in the type of the column's values.
    json_path
        Path of a value within a JSON column, as the filter writes it.
    """

    path: str
    query: IndexQuery
    json_path: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AllOf:
    """Operands of AND that an index may answer.

    Parameters
    ----------
    complete
        Whether these are all operands; else more rows pass these than pass all.
    """

    operands: tuple[Predicate, ...]
    complete: bool


@dataclass(frozen=True, slots=True, eq=False)
class AnyOf:
    """Operands of OR."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Negated:
    """The opposite of a test; null where the test is null."""

    operand: Predicate


Predicate: TypeAlias = Leaf | AllOf | AnyOf | Negated


def predicate_of(node: Node, test: Test | None = None) -> Predicate | None:
    """Return the part of an expression that an index may answer, or ``None``.

    ``test`` is the test of the expression, if known.
    """
    leaf = _leaf(node) if test is None else Leaf(*test)
    if leaf is not None:
        return leaf
    match node:
        case tree.And(operands):
            tests = merged([(operand, one_column(operand)) for operand in operands])
            known = [predicate_of(*operand) for operand in tests]
            kept = tuple(operand for operand in known if operand is not None)
            return AllOf(kept, len(kept) == len(known)) if kept else None
        case tree.Or(operands):
            parts = [predicate_of(operand) for operand in operands]
            kept = tuple(part for part in parts if part is not None)
            return AnyOf(kept) if len(kept) == len(parts) else None
        case tree.Not(operand):
            negated = predicate_of(operand)
            return None if negated is None or not _is_complete(negated) else Negated(negated)
    return None


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield all queries of a predicate."""
    match predicate:
        case Leaf():
            yield predicate
        case Negated(operand):
            yield from leaves(operand)
        case AllOf(operands) | AnyOf(operands):
            for operand in operands:
                yield from leaves(operand)


def _is_complete(predicate: Predicate) -> bool:
    """Return whether a predicate has all operands, so that its opposite is known."""
    match predicate:
        case Leaf(_, query):
            return not isinstance(query, MeetsBox)
        case Negated(operand):
            return _is_complete(operand)
        case AllOf(operands, complete):
            return complete and all(map(_is_complete, operands))
        case AnyOf(operands):
            return all(map(_is_complete, operands))


def _leaf(node: Node) -> Leaf | None:
    test = one_column(node)
    if test is not None:
        return Leaf(*test)
    match node:
        case tree.Call(name, (tree.Column(path), Literal() as other)) if not other.is_null:
            query = _call(name, other.scalar())
            return None if query is None else Leaf(path, query)
        case tree.IsNull(
            tree.Call("regexp_match", (tree.Column(path), Literal(str() as pattern))), negated=True
        ):
            return Leaf(path, MatchesPattern(pattern))
        case tree.Like(
            tree.Column(path), Literal(str() as pattern), escape, negated=False, ignore_case=False
        ):
            return Leaf(path, MatchesPattern(_expression_of(pattern, escape)))
        case tree.Call(name, (left, right)) if name.startswith("st_"):
            return _box_leaf(name, left, right)
        case tree.Compare() | tree.InList() | tree.IsNull():
            return _json_leaf(node)
    return None


def _call(name: str, operand: Any) -> IndexQuery | None:
    """Return the query of a function of a column and a constant."""
    match name:
        case name if name in tree.HAS_ITEM:
            return HasLabels(pa.repeat(operand, 1))
        case "array_has_any" | "list_has_any" | "arrays_overlap":
            return _labels(operand.values, every=False)
        case "array_has_all" | "list_has_all":
            return _labels(operand.values, every=True)
        case "contains" | "starts_with" | "ends_with" if isinstance(operand.as_py(), str):
            return HasText(
                word=operand.as_py(), begins=name == "starts_with", ends=name == "ends_with"
            )
        case "contains_tokens":
            return HasTokens(operand.as_py())
        case "regexp_like" | "regexp_match":
            return MatchesPattern(operand.as_py())
    return None


def _expression_of(pattern: str, escape: str) -> str:
    """Return a regular expression for the texts between the wildcards of a pattern of LIKE."""
    pieces = re.findall(rf"(?s){re.escape(escape)}.|." if escape else "(?s).", pattern)
    parts = [".*" if piece in ("%", "_") else re.escape(piece[-1]) for piece in pieces]
    return "".join(parts)


def _box_leaf(name: str, left: Node, right: Node) -> Leaf | None:
    """Return a test of a column of geometries against a constant, as a test of bounding boxes."""
    from glaive.expr.functions.geometry import MEETING, bounds_of

    if name not in MEETING:
        return None
    for column, other in ((left, right), (right, left)):
        match column, other:
            case tree.Cast(tree.Column(path), GeometryType()), Literal() if not other.is_null:
                bounds = bounds_of(other.scalar(), name)
                return None if bounds is None else Leaf(path, MeetsBox(bounds))
    return None


def _labels(values: Any, *, every: bool) -> HasLabels | None:
    known = len(values) > 0 and not values.null_count and not pa.types.is_nested(values.type)
    return HasLabels(values, every) if known else None


def _json_leaf(node: Node) -> Leaf | None:
    """Return a test on ``json_get_int(column, 'path')`` and similar functions."""
    for part in tree.walk(node):
        match part:
            case tree.Call(name, (tree.Column(path), Literal(str() as json_path)), kind) if (
                name.startswith("json_get_") and kind is not None
            ):
                test = one_column(_replaced(node, part, tree.Column(path, kind)))
                return None if test is None else Leaf(*test, json_path)
    return None


def _replaced(node: Any, part: Node, column: tree.Column) -> Node:
    """Replace an operand of a comparison by a column."""
    from dataclasses import fields, replace

    values = {field.name: getattr(node, field.name) for field in fields(node)}
    changed = {name: column for name, value in values.items() if value is part}
    result: Node = replace(node, **changed) if changed else node
    return result


# --- Answers of indices to a test of a filter: rows, fragments, and whether they are exact
# Tests have three values as in SQL: rows whose test is null fail it and its opposite.
#
# Specification: "Searching" in ``docs/format/indices.md``.


class OpenedSegment(NamedTuple):
    """A segment of an index to search."""

    segment: IndexedSegment
    opened: ScalarIndex


class Searched(NamedTuple):
    """The index that answers a leaf.

    Parameters
    ----------
    name
        Name of the index.
    segments
        Its segments that answer the leaf.
    fragments
        Ids of the fragments that these segments cover.
    estimate
        Approximate number of rows that it finds.
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
        Ids of the fragments of the answer.
    rows
        Addresses of rows in them, maybe of deleted rows.
    exact
        Whether all of them pass; otherwise they have to be tested.
    """

    fragments: FragmentIds
    rows: RowSet
    exact: bool

    def count_in(self, fragment: int, start: int, stop: int) -> int:
        """Count the rows in a range of a fragment."""
        first = fragment << 32
        return self.rows.within(first + start, first + stop).count

    def rows_in(
        self, fragment: int, start: int, stop: int
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the physical rows in a range of a fragment, ascending."""
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

    ``fragments`` are fragments that all these indices cover.

    Raises
    ------
    CorruptFileError, DataFileMissingError
        An index is damaged; the message names the file and the remedy.
    """
    search = _Search(indices, chosen, fragments, meter)
    found = search.evaluate(predicate, nulls=False)
    return IndexAnswer(fragments, found.rows, found.exact)


def common_fragments(chosen: Mapping[Leaf, Searched]) -> FragmentIds:
    """Return the ids of the fragments that all chosen indices cover."""
    first, *others = (searched.fragments for searched in chosen.values())
    return first.intersection(*others) if others else first


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """Searches within the rows of fragments that the indices of all leaves cover."""

    indices: SnapshotIndices
    chosen: Mapping[Leaf, Searched]
    fragments: FragmentIds
    meter: Meter

    @property
    def extent(self) -> RowSet:
        """All rows of the fragments."""
        return self.indices.extent(self.fragments)

    def evaluate(self, predicate: Predicate, *, nulls: bool) -> Candidates:
        """Return the addresses of passing rows; with ``nulls`` also of rows whose test is null."""
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
    # Null where an operand is null and all others are true or null.
    not_false = RowSet.intersection([RowSet.union([part.rows, _nulls(part)]) for part in parts])
    return Candidates(rows, not_false.difference(rows), exact)


def _any_of(parts: list[Candidates]) -> Candidates:
    rows = RowSet.union([part.rows for part in parts])
    exact = all(part.exact for part in parts)
    if any(part.nulls is None for part in parts):
        return Candidates(rows, None, exact)
    # Null where an operand is null and all others are false or null.
    return Candidates(rows, RowSet.union([_nulls(part) for part in parts]).difference(rows), exact)


def _nulls(part: Candidates) -> RowSet:
    return RowSet.union([]) if part.nulls is None else part.nulls


# --- Choose the tests of a filter that indices answer faster than a scan ----------------
#
# Specification: "Searching" in ``docs/format/indices.md``.

_log = logging.getLogger("glaive.scan")
_WIDTH = "width"

_MAX_TESTED_ROWS = 1000
"""Rows whose values are tested faster than a second index is searched."""

_MAX_ROWS_RATIO = 10
"""An operand of AND that finds so many times the rows of another is tested on the rows."""

_SEARCH_ROWS = 100_000
"""Rows that are tested in the time of a search of an index."""

_SMALL_TABLE_ROWS = 4096
"""Maximum rows of a table whose indices are always searched: both ways take little time."""

_ROWS_PER_ENTRY = 30
"""Rows of eight bytes that are tested in the time that a found row takes."""

_ROWS_PER_ENTRY_REMOTE = 4
"""The same for fetched files: each found row is a part of a request."""


@dataclass(frozen=True, slots=True, eq=False)
class ChosenTerm:
    """A term of a filter, and the indices that answer it.

    Parameters
    ----------
    number
        Number of the term.
    indices
        The index of each query in it.
    fragments
        Ids of the fragments that all of them cover.
    estimate
        Approximate number of rows that they find.
    all
        The whole term, including operands of AND that find many more rows than others.
    """

    number: int
    predicate: Predicate
    indices: Mapping[Leaf, Searched]
    fragments: FragmentIds
    estimate: int
    all: tuple[Predicate, Mapping[Leaf, Searched]]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the indices."""
        return tuple(dict.fromkeys(searched.name for searched in self.indices.values()))


def choose(
    snapshot: Snapshot, options: ScanOptions, terms: Sequence[Term], meter: Meter
) -> list[ChosenTerm]:
    """Return the terms that indices answer faster than a scan, by number of rows.

    Opens the indices of the columns; a later step searches them.

    Raises
    ------
    CorruptFileError, DataFileMissingError
        An index is damaged; the message names the file and the remedy.
    """
    if options.include_deleted_rows:  # indices may lack them
        return []
    wanted = options.use_scalar_index or options.fast_search
    known = [
        chosen
        for chosen in searchable_terms(snapshot, options, terms, meter)
        if wanted or _is_faster_than_scan(snapshot, chosen)
    ]
    if len(known) < 2:
        return known
    known.sort(key=lambda chosen: chosen.estimate)
    return [
        chosen
        for chosen in known
        if chosen is known[0]
        or known[0].estimate > _MAX_TESTED_ROWS
        or chosen.fragments != known[0].fragments
    ]


def count_by_index(
    snapshot: Snapshot, options: ScanOptions, terms: Sequence[Term], meter: Meter
) -> int | None:
    """Count the rows of a range of values by an index, without finding them.

    Return ``None`` unless the index has exactly the rows of the version: one entry for each row,
    and no deleted rows.
    """
    rows = int(snapshot.manifest.physical_rows.sum())
    if len(terms) != 1 or snapshot.manifest.deleted_rows.any() or options.fragments is not None:
        return None
    for chosen in searchable_terms(snapshot, options, terms, meter):
        predicate, searched = chosen.all
        if not isinstance(predicate, Leaf) or searched[predicate].rows != rows:
            return None
        counts = [opened.count(predicate.query) for _, opened in searched[predicate].segments]
        known = [count for count in counts if count is not None]
        if len(known) == len(counts) and sum(entries for _, entries in known) == rows:
            return sum(passing for passing, _ in known)
    return None


def searchable_terms(
    snapshot: Snapshot, options: ScanOptions, terms: Sequence[Term], meter: Meter
) -> Iterator[ChosenTerm]:
    """Yield all terms that indices can answer, fast or slowly; see :func:`choose`."""
    indices = SnapshotIndices.of(snapshot)
    if options.use_scalar_index is False or not indices.all:
        return
    for number, term in enumerate(terms):
        predicate = predicate_of(term.expression, term.condition)
        chosen = None if predicate is None else _chosen(indices, number, predicate, meter)
        if chosen is not None:
            yield chosen


def answer_terms(
    snapshot: Snapshot, chosen: Sequence[ChosenTerm], meter: Meter
) -> dict[int, IndexAnswer]:
    """Search the indices; return answers by number of the term."""
    indices = SnapshotIndices.of(snapshot)
    return {
        term.number: answer(indices, term.predicate, term.indices, term.fragments, meter)
        for term in chosen
    }


def _chosen(
    indices: SnapshotIndices, number: int, predicate: Predicate, meter: Meter
) -> ChosenTerm | None:
    """Return a term with an index for each of its queries, or ``None`` if one lacks an index."""
    schema = indices.snapshot.manifest.schema
    searched: dict[Leaf, Searched] = {}
    for leaf in leaves(predicate):
        field_id = _field_id(schema, leaf.path)
        options = [
            option
            for index in ([] if field_id is None else indices.on(field_id))
            if (option := _searched(indices, index, leaf, meter)) is not None
        ]
        if not options:
            return None
        searched[leaf] = min(options, key=lambda option: (-len(option.fragments), option.estimate))
    selective, found = _selective_part(predicate, searched)
    kept = searched
    if selective is not predicate:
        kept = {leaf: searched[leaf] for leaf in leaves(selective)}
    fragments = common_fragments(kept)
    if not fragments:
        return None
    return ChosenTerm(number, selective, kept, fragments, found, (predicate, searched))


def _selective_part(
    predicate: Predicate, searched: Mapping[Leaf, Searched]
) -> tuple[Predicate, int]:
    """Remove operands of AND that find many more rows than others; estimate the rows."""
    match predicate:
        case Leaf():
            return predicate, searched[predicate].estimate
        case Negated(operand):
            rows = max(option.rows for option in searched.values())
            return predicate, max(0, rows - _selective_part(operand, searched)[1])
        case AnyOf(operands):
            parts = [_selective_part(operand, searched) for operand in operands]
            return AnyOf(tuple(part for part, _ in parts)), sum(rows for _, rows in parts)
        case AllOf(operands, complete):
            parts = [_selective_part(operand, searched) for operand in operands]
            fewest = min(rows for _, rows in parts)
            kept = [
                part for part, rows in parts if rows <= _MAX_TESTED_ROWS + _MAX_ROWS_RATIO * fewest
            ]
            return AllOf(tuple(kept), complete and len(kept) == len(parts)), fewest


def _field_id(schema: LanceSchema, path: str) -> int | None:
    if path.startswith("_") and path not in schema.names:
        return None  # a system column
    return schema.find(path)[-1].id


def _searched(
    indices: SnapshotIndices, index: LogicalIndex, leaf: Leaf, meter: Meter
) -> Searched | None:
    """Open an index if it answers a query, else return ``None``."""
    segments = []
    estimate = 0
    if not index.kind.answers_filters:
        return None
    for segment in index.segments:
        if segment.kind.json_path(segment.entry) != leaf.json_path:
            return None
        try:
            opened = indices.open(segment)
        except UnsupportedFeatureError as error:
            meter.fallback(f"index {index.name}", "its segments cannot be searched", error)
            continue
        if isinstance(opened, ScalarIndex) and opened.answers(leaf.query):
            segments.append(OpenedSegment(segment, opened))
            estimate += opened.estimate(leaf.query)
            meter.count("index_comparisons", opened.compared(leaf.query))
    if not segments:
        return None
    whole = len(segments) == len(index.segments)
    fragments = index.fragments if whole else union_of(segment for segment, _ in segments)
    rows = indices.extent(fragments).count
    return Searched(index.name, tuple(segments), fragments, min(rows, estimate), rows)


def _is_faster_than_scan(snapshot: Snapshot, chosen: ChosenTerm) -> bool:
    """Estimate whether a search is faster than testing all rows."""
    rows = min(option.rows for option in chosen.indices.values())
    if rows <= _SMALL_TABLE_ROWS:
        return True
    if not snapshot.store.is_local:
        return chosen.estimate * _ROWS_PER_ENTRY_REMOTE < rows
    if chosen.estimate <= MAX_FOUND_ROWS:
        return True
    widths: dict[str, int] = {}
    for leaf, option in chosen.indices.items():
        known = max(opened.value_bytes for _, opened in option.segments)
        widths[leaf.path] = max(known, _width(snapshot, leaf.path))
    width = sum(widths.values())
    return _SEARCH_ROWS + chosen.estimate * _ROWS_PER_ENTRY < rows * width // 8


def _width(snapshot: Snapshot, path: str) -> int:
    """Return the approximate bytes of a value, computed once."""
    known: int | None = snapshot.memo.get((_WIDTH, path))
    if known is None:
        kind = snapshot.manifest.schema.find(path)[-1].to_arrow().type
        known = snapshot.memo[(_WIDTH, path)] = max(8, value_bytes(kind))
    return known
