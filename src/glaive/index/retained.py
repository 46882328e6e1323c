"""The rows of a segment that it still answers for, as a map that drops all others.

A fragment leaves the coverage of a segment when one of its columns is replaced, and a row with a
stable id when it is updated; their entries stay. Before segments are merged, these are dropped:
the merged one may cover where such rows are now. Rows that a compaction moved without rebuilding
the segment get their new addresses: the merged one needs no remapping table.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Self

import numpy as np

from glaive.index.address_map import Addresses, AddressMap
from glaive.types import Flags

__all__ = ["RetainedRows"]

_MOST_HALVES: Final = 1 << 16
"""Upper halves of row ids that are looked at: no dataset has had so many rows."""


class RetainedRows(AddressMap):
    """Rows keep their numbers unless compactions moved them, and some are dropped.

    Parameters
    ----------
    limits
        For each upper half of the numbers, which for addresses is a fragment, how many numbers
        there are. Numbers with other upper halves belong to no row: they are left alone.
    locate
        The addresses of some rows, and which of them stay, one flag each.
    moves
        Whether rows get these addresses; else they keep their numbers.
    """

    __slots__ = ("_limits", "_locate", "moves")

    def __init__(
        self,
        limits: Mapping[int, int],
        locate: Callable[[Addresses], tuple[Addresses, Flags]],
        *,
        moves: bool = False,
    ) -> None:
        super().__init__(())
        self.rewritten = frozenset(limits)
        self._limits, self._locate = limits, locate
        self.moves = moves

    @classmethod
    def of_addresses(
        cls,
        physical_rows: Mapping[int, int],
        moved: AddressMap | None,
        locate: Callable[[Addresses], tuple[Addresses, Flags]],
    ) -> Self:
        """Rows by address: those of fragments, and those that were moved into them."""
        if moved is None:
            return cls(physical_rows, locate)
        before = {fragment: moved.rows_of(fragment) for fragment in moved.rewritten}
        return cls({**before, **physical_rows}, locate, moves=True)

    @classmethod
    def of_ids(
        cls, next_row_id: int, locate: Callable[[Addresses], tuple[Addresses, Flags]]
    ) -> Self:
        """Rows by stable id."""
        halves = range(min(next_row_id >> 32, _MOST_HALVES) + 1)
        return cls({half: min(next_row_id - (half << 32), 1 << 32) for half in halves}, locate)

    def apply(self, addresses: Addresses) -> tuple[Addresses, Flags]:
        """The numbers of the rows, and which of them stay."""
        if not len(addresses):
            return addresses, np.zeros(0, np.bool_)
        found, flags = self._locate(addresses)
        return found if self.moves else addresses, flags

    def rows_of(self, fragment: int) -> int:
        """How many numbers there are with an upper half."""
        return self._limits.get(fragment, 0)
