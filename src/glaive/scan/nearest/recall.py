"""Recall of a vector index: the share of the nearest rows that a search with it finds.

It is measured with vectors of the dataset itself, each without the row it is from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.chunked import join_large
from glaive.dataclass import dataclass
from glaive.kernels.distances import ELEMENTS, Metric
from glaive.scan.nearest.indexed import ChosenIndex
from glaive.scan.nearest.options import NearestOptions
from glaive.scan.nearest.scan import NearestScan
from glaive.scan.nearest.vectors import QUERY, row_vectors, vector_type
from glaive.scan.options import ScanOptions
from glaive.scan.projection import ROW_ID, refuse_taken
from glaive.scan.take import take_physical
from glaive.scan.views import Views
from glaive.types import Flags, Int64s, UInt64s

_NEIGHBOURS: Final = 10
"""Rows that are searched for, beside the one that the query is from."""


@dataclass(frozen=True, slots=True, eq=False)
class RecallSample:
    """Vectors of a column, and the rows that are nearest to each.

    Parameters
    ----------
    views
        The version.
    options
        Which fragments are searched.
    nearest
        The search: column, metric, queries, and rows wanted.
    own
        ``uint64``: row id of each query.
    nearby
        Row ids of the nearest rows of each query.
    """

    views: Views
    options: ScanOptions
    nearest: NearestOptions
    own: UInt64s
    nearby: tuple[frozenset[int], ...]

    @classmethod
    def of(
        cls, views: Views, column: str, metric: Metric, count: int, fragments: Sequence[int]
    ) -> RecallSample | None:
        """Draw so many rows at random, always the same, and search exactly.

        None where no row has a vector. Cost: one pass over the vectors, whatever ``count``.

        Parameters
        ----------
        fragments
            Ids of the only fragments that are searched.
        """
        field = views.snapshot.manifest.schema.find(column)[-1].to_arrow()
        kind = vector_type(field, column)
        fragment, row = _drawn(views, count, fragments)
        if kind.several or not len(row):
            return None
        refuse_taken(views.snapshot.manifest.schema, ROW_ID)
        source = views.scan((column, ROW_ID))
        table = take_physical(source, fragment, row)
        array: Any = join_large(table.column(0).chunks)
        vectors = row_vectors(array, kind)
        wide = vectors.block.widened()
        matrix: NDArray[Any] = wide.values.astype(ELEMENTS[wide.element]).reshape(len(row), -1)
        good: Flags = np.isfinite(matrix).all(axis=1)
        if vectors.valid is not None:
            good &= vectors.valid
        own = table.column(1).to_numpy()[good]
        if not len(own):
            return None
        restricted = len(fragments) < views.snapshot.manifest.num_fragments
        options = ScanOptions(
            columns=(), with_row_id=True, disable_scoring_autoprojection=True,
            fragments=tuple(fragments) if restricted else None,
        )  # fmt: skip
        nearest = NearestOptions(
            column=column, query=matrix[good], k=_NEIGHBOURS + 1, metric=metric, use_index=False
        )
        made = cls(views, options, nearest, own, ())
        return replace(made, nearby=tuple(map(frozenset, made._found(None, nearest))))

    def recall(
        self, index: ChosenIndex, *, nprobes: int | None = None, refine_factor: int | None = None
    ) -> float:
        """The share of the nearest rows that are found with an index.

        Parameters
        ----------
        nprobes, refine_factor
            As for searches; None: what searches do by default.
        """
        nearest = replace(self.nearest, refine_factor=refine_factor)
        if nprobes is not None:
            nearest = replace(nearest, minimum_nprobes=nprobes, maximum_nprobes=nprobes)
        else:
            nearest = index.with_defaults(nearest)
        found = self._found(index, nearest)
        wanted = sum(map(len, self.nearby))
        hits = sum(len(near & set(ids)) for near, ids in zip(self.nearby, found, strict=True))
        return hits / wanted if wanted else 1.0

    def _found(self, index: ChosenIndex | None, nearest: NearestOptions) -> list[list[int]]:
        """Row ids of the rows found for each query, without its own."""
        scan = replace(NearestScan.of(self.views, self.options, nearest), index=index)
        table = scan.table()
        query, ids = table[QUERY].to_numpy(), table[ROW_ID].to_numpy()
        other = ids != self.own[query]
        bounds = np.searchsorted(query[other], np.arange(len(self.own) + 1))
        listed = ids[other].tolist()
        return [
            listed[first : min(last, first + _NEIGHBOURS)]
            for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]


def _drawn(views: Views, count: int, fragments: Sequence[int]) -> tuple[Int64s, Int64s]:
    """Position of the fragment, and physical row, of random live rows, ascending."""
    snapshot = views.snapshot
    positions = np.array(snapshot.positions_of(fragments), np.int64)
    ends = np.cumsum(snapshot.live_counts[positions])
    total = int(ends[-1]) if len(ends) else 0
    random = np.random.default_rng(total)
    drawn = np.sort(random.choice(total, min(count, total), replace=False))
    part = np.searchsorted(ends, drawn, side="right")
    row = drawn - (ends - snapshot.live_counts[positions])[part]
    for at in np.unique(part).tolist():
        live = snapshot.live_rows(snapshot.manifest.fragment(int(positions[at])))
        if live is not None:
            here = part == at
            row[here] = live.physical(row[here])
    return positions[part], row
