"""Batches of other sizes: fewer and larger, as small ones cost more than their rows; or exact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, overload

import pyarrow as pa

from glaive.arrow.chunked import join_batches
from glaive.arrow.dictionaries import has_dictionary

__all__ = ["BATCH_BYTES", "coalesced", "slices_of_rows"]

BATCH_BYTES: Final = 16 * 1024 * 1024
_BATCH_ROWS: Final = 64 * 1024


@overload
def coalesced(
    parts: Iterable[pa.RecordBatch], enough: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]: ...


@overload
def coalesced(
    parts: Iterable[pa.RecordBatch | pa.Table], enough: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch | pa.Table]: ...


def coalesced(
    parts: Iterable[pa.RecordBatch | pa.Table], enough: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch | pa.Table]:
    """The same rows in batches of about 65,536 rows or ``enough`` bytes, whichever come first.

    Tables are passed on as they are, and so are batches with dictionaries, which would have to be
    merged.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in parts:
        if isinstance(batch, pa.Table):
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
            yield batch
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _BATCH_ROWS or size >= enough:
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
    yield from _joined(waiting)


def slices_of_rows(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """Cut batches so that ``size`` rows are together, except for the last; what is cut is a view.

    Whoever asks joins them: several batches need not fit one.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = 0
        while batch.num_rows - start >= size - rows:
            waiting.append(batch.slice(start, size - rows))
            start += size - rows
            yield waiting
            waiting, rows = [], 0
        if start < batch.num_rows:
            waiting.append(batch.slice(start))
            rows += batch.num_rows - start
    if waiting:
        yield waiting


def _joined(batches: list[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    if len(batches) < 2 or any(map(has_dictionary, batches[0].schema.types)):
        return batches
    return join_batches(pa.Table.from_batches(batches))
