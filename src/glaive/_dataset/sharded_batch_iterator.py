"""One process's share of a dataset, under the name of ``lance._dataset.sharded_batch_iterator``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import pyarrow as pa

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset
from glaive.errors import OptionError
from glaive.sampler import ShardedBatchSampler, ShardedFragmentSampler

__all__ = ["ShardedBatchIterator"]

_SAMPLERS = {"fragment": ShardedFragmentSampler, "batch": ShardedBatchSampler}


class ShardedBatchIterator:
    """The batches of one process of several; each iteration reads them again.

    Parameters
    ----------
    data
        A dataset, or where it is.
    rank, world_size
        Number of this process, and how many there are.
    columns
        Names of columns, or expressions by name; all when omitted.
    batch_size
        Rows of a batch.
    granularity
        What shares are made of: ``fragment`` or ``batch``.
    batch_readahead
        Batches read ahead; ignored where shares are made of batches.
    with_row_id
        Whether there is a column ``_rowid``.

    Raises
    ------
    OptionError
        There is no such rank or granularity.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | LanceDataset,
        rank: int,
        world_size: int,
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        batch_size: int = 10240,
        granularity: Literal["fragment", "batch"] = "fragment",
        batch_readahead: int = 8,
        with_row_id: bool = False,
    ) -> None:
        warnings.warn(
            "ShardedBatchIterator is deprecated, use a sampler of glaive.sampler instead",
            stacklevel=2,
        )
        if granularity not in _SAMPLERS:
            raise OptionError(f"granularity: expected fragment or batch, found {granularity!r}")
        self._dataset = data if isinstance(data, LanceDataset) else dataset(data)
        self._sampler = _SAMPLERS[granularity](rank, world_size)
        self._columns = columns
        self._batch_size = batch_size
        self._batch_readahead = batch_readahead
        self._with_row_id = with_row_id

    @staticmethod
    def from_torch(
        data: str | os.PathLike[str] | LanceDataset,
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        batch_size: int = 10240,
        granularity: Literal["fragment", "batch"] = "fragment",
        batch_readahead: int = 8,
        with_row_id: bool = False,
    ) -> ShardedBatchIterator:
        """For a process of ``torch.distributed``; its rank, and how many there are, are asked."""
        from glaive.torch.dist import get_global_rank, get_global_world_size

        return ShardedBatchIterator(
            data,
            get_global_rank(),
            get_global_world_size(),
            columns=columns,
            batch_size=batch_size,
            granularity=granularity,
            batch_readahead=batch_readahead,
            with_row_id=with_row_id,
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._sampler(
            self._dataset,
            columns=self._columns,
            batch_size=self._batch_size,
            batch_readahead=self._batch_readahead,
            with_row_id=self._with_row_id,
        )
