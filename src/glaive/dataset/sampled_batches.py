"""Rows chosen at random, as batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = ["sampled_batches"]


def sampled_batches(
    dataset: LanceDataset,
    count: int,
    columns: Sequence[str] | Mapping[str, str] | None,
    batch_size: int,
    max_takes: int,
    filter: str | None,
) -> Iterator[pa.RecordBatch]:
    """Rows at random, fewer than there are; neighbours if there are more than ``max_takes``."""
    random = np.random.default_rng()
    if filter is not None:
        found = dataset.scanner(columns=[], filter=filter, with_row_id=True)
        ids = found.to_table()["_rowid"].to_numpy()
        if len(ids) > count:
            ids = np.sort(random.choice(ids, count, replace=False))
        for first in range(0, len(ids), batch_size):
            rows = ids[first : first + batch_size]
            yield from _batches(dataset._take_rows(rows, columns))  # noqa: SLF001  # pylance's name
        return
    positions = _positions(random, len(dataset), count, max_takes)
    for first in range(0, count, batch_size):
        yield from _batches(dataset.take(positions[first : first + batch_size], columns))


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    return table.combine_chunks().to_batches()


def _positions(random: np.random.Generator, rows: int, count: int, max_takes: int) -> Int64s:
    """Positions of rows: single ones, or one run in each of ``max_takes`` equal windows."""
    if count <= max_takes:
        return np.asarray(random.choice(rows, count, replace=False), np.int64)
    # Each window gets its share of the rows; both divided evenly, without a remainder.
    starts = np.arange(max_takes + 1) * rows // max_takes
    shares = np.diff(np.arange(max_takes + 1) * count // max_takes)
    room = np.diff(starts) - shares
    first = starts[:-1] + random.integers(0, np.maximum(room, 0) + 1)
    ends = np.cumsum(shares)
    inside = np.arange(count) - np.repeat(ends - shares, shares)
    positions: Int64s = np.repeat(first, shares) + inside
    return positions
