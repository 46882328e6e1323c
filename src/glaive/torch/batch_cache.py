"""Batches of a first pass in a temporary file, for later passes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Self

import pyarrow as pa

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.merging.source import SpilledRows
from glaive.dataset.open import dataset
from glaive.errors import OptionError
from glaive.sampler import ShardedBatchSampler, ShardedFragmentSampler


class BatchCache:
    """Batches of a stream: the first complete pass writes a file, and later passes read it.

    If a pass ends early, the next pass begins again. The file is anonymous, so the
    system removes it after any end of the process.

    Parameters
    ----------
    read
        Function that begins a pass.
    folder
        Folder of the file; default: the system's temporary folder.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[pa.RecordBatch]],
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._read, self._folder = read, folder
        self._batches: list[pa.RecordBatch] | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._batches is not None:
            yield from self._batches
            return
        spilled: SpilledRows | None = None
        try:
            for batch in self._read():
                spilled = spilled or SpilledRows(batch.schema, "batches", self._folder)
                spilled.write(batch)
                yield batch
            self._batches = [] if spilled is None else spilled.finish().to_batches()
        finally:
            if spilled is not None:
                spilled.close()  # the batches stay valid

    def delete(self) -> None:
        """Release the file together with its last batch."""
        self._batches = None


class CachedDataset(BatchCache):
    """Batches of a stream: the first complete pass writes a file, and later passes read it.

    Parameters
    ----------
    stream
        Record batches.
    cache
        Folder of the file; default: a temporary folder.
    """

    def __init__(
        self,
        stream: Iterable[pa.RecordBatch],
        cache: str | os.PathLike[str] | bool | None = None,  # pylance has it
    ) -> None:
        self._stream, self._began, self._closed = stream, False, False
        super().__init__(self._again, None if isinstance(cache, bool) else cache)

    def _again(self) -> Iterator[pa.RecordBatch]:
        batches = iter(self._stream)
        if self._began and batches is self._stream:
            raise OptionError(
                "stream: a pass over this iterator ended early, and its batches cannot be read "
                "again. Give a list, or an object whose __iter__ begins again"
            )
        self._began = True
        return batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._closed:
            raise OptionError("the cache of batches is closed. Make another CachedDataset")
        return super().__iter__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete the file. You may close it twice."""
        self._closed = True
        self.delete()


_SAMPLERS = {"fragment": ShardedFragmentSampler, "batch": ShardedBatchSampler}


class ShardedBatchIterator:
    """Batches of one of several processes; each iteration reads them again.

    Parameters
    ----------
    data
        A dataset, or its path or URI.
    rank, world_size
        Number of this process, and number of processes.
    columns
        Names of columns, or expressions by name; default: all columns.
    batch_size
        Number of rows of a batch.
    granularity
        Unit of shares: ``fragment`` or ``batch``.
    batch_readahead
        Number of batches to read ahead; ignored if shares consist of batches.
    with_row_id
        Whether to add a column ``_rowid``.

    Raises
    ------
    OptionError
        The rank or granularity is unknown.
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
        """Make the iterator of a process of ``torch.distributed``, which supplies the rank."""
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
