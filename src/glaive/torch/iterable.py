"""``LanceDataset``: batches of a dataset as tensors, for ``DataLoader``."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Literal

import pyarrow as pa
from torch.utils.data import IterableDataset

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset as Table
from glaive.dataset.open import dataset as open_dataset
from glaive.dataset.shuffled_batches import default_window, with_row_ids
from glaive.errors import CorruptFileError, GlaiveError, OptionError
from glaive.hf import HuggingFaceConverter
from glaive.sampler import (
    FragmentSampler,
    FullScanSampler,
    Sampler,
    ShardedBatchSampler,
    ShardedFragmentSampler,
    ShuffledBlockSampler,
    maybe_sample,
)
from glaive.torch.batch_cache import BatchCache
from glaive.torch.dist import get_mp_rank, get_mp_world_size, process_of_group
from glaive.torch.map_style import blob_columns
from glaive.torch.tensors import for_sending, resized, to_tensor

# --- Where a pass over a dataset is: what its state says, and checks of a state that is loaded

_NUMBERS = ("epoch", "batches")


@dataclass(slots=True)
class PassState:
    """A place in a pass.

    Parameters
    ----------
    epoch
        Number of the pass.
    batches
        What this share gave out.
    by_share
        What each share of a loader with workers gave out; empty where there is one.
    next_share
        The share whose turn it is: that of the first worker.
    """

    epoch: int = 0
    batches: int = 0
    by_share: tuple[int, ...] = ()
    next_share: int = 0

    def share(self, worker: int, workers: int) -> int:
        """The share that a worker reads."""
        return (worker + self.next_share) % workers

    def of_worker(self, worker: int, workers: int) -> PassState:
        """The place of one worker.

        Raises
        ------
        OptionError
            The state is of another number of workers.
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
        """The state as plain values; ``identity`` is what the batches depend on."""
        state = {**identity, "epoch": self.epoch, "batches": self.batches}
        if self.by_share:
            state |= {"by_share": list(self.by_share), "next_share": self.next_share}
        return state

    @classmethod
    def load(cls, state: object, identity: Mapping[str, Any]) -> PassState:
        """The place that a state describes.

        Raises
        ------
        OptionError
            It is no state, or of other batches.
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

    Each process of ``torch.distributed``, and each worker of a ``DataLoader``, reads a share of
    its own. Give the loader ``batch_size=None``: batches are made here. Use
    :class:`~glaive.torch.data.LanceLoader` to stop in the middle of a pass and go on later.

    Parameters
    ----------
    dataset
        A dataset, or where it is.
    batch_size
        Rows of a batch; the last one of a share may have less.
    dataset_options
        Of :func:`glaive.dataset`, if a location is given.
    columns
        Names of columns, or expressions by name; all when omitted. Large values (blob columns)
        come as bytes, and as files if there is a ``to_tensor_fn`` of your own.
    filter
        Rows to read.
    samples
        Rows chosen at random; 0 for all.
    cache
        Whether the first pass writes its batches to a temporary file, from which later passes of
        this process read them; a text is the folder of that file. Not those in another order:
        with ``shuffle`` each pass reads the dataset.
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
    shuffle
        Whether rows come in an order of each epoch: see
        :class:`~glaive.sampler.ShuffledBlockSampler`, of which ``seed`` and ``window_rows`` are.
    seed
        Of that order, the same in all processes.
    window_rows
        Rows that each worker holds in memory and mixes.
    drop_last
        Whether batches of fewer rows are left out; with ``shuffle``, so that all processes and
        workers have the same number of batches.

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
        shuffle: bool = False,
        seed: int = 0,
        window_rows: int | None = None,
        drop_last: bool = False,
        **kwargs: Any,
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
        self._cached: tuple[Any, ...] = ()  # the process and the rows that it is of
        self.shuffle, self.seed, self.window_rows = shuffle, seed, window_rows
        self.drop_last = drop_last
        self._auto_detect_rank = auto_detect_rank
        self._place = PassState()
        self._start: PassState | None = None
        self._numbered = False  # whether epochs are numbered here, and not in the sampler
        self._to_tensor_fn = to_tensor_fn
        self._hf_converter = _converter(opened.schema)
        self._blobs = blob_columns(opened, columns)
        self._sent_by: tuple[int, int] | None = None  # see process_of_group

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sent_by": process_of_group(self._sent_by)}

    def __repr__(self) -> str:
        uri = GlaiveError.without_secrets(self.dataset.uri)
        return f"LanceTorchDataset({uri}, size={self.samples})"

    @property
    def schema(self) -> pa.Schema:
        """Schema of the batches before they become tensors."""
        return self.dataset.scanner(columns=self.columns).projected_schema

    def set_epoch(self, epoch: int) -> None:
        """Number of the next pass, from its start: shuffled rows have an order of their own."""
        self.start_at(PassState(epoch=epoch))

    def state_dict(self) -> dict[str, Any]:
        """Where this pass is: how many batches were given out. In a worker, those of the worker.

        With workers, ask the loader, a :class:`~glaive.torch.data.LanceLoader` or torchdata's
        ``StatefulDataLoader``: they know of the workers, this object does not.

        Raises
        ------
        OptionError
            Rows are chosen at random (``samples``), which cannot be repeated.
        """
        return self.state_of(self._place if self._start is None else self._start)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass go on where another one was; see :meth:`state_dict`.

        Raises
        ------
        OptionError
            The state is of another version, batch size, seed or filter, or is no state.
        """
        self.start_at(self.place_of(state))

    def state_of(self, place: PassState) -> dict[str, Any]:
        """A place in a pass as plain values."""
        if self.samples:
            raise OptionError(
                "samples: rows chosen at random are others in each pass, so no pass can go on. "
                "Use shuffle=True"
            )
        return place.to_dict(self._identity())

    def place_of(self, state: object) -> PassState:
        """The place that a state describes; ``OptionError`` if it is of other batches."""
        return PassState.load(state, self._identity())

    def start_at(self, place: PassState | None) -> None:
        """Let the next pass begin at a place; None for its start."""
        self._start = place
        self._numbered |= place is not None

    def _identity(self) -> dict[str, Any]:
        """What the rows of each batch depend on."""
        version, *commit = self.dataset.manifest.identity
        return {
            "version": version,
            # Another dataset in its place, or a branch, has a version of this number, too.
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
                yield for_sending(
                    self._to_tensor_fn(
                        columns, hf_converter=self._hf_converter, use_blob_api=bool(self._blobs)
                    )
                )
        self._place = PassState(epoch=place.epoch + 1)

    def _epoch(self) -> int:
        """Number of the next pass where no state says it: the sampler's, if that was numbered."""
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
        """Rows of a batch of a scan: some times as many, so that few have to be put together."""
        times = default_window(self.dataset, self.batch_size) // (8 * self.batch_size)
        return self.batch_size * max(1, times)

    def count_batches(self, worker: int, workers: int) -> int:
        """Batches that a worker of a loader gives out in a pass.

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
        """The share that this process reads, and how many there are."""
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
        """The columns, with files in place of large values, or their bytes for ``to_tensor``."""
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
    """Whether a sampler reads rows in order, so that it does not matter in which batches."""
    return isinstance(sampler, FullScanSampler | ShardedFragmentSampler) and _takes_offset(sampler)


def _takes_offset(sampler: Sampler) -> bool:
    """Whether the call of a sampler is one of glaive's, which know ``offset``."""
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
