"""The keys that a merge inserts, by which other writers see that both insert the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.table.key_filter import Filter, hash_keys, key_filter

__all__ = ["InsertedKeys"]


class InsertedKeys:
    """A filter of keys that are added block by block; its size does not depend on their number.

    Parameters
    ----------
    field_ids
        Ids of the key columns.
    """

    def __init__(self, field_ids: Sequence[int]) -> None:
        self._filter = key_filter(field_ids, np.empty(0, np.uint64))
        self._count = 0
        self._all_hashed = True

    def add(self, columns: Sequence[Any]) -> None:
        """Add keys; arrays of the key columns, of equal length."""
        hashes = hash_keys(columns) if self._all_hashed else None
        if hashes is None:
            self._all_hashed = False
            return
        self._count += len(hashes)
        more = key_filter(list(self._filter.field_ids), hashes)
        self._filter.bloom.bitmap = (_bits_of(self._filter) | _bits_of(more)).tobytes()

    def add_all(self, others: InsertedKeys) -> None:
        """Add the keys of another filter of the same columns."""
        self._all_hashed &= others._all_hashed
        self._count += others._count
        bits = _bits_of(self._filter) | _bits_of(others._filter)
        self._filter.bloom.bitmap = bits.tobytes()

    def message(self) -> Filter | None:
        """The filter in wire format; None if there are no keys, or unsupported ones."""
        return self._filter if self._all_hashed and self._count else None


def _bits_of(made: Filter) -> NDArray[np.uint8]:
    return np.frombuffer(made.bloom.bitmap, np.uint8)
