"""A scan that returns the rows whose texts match a query, the best first."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import pyarrow as pa

from glaive.arrow.blocks import number_array
from glaive.dataclass import dataclass
from glaive.format.manifest import Feature
from glaive.index.text.opened import Hits
from glaive.scan.found_columns import AddedColumns, FoundColumns
from glaive.scan.options import Meter, ScanOptions
from glaive.scan.projection import ROW_ADDRESS, ROW_ID
from glaive.scan.ranked import PlanStep, RankedScan, filters_of
from glaive.scan.snapshot import Snapshot
from glaive.scan.text_queries import FullTextQuery, MatchQuery, PhraseQuery, TextQuery
from glaive.scan.text_search import TextColumn, TextSearch
from glaive.scan.views import Views
from glaive.types import Flags, Int64s

# --- What a search of texts adds to rows: their score -----------------------------------
# Specification: "Searching" in ``docs/format/text-indices.md``.

SCORE: Final = "_score"

ADDED: Final = AddedColumns(MappingProxyType({SCORE: pa.field(SCORE, pa.float32())}), (), SCORE)
"""Columns that rows have beside those of the dataset."""

_ADDRESSES: Final = frozenset((ROW_ID, ROW_ADDRESS))
"""Columns that are the addresses of rows where row ids are not stable."""


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Rows that were found, by address."""

    hits: Hits

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.hits.rows)

    def places(self, snapshot: Snapshot) -> tuple[Int64s, Int64s]:
        """Position of the fragment in the list, and physical row, of each."""
        return snapshot.places_of(self.hits.rows)

    def added(self, _name: str) -> pa.Array:
        """The score."""
        return number_array(self.hits.scores, pa.float32())

    def stored(self, name: str, snapshot: Snapshot) -> pa.Array | None:
        """Addresses are known."""
        stable = snapshot.manifest.uses(Feature.STABLE_ROW_IDS)
        if name not in _ADDRESSES or stable:
            return None
        return number_array(self.hits.rows, pa.uint64())

    def take(self, chosen: Int64s | Flags) -> ScoredRows:
        """Some of the rows, in this order."""
        return ScoredRows(Hits(self.hits.rows[chosen], self.hits.scores[chosen]))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FullTextScan(RankedScan):
    """A search that is ready to run, once or several times.

    Parameters
    ----------
    query
        What is searched for.
    """

    query: FullTextQuery

    @classmethod
    def of(cls, views: Views, options: ScanOptions, query: FullTextQuery) -> FullTextScan:
        """Work out the columns of the query, those of the result, and the filter.

        Raises
        ------
        OptionError
            A column cannot be searched.
        ColumnNotFoundError, FilterError
            A column does not exist, or the filter cannot be understood.
        """
        for column in _columns_of(query, TextSearch(views, options, None, Meter())):
            TextColumn.of(views.snapshot, column)
        prefilter, postfilter = filters_of(views, options, ADDED)
        return cls(
            views=views, options=options, columns=FoundColumns.of(views, options, ADDED),
            prefilter=prefilter, postfilter=postfilter, query=query,
        )  # fmt: skip

    def steps(self) -> list[PlanStep]:
        """What is going to be done, the last step first."""
        steps, query = self._result_steps(), self.query
        search = TextSearch(self.views, self.options, None, Meter())
        of_one = isinstance(query, TextQuery | MatchQuery | PhraseQuery)
        if not of_one:
            steps.append(PlanStep(type(query).__name__, repr(query), "search"))
        fragments = self.views.snapshot.manifest.num_fragments
        best = "all rows" if self._most is None else f"the best {self._most} rows"
        rest = "left out" if self.options.fast_search else "read"
        leaves = (
            query.on(search.columns_of(query)) if isinstance(query, TextQuery) else query.leaves()
        )
        for leaf in leaves:
            is_phrase = isinstance(leaf, PhraseQuery)
            for path in (
                (leaf.column,) if isinstance(leaf, MatchQuery | PhraseQuery) else leaf.columns
            ):
                column = search.column(path)
                name = "no index" if column.index is None else f"index {column.index.name}"
                left = fragments - len(column.covered)
                asked = leaf.query if is_phrase else f"[{leaf.query}]"
                said = f"column={path}, query={asked}, {best} by {SCORE}, {name} of "
                said += f"{len(column.covered)} fragments; {left} fragments {rest}"
                kind = "PhraseQuery" if is_phrase else "MatchQuery"
                steps.append(PlanStep(kind, said, "search"))
                if left and not self.options.fast_search:
                    said = f"column={path}, query={leaf.query}"
                    steps.append(PlanStep("FlatMatchQuery", said, "search"))
        return steps + self._prefilter_steps()

    @property
    def _most(self) -> int | None:
        """Rows that are searched for; None: all that match."""
        options = self.options
        return None if options.limit is None else options.offset + options.limit

    def _search(self, meter: Meter) -> ScoredRows:
        prefilter = None if self.prefilter is None else self.options.filter
        search = TextSearch(self.views, self.options, prefilter, meter)
        return ScoredRows(search.hits(self.query, self._most).best(self._most))


def _columns_of(query: FullTextQuery, search: TextSearch) -> list[str]:
    """Paths of the columns that are searched."""
    paths = list(search.columns_of(query)) if isinstance(query, TextQuery) else []
    for leaf in query.leaves():
        if isinstance(leaf, MatchQuery | PhraseQuery):
            paths.append(leaf.column)
        else:
            paths += leaf.columns
    return list(dict.fromkeys(paths))
