"""How many partitions of an index a search begins with.

Specification: "Searching" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import NamedTuple

from glaive.scan.nearest.options import NearestOptions

__all__ = ["Effort", "effort_of"]


class Effort(NamedTuple):
    """Partitions to search first, and at most, until there are enough rows."""

    first: int
    most: int


def effort_of(options: NearestOptions, count: int, partitions: int) -> Effort:
    """The partitions to search of so many.

    Parameters
    ----------
    count
        Rows wanted.
    """
    most = partitions
    if options.maximum_nprobes is not None:
        most = min(most, options.maximum_nprobes)
    least = min(most, options.minimum_nprobes or 1)
    if options.minimum_nprobes is not None and options.minimum_nprobes == options.maximum_nprobes:
        return Effort(least, most)
    # What pylance was seen to do: it grows with the root of the rows wanted, not with the index.
    usual = min(partitions, 3 + ceil(0.8 * sqrt(count)))
    effort = 0.5 if options.search_effort is None else options.search_effort
    if effort <= 0.5:
        first = usual ** (2 * effort)
    else:
        first = usual * (partitions / usual) ** (2 * effort - 1)
    # Rounding must not make a partition more of one that is there exactly.
    return Effort(min(most, max(least, ceil(first - 1e-9))), most)
