"""Where the rows of a partition are, for kernels that search it."""

from __future__ import annotations

from dataclasses import field
from struct import pack

import numpy as np

from glaive.dataclass import dataclass
from glaive.kernels._addresses import KEEPS_ADDRESSES, address, is_plain
from glaive.types import Flags, Int64s, UInt64s

__all__ = ["RowPlaces"]


@dataclass(frozen=True, slots=True, eq=False)
class RowPlaces:
    """Where the rows of a partition are, in its order. Checked once, here.

    Parameters
    ----------
    fragment
        ``int64``: position of the fragment in the list.
    row
        ``int64``: physical row.
    key
        ``uint64``: row id.
    live
        Which of them are there: not deleted, and in a fragment that the segment answers for;
        None: all.

    Raises
    ------
    ValueError
        They are of different lengths or types.
    """

    fragment: Int64s
    row: Int64s
    key: UInt64s
    live: Flags | None = None
    count: int = field(init=False)
    """Number of rows."""
    _places: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        count = len(self.key)
        good = is_plain(self.fragment, np.int64, count) and is_plain(self.row, np.int64, count)
        good = good and is_plain(self.key, np.uint64, count)
        if not good or not (self.live is None or is_plain(self.live, np.bool_, count)):
            raise ValueError(f"{len(self.fragment)} fragments and {len(self.row)} rows of {count}")
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "_places", self._located() if KEEPS_ADDRESSES else b"")

    @property
    def located(self) -> bytes:
        """How many rows there are, and where its arrays are, for the kernel."""
        return self._places or self._located()

    def _located(self) -> bytes:
        arrays = self.live, self.fragment, self.row, self.key
        return pack(
            "5q", len(self.key), *[0 if array is None else address(array) for array in arrays]
        )

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        flags = 0 if self.live is None else self.live.nbytes
        return int(self.fragment.nbytes + self.row.nbytes + self.key.nbytes + flags)
