"""Rows in shuffled order: blocks of neighbours at random, and rows at random in windows of them.

Neighbours lie in the same pages, so a window of blocks costs about what a scan of as many rows
does. A share of the rows, and the place where a pass goes on, are found without reading what is
before.
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
from glaive.scan.projection import ROW_ID, refuse_taken
from glaive.types import Int64s, integer_of

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
        return (self.rows * self.share // self.shares, self.rows * (self.share + 1) // self.shares)

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


# --- The share of one process of several: which parts of the work are its own, in which order

MAX_ROWS: Final = 2**62
"""Of a batch, or another part of a dataset: more than there are."""

_HIGHEST: Final = 2**128 - 1
"""Of a seed: NumPy draws such."""


class Sharded:
    """A share of the work: that of one process of several, in an order of this epoch.

    Raises
    ------
    OptionError
        There is no such rank, or a number is none.
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
        self._seed = checked_integer(seed, "seed", _HIGHEST)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Number of the pass: each has an order of its own, the same in all processes."""
        self._epoch = checked_integer(epoch, "epoch", _HIGHEST)

    @property
    def epoch(self) -> int | None:
        """Number of the pass whose order this is; None if all passes have the same."""
        return self._epoch if self._randomize else None

    def _share(self, count: int) -> Sequence[int]:
        """Which of ``count`` parts are of this process, in order; see :func:`check_order`."""
        if not self._randomize:
            return range(self._rank, count, self._world_size)
        check_order(count, "batch_size")
        order: Any = np.arange(count)
        np.random.default_rng([self._seed, self._epoch]).shuffle(order)
        return memoryview(order[self._rank :: self._world_size])


def without_rows(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The batches without so many rows at their start."""
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
    """Rows chosen at random, or all rows if there are not more than ``n``.

    Parameters
    ----------
    dataset
        A dataset, or where it is.
    n
        Number of rows.
    columns
        Names of columns, or expressions by name.
    batch_size
        Rows of a batch.
    max_takes
        Runs of neighbouring rows that ``n`` rows are taken as, at most.
    filt
        Rows to choose from. The ids of all that pass are held in memory.

    Raises
    ------
    OptionError
        A number is not positive.
    """
    opened = dataset if isinstance(dataset, LanceDataset) else open_dataset(dataset)
    names = [columns] if isinstance(columns, str) else columns
    for name, number in (("n", n), ("batch_size", batch_size), ("max_takes", max_takes)):
        integer(1).check(name, number)
    if n >= len(opened):
        return iter(opened.to_batches(columns=names, batch_size=batch_size, filter=filt))
    return _sampled_batches(opened, n, names, batch_size, max_takes, filt)


def reservoir_sampling(stream: Iterable[T], k: int) -> list[T]:
    """``k`` items of a stream of unknown length, each with the same chance; all if it has fewer."""
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
    """Rows at random, fewer than there are; neighbours if there are more than ``max_takes``."""
    dataset = dataset.holding(dataset.opened)  # of one version, whatever becomes of the object
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
    """Positions of rows: single ones, or one run in each of ``max_takes`` windows."""
    if count <= max_takes:
        return np.asarray(random.choice(rows, count, replace=False), np.int64)
    # Each window has its share of the rows, and room for others, both divided evenly: so that no
    # share is larger than its window, whose rows would be there twice.
    windows = np.arange(max_takes + 1)
    taken, left = windows * count // max_takes, windows * (rows - count) // max_takes
    shares, room = np.diff(taken), np.diff(left)
    first = (taken + left)[:-1] + random.integers(0, room + 1)
    ends = np.cumsum(shares)
    inside = np.arange(count) - np.repeat(ends - shares, shares)
    positions: Int64s = np.repeat(first, shares) + inside
    return positions
