"""Which tests of a filter are answered by indices: those that are quicker than looking at the rows.

Specification: "Searching" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from glaive.arrow.widths import value_bytes
from glaive.dataclass import dataclass
from glaive.errors import UnsupportedFeatureError
from glaive.format.fields import LanceSchema
from glaive.index.protocol import ScalarIndex
from glaive.scan.indexed.answers import (
    IndexAnswer,
    OpenedSegment,
    Searched,
    answer,
    common_fragments,
)
from glaive.scan.indexed.predicates import (
    AllOf,
    AnyOf,
    Leaf,
    Negated,
    Predicate,
    leaves,
    predicate_of,
)
from glaive.scan.indices import FragmentIds, LogicalIndex, SnapshotIndices, union_of
from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.expr.filters import Term

__all__ = ["ChosenTerm", "answer_terms", "choose", "weigh"]

_log = logging.getLogger("glaive.scan")
_WIDTH = "width"

_FEW_ROWS = 1000
"""Rows whose values are looked at sooner than in a second index."""

_MANY_TIMES = 10
"""An operand of AND that finds so many times the rows of another is tested on these rows."""

_SEARCH_ROWS = 100_000
"""Rows that are looked at in the time that a search of an index takes."""

_SMALL_TABLE = 4096
"""Rows of a table of which indices are searched whatever they find: neither way takes long."""

_FEW_FOUND = 256
"""Rows that are taken at once where an index found no more: sooner than any are looked at."""

_ROWS_PER_ENTRY = 30
"""Rows of eight bytes that are looked at in the time that one found by an index takes."""

_ROWS_PER_ENTRY_REMOTE = 4
"""The same where files have to be fetched: each row found is a part of a request."""


@dataclass(frozen=True, slots=True, eq=False)
class ChosenTerm:
    """A term of a filter, and the indices that answer it.

    Parameters
    ----------
    number
        Of the term.
    indices
        The index of each query in it.
    fragments
        Ids of the fragments that all of them answer for.
    estimate
        Rows that they are going to find, about.
    all
        The whole term, with operands of AND that find many more rows than others.
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
    """The terms that indices answer quicker than a scan, the one with the fewest rows first.

    Opens the indices of the columns in question; searches none.

    Raises
    ------
    CorruptFileError, DataFileMissingError
        An index is damaged; the message names the file and the remedy.
    """
    if options.include_deleted_rows:  # they may not be in an index
        return []
    wanted = options.use_scalar_index or options.fast_search
    known = [
        chosen
        for chosen in weigh(snapshot, options, terms, meter)
        if wanted or _pays(snapshot, chosen)
    ]
    if len(known) < 2:
        return known
    known.sort(key=lambda chosen: chosen.estimate)
    return [
        chosen
        for chosen in known
        if chosen is known[0]
        or known[0].estimate > _FEW_ROWS
        or chosen.fragments != known[0].fragments
    ]


def weigh(
    snapshot: Snapshot, options: ScanOptions, terms: Sequence[Term], meter: Meter
) -> Iterator[ChosenTerm]:
    """The terms that indices could answer, whether that is quicker or not; see :func:`choose`."""
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
    """Search the indices; answers by number of the term."""
    indices = SnapshotIndices.of(snapshot)
    return {
        term.number: answer(indices, term.predicate, term.indices, term.fragments, meter)
        for term in chosen
    }


def _chosen(
    indices: SnapshotIndices, number: int, predicate: Predicate, meter: Meter
) -> ChosenTerm | None:
    """A term with an index for each of its queries; None if one has none."""
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
    worth_it, found = _worth_it(predicate, searched)
    kept = searched
    if worth_it is not predicate:
        kept = {leaf: searched[leaf] for leaf in leaves(worth_it)}
    fragments = common_fragments(kept)
    if not fragments:
        return None
    return ChosenTerm(number, worth_it, kept, fragments, found, (predicate, searched))


def _worth_it(predicate: Predicate, searched: Mapping[Leaf, Searched]) -> tuple[Predicate, int]:
    """A predicate without operands of AND that find many more rows than others; its rows, about."""
    match predicate:
        case Leaf():
            return predicate, searched[predicate].estimate
        case Negated(operand):
            rows = max(option.rows for option in searched.values())
            return predicate, max(0, rows - _worth_it(operand, searched)[1])
        case AnyOf(operands):
            parts = [_worth_it(operand, searched) for operand in operands]
            return AnyOf(tuple(part for part, _ in parts)), sum(rows for _, rows in parts)
        case AllOf(operands, complete):
            parts = [_worth_it(operand, searched) for operand in operands]
            fewest = min(rows for _, rows in parts)
            kept = [part for part, rows in parts if rows <= _FEW_ROWS + _MANY_TIMES * fewest]
            return AllOf(tuple(kept), complete and len(kept) == len(parts)), fewest


def _field_id(schema: LanceSchema, path: str) -> int | None:
    if path.startswith("_") and path not in schema.names:
        return None  # of no file
    return schema.find(path)[-1].id


def _searched(
    indices: SnapshotIndices, index: LogicalIndex, leaf: Leaf, meter: Meter
) -> Searched | None:
    """An index that answers a query, opened; None if it does not."""
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


def _pays(snapshot: Snapshot, chosen: ChosenTerm) -> bool:
    """Whether a search is quicker than looking at all rows, by estimate."""
    rows = min(option.rows for option in chosen.indices.values())
    if rows <= _SMALL_TABLE:
        return True
    if not snapshot.store.is_local:
        return chosen.estimate * _ROWS_PER_ENTRY_REMOTE < rows
    if chosen.estimate <= _FEW_FOUND:
        return True
    widths: dict[str, int] = {}
    for leaf, option in chosen.indices.items():
        known = max(opened.value_bytes for _, opened in option.segments)
        widths[leaf.path] = max(known, _width(snapshot, leaf.path))
    width = sum(widths.values())
    return _SEARCH_ROWS + chosen.estimate * _ROWS_PER_ENTRY < rows * width // 8


def _width(snapshot: Snapshot, path: str) -> int:
    """Bytes of a value, about; worked out once."""
    known: int | None = snapshot.memo.get((_WIDTH, path))
    if known is None:
        kind = snapshot.manifest.schema.find(path)[-1].to_arrow().type
        known = snapshot.memo[(_WIDTH, path)] = max(8, value_bytes(kind))
    return known
