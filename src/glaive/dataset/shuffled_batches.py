"""Rows in shuffled order: blocks of adjacent rows in random order, mixed in windows.

Adjacent rows lie in the same pages, so a window of blocks costs about as much as a scan of as many
rows. glaive computes the share of a process, and the position where a pass resumes, from the
numbers of rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from glaive.config import settings
from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.fragment_metadata import checked_integer
from glaive.dataset.open import dataset as open_dataset
from glaive.errors import LimitError, OptionError
from glaive.options import integer
from glaive.scan.projection import ROW_ID, refuse_reserved_names
from glaive.types import Int64s, integer_of

_ORDER_BYTES_PER_PART = 32
"""Memory per part to make an order, in bytes."""

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
        Adjacent rows that stay together until a window mixes them.
    seed
        Numbers that determine the order.
    share, shares
        Number of the process, and number of processes. Shares differ by at most one row.
    equal
        Whether to leave out the last rows, so that all shares are equal.
    """

    rows: int
    block_rows: int
    seed: tuple[int, ...]
    share: int
    shares: int
    equal: bool

    def bounds(self) -> tuple[int, int]:
        """Return where the share begins and ends in the order."""
        if self.equal:
            each = self.rows // self.shares
            return self.share * each, (self.share + 1) * each
        return (self.rows * self.share // self.shares, self.rows * (self.share + 1) // self.shares)

    def windows(self, size: int, offset: int) -> Iterator[Int64s]:
        """Yield positions of rows in windows of the share, from row ``offset`` of the share on."""
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
    """Return positions of rows ``first`` to ``end`` of the concatenated blocks."""
    at = slice(int(np.searchsorted(ends, first, "right")), int(np.searchsorted(ends, end)) + 1)
    # Add this to a number in the order to get its position.
    before = np.concatenate([[0], ends])[at.start : at.stop]
    shift = starts[at] - before
    counts = np.minimum(ends[at], end) - np.maximum(before, first)
    rows: Int64s = np.arange(first, end) + np.repeat(shift, counts)
    return rows


def check_order(parts: int, option: str) -> None:
    """Refuse an order that would need too much memory: few bytes may encode many rows.

    Raises
    ------
    LimitError
        The order has too many parts; the message names the option that reduces them.
    """
    max_parts = settings.max_decoded_bytes_per_page // _ORDER_BYTES_PER_PART
    if parts > max_parts:
        raise LimitError(
            f"an order of {parts} parts of the dataset; at most {max_parts} are put in an order at "
            f"random. Use a larger {option}, or allow more: set GLAIVE_MAX_DECODED_BYTES_PER_PAGE."
        )


def default_window(dataset: LanceDataset, batch_size: int) -> int:
    """Return the rows of a window: 65,536, or fewer if rows exceed 4 KiB each in the files."""
    each = max(1, dataset.manifest.stated.file_bytes // max(1, len(dataset)))
    return max(batch_size, min(_WINDOW_ROWS, _WINDOW_BYTES // each))


def with_row_ids(
    dataset: LanceDataset, columns: Sequence[str] | Mapping[str, str] | None
) -> Sequence[str] | Mapping[str, str]:
    """Return the columns and the column of row ids.

    Raises
    ------
    SchemaError
        The dataset has a column with the name of the row ids.
    """
    refuse_reserved_names(dataset.lance_schema, ROW_ID)
    if isinstance(columns, Mapping):
        return {**columns, "_rowid": "_rowid"}
    return [*(dataset.schema.names if columns is None else columns), "_rowid"]


def batches_at(
    dataset: LanceDataset,
    columns: Sequence[str] | Mapping[str, str] | None,
    numbers: Sequence[int],
    batch_size: int,
) -> Iterator[pa.RecordBatch]:
    """Yield batches by number: batch 0 is the first ``batch_size`` rows. Reads several at once."""
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
    """Yield the batches of a share.

    Parameters
    ----------
    positions
        Positions of the rows that ``order`` numbers; None: all rows.
    window_rows
        Rows to read and mix at once, rounded up to a multiple of ``batch_size``.
    offset
        Number of rows to leave out at the start.
    """
    window = -(-window_rows // batch_size) * batch_size
    for rows in order.windows(window, offset):
        taken = dataset.take(rows if positions is None else positions[rows], columns)
        for batch in taken.combine_chunks().to_batches():
            for first in range(0, batch.num_rows, batch_size):
                yield batch.slice(first, batch_size)


# --- The share of one of several processes: its parts of the work, in order -------------

MAX_ROWS: Final = 2**62
"""Maximum rows of a batch, or another part of a dataset."""

_MAX_SEED: Final = 2**128 - 1
"""Maximum of a seed, as NumPy draws such seeds."""


class Sharded:
    """The share of one of several processes, in the order of this epoch.

    Raises
    ------
    OptionError
        The rank or a number is out of range.
    """

    def __init__(self, rank: int, world_size: int, randomize: bool = False, seed: int = 0) -> None:
        checked_integer(world_size, "world_size", MAX_ROWS)
        number = integer_of(rank)
        if number is None or not 0 <= number < world_size:
            raise OptionError(
                f"rank: expected 0 to {world_size - 1} of world_size {world_size}, found "
                f"{rank!r:.80}"
            )
        self._rank = rank
        self._world_size = world_size
        self._randomize = randomize
        self._seed = checked_integer(seed, "seed", _MAX_SEED)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the pass. Each pass has its own order, equal in all processes."""
        self._epoch = checked_integer(epoch, "epoch", _MAX_SEED)

    @property
    def epoch(self) -> int | None:
        """Number of the pass of this order; None if all passes have the same order."""
        return self._epoch if self._randomize else None

    def _share(self, count: int) -> Sequence[int]:
        """Return the parts of this process among ``count`` parts, in order; see
        :func:`check_order`.
        """
        if not self._randomize:
            return range(self._rank, count, self._world_size)
        check_order(count, "batch_size")
        order: Any = np.arange(count)
        np.random.default_rng([self._seed, self._epoch]).shuffle(order)
        return memoryview(order[self._rank :: self._world_size])


def without_rows(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches after the first ``rows`` rows."""
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows) if rows else batch
        rows = max(0, rows - batch.num_rows)


# --- Rows chosen at random, as batches --------------------------------------------------

T = TypeVar("T")


def maybe_sample(
    dataset: str | os.PathLike[str] | LanceDataset,
    n: int,
    columns: Sequence[str] | Mapping[str, str] | str | None,
    batch_size: int = 10240,
    max_takes: int = 2048,
    filt: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield random rows, or all rows if there are at most ``n``.

    Parameters
    ----------
    dataset
        A dataset, or its URI.
    n
        Number of rows.
    columns
        Names of columns, or expressions by name.
    batch_size
        Rows per batch.
    max_takes
        Maximum number of runs of adjacent rows to take the ``n`` rows in.
    filt
        Filter of the rows to choose from. glaive holds the ids of all rows that pass in memory.

    Raises
    ------
    OptionError
        A number is zero or negative.
    """
    opened = dataset if isinstance(dataset, LanceDataset) else open_dataset(dataset)
    names = [columns] if isinstance(columns, str) else columns
    for name, number in (("n", n), ("batch_size", batch_size), ("max_takes", max_takes)):
        integer(1).check(name, number)
    if n >= len(opened):
        return iter(opened.to_batches(columns=names, batch_size=batch_size, filter=filt))
    return _sampled_batches(opened, n, names, batch_size, max_takes, filt)


def reservoir_sampling(stream: Iterable[T], k: int) -> list[T]:
    """Return ``k`` random items of a stream of unknown length; all if it has fewer."""
    integer(None).check("k", k)
    random = np.random.default_rng()
    chosen: list[T] = []
    for number, item in enumerate(stream):
        if len(chosen) < k:
            chosen.append(item)
            continue
        place = int(random.integers(0, number + 1))
        if place < k:
            chosen[place] = item
    return chosen


def _sampled_batches(
    dataset: LanceDataset,
    count: int,
    columns: Sequence[str] | Mapping[str, str] | None,
    batch_size: int,
    max_takes: int,
    filter: str | None,
) -> Iterator[pa.RecordBatch]:
    """Yield random rows, fewer than exist; adjacent rows if there are more than ``max_takes``."""
    dataset = dataset.holding(dataset.opened)  # one version, even if the object moves
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
    """Return positions of rows: single rows, or one run in each of ``max_takes`` windows."""
    if count <= max_takes:
        return np.asarray(random.choice(rows, count, replace=False), np.int64)
    # Each window has its share of the rows and of the remaining room, both divided evenly. So no
    # share is larger than its window, which would repeat rows.
    windows = np.arange(max_takes + 1)
    taken, left = windows * count // max_takes, windows * (rows - count) // max_takes
    shares, room = np.diff(taken), np.diff(left)
    first = (taken + left)[:-1] + random.integers(0, room + 1)
    ends = np.cumsum(shares)
    inside = np.arange(count) - np.repeat(ends - shares, shares)
    positions: Int64s = np.repeat(first, shares) + inside
    return positions
