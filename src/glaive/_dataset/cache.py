"""A stream of batches that can be read again, under the name of ``lance._dataset.cache``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

import pyarrow as pa

from glaive.errors import OptionError
from glaive.torch.batch_cache import BatchCache

__all__ = ["CachedDataset"]


class CachedDataset:
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
        cache: str | os.PathLike[str] | bool | None = None,  # noqa: FBT001  # pylance has it
    ) -> None:
        folder = None if cache is None or isinstance(cache, bool) else os.fspath(cache)
        self._stream, self._began = stream, False
        self._cache: BatchCache | None = BatchCache(self._batches, folder)

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
        if self._cache is None:
            raise OptionError("the cache of batches is closed. Make another CachedDataset")
        return iter(self._cache)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Delete the file. Closing again does nothing."""
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.delete()
