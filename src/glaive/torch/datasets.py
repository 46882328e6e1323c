"""Datasets of torch over Lance datasets: by batches, by position, with persistent workers."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import Queue
from threading import Thread
from typing import Any, Literal

import pyarrow as pa
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_convert

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset as Table
from glaive.dataset.open import dataset as open_dataset
from glaive.dataset.shuffled_batches import default_window, with_row_ids
from glaive.errors import CorruptFileError, GlaiveError, JobError, OptionError
from glaive.format.blobs import is_blob
from glaive.hf import HuggingFaceConverter
from glaive.process import Origin
from glaive.sampler import (
    FragmentSampler,
    FullScanSampler,
    Sampler,
    ShardedBatchSampler,
    ShardedFragmentSampler,
    ShuffledBlockSampler,
    maybe_sample,
)
from glaive.table.load import check_same
from glaive.torch.batch_cache import BatchCache
from glaive.torch.dist import get_mp_rank, get_mp_world_size, process_of_group
from glaive.torch.tensors import Collate, as_shared, python_values, resized, to_tensor

# --- The blob columns of a dataset, whose values are read separately ---------------------


def blob_columns(dataset: Table, columns: Sequence[str] | Mapping[str, str] | None) -> list[str]:
    """Return the blob columns among ``columns``, except expressions."""
    if isinstance(columns, Mapping):
        return []
    return [
        field.name
        for field in dataset.lance_schema.fields
        if (is_blob(field) or field.is_blob_v2) and (columns is None or field.name in columns)
    ]


class SafeLanceDataset(Dataset):  # type: ignore[misc]  # torch is not installed for type checks
    """Rows by position, of the version that was opened. Each process opens the dataset itself.

    Parameters
    ----------
    uri
        Path or URI of the dataset.
    dataset_options
        Options of :func:`glaive.dataset`.
    columns
        Names of columns; default: all columns.
    to_tensor_fn
        Function from a record batch to tensors, such as :func:`~glaive.torch.data.to_tensor`. The
        rows of a batch are then converted at once, and :func:`get_safe_loader` does not collate
        them, which is much faster. Values of blob columns are bytes in the record batch. ``None``
        gives a dictionary per row, with descriptions of blob values as in pylance.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        dataset_options: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        to_tensor_fn: Callable[[pa.RecordBatch], Any] | None = None,
    ) -> None:
        super().__init__()
        self.uri = uri
        self.columns = columns
        self.to_tensor_fn = to_tensor_fn
        self.dataset_options = dict(dataset_options or {})
        opened = open_dataset(uri, **self.dataset_options)
        self._len = len(opened)
        # A position is the same row in each process, also after later commits.
        self._opened = (opened.uri, opened.manifest.identity)
        self._ds: Table | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ds": None}

    def __len__(self) -> int:
        return self._len

    def __getitem__(self, idx: int) -> Any:
        rows = self.__getitems__([idx])
        return rows[0] if self.to_tensor_fn is None else rows

    def __getitems__(self, indices: Sequence[int]) -> Any:
        """Take the rows of a batch: dictionaries, or the result of ``to_tensor_fn`` for all."""
        if self._ds is None:
            uri, identity = self._opened
            opened = open_dataset(uri, **{**self.dataset_options, "version": identity[0]})
            check_same(opened.manifest, identity)
            self._ds = opened
        rows = self._ds.take(indices, self.columns)
        if self.to_tensor_fn is None:
            return python_values(f"rows of {self.uri}", rows)
        for name in blob_columns(self._ds, self.columns):
            values = [value for _, value in self._ds.read_blobs(name, indices=indices)]
            column = pa.chunked_array([values], pa.large_binary())
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, pa.field(name, pa.large_binary()), column)
        (batch,) = rows.combine_chunks().to_batches() or [
            pa.RecordBatch.from_pylist([], schema=rows.schema)
        ]
        return self.to_tensor_fn(batch)


def _unchanged(batch: Any) -> Any:
    return batch


def get_safe_loader(
    dataset: Any, batch_size: int = 32, num_workers: int = 4, **kwargs: Any
) -> DataLoader:
    """Make a ``DataLoader`` that starts workers by ``spawn`` and keeps them between epochs.

    Parameters
    ----------
    dataset
        A map-style dataset.
    batch_size
        Number of rows of a batch.
    num_workers
        Number of processes; with 0, this process reads.
    **kwargs
        Options of ``DataLoader``; they override these defaults.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "num_workers": num_workers}
    if num_workers:
        options["multiprocessing_context"] = torch.multiprocessing.get_context("spawn")
        options["persistent_workers"] = True
    if getattr(dataset, "to_tensor_fn", None) is not None:
        options["collate_fn"] = _unchanged
    loader = DataLoader(dataset, **(options | kwargs))
    if loader.num_workers:
        loader.collate_fn = Collate(loader.collate_fn)
    return loader


# --- ``LanceDataset``: batches of a dataset as tensors, for ``DataLoader`` --------------

# --- The position of a pass over a dataset: its state, and checks of a loaded state -------

_NUMBERS = ("epoch", "batches")


@dataclass(slots=True)
class PassState:
    """Position in a pass.

    Parameters
    ----------
    epoch
        Number of the pass.
    batches
        Number of batches that this share has returned.
    by_share
        Number of batches that each share of a loader with workers has returned; empty for one
        share.
    next_share
        The share of the first worker, which is next.
    """

    epoch: int = 0
    batches: int = 0
    by_share: tuple[int, ...] = ()
    next_share: int = 0

    def share(self, worker: int, workers: int) -> int:
        """Return the share that a worker reads."""
        return (worker + self.next_share) % workers

    def of_worker(self, worker: int, workers: int) -> PassState:
        """Return the position of one worker.

        Raises
        ------
        OptionError
            The state has another number of workers.
        """
        if not self.by_share:
            return PassState(self.epoch, self.batches)
        if len(self.by_share) != workers:
            raise OptionError(
                f"load_state_dict: the state is of a loader with {_shares(len(self.by_share))}, "
                f"this one has {_shares(workers)}. Use as many"
            )
        share = self.share(worker, workers)
        return PassState(self.epoch, self.by_share[share], next_share=self.next_share)

    def to_dict(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state as plain values; the batches depend on ``identity``."""
        state = {**identity, "epoch": self.epoch, "batches": self.batches}
        if self.by_share:
            state |= {"by_share": list(self.by_share), "next_share": self.next_share}
        return state

    @classmethod
    def load(cls, state: object, identity: Mapping[str, Any]) -> PassState:
        """Return the position that a state describes.

        Raises
        ------
        OptionError
            The value is not a state, or belongs to other batches.
        """
        if not isinstance(state, Mapping):
            raise OptionError(
                f"load_state_dict: expected what state_dict returned, found {state!r:.80}"
            )
        for name, expected in identity.items():
            if name not in state or state[name] != expected:
                raise OptionError(
                    f"load_state_dict: the state is of {name} {state.get(name)!r:.80}, this "
                    f"dataset has {expected!r:.80}. Batches would be others; open it as before"
                )
        numbers: list[Any] = [state.get(name) for name in _NUMBERS]
        by_share: Any = state.get("by_share", ())
        next_share: Any = state.get("next_share", 0)
        if (
            not isinstance(by_share, list | tuple)
            or not all(_is_count(one) for one in (*numbers, *by_share, next_share))
            or next_share > len(by_share)
        ):
            raise OptionError(
                f"load_state_dict: expected counts of batches, found epoch, batches {numbers}, "
                f"by_share {by_share!r:.80}, next_share {next_share!r:.80}"
            )
        return cls(numbers[0], numbers[1], tuple(by_share), next_share)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _shares(count: int) -> str:
    return "no or 1 worker" if count == 1 else f"{count} workers"


class LanceDataset(IterableDataset):  # type: ignore[misc]  # torch is not installed for type checks
    """The rows of a dataset as batches of tensors.

    Each process of ``torch.distributed``, and each worker of a ``DataLoader``, reads its own share.
    Give the loader ``batch_size=None``, because this class makes the batches. Use
    :class:`~glaive.torch.data.LanceLoader` to stop in the middle of a pass and continue later.

    Parameters
    ----------
    dataset
        A dataset, or its path or URI.
    batch_size
        Number of rows of a batch; the last batch of a share may have fewer.
    dataset_options
        Options of :func:`glaive.dataset`, if a path or URI is given.
    columns
        Names of columns, or expressions by name; default: all columns. Large values (blob columns)
        are read as bytes. They are read as files if you give your own ``to_tensor_fn``.
    filter
        SQL predicate of the rows to read.
    samples
        Number of rows to choose at random; 0 for all rows.
    cache
        Whether the first pass writes its batches to a temporary file. Later passes of this process
        then read them. A string is the folder of that file. A pass in another order ignores
        the file: with ``shuffle`` each pass reads the dataset.
    with_row_id
        Whether to add a column ``_rowid``.
    rank, world_size
        Deprecated: torch supplies them, or use ``sampler``.
    shard_granularity
        Unit of shares: ``fragment`` or ``batch``.
    batch_readahead
        Number of batches to read ahead.
    to_tensor_fn
        Function from a batch to tensors; ``None`` for record batches. It is called with
        ``hf_converter`` and ``use_blob_api``.
    sampler
        Chooses rows and their order; see :mod:`glaive.sampler`.
    auto_detect_rank
        Whether to ask torch for the rank and the number of processes.
    shuffle
        Whether each epoch has its own random order of rows; see
        :class:`~glaive.sampler.ShuffledBlockSampler` for ``seed`` and ``window_rows``.
    seed
        Seed of that order, the same in all processes.
    window_rows
        Number of rows that each worker holds in memory and mixes.
    drop_last
        Whether to omit batches with fewer rows. With ``shuffle``, all processes and workers then
        have the same number of batches.

    Raises
    ------
    OptionError
        ``shard_granularity`` or ``batch_size`` has an invalid value, or options contradict each
        other.
    """

    def __init__(
        self,
        dataset: Table | str | os.PathLike[str],
        batch_size: int,
        *,
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
        shuffle: bool = False,
        seed: int = 0,
        window_rows: int | None = None,
        drop_last: bool = False,
    ) -> None:
        super().__init__()
        if shuffle and (sampler is not None or samples or shard_granularity is not None):
            raise OptionError(
                "shuffle: it chooses the order itself. Leave out sampler, samples and "
                "shard_granularity, or shuffle"
            )
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
        self._cached: tuple[Any, ...] = ()  # process and rows of the cache
        self.shuffle, self.seed, self.window_rows = shuffle, seed, window_rows
        self.drop_last = drop_last
        self._auto_detect_rank = auto_detect_rank
        self._place = PassState()
        self._start: PassState | None = None
        self._numbered = False  # whether epochs are numbered here, not in the sampler
        self._to_tensor_fn = to_tensor_fn
        self._hf_converter = _converter(opened.schema)
        self._blobs = blob_columns(opened, columns)
        self._sent_by: tuple[int, int] | None = None  # see process_of_group

    def __getstate__(self) -> dict[str, Any]:
        sent = {"_sent_by": process_of_group(self._sent_by), "cached_ds": None}
        return {**self.__dict__, **sent}

    def __repr__(self) -> str:
        uri = GlaiveError.without_secrets(self.dataset.uri)
        return f"LanceTorchDataset({uri}, size={self.samples})"

    @property
    def schema(self) -> pa.Schema:
        """Schema of the batches before they become tensors."""
        return self.dataset.scanner(columns=self.columns).projected_schema

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next pass, which starts at its beginning; it sets the order."""
        self.start_at(PassState(epoch=epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this pass: how many batches it has returned. Plain values.

        In a worker, this is the worker's position. With workers, ask the loader: a
        :class:`~glaive.torch.data.LanceLoader` or torchdata's ``StatefulDataLoader``. Only the
        loader knows the workers.

        Raises
        ------
        OptionError
            Rows are chosen at random (``samples``), which differs in each pass.
        """
        return self.state_of(self._place if self._start is None else self._start)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next pass continue where another pass was; see :meth:`state_dict`.

        Raises
        ------
        OptionError
            The state has another version, batch size, seed or filter, or is not a state.
        """
        self.start_at(self.place_of(state))

    def state_of(self, place: PassState) -> dict[str, Any]:
        """Return a position in a pass as plain values."""
        if self.samples:
            raise OptionError(
                "samples: rows chosen at random are others in each pass, so no pass can go on. "
                "Use shuffle=True"
            )
        return place.to_dict(self._identity())

    def place_of(self, state: object) -> PassState:
        """Return the position in a state; ``OptionError`` if it belongs to other batches."""
        return PassState.load(state, self._identity())

    def start_at(self, place: PassState | None) -> None:
        """Make the next pass begin at a position; ``None`` for its start."""
        self._start = place
        self._numbered |= place is not None

    def _identity(self) -> dict[str, Any]:
        """Return everything that the rows of each batch depend on."""
        version, *commit = self.dataset.manifest.identity
        return {
            "version": version,
            # Another dataset at this URI, or a branch, may have a version with this number, too.
            "commit": " ".join(map(str, commit)),
            "rows": len(self.dataset),
            "batch_size": self.batch_size,
            "filter": None if self.filter is None else str(self.filter),
            "shuffle": self.shuffle,
            "seed": self.seed,
            "window_rows": self.window_rows,
            "drop_last": self.drop_last,
            "shard_granularity": self.shard_granularity,
            "processes": process_of_group(self._sent_by)[1],
        }

    def __iter__(self) -> Iterator[Any]:
        start, self._start = self._start or PassState(self._epoch()), None
        begin_epoch = getattr(self.sampler, "set_epoch", None)
        if self._numbered and begin_epoch is not None:
            begin_epoch(start.epoch)
        place = self._place = start.of_worker(get_mp_rank(), get_mp_world_size())
        for batch in self._stream(place):
            if self.drop_last and batch.num_rows < self.batch_size:
                continue
            columns = self._with_blobs(batch) if self._blobs else batch
            place.batches += 1
            if self._to_tensor_fn is None:
                yield columns
            else:
                yield as_shared(
                    self._to_tensor_fn(
                        columns, hf_converter=self._hf_converter, use_blob_api=bool(self._blobs)
                    )
                )
        self._place = PassState(epoch=place.epoch + 1)

    def _epoch(self) -> int:
        """Return the default number of the next pass: the sampler's, or this dataset's."""
        epoch = None if self._numbered else getattr(self.sampler, "epoch", None)
        return self._place.epoch if epoch is None else epoch

    def _stream(self, place: PassState) -> Iterable[pa.RecordBatch]:
        if not self.cache or self.shuffle or place.batches:
            return self._read(place)
        unknown = place.epoch if hasattr(self.sampler, "set_epoch") else None
        order = getattr(self.sampler, "epoch", unknown)
        rows = (os.getpid(), *self._share(place), order)
        if self.cached_ds is None or self._cached != rows:
            folder = self.cache if isinstance(self.cache, str) else None
            self.cached_ds = BatchCache(partial(self._read, replace(place)), folder)
            self._cached = rows
        return self.cached_ds

    def _read(self, place: PassState) -> Iterator[pa.RecordBatch]:
        columns: Any = self.columns
        if self._blobs:
            names = list(self.dataset.schema.names if columns is None else columns)
            columns = [name for name in names if name not in self._blobs]
        with_row_id = self.with_row_id or bool(self._blobs)
        if self.samples:
            if with_row_id:
                columns = with_row_ids(self.dataset, columns)
            found = maybe_sample(
                self.dataset, self.samples, columns, self.batch_size, filt=self.filter
            )
            return resized(found, self.batch_size)
        sampler = self._sampler(place)
        done = place.batches * self.batch_size
        skips = done and _takes_offset(sampler)
        found = sampler(
            self.dataset,
            columns=columns,
            filter=self.filter,
            batch_size=self._scanned_rows() if _scans(sampler) else self.batch_size,
            with_row_id=with_row_id,
            batch_readahead=self.batch_readahead,
            **({"offset": done} if skips else {}),
        )
        batches = resized(found, self.batch_size)
        return batches if skips else islice(batches, place.batches, None)

    def _scanned_rows(self) -> int:
        """Return the rows per scanned batch: a multiple, so that few batches are joined."""
        times = default_window(self.dataset, self.batch_size) // (8 * self.batch_size)
        return self.batch_size * max(1, times)

    def count_batches(self, worker: int, workers: int) -> int:
        """Return the number of batches that a worker of a loader returns in a pass.

        Raises
        ------
        TypeError
            Rows are chosen at random, or by a foreign sampler.
        """
        sampler = self._sampler(PassState(next_share=worker), workers)
        if self.samples or not _takes_offset(sampler):
            raise TypeError("the number of batches is not known before: samples, or a sampler")
        counting: Any = sampler
        rows = counting.share_rows(self.dataset, self.batch_size, self.filter)
        return int(rows // self.batch_size if self.drop_last else -(-rows // self.batch_size))

    def _sampler(self, place: PassState, workers: int | None = None) -> Sampler:
        if self.sampler is not None:
            return self.sampler
        rank, world_size = self._share(place, workers)
        if self.shuffle:
            shuffled = ShuffledBlockSampler(
                rank or 0,
                world_size or 1,
                self.seed,
                window_rows=self.window_rows,
                equal_shares=self.drop_last,
            )
            shuffled.set_epoch(place.epoch)
            return shuffled
        if rank is None or world_size is None:
            return FullScanSampler()
        if self.shard_granularity == "batch":
            return ShardedBatchSampler(rank, world_size)
        return ShardedFragmentSampler(rank, world_size)

    def _share(self, place: PassState, workers: int | None = None) -> tuple[int | None, int | None]:
        """Return the share that this process reads, and the number of shares."""
        rank, world_size = self.rank, self.world_size
        if self._auto_detect_rank:
            workers = workers or get_mp_world_size()
            process, processes = process_of_group(self._sent_by)
            if rank is None:
                rank = process * workers + place.share(get_mp_rank(), workers)
            if world_size is None:
                world_size = processes * workers
        return rank, world_size

    def _with_blobs(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """Return columns with files in place of blobs, or their bytes for ``to_tensor``."""
        columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
        ids = columns["_rowid"].to_pylist()
        if not self.with_row_id and self._to_tensor_fn is to_tensor:
            del columns["_rowid"]
        for name in self._blobs:
            if self._to_tensor_fn is to_tensor:
                columns[name] = [value for _, value in self.dataset.read_blobs(name, ids=ids)]
            else:
                columns[name] = self.dataset.take_blobs(name, ids=ids)
        return columns


def _scans(sampler: Sampler) -> bool:
    """Return whether a sampler reads rows in order, so that batches may have any size."""
    return isinstance(sampler, FullScanSampler | ShardedFragmentSampler) and _takes_offset(sampler)


def _takes_offset(sampler: Sampler) -> bool:
    """Return whether a sampler's call is one of glaive's, which accept ``offset``."""
    call: Any = type(sampler).__call__
    known: tuple[Any, ...] = (FragmentSampler, ShardedBatchSampler, ShuffledBlockSampler)
    return any(call is one.__call__ for one in known)


def _converter(schema: pa.Schema) -> HuggingFaceConverter | None:
    described = (schema.metadata or {}).get(b"huggingface")
    if described is None:
        return None
    try:
        return HuggingFaceConverter(json.loads(described))
    except (RecursionError, ValueError) as error:
        raise CorruptFileError(
            "the metadata 'huggingface'",
            expected="JSON",
            found=f"{described[:80]!r}",
            where="schema",
        ) from error


# --- ``LanceLoader``: a ``DataLoader`` that can stop in a pass and continue later ----------


@dataclass(frozen=True)
class _WithWorker:
    """Function that collates a batch, and adds the number of its worker."""

    collate: Callable[[Any], Any]

    def __call__(self, item: Any) -> dict[str, Any]:
        found: dict[str, Any] = as_shared({"worker": get_mp_rank(), "batch": self.collate(item)})
        return found


class LanceLoader(DataLoader):  # type: ignore[misc]  # torch is not installed for type checks
    """Batches of a :class:`LanceDataset`, read by worker processes.

    Each pass is an epoch; if the dataset is shuffled, it has its own order. A pass that was left
    early begins again, unless a state is loaded.

    Parameters
    ----------
    dataset
        Dataset that makes the batches and sets the ``batch_size``.
    num_workers
        Number of processes; with 0, this process reads.
    **options
        Options of ``DataLoader``: ``pin_memory``, ``multiprocessing_context``, ``prefetch_factor``,
        …

    Raises
    ------
    OptionError
        The dataset has another class, or the dataset decides one of the options.
    """

    def __init__(self, dataset: LanceDataset, *, num_workers: int = 0, **options: Any) -> None:
        if not isinstance(dataset, LanceDataset):
            raise OptionError(
                f"LanceLoader: expected a glaive.torch.data.LanceDataset, found {dataset!r:.80}. "
                "For rows by position use get_safe_loader"
            )
        decided = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"} & set(options)
        if decided:
            raise OptionError(f"{min(decided)}: give it to LanceDataset, which makes the batches")
        collate = options.pop("collate_fn", None) or default_convert
        super().__init__(
            dataset,
            batch_size=None,
            num_workers=num_workers,
            collate_fn=_WithWorker(collate),
            **options,
        )
        self._shares = max(1, num_workers)
        self._place = self._start = self._beginning(0)
        self._fresh = False  # whether kept workers are at another position than the next pass

    def __len__(self) -> int:
        """Return the number of batches of a whole pass; with a filter, scan its columns.

        Raises
        ------
        TypeError
            The number is unknown before: ``samples``, or a foreign sampler.
        """
        return sum(self.dataset.count_batches(at, self._shares) for at in range(self._shares))

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next pass, which starts at its beginning."""
        self._seek(self._beginning(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the pass as plain values, after each returned batch.

        Raises
        ------
        OptionError
            The dataset chooses rows at random, which differ in each pass.
        """
        state: dict[str, Any] = self.dataset.state_of(self._place)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next pass continue after the last batch that the other pass returned.

        The same batches follow, in the same order until the first worker is done. After
        that the order may differ.

        Raises
        ------
        OptionError
            The state has another number of workers, version, batch size, seed or filter.
        """
        place = self.dataset.place_of(state)
        place.of_worker(0, self._shares)  # refuses another number of workers
        if not place.by_share:
            raise OptionError("load_state_dict: the state is of a dataset; load it there")
        self._seek(place)

    def __iter__(self) -> Iterator[Any]:
        if self._fresh:
            self._iterator = None
        start, self._fresh = self._start, True
        self._start = self._beginning(start.epoch)  # for the next pass, if this one is left
        self._place = start
        by_share = list(start.by_share)
        self.dataset.start_at(start)
        batches = super().__iter__()
        if self.num_workers:
            self.dataset.start_at(None)  # the workers have it; this process does not read
        for found in batches:
            worker, batch = found["worker"], found.pop("batch")
            share = start.share(worker, self._shares)
            by_share[share] += 1
            turn = (share + 1) % self._shares
            self._place = PassState(start.epoch, 0, tuple(by_share), turn)
            yield batch
        self._seek(self._beginning(start.epoch + 1))
        self._fresh = False

    def _seek(self, place: PassState) -> None:
        self._place, self._start, self._fresh = place, place, True

    def _beginning(self, epoch: int) -> PassState:
        return PassState(epoch, by_share=(0,) * self._shares)


# --- A dataset that a dedicated process reads ahead, pass after pass ----------------------
# Unlike the workers of a loader, the process stays the same in all passes. So data that the dataset
# keeps, such as a cache, is reused.

_STOP_TIMEOUT_SECONDS = 5.0
"""Seconds that the process has for its current item."""


def _read(
    create: Callable[[], Iterable[Any]], theirs: Connection, ours: Connection, ahead: int
) -> None:
    """Read passes over the dataset until the process is stopped, or nobody reads."""
    theirs.close()  # a fork has it, too, and would not notice the end of its reader
    items: Queue[tuple[str, Any] | None] = Queue(maxsize=ahead)
    sender = Thread(target=_send, args=(items, ours), daemon=True)
    sender.start()
    try:
        dataset = create()
        while not ours.poll():
            for item in dataset:
                if ours.poll():
                    break
                items.put(("item", item))
            items.put(("end", None))
    except Exception as error:  # raised where the items are read
        items.put(("error", error))
    items.put(None)
    sender.join()
    ours.poll(None)  # the reader fetches tensors from this process


def _send(items: Queue[tuple[str, Any] | None], ours: Connection) -> None:
    """Send what was read. If nobody reads, drop it, so that the other thread continues."""
    while (message := items.get()) is not None:
        try:
            ours.send(message)
        except OSError:
            continue
        except Exception as error:  # any exception of pickling an item
            with suppress(OSError):
                ours.send(("error", JobError(f"AsyncDataset: an item cannot be sent: {error}")))


class AsyncDataset(IterableDataset):  # type: ignore[misc]  # torch is not installed for type checks
    """Items of a dataset that another process reads ahead.

    Parameters
    ----------
    dataset_creator
        Function that makes the dataset, in the process. It must be picklable if processes are
        spawned.
    queue_size
        Number of items to read ahead.

    Raises
    ------
    OptionError
        On iteration, if this object was closed.
    JobError
        On iteration, if the process has ended, or an item cannot be sent or received. Or this
        process was forked in the middle of the parent's pass.

    Notes
    -----
    An exception of the dataset is raised where the items are read. After it, the next pass begins
    with another process. Ctrl-C, or another signal handler, may also end a pass in the middle of an
    item. The rest of that item is useless, so the next pass begins with another process. A forked
    process begins with another process, too.
    """

    def __init__(
        self, dataset_creator: Callable[[], Iterable[Any]], *, queue_size: int = 4
    ) -> None:
        self.dataset_creator = dataset_creator
        self.queue_size = queue_size
        self._process: Process | None = None
        self._items: Connection | None = None
        self._closed = False
        self._midway = False
        self._origin = Origin()

    def __iter__(self) -> Iterator[Any]:
        if self._closed:
            raise OptionError("AsyncDataset: it is closed; make another one")
        if not self._origin.is_this_process:
            self._end()
        items = self._items = self._items or self._start()
        while self._midway:  # the rest of a pass that was left
            self._midway = self._next(items)[0] == "item"
        self._midway = True
        while True:
            kind, item = self._next(items)
            if kind == "end":
                self._midway = False
                return
            yield item

    def _start(self) -> Connection:
        # No queue: if a process is killed while it writes to a queue, readers wait forever. This
        # process closes the other end of a pipe, and so notices the end of the writer.
        ours, theirs = Pipe()
        arguments = (self.dataset_creator, ours, theirs, self.queue_size)
        self._process = Process(target=_read, args=arguments, daemon=True)
        self._process.start()
        self._origin = Origin()
        theirs.close()
        return ours

    def close(self) -> None:
        """End the process, in the middle of an item if that takes more than some seconds.

        Items that it has read ahead are dropped.
        """
        self._closed = True
        self._end()

    def _next(self, items: Connection) -> tuple[str, Any]:
        if not self._origin.is_this_process:
            raise JobError("AsyncDataset: the process was forked in this pass; begin another one")
        try:
            data = items.recv_bytes()
        except BaseException as error:
            self._end()  # the rest may begin in the middle of an item
            if isinstance(error, EOFError | OSError):
                raise JobError("AsyncDataset: the process that reads has ended") from error
            raise
        try:
            kind, item = ForkingPickler.loads(data)
        except Exception as error:  # any exception of unpickling an item
            kind, item = "error", JobError(f"AsyncDataset: an item cannot be received: {error}")
            item.__cause__ = error
        if kind == "error":
            self._end()  # readers stop waiting: this was the last item
            raise item
        return kind, item

    def _end(self) -> None:
        process, items = self._process, self._items
        self._process = self._items = None
        self._midway = False
        if process is None or items is None:
            return
        if not self._origin.is_this_process:  # both belong to the parent
            items.close()
            return
        with suppress(OSError):  # it has ended
            items.send(None)
        items.close()  # a process that waits for space in the pipe continues
        process.join(_STOP_TIMEOUT_SECONDS)
        process.terminate()  # it may wait for an item forever
        process.join(_STOP_TIMEOUT_SECONDS)
        process.kill()  # it has the signal handlers of this process, which need not end it
        process.join()


@contextmanager
def async_dataset(
    dataset_creator: Callable[[], Iterable[Any]], *, queue_size: int = 4
) -> Iterator[AsyncDataset]:
    """Yield an :class:`AsyncDataset` that is closed at the end of the block."""
    dataset = AsyncDataset(dataset_creator, queue_size=queue_size)
    try:
        yield dataset
    finally:
        dataset.close()
