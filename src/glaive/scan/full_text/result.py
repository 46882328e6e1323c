"""What a search of texts adds to rows: their score.

Specification: "Searching" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import pyarrow as pa

from glaive.arrow.buffers import number_array
from glaive.dataclass import dataclass
from glaive.format.flags import Feature
from glaive.index.text.term_search import Hits
from glaive.scan.found_columns import AddedColumns
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID
from glaive.types import Flags, Int64s

__all__ = ["ADDED", "SCORE", "ScoredRows"]

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
