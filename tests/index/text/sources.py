"""Rows in memory that indices are built from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.index.protocol import ValueBatch


class RowsInMemory:
    """One fragment of rows; an ``IndexSource``."""

    def __init__(
        self,
        batches: Sequence[Any],
        memory_limit: int = 1 << 30,
        first: int = 0,
        metadata: dict[str, str] | None = None,
    ) -> None:
        self._batches, self._first = batches, first
        self.memory_limit = memory_limit
        self.field: Any = pa.field("t", batches[0].type, metadata=metadata)
        self.num_rows = sum(map(len, batches))
        self.fragment_ids = [0]
        self.stable_row_ids = False
        self.dictionary_type: pa.DataType | None = None

    def batches(self) -> Iterator[ValueBatch]:
        at = self._first
        for values in self._batches:
            yield ValueBatch(values, np.arange(at, at + len(values), dtype=np.uint64))
            at += len(values)

    def sample(self, rows: int, seed: int = 0) -> Any:
        return pa.concat_arrays(self._batches)[:rows]
