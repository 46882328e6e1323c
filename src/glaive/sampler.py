"""Samplers: which rows a process reads, and in which order; the names of ``lance.sampler``.

A pass reads the version that the dataset is at when it begins, whatever becomes of the object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.compat.absent import REFUSED, absent_names
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.fragment import LanceFragment
from glaive.dataset.fragment_metadata import checked_integer
from glaive.dataset.shuffled_batches import (
    MAX_ROWS,
    BlockOrder,
    Sharded,
    batches_at,
    default_window,
    maybe_sample,
    reservoir_sampling,
    shuffled_batches,
    with_row_ids,
    without_rows,
)
from glaive.errors import MissingDependencyError
from glaive.scan.projection import ROW_OFFSET, refuse_taken

__all__ = [
    "FragmentSampler",
    "FullScanSampler",
    "Sampler",
    "ShardedBatchSampler",
    "ShardedFixedBatchSampler",
    "ShardedFragmentSampler",
    "ShuffledBlockSampler",
    "maybe_sample",
    "reservoir_sampling",
]

Columns = Sequence[str] | Mapping[str, str] | None
__getattr__ = absent_names(__name__, REFUSED[__name__], globals())


class Sampler(ABC):
    """Derive from it and yield record batches from :meth:`__call__`.

    Those of this module take ``offset``: how many rows of the share are left out at its start.
    """

    @abstractmethod
    def __call__(
        self,
        ds: LanceDataset,
        *args: Any,
        batch_size: int = 128,
        columns: Columns = None,
        filter: str | None = None,
        batch_readahead: int = 16,
        with_row_id: bool = False,
        **kwargs: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of the dataset."""


class FragmentSampler(Sampler):
    """Reads whole fragments; derive from it and yield them from :meth:`iter_fragments`."""

    def __call__(  # type: ignore[override]  # pylance's name of the parameter
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = 128,
        columns: Columns = None,
        filter: str | None = None,
        batch_readahead: int = 16,
        with_row_id: bool = False,
        offset: int = 0,
        **kwargs: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the fragments, in their order."""
        dataset = dataset.holding(dataset.opened)
        fragments = list(self.iter_fragments(dataset, *args, **kwargs))
        if not fragments:
            return
        scanner = dataset.scanner(
            columns=columns,
            filter=filter,
            batch_size=batch_size,
            batch_readahead=batch_readahead,
            with_row_id=with_row_id,
            fragments=fragments,
            offset=offset or None,
        )
        yield from scanner.to_batches()

    def share_rows(self, dataset: LanceDataset, batch_size: int, filter: str | None) -> int:
        """Rows that a pass yields."""
        fragments = list(self.iter_fragments(dataset))
        return dataset.scanner(filter=filter, fragments=fragments).count_rows()

    @abstractmethod
    def iter_fragments(
        self, ds: LanceDataset, *args: Any, **kwargs: Any
    ) -> Iterable[LanceFragment]:
        """Yield fragments in the order in which they are to be read."""


class FullScanSampler(FragmentSampler):
    """Reads all rows in order."""

    def iter_fragments(  # type: ignore[override]  # pylance's name of the parameter
        self, dataset: LanceDataset, **kwargs: Any
    ) -> Iterable[LanceFragment]:
        """All fragments."""
        return dataset.get_fragments()


class ShardedFragmentSampler(Sharded, FragmentSampler):
    """Every ``world_size``-th fragment, from ``rank`` on.

    Quicker than :class:`ShardedBatchSampler`, but shares differ where fragments do.

    Parameters
    ----------
    rank, world_size
        Number of this process, and how many there are.
    randomize
        Whether fragments are shuffled.
    seed
        Of the order, with the epoch.

    Raises
    ------
    OptionError
        There is no such rank.
    """

    @staticmethod
    def from_torch(randomize: bool = False, seed: int = 0) -> ShardedFragmentSampler:
        """For a process of ``torch.distributed``."""
        return ShardedFragmentSampler(*_of_torch(), randomize=randomize, seed=seed)

    def iter_fragments(  # type: ignore[override]  # pylance's name of the parameter
        self, dataset: LanceDataset, **kwargs: Any
    ) -> Iterable[LanceFragment]:
        """The fragments of this process."""
        fragments = dataset.get_fragments()
        return [fragments[one] for one in self._share(len(fragments))]


class ShardedBatchSampler(Sharded, Sampler):
    """Every ``world_size``-th batch, from ``rank`` on: shares differ by one batch at most.

    With a filter the number of rows is not known before: each process scans all rows that pass
    and keeps every ``world_size``-th one, so that shares differ by one row at most; ``randomize``
    shuffles the rows of each batch only.

    Parameters
    ----------
    rank, world_size, seed
        As for :class:`ShardedFragmentSampler`.
    randomize
        Whether batches are shuffled.

    Raises
    ------
    OptionError
        There is no such rank.
    """

    @staticmethod
    def from_torch(randomize: bool = False, seed: int = 0) -> ShardedBatchSampler:
        """For a process of ``torch.distributed``."""
        return ShardedBatchSampler(*_of_torch(), randomize=randomize, seed=seed)

    def __call__(  # type: ignore[override]  # pylance's name of the parameter
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = 128,
        columns: Columns = None,
        filter: str | None = None,
        batch_readahead: int = 16,
        with_row_id: bool = False,
        offset: int = 0,
        **kwargs: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of this process."""
        dataset = dataset.holding(dataset.opened)
        checked_integer(batch_size, "batch_size", MAX_ROWS, 1)
        done, rest = divmod(checked_integer(offset, "offset", MAX_ROWS), batch_size)
        options: dict[str, Any] = {"columns": columns, "with_row_id": with_row_id}
        if filter is not None:
            share = batch_size * self._world_size
            scanner = dataset.scanner(
                filter=filter, batch_size=share, strict_batch_size=True, **options
            )
            later = islice(self._every_nth_row(scanner.to_batches()), done, None)
            yield from without_rows(later, rest)
            return
        count = -(-len(dataset) // batch_size)
        numbers = self._share(count)
        if count - 1 in numbers[:done]:  # the last batch, which may be anywhere in the order
            rest += count * batch_size - len(dataset)
        if with_row_id:
            columns = with_row_ids(dataset, columns)
        yield from without_rows(batches_at(dataset, columns, numbers[done:], batch_size), rest)

    def share_rows(self, dataset: LanceDataset, batch_size: int, filter: str | None) -> int:
        """Rows that a pass yields."""
        if filter is not None:
            return len(range(self._rank, dataset.count_rows(filter), self._world_size))
        count = -(-len(dataset) // batch_size)
        numbers = self._share(count)
        missing = count * batch_size - len(dataset)  # of the last batch
        return len(numbers) * batch_size - missing * (count - 1 in numbers)

    def _every_nth_row(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng([self._seed, self._epoch, self._rank])
        for batch in batches:
            rows = np.arange(self._rank, batch.num_rows, self._world_size)
            if self._randomize:
                random.shuffle(rows)
            if len(rows):
                numbers: Any = pa.array(rows)
                yield batch.take(numbers)


class ShardedFixedBatchSampler(ShardedBatchSampler):
    """Positions of rows in batches: each process has neighbouring rows, the same in all passes.

    Iterating yields lists of positions, as ``batch_sampler`` of a loader takes them; calling it
    reads batches, as :class:`ShardedBatchSampler` does.

    Parameters
    ----------
    rank, world_size, randomize, seed
        As for :class:`ShardedBatchSampler`.
    batch_size
        Rows of a batch.
    total_num_rows
        Rows of the dataset.

    Raises
    ------
    OptionError
        There is no such rank, or ``batch_size`` is 0 and there are rows.
    """

    def __init__(  # pylance's parameters
        self,
        rank: int,
        world_size: int,
        randomize: bool = False,
        seed: int = 0,
        batch_size: int = 0,
        total_num_rows: int = 0,
    ) -> None:
        super().__init__(rank, world_size, randomize, seed)
        checked_integer(total_num_rows, "total_num_rows", MAX_ROWS)
        checked_integer(batch_size, "batch_size", MAX_ROWS, int(total_num_rows > 0))
        per_process = -(-total_num_rows // world_size)
        first = min(rank * per_process, total_num_rows)
        self._rows = range(first, min(first + per_process, total_num_rows))
        self._steps = max(1, batch_size)

    def __len__(self) -> int:
        return len(range(0, len(self._rows), self._steps))

    def __iter__(self) -> Iterator[list[int]]:
        starts = np.arange(0, len(self._rows), self._steps)
        if self._randomize:
            np.random.default_rng([self._seed, self._epoch]).shuffle(starts)
        for start in starts.tolist():
            yield list(self._rows[start : start + self._steps])

    @staticmethod
    def from_torch(  # type: ignore[override]  # pylance's parameters
        batch_size: int, total_num_rows: int, randomize: bool = False, seed: int = 0
    ) -> ShardedFixedBatchSampler:
        """For a process of ``torch.distributed``."""
        return ShardedFixedBatchSampler(*_of_torch(), randomize, seed, batch_size, total_num_rows)


class ShuffledBlockSampler(Sharded, Sampler):
    """All rows in an order of each epoch: blocks at random, and rows at random within windows.

    A window is some blocks, read at once and mixed. The order depends on ``seed``, the epoch and
    the number of rows; shares of processes differ by one row at most, and together are all rows.

    Parameters
    ----------
    rank, world_size, seed
        As for :class:`ShardedFragmentSampler`.
    block_rows
        Neighbouring rows that are read together.
    window_rows
        Rows that are held in memory and mixed; default: 65,536, fewer if rows are large: what
        takes about 256 MiB in the files.
    equal_shares
        Whether all shares have the same number of rows; the last ones of the order, fewer than
        ``world_size``, are left out.

    Raises
    ------
    OptionError
        There is no such rank; a number of rows is not positive.

    Notes
    -----
    With a filter, each pass scans the columns of the filter first, and holds the positions of the
    rows that pass: 8 bytes each.
    """

    def __init__(
        self,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        *,
        block_rows: int = 1024,
        window_rows: int | None = None,
        equal_shares: bool = False,
    ) -> None:
        super().__init__(rank, world_size, randomize=True, seed=seed)
        checked_integer(block_rows, "block_rows", MAX_ROWS, 1)
        if window_rows is not None:
            checked_integer(window_rows, "window_rows", MAX_ROWS, 1)
        self._block_rows = block_rows
        self._window_rows = window_rows
        self._equal = equal_shares

    @staticmethod
    def from_torch(seed: int = 0) -> ShuffledBlockSampler:
        """For a process of ``torch.distributed``."""
        return ShuffledBlockSampler(*_of_torch(), seed=seed)

    def __call__(  # type: ignore[override]  # pylance's name of the parameter
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = 128,
        columns: Columns = None,
        filter: str | None = None,
        batch_readahead: int = 16,
        with_row_id: bool = False,
        offset: int = 0,
        **kwargs: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of this process."""
        dataset = dataset.holding(dataset.opened)
        checked_integer(batch_size, "batch_size", MAX_ROWS, 1)
        checked_integer(offset, "offset", MAX_ROWS)
        positions = None
        if filter is not None:
            refuse_taken(dataset.lance_schema, ROW_OFFSET)
            passing = dataset.to_table(columns=["_rowoffset"], filter=filter)
            positions = passing["_rowoffset"].to_numpy().astype(np.int64)
        order = BlockOrder(
            rows=len(dataset) if positions is None else len(positions),
            block_rows=self._block_rows,
            seed=(self._seed, self._epoch),
            share=self._rank,
            shares=self._world_size,
            equal=self._equal,
        )
        if with_row_id:
            columns = with_row_ids(dataset, columns)
        yield from shuffled_batches(
            dataset,
            columns,
            order,
            positions,
            batch_size=batch_size,
            window_rows=self._window_rows or default_window(dataset, batch_size),
            offset=offset,
        )

    def share_rows(self, dataset: LanceDataset, batch_size: int, filter: str | None) -> int:
        """Rows that a pass yields."""
        rows = dataset.count_rows(filter)
        first, end = BlockOrder(rows, 1, (), self._rank, self._world_size, self._equal).bounds()
        return end - first


def _of_torch() -> tuple[int, int]:
    try:
        from torch import distributed
    except ImportError as error:
        raise MissingDependencyError(
            f"from_torch: torch is not installed ({error}). Install it, or give rank and world_size"
        ) from error
    return distributed.get_rank(), distributed.get_world_size()
