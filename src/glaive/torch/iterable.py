"""``LanceDataset``: batches of a dataset as tensors, for ``DataLoader``."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import Dataset, IterableDataset

from glaive.dataset.dataset import LanceDataset as Table
from glaive.dataset.open import dataset as open_dataset
from glaive.errors import CorruptFileError, OptionError
from glaive.hf import HuggingFaceConverter
from glaive.sampler import (
    FullScanSampler,
    Sampler,
    ShardedBatchSampler,
    ShardedFragmentSampler,
    maybe_sample,
)
from glaive.torch.batch_cache import BatchCache
from glaive.torch.dist import get_global_rank, get_global_world_size
from glaive.torch.tensors import resized, to_tensor

__all__ = ["LanceDataset", "TensorDataset"]


class TensorDataset(Dataset):  # type: ignore[misc]  # torch is not installed for type checks
    """A tensor in batches: item ``i`` is the ``i``-th batch.

    Parameters
    ----------
    data
        A tensor or NumPy array.
    batch_size
        Rows of a batch.
    """

    def __init__(self, data: Any, batch_size: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._data = torch.from_numpy(data) if isinstance(data, np.ndarray) else data
        self._batch_size = batch_size

    def __repr__(self) -> str:
        return "LanceTensorDataset"

    def __len__(self) -> int:
        rows = int(self._data.shape[0])
        return (rows + self._batch_size - 1) // self._batch_size

    def __getitem__(self, idx: int) -> Any:
        if not 0 <= idx < len(self):
            raise IndexError(f"batch {idx} of {len(self)}")
        return self._data[idx * self._batch_size : (idx + 1) * self._batch_size]


class LanceDataset(IterableDataset):  # type: ignore[misc]  # torch is not installed for type checks
    """The rows of a dataset as batches of tensors.

    Each process of ``torch.distributed``, and each worker of a ``DataLoader``, reads a share of
    its own. Give the loader ``batch_size=None``: batches are made here.

    Parameters
    ----------
    dataset
        A dataset, or where it is.
    batch_size
        Rows of a batch; the last one of a share may have less.
    dataset_options
        Of :func:`glaive.dataset`, if a location is given.
    columns
        Names of columns, or expressions by name; all when omitted.
    filter
        Rows to read.
    samples
        Rows chosen at random; 0 for all.
    cache
        Whether the first pass writes its batches to a temporary file, from which later ones read;
        a text is the folder of that file.
    with_row_id
        Whether there is a column ``_rowid``.
    rank, world_size
        Deprecated; found by themselves, or use ``sampler``.
    shard_granularity
        What shares are made of: ``fragment`` or ``batch``.
    batch_readahead
        Batches read ahead.
    to_tensor_fn
        From a batch to tensors; None for record batches. Called with ``hf_converter`` and
        ``use_blob_api``.
    sampler
        Chooses rows and order; see :mod:`glaive.sampler`.
    auto_detect_rank
        Whether rank and number of processes are asked of torch.

    Raises
    ------
    OptionError
        ``shard_granularity`` or ``batch_size`` has an invalid value.
    """

    def __init__(
        self,
        dataset: Table | str | os.PathLike[str],
        batch_size: int,
        *args: Any,
        dataset_options: Mapping[str, Any] | None = None,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | None = None,
        samples: int | None = 0,
        cache: str | bool | None = None,
        with_row_id: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        shard_granularity: Literal["fragment", "batch"] | None = None,
        batch_readahead: int = 16,
        to_tensor_fn: Callable[..., Any] | None = to_tensor,
        sampler: Sampler | None = None,
        auto_detect_rank: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise OptionError(f"batch_size: expected an integer from 1 on, found {batch_size}")
        if shard_granularity not in (None, "fragment", "batch"):
            raise OptionError(
                f"shard_granularity: expected fragment or batch, found {shard_granularity!r}"
            )
        if rank is not None and world_size is not None:
            warnings.warn("rank and world_size are deprecated", DeprecationWarning, stacklevel=2)
        opened = (
            dataset
            if isinstance(dataset, Table)
            else open_dataset(dataset, **(dataset_options or {}))
        )
        self.dataset: Table = opened
        self.columns = columns
        self.batch_size = batch_size
        self.samples = samples
        self.filter = filter
        self.with_row_id = with_row_id
        self.batch_readahead = batch_readahead
        self.shard_granularity = shard_granularity
        self.rank, self.world_size = rank, world_size
        self.sampler = sampler
        self.cache = cache
        self.cached_ds: BatchCache | None = None
        self._auto_detect_rank = auto_detect_rank
        self._to_tensor_fn = to_tensor_fn
        self._hf_converter = _converter(opened.schema)
        self._blobs = _blob_columns(opened, columns)

    def __repr__(self) -> str:
        return f"LanceTorchDataset({self.dataset.uri}, size={self.samples})"

    @property
    def schema(self) -> pa.Schema:
        """Schema of the batches before they become tensors."""
        return self.dataset.scanner(columns=self.columns).projected_schema

    def __iter__(self) -> Iterator[Any]:
        for batch in self._stream():
            columns = self._with_blobs(batch) if self._blobs else batch
            if self._to_tensor_fn is None:
                yield columns
            else:
                yield self._to_tensor_fn(
                    columns, hf_converter=self._hf_converter, use_blob_api=bool(self._blobs)
                )

    def _stream(self) -> Iterable[pa.RecordBatch]:
        if not self.cache:
            return self._read()
        if self.cached_ds is None:
            folder = self.cache if isinstance(self.cache, str) else None
            self.cached_ds = BatchCache(self._read, folder)
        return self.cached_ds

    def _read(self) -> Iterator[pa.RecordBatch]:
        columns: Any = self.columns
        if self._blobs:
            names = list(self.dataset.schema.names if columns is None else columns)
            columns = [name for name in names if name not in self._blobs]
        if self.samples:
            found = maybe_sample(
                self.dataset, self.samples, columns, self.batch_size, filt=self.filter
            )
        else:
            found = self._sampler()(
                self.dataset,
                columns=columns,
                filter=self.filter,
                batch_size=self.batch_size,
                with_row_id=self.with_row_id or bool(self._blobs),
                batch_readahead=self.batch_readahead,
            )
        return resized(found, self.batch_size)

    def _sampler(self) -> Sampler:
        if self.sampler is not None:
            return self.sampler
        rank, world_size = self.rank, self.world_size
        if self._auto_detect_rank:
            rank = get_global_rank() if rank is None else rank
            world_size = get_global_world_size() if world_size is None else world_size
        if rank is None or world_size is None:
            return FullScanSampler()
        if self.shard_granularity == "batch":
            return ShardedBatchSampler(rank, world_size)
        return ShardedFragmentSampler(rank, world_size)

    def _with_blobs(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """The columns, with files in place of large values."""
        columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
        ids = columns["_rowid"].to_pylist()
        for name in self._blobs:
            columns[name] = self.dataset.take_blobs(name, ids=ids)
        return columns


def _converter(schema: pa.Schema) -> HuggingFaceConverter | None:
    described = (schema.metadata or {}).get(b"huggingface")
    if described is None:
        return None
    try:
        return HuggingFaceConverter(json.loads(described))
    except ValueError as error:
        raise CorruptFileError(
            "the metadata 'huggingface'",
            expected="JSON",
            found=f"{described[:80]!r}",
            where="schema",
        ) from error


def _blob_columns(dataset: Table, columns: Sequence[str] | Mapping[str, str] | None) -> list[str]:
    if isinstance(columns, Mapping):
        return []
    return [
        field.name
        for field in dataset.schema
        if (field.metadata or {}).get(b"lance-encoding:blob") == b"true"
        and (columns is None or field.name in columns)
    ]
