"""The rows of a segment that it still answers for, as a map that drops all others.

A fragment leaves the coverage of a segment when one of its columns is replaced, and a row with a
stable id when it is updated; their entries stay. Before segments are merged, these are dropped:
the merged one may cover where such rows are now.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from glaive.index.address_map import Addresses, AddressMap
from glaive.types import Flags

__all__ = ["RetainedRows"]


class RetainedRows(AddressMap):
    """Rows keep their numbers, and some are dropped.

    Parameters
    ----------
    limits
        For each upper half of the numbers, which for addresses is a fragment, how many numbers
        there are. Numbers with other upper halves belong to no row: they are left alone.
    retains
        Which of some rows stay, one flag each.
    """

    __slots__ = ("_limits", "_retains")

    moves = False

    def __init__(self, limits: Mapping[int, int], retains: Callable[[Addresses], Flags]) -> None:
        super().__init__(())
        self.rewritten = frozenset(limits)
        self._limits, self._retains = limits, retains

    def apply(self, addresses: Addresses) -> tuple[Addresses, Flags]:
        """The same numbers, and which of the rows stay."""
        flags = self._retains(addresses) if len(addresses) else np.zeros(0, np.bool_)
        return addresses, flags

    def rows_of(self, fragment: int) -> int:
        """How many numbers there are with an upper half."""
        return self._limits.get(fragment, 0)
