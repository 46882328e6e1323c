"""Samplers choose the rows that a process reads, and their order; the names of ``lance.sampler``.

A pass reads the version that the dataset has at its start, also if the object changes later.
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
from glaive.scan.projection import ROW_OFFSET, refuse_reserved_names

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
    """Base class of samplers: yield record batches from :meth:`__call__`.

    Samplers of this module take ``offset``: the number of rows to skip at the start of the share.
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
    """Base class of samplers of whole fragments: yield them from :meth:`iter_fragments`."""

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
        """Return the number of rows of a pass."""
        fragments = list(self.iter_fragments(dataset))
        return dataset.scanner(filter=filter, fragments=fragments).count_rows()

    @abstractmethod
    def iter_fragments(
        self, ds: LanceDataset, *args: Any, **kwargs: Any
    ) -> Iterable[LanceFragment]:
        """Yield fragments in reading order."""


class FullScanSampler(FragmentSampler):
    """Sampler of all rows in order."""

    def iter_fragments(  # type: ignore[override]  # pylance's name of the parameter
        self, dataset: LanceDataset, **kwargs: Any
    ) -> Iterable[LanceFragment]:
        """Return all fragments."""
        return dataset.get_fragments()


class ShardedFragmentSampler(Sharded, FragmentSampler):
    """Sampler of every ``world_size``-th fragment, from ``rank`` on.

    Faster than :class:`ShardedBatchSampler`, but shares differ if fragments do.

    Parameters
    ----------
    rank, world_size
        Number of this process, and number of processes.
    randomize
        Whether to shuffle fragments.
    seed
        Seed of the order, together with the epoch.

    Raises
    ------
    OptionError
        The rank is out of range.
    """

    @staticmethod
    def from_torch(randomize: bool = False, seed: int = 0) -> ShardedFragmentSampler:
        """Make the sampler of a process of ``torch.distributed``."""
        return ShardedFragmentSampler(*_of_torch(), randomize=randomize, seed=seed)

    def iter_fragments(  # type: ignore[override]  # pylance's name of the parameter
        self, dataset: LanceDataset, **kwargs: Any
    ) -> Iterable[LanceFragment]:
        """Return the fragments of this process."""
        fragments = dataset.get_fragments()
        return [fragments[one] for one in self._share(len(fragments))]


class ShardedBatchSampler(Sharded, Sampler):
    """Sampler of every ``world_size``-th batch, from ``rank`` on: shares differ by at most a batch.

    With a filter the number of rows is unknown before. Each process then scans all rows that pass
    and keeps every ``world_size``-th row, so shares differ by at most one row. In this case
    ``randomize`` only shuffles the rows of each batch.

    Parameters
    ----------
    rank, world_size, seed
        See :class:`ShardedFragmentSampler`.
    randomize
        Whether to shuffle batches.

    Raises
    ------
    OptionError
        The rank is out of range.
    """

    @staticmethod
    def from_torch(randomize: bool = False, seed: int = 0) -> ShardedBatchSampler:
        """Make the sampler of a process of ``torch.distributed``."""
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
        """Return the number of rows of a pass."""
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
    """Sampler of positions in batches: a process has adjacent rows, the same in all passes.

    Iterating yields lists of positions, as ``batch_sampler`` of a loader needs them. Calling it
    reads batches, like :class:`ShardedBatchSampler`.

    Parameters
    ----------
    rank, world_size, randomize, seed
        See :class:`ShardedBatchSampler`.
    batch_size
        Number of rows of a batch.
    total_num_rows
        Number of rows of the dataset.

    Raises
    ------
    OptionError
        The rank is out of range, or ``batch_size`` is 0 and the dataset has rows.
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
        """Make the sampler of a process of ``torch.distributed``."""
        return ShardedFixedBatchSampler(*_of_torch(), randomize, seed, batch_size, total_num_rows)


class ShuffledBlockSampler(Sharded, Sampler):
    """Sampler of all rows in a random order per epoch: random blocks, random rows in windows.

    A window consists of some blocks, which are read at once and mixed. The order depends on
    ``seed``, the epoch and the number of rows. Shares of processes differ by at most one row, and
    together contain all rows.

    Parameters
    ----------
    rank, world_size, seed
        See :class:`ShardedFragmentSampler`.
    block_rows
        Number of adjacent rows to read together.
    window_rows
        Number of rows to hold in memory and mix. The default is 65,536; fewer for large rows: about
        256 MiB in the files.
    equal_shares
        Whether all shares have the same number of rows. The last rows of the order, fewer than
        ``world_size``, are then omitted.

    Raises
    ------
    OptionError
        The rank is out of range, or a number of rows is zero or negative.

    Notes
    -----
    With a filter, each pass first scans the columns of the filter, and holds the positions of the
    rows that pass, with 8 bytes each.
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
        """Make the sampler of a process of ``torch.distributed``."""
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
            refuse_reserved_names(dataset.lance_schema, ROW_OFFSET)
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
        """Return the number of rows of a pass."""
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
