"""Rows in shuffled order: blocks of neighbours at random, and rows at random in windows of them.

Neighbours lie in the same pages, so a window of blocks costs about what a scan of as many rows
does. A share of the rows, and the place where a pass goes on, are found without reading what is
before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from glaive.config import settings
from glaive.dataclass import dataclass
from glaive.errors import LimitError
from glaive.scan.system_columns import ROW_ID, refuse_taken
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = [
    "BlockOrder",
    "batches_at",
    "check_order",
    "default_window",
    "shuffled_batches",
    "with_row_ids",
]

_ORDER_BYTES = 32
"""Memory of the order of one part, while it is made."""

_WINDOW_BYTES = 256 * 2**20
_WINDOW_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """The order of all rows of one pass, and the share of one process in it.

    Parameters
    ----------
    rows
        Number of rows.
    block_rows
        Neighbouring rows that stay together until a window mixes them.
    seed
        Numbers that the order depends on.
    share, shares
        Number of the process, and how many there are. Their rows differ in number by one at most.
    equal
        Whether the last rows are left out where shares would differ.
    """

    rows: int
    block_rows: int
    seed: tuple[int, ...]
    share: int
    shares: int
    equal: bool

    def bounds(self) -> tuple[int, int]:
        """Where the share begins and ends in the order."""
        if self.equal:
            each = self.rows // self.shares
            return self.share * each, (self.share + 1) * each
        return (
            self.rows * self.share // self.shares,
            self.rows * (self.share + 1) // self.shares,
        )

    def windows(self, size: int, offset: int) -> Iterator[Int64s]:
        """Positions of rows, a window of the share at a time, without the first ``offset`` rows."""
        first, end = self.bounds()
        check_order(-(-self.rows // self.block_rows), "block_rows")
        blocks = np.random.default_rng(self.seed).permutation(-(-self.rows // self.block_rows))
        starts = blocks * self.block_rows
        ends = np.cumsum(np.minimum(self.block_rows, self.rows - starts))
        for start in range(first + offset // size * size, end, size):
            rows = _between(starts, ends, start, min(start + size, end))
            np.random.default_rng((*self.seed, start)).shuffle(rows)
            yield rows[max(first + offset - start, 0) :]


def _between(starts: Int64s, ends: Int64s, first: int, end: int) -> Int64s:
    """Positions of the rows ``first`` to ``end`` of the blocks, laid end to end."""
    at = slice(int(np.searchsorted(ends, first, "right")), int(np.searchsorted(ends, end)) + 1)
    # What has to be added to a number in the order to have its position.
    before = np.concatenate([[0], ends])[at.start : at.stop]
    shift = starts[at] - before
    counts = np.minimum(ends[at], end) - np.maximum(before, first)
    rows: Int64s = np.arange(first, end) + np.repeat(shift, counts)
    return rows


def check_order(parts: int, option: str) -> None:
    """Refuse an order of more parts than memory is taken for: few bytes stand for many rows.

    Raises
    ------
    LimitError
        There are too many; the message names the option that makes them fewer.
    """
    most = settings.max_decoded_bytes_per_page // _ORDER_BYTES
    if parts > most:
        raise LimitError(
            f"an order of {parts} parts of the dataset; at most {most} are put in an order at "
            f"random. Use a larger {option}, or allow more: set GLAIVE_MAX_DECODED_BYTES_PER_PAGE."
        )


def default_window(dataset: LanceDataset, batch_size: int) -> int:
    """Rows of a window: 65,536, fewer if rows take more than 4 KiB each in the files."""
    each = max(1, dataset.manifest.stated.file_bytes // max(1, len(dataset)))
    return max(batch_size, min(_WINDOW_ROWS, _WINDOW_BYTES // each))


def with_row_ids(
    dataset: LanceDataset, columns: Sequence[str] | Mapping[str, str] | None
) -> Sequence[str] | Mapping[str, str]:
    """The columns, and the ids of the rows.

    Raises
    ------
    SchemaError
        A column of the dataset has the name of these.
    """
    refuse_taken(dataset.lance_schema, ROW_ID)
    if isinstance(columns, Mapping):
        return {**columns, "_rowid": "_rowid"}
    return [*(dataset.schema.names if columns is None else columns), "_rowid"]


def batches_at(
    dataset: LanceDataset,
    columns: Sequence[str] | Mapping[str, str] | None,
    numbers: Sequence[int],
    batch_size: int,
) -> Iterator[pa.RecordBatch]:
    """Batches by number, where batch 0 is the first ``batch_size`` rows; some are read at once."""
    at_once = max(1, default_window(dataset, batch_size) // (8 * batch_size))
    rows = len(dataset)
    for first in range(0, len(numbers), at_once):
        starts = np.array(numbers[first : first + at_once], np.int64) * batch_size
        sizes = np.minimum(batch_size, rows - starts)
        ends = np.cumsum(sizes)
        positions = np.arange(sizes.sum()) + np.repeat(starts - ends + sizes, sizes)
        taken = dataset.take(positions, columns).combine_chunks()
        for end, size in zip(ends.tolist(), sizes.tolist(), strict=True):
            yield from taken.slice(end - size, size).to_batches()


def shuffled_batches(
    dataset: LanceDataset,
    columns: Sequence[str] | Mapping[str, str] | None,
    order: BlockOrder,
    positions: Int64s | None,
    *,
    batch_size: int,
    window_rows: int,
    offset: int,
) -> Iterator[pa.RecordBatch]:
    """Batches of a share.

    Parameters
    ----------
    positions
        Of the rows that are numbered in ``order``; None if these are all rows.
    window_rows
        Rows that are read and mixed at once; made a multiple of ``batch_size``.
    offset
        Rows at the start that are left out.
    """
    window = -(-window_rows // batch_size) * batch_size
    for rows in order.windows(window, offset):
        taken = dataset.take(rows if positions is None else positions[rows], columns)
        for batch in taken.combine_chunks().to_batches():
            for first in range(0, batch.num_rows, batch_size):
                yield batch.slice(first, batch_size)
