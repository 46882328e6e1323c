"""The rows of a column, as builds of indices read them.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from glaive.arrow.dictionaries import concat_arrays, decode_dictionary
from glaive.format.flags import Feature
from glaive.index.row_set import RowNumbers
from glaive.index.source import FragmentExtent, ValueBatch
from glaive.io.pool import worker_count
from glaive.memory import items_of
from glaive.scan.options import ScanOptions
from glaive.scan.plan import WINDOW_BYTES
from glaive.scan.query import make_query
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take
from glaive.scan.views import Views

__all__ = ["ColumnSource", "CountRows"]

CountRows: TypeAlias = Callable[[int], None]
"""Called with the number of rows that were read since the last call."""

_BATCH_ROWS = 256 * 1024
_BATCH_BYTES, _LEAST_BATCH_BYTES = 16 * 1024 * 1024, 512 * 1024
_COPIES = 8
"""Memory that work on a batch takes, as a multiple of it, about."""

_READ_SHARE = 4
"""Rows that are read ahead take at most this part of the limit of memory, or are one window."""


class ColumnSource:
    """Live rows of some fragments of a version; an :class:`glaive.index.source.IndexSource`.

    Parameters
    ----------
    path
        Of the column.
    fragment_ids
        Fragments to read; None for all.
    addresses
        Whether rows are numbered by address; else by row id.
    memory_limit
        Bytes that a build may hold.
    count_rows
        Called with the number of rows that were read.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        path: str,
        fragment_ids: Sequence[int] | None,
        *,
        addresses: bool,
        memory_limit: int,
        count_rows: CountRows | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._path, self._addresses = path, addresses
        ids = snapshot.manifest.fragment_ids.tolist() if fragment_ids is None else fragment_ids
        self._fragment_ids = tuple(ids)
        self._count_rows = count_rows
        self.memory_limit = memory_limit

    @cached_property
    def field(self) -> pa.Field[Any]:
        """The column, with the type that batches have."""
        stored = self._stored_type
        if pa.types.is_dictionary(stored):
            stored = stored.value_type
        return pa.field(self._path, stored, metadata=self._column.metadata)

    @cached_property
    def _column(self) -> pa.Field[Any]:
        return self._snapshot.manifest.schema.find(self._path)[-1].to_arrow()

    @property
    def _stored_type(self) -> Any:
        kind: Any = self._column.type
        return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind

    @cached_property
    def dictionary_type(self) -> pa.DataType | None:
        """The type of the column if it has dictionaries; else None."""
        stored = self._stored_type
        return stored if pa.types.is_dictionary(stored) else None

    @cached_property
    def _positions(self) -> list[int]:
        return list(self._snapshot.positions_of(self._fragment_ids))

    @cached_property
    def fragments(self) -> Sequence[FragmentExtent]:
        """The fragments, in the order in which they are read."""
        rows = self._snapshot.manifest.physical_rows[self._positions].tolist()
        return [
            FragmentExtent(number, count)
            for number, count in zip(self._fragment_ids, rows, strict=True)
        ]

    @property
    def stable_row_ids(self) -> bool:
        """Whether rows have ids that are not their addresses."""
        return self._snapshot.manifest.uses(Feature.STABLE_ROW_IDS)

    @property
    def num_rows(self) -> int:
        """Live rows."""
        return int(self._snapshot.live_counts[self._positions].sum())

    def batches(self) -> Iterator[ValueBatch]:
        """Read all rows, fragment by fragment."""
        if not self._fragment_ids:
            return
        options = ScanOptions(
            columns=(self._path,),
            fragments=self._fragment_ids,
            with_row_address=self._addresses,
            with_row_id=not self._addresses,
            batch_size=_BATCH_ROWS,
            batch_size_bytes=self._batch_bytes,
            batch_readahead=self._windows_ahead,
            blob_handling="all_binary",
        )
        for batch in make_query(Views(self._snapshot), options).batches():
            numbers: Any = batch.column(1)
            rows: RowNumbers = items_of(
                numbers.buffers()[1], np.uint64, len(numbers), numbers.offset * 8
            )
            yield ValueBatch(self._values(batch.column(0)), rows)
            if self._count_rows is not None:
                self._count_rows(batch.num_rows)

    @property
    def _batch_bytes(self) -> int:
        """Bytes of a batch: each thread may work on one."""
        share = self.memory_limit // (_COPIES * (worker_count() + 1))
        return max(_LEAST_BATCH_BYTES, min(_BATCH_BYTES, share))

    @property
    def _windows_ahead(self) -> int | None:
        """Windows that are read ahead; None: as many as there are threads."""
        most = max(1, self.memory_limit // _READ_SHARE // WINDOW_BYTES)
        return most if most <= worker_count() else None

    def sample(self, rows: int, seed: int = 0) -> Any:
        """Values of so many random rows, or of all."""
        total = self.num_rows
        if rows >= total:
            parts = [batch.values for batch in self.batches()]
            return concat_arrays(parts) if parts else pa.array([], self.field.type)
        chosen = np.sort(np.random.default_rng(seed).choice(total, rows, replace=False))
        counts = self._snapshot.live_counts[self._positions]
        ends = np.cumsum(counts)
        at = np.searchsorted(ends, chosen, side="right")
        starts = self._snapshot.row_starts[self._positions]
        numbers = chosen - (ends - counts)[at] + starts[at]
        table = take(Views(self._snapshot).take((self._path,)), numbers)
        chunks = [self._values(self._member(chunk)) for chunk in table.column(0).chunks]
        return concat_arrays(chunks) if chunks else pa.array([], self.field.type)

    def _member(self, array: Any) -> Any:
        """The column out of the structs that a take leaves it in; null where one of these is."""
        for _ in self._snapshot.manifest.schema.find(self._path)[1:]:
            (array,) = array.flatten()
        return array

    def _values(self, array: Any) -> Any:
        """The values of a column in the type of :attr:`field`."""
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        if pa.types.is_dictionary(array.type):
            array = decode_dictionary(array)
        return array
