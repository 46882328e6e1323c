"""Batches of a first pass in a temporary file, for later passes."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal, Self
from weakref import finalize

import pyarrow as pa

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset
from glaive.errors import OptionError
from glaive.io.failures import as_store_errors
from glaive.process import Origin
from glaive.sampler import ShardedBatchSampler, ShardedFragmentSampler


class BatchCache:
    """Iterate over it: the first complete pass writes a file, later ones read it.

    A pass that ends early leaves no file; the next one begins again. A child that is forked amid a
    pass leaves the file of its parent as it is.

    Parameters
    ----------
    read
        Begins a pass.
    folder
        Where the file is; default: a temporary folder, deleted with the object.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[pa.RecordBatch]],
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._read = read
        with as_store_errors(str(folder or "a temporary folder (TMPDIR chooses it)"), "write"):
            self._folder = Path(folder or tempfile.mkdtemp(prefix="glaive-batches-"))
        self._temporary = (
            finalize(self, _delete, self._folder, os.getpid()) if folder is None else None
        )
        self._file: Path | None = None
        self._origin = Origin()
        self._is_empty = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._file is not None:
            with as_store_errors(f"{self._file}", "read"):
                source = pa.memory_map(str(self._file))
            with source:
                yield from pa.ipc.open_stream(source)
            return
        if self._is_empty:
            return
        with as_store_errors(f"{self._folder}", "write"):
            self._folder.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(dir=self._folder, suffix=".arrow")
        file: Any = os.fdopen(number, "wb")
        path, stream = Path(name), pa.PythonFile(file, mode="w")
        origin, complete = Origin(), False
        try:
            writer: pa.RecordBatchStreamWriter | None = None
            for batch in self._read():
                with as_store_errors(name, "write"):
                    writer = writer or pa.ipc.new_stream(stream, batch.schema)
                    writer.write(batch)
                    file.flush()  # a child that ends would write what waits, too
                yield batch
            with as_store_errors(name, "write"):
                if writer is not None:
                    writer.close()
                file.close()
            complete = writer is not None
        finally:
            _end(file)
            if not complete and origin.is_here:
                path.unlink(missing_ok=True)
        if complete:
            self._file, self._origin = path, origin
        else:
            self._is_empty = True

    def delete(self) -> None:
        """Delete the file, and the folder if it is a temporary one; a fork those of its own."""
        self._is_empty = False
        if self._file is not None and self._origin.is_here:
            with as_store_errors(f"{self._file}", "delete"):
                self._file.unlink(missing_ok=True)
        self._file = None
        if self._temporary is not None:
            self._temporary()


def _end(file: Any) -> None:
    """Close a file; where its last bytes do not fit either, the error before says so."""
    with suppress(OSError):
        file.close()


def _delete(folder: Path, owner: int) -> None:
    """Delete a temporary folder; not in a child that was forked, since its parent still reads."""
    if os.getpid() == owner:
        rmtree(folder, ignore_errors=True)


class CachedDataset(BatchCache):
    """The first complete pass writes the batches of a stream to a file; later ones read it.

    Parameters
    ----------
    stream
        Record batches.
    cache
        Folder of the file; default: a temporary one.
    """

    def __init__(
        self,
        stream: Iterable[pa.RecordBatch],
        cache: str | os.PathLike[str] | bool | None = None,  # pylance has it
    ) -> None:
        self._stream, self._began, self._closed = stream, False, False
        super().__init__(self._batches, None if isinstance(cache, bool) else cache)

    def _batches(self) -> Iterator[pa.RecordBatch]:
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
        """Delete the file. Closing again does nothing."""
        self._closed = True
        self.delete()


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
