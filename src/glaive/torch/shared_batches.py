"""Batches that workers of a loader send with all their tensors in one block of shared memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from math import prod
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.utils.data import get_worker_info

from glaive.dataclass import dataclass
from glaive.named_tuple import NamedTuple
from glaive.torch.shared_memory import HEAD, BlockAddress, MappedBlock, lend, lends_memory
from glaive.torch.tensors import cut_apart

__all__ = ["Collate", "SharedBatch", "for_sending"]

_ALIGNMENT = 64
_FEW_PIECES = 4
"""Tensors of a list that are sent one by one."""

_PLAIN = {str, bytes, int, float, bool, type(None)}


class SharedBatch(dict[Any, Any]):
    """A batch in a worker; the process that receives it finds a plain dictionary.

    Only what processes send to each other is made so. Pickled in any other way, or copied, it is
    a dictionary like others.
    """


def for_sending(batch: Any) -> Any:
    """The batch; in a worker, if it is a dictionary, as one that is sent in shared memory."""
    if type(batch) is dict and get_worker_info() is not None:
        return SharedBatch(batch)
    return batch


@dataclass(frozen=True)
class Collate:
    """Collates, and sends what that makes in shared memory if it is a dictionary."""

    collate: Callable[[Any], Any]

    def __call__(self, items: Any) -> Any:
        """A batch of the items."""
        return for_sending(self.collate(items))


class _Place(NamedTuple):
    """A tensor of a batch: which of its ranges of memory, and how it lies there."""

    span: int
    dtype: Any
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Pieces(NamedTuple):
    """Tensors that lie one behind the other: all of them as one, and the lengths; -1 for None."""

    whole: _Place
    lengths: list[int]


class _Spans:
    """The ranges of memory that the tensors of a batch lie in: one for each storage."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self.storages: list[Any] = []
        self.bounds: list[tuple[int, int]] = []

    def add(self, tensor: Any) -> int:
        """The number of the range, which now holds this tensor, too."""
        storage = tensor.untyped_storage()
        size = tensor.element_size()
        first = tensor.storage_offset() * size
        lengths = zip(tensor.shape, tensor.stride(), strict=True)
        stop = first + (1 + sum((count - 1) * step for count, step in lengths)) * size
        known_by = (storage.data_ptr(), storage.nbytes())
        number = self._numbers.setdefault(known_by, len(self.storages))
        if number == len(self.storages):
            self.storages.append(storage)
            self.bounds.append((first, stop))
        else:
            known = self.bounds[number]
            self.bounds[number] = (min(first, known[0]), max(stop, known[1]))
        return number

    def starts(self) -> Iterator[int]:
        """Where in its storage each range starts: at a multiple of every size of elements."""
        return (first - first % _ALIGNMENT for first, _ in self.bounds)


def _fits(tensor: Any) -> bool:
    """Whether a tensor is nothing but its memory, which is of this process alone."""
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and tensor.numel() > 0
        and not tensor.is_shared()
    )


def _without_tensors(value: Any, spans: _Spans) -> Any:
    """The same value with places in place of tensors."""
    kind = type(value)
    if kind is dict or kind is SharedBatch:
        return {key: _without_tensors(one, spans) for key, one in value.items()}
    if kind is list or kind is tuple:
        if _PLAIN.issuperset(map(type, value)):
            return value
        pieces = _as_pieces(value, spans) if kind is list else None
        return pieces or kind(_without_tensors(one, spans) for one in value)
    if not isinstance(value, torch.Tensor) or not _fits(value):
        return value
    span = spans.add(value)
    return _Place(span, value.dtype, value.storage_offset(), tuple(value.shape), value.stride())


def _as_pieces(values: list[Any], spans: _Spans) -> _Pieces | None:
    """A list column as what it was cut from; None where the tensors lie anywhere.

    A place for each of a thousand tensors takes the process that trains longer than all others.
    """
    tensors = [one for one in values if one is not None]
    filled = [one for one in tensors if type(one) is torch.Tensor and one.numel()]
    if len(tensors) < _FEW_PIECES or not filled or not _fits(filled[0]):
        return None
    first, shape = filled[0], filled[0].shape[1:]
    if not first.dim():
        return None
    size, end = first.element_size(), first.data_ptr()
    for one in tensors:
        if (
            type(one) is not torch.Tensor
            or one.dtype != first.dtype
            or one.dim() != first.dim()
            or one.shape[1:] != shape
            or not one.is_contiguous()
            or one.requires_grad
            or one.is_neg()
            or one.is_conj()
        ):
            return None
        if one.numel():
            if one.data_ptr() != end:
                return None
            end += size * one.numel()
    span = spans.add(first)
    if spans.add(filled[-1]) != span:
        return None  # of two storages, which happen to be neighbours
    lengths = [-1 if one is None else len(one) for one in values]
    rows = sum(max(0, length) for length in lengths)
    # Not the strides of the first, which may be anything for a dimension of one.
    strides = tuple(prod(shape[at:]) for at in range(first.dim()))
    whole = _Place(span, first.dtype, first.storage_offset(), (rows, *shape), strides)
    return _Pieces(whole, lengths)


def _with_tensors(value: Any, spans: list[tuple[Any, int]]) -> Any:
    kind = type(value)
    if kind is _Place:
        storage, start = spans[value.span]
        offset = value.offset - start // value.dtype.itemsize
        tensor: Any = torch.empty(0, dtype=value.dtype)
        return tensor.set_(storage, offset, value.shape, value.strides)
    if kind is _Pieces:
        whole, lengths = _with_tensors(value.whole, spans), value.lengths
        pieces = iter(cut_apart(whole, [one for one in lengths if one >= 0]))
        return [None if one < 0 else next(pieces) for one in lengths]
    if kind is dict:
        return {key: _with_tensors(one, spans) for key, one in value.items()}
    if kind is list or kind is tuple:
        if _PLAIN.issuperset(map(type, value)):
            return value
        return kind(_with_tensors(one, spans) for one in value)
    return value


@cache
def _lends() -> bool:
    return lends_memory()


def _reduced(batch: SharedBatch) -> tuple[Any, ...]:
    """What is sent: where the tensors are, and the batch without them."""
    spans = _Spans()
    rest = _without_tensors(batch, spans)
    if not spans.storages or not _lends():
        return dict, (dict(batch),)
    placed: list[tuple[int, int, int]] = []  # in the block, in the storage, length
    end = HEAD
    for start, (_, stop) in zip(spans.starts(), spans.bounds, strict=True):
        placed.append((end, start, stop - start))
        end += -(-(stop - start) // _ALIGNMENT) * _ALIGNMENT
    lent = lend(end - HEAD)
    if lent is None:
        return dict, (dict(batch),)
    memory, address = lent
    # Not by torch: this thread may be stopped when the worker ends, which torch's calls that let go
    # of the interpreter answer by aborting the process.
    for storage, (at, start, length) in zip(spans.storages, placed, strict=True):
        ctypes.memmove(memory + at, storage.data_ptr() + start, length)
    return _received, (address, placed, rest)


def _received(address: BlockAddress, placed: list[tuple[int, int, int]], rest: Any) -> Any:
    """The batch, with tensors over the block of the process that sent it."""
    block = MappedBlock.at(address)
    spans = []
    for at, start, length in placed:
        bytes_there = torch.frombuffer(block, dtype=torch.uint8, count=length, offset=at)
        spans.append((bytes_there.untyped_storage(), start))
    return _with_tensors(rest, spans)


# ForkingPickler is what queues between processes use; pickles in files are made without it.
ForkingPickler.register(SharedBatch, _reduced)
