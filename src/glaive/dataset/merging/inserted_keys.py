"""The keys that a merge inserts, by which other writers see that both insert the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataset.merging.clauses import primary_key
from glaive.format.fields import LanceSchema
from glaive.table.key_filter import Filter, hash_keys, key_filter

__all__ = ["InsertedKeys"]


class InsertedKeys:
    """A filter of keys that are added block by block; its size does not depend on their number.

    Parameters
    ----------
    field_ids
        Ids of the columns of the primary key, in its order.
    order
        Where these are among the columns that are added.
    """

    def __init__(self, field_ids: Sequence[int], order: Sequence[int]) -> None:
        self._filter = key_filter(field_ids, np.empty(0, np.uint64))
        self._order = tuple(order)
        self._count = 0
        self._all_hashed = True

    @classmethod
    def of(cls, schema: LanceSchema, on: Sequence[str]) -> Self | None:
        """Those of a merge on some columns; None unless these are the primary key."""
        declared = primary_key(schema)
        if not declared or set(declared) != set(on):
            return None
        ids = [schema.find(name)[-1].id for name in declared]
        return cls(ids, [on.index(name) for name in declared])

    def add(self, columns: Sequence[Any]) -> None:
        """Add keys; arrays of the key columns, of equal length.

        Those with nulls are equal to none, so they are left out.
        """
        given = [columns[at] for at in self._order]
        if any(column.null_count for column in given):
            mask: Any = pa.array(np.all([column.is_valid() for column in given], axis=0))
            given = [column.filter(mask) for column in given]
        self._count += len(given[0])
        hashes = hash_keys(given) if self._all_hashed else None
        if hashes is None:
            self._all_hashed = False
            return
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

    @property
    def lack_filter(self) -> bool:
        """Whether there are keys that no filter tells of."""
        return bool(self._count) and not self._all_hashed


def _bits_of(made: Filter) -> NDArray[np.uint8]:
    return np.frombuffer(made.bloom.bitmap, np.uint8)
