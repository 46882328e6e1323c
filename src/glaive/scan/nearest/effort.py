"""How many partitions of an index a search begins with.

Specification: "Searching partitions" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite, sqrt
from typing import Final

from glaive.kernels.distances import Metric
from glaive.named_tuple import NamedTuple
from glaive.scan.nearest.options import NearestOptions

__all__ = ["NEIGHBOURS", "Effort", "effort_of"]

NEIGHBOURS: Final = 8
"""Nearest centroids that tell whether a query is clear."""

_CLEAR: Final = 1.28
_UNCLEAR: Final = 1.08
"""Distance of the eighth centroid, in that of the first, from which on a query is clear or not."""

_MORE: Final = 3.6
"""Partitions of an unclear query for each of a clear one."""


class Effort(NamedTuple):
    """Partitions to search first, and at most, until there are enough rows.

    ``is_fixed``: whatever the distances of the centroids.
    """

    first: int
    most: int
    is_fixed: bool = False


def effort_of(
    options: NearestOptions,
    count: int,
    ranked: Sequence[float] | None,
    metric: Metric,
    partitions: int,
) -> Effort:
    """The partitions to search.

    Parameters
    ----------
    count
        Rows wanted.
    ranked
        Distances of the query from the nearest centroids, ascending, :data:`NEIGHBOURS` at least
        where there are as many; None: not known yet.
    partitions
        Those that the index has.
    """
    most = partitions
    if options.maximum_nprobes is not None:
        most = min(most, options.maximum_nprobes)
    least = min(most, options.minimum_nprobes or 1)
    if options.minimum_nprobes is not None and options.minimum_nprobes == options.maximum_nprobes:
        return Effort(least, most, is_fixed=True)
    usual = _usual(count, ranked, metric, partitions)
    effort = 0.5 if options.search_effort is None else options.search_effort
    if effort <= 0.5:
        first = usual ** (2 * effort)
    else:
        first = usual * (partitions / usual) ** (2 * effort - 1)
    # Rounding must not add a partition to a number that is exact.
    return Effort(min(most, max(least, ceil(first - 1e-9))), most)


def _usual(count: int, ranked: Sequence[float] | None, metric: Metric, partitions: int) -> int:
    """Partitions of medium effort: more if many centroids are about as near as the first.

    It grows with the root of the rows wanted, and not with the index, as pylance's does.
    """
    clear = 4 + 0.8 * sqrt(count)
    unclear = 0.5
    if ranked is not None and len(ranked) >= NEIGHBOURS and metric in ("l2", "cosine"):
        nearest, other = ranked[0], ranked[NEIGHBOURS - 1]
        ratio = other / nearest if nearest > 0 else _CLEAR
        if isfinite(ratio):
            unclear = min(1.0, max(0.0, (_CLEAR - ratio) / (_CLEAR - _UNCLEAR)))
    return max(1, min(partitions, ceil(clear * (1 + (_MORE - 1) * unclear))))
