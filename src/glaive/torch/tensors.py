"""Batches as tensors, which share Arrow's memory where possible.

A program may change tensors in place, as ``batch.sub_(mean)`` does. So glaive copies values from
the map of a file, because the system forbids to write to it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import prod
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import Dataset, get_worker_info

from glaive.arrow.chunked import decode_dictionary, slices_of_rows
from glaive.arrow.conditions import NO_PYTHON_VALUE
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import FormatError, JobError, SchemaError


def to_tensor(
    batch: pa.RecordBatch | Mapping[str, Any],
    *,
    uint64_as_int64: bool = True,
    hf_converter: Any = None,
    use_blob_api: bool = False,  # noqa: ARG001  # given to all such functions
    **options: Any,
) -> Any:
    """Convert the columns of a batch to tensors.

    Numbers and booleans become tensors of one dimension, fixed-size lists of two. Image tensors get
    the dimensions of the images. Nulls of floats become NaN, and so do nulls of integers, which
    become doubles. Strings and binary values become lists of ``str`` and ``bytes``. Lists of
    several lengths become lists of tensors, with ``None`` for nulls. Structs become dictionaries.

    Parameters
    ----------
    batch
        A batch, or columns by name.
    uint64_as_int64
        Whether to convert unsigned 64-bit numbers to signed numbers.
    hf_converter
        Converter of columns of Hugging Face datasets; see :mod:`glaive.hf`.
    use_blob_api
        Whether there are blob files among the columns.

    Returns
    -------
    tensor or dict of str to tensor
        The tensor itself if there is one column.

    Raises
    ------
    SchemaError
        A column cannot become a tensor: times, decimals, nulls among booleans, blob files.
    FormatError
        A string is damaged.
    """
    columns = (
        dict(zip(batch.schema.names, batch.columns, strict=True))
        if isinstance(batch, pa.RecordBatch)
        else dict(batch)
    )
    tensors = {
        name: _tensor(name, column, hf_converter, uint64_as_int64=uint64_as_int64)
        for name, column in columns.items()
    }
    return next(iter(tensors.values())) if len(tensors) == 1 else tensors


def _tensor(name: str, column: Any, hf_converter: Any, *, uint64_as_int64: bool) -> Any:
    if isinstance(column, list) and all(one is None or type(one) is bytes for one in column):
        return column  # large values that were read
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        raise SchemaError(f"column {name!r}: blob files need a to_tensor_fn of your own")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    shape: tuple[int, ...] = ()
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name != "lance.bfloat16":
        images = kind.extension_name == "lance.arrow.fixed_shape_image_tensor"
        shape = tuple(getattr(kind, "shape", ())) if images else ()
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = decode_dictionary(column)
    found = _vectors(column, shape, uint64_as_int64=uint64_as_int64)
    if found is None:
        found = _numbers(column, uint64_as_int64=uint64_as_int64)
    if found is None and hf_converter is not None and not _is_text(column.type):
        found = hf_converter.to_pytorch(name, column)
    if found is None:
        found = _objects(name, column, uint64_as_int64=uint64_as_int64)
    if found is None:
        raise SchemaError(
            "Only support FixedSizeList<f16/bf16/f32/f64> or numeric/bfloat16 values, strings, "
            f"lists and structs of these, got: {kind} in column {name!r}. Leave the column out, "
            f'convert it, as in columns={{"{name}": "cast({name} as bigint)"}}, or pass a '
            "to_tensor_fn"
        )
    return found


def _vectors(column: Any, shape: tuple[int, ...], *, uint64_as_int64: bool) -> Any:
    """Return fixed-size lists of numbers as one tensor; ``None`` for other types."""
    if not pa.types.is_fixed_size_list(column.type):
        return None
    size = column.type.list_size
    values = column.values.slice(column.offset * size, len(column) * size)
    if column.null_count:
        missing = np.repeat(column.is_null().to_numpy(zero_copy_only=False), size)
        if pa.types.is_primitive(values.type):
            values = pa.array(values.to_numpy(zero_copy_only=False), mask=missing)
        else:
            values = values.take(pa.array(np.arange(len(values)), mask=missing))
    flat = _vectors(values, (), uint64_as_int64=uint64_as_int64)
    if flat is None:
        flat = _numbers(values, uint64_as_int64=uint64_as_int64)
    # No -1: the rows of an empty tensor could be any number.
    return None if flat is None else flat.reshape(len(column), *(shape or (size,)), *flat.shape[1:])


def _is_text(kind: pa.DataType) -> bool:
    name = f"{kind}".partition("[")[0].removeprefix("large_").removeprefix("fixed_size_")
    return name.removesuffix("_view") in ("string", "binary")


def python_values(what: str, rows: Any) -> Any:
    """Return values, or rows of a table, as Python objects.

    Raises
    ------
    FormatError
        Python cannot represent a value: a damaged string, a time beyond the year 9999, or a time in
        an unknown zone.
    """
    try:
        return rows.to_pylist()
    except NO_PYTHON_VALUE as error:
        raise FormatError(
            f"{what}: Python does not have a value: {error}. Leave the column out; "
            "`glaive verify --deep` finds damaged texts"
        ) from error


def _objects(name: str, column: Any, *, uint64_as_int64: bool) -> Any:
    """Convert values that no tensor can hold (strings, structs, lists), else ``None``."""
    kind = column.type
    if _is_text(kind):
        return python_values(f"column {name!r}", column)
    if pa.types.is_struct(kind):
        return {
            field.name: _tensor(
                f"{name}.{field.name}", member, None, uint64_as_int64=uint64_as_int64
            )
            for field, member in zip(kind, column.flatten(), strict=True)
        }
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return None
    flat = _tensor(f"{name}.item", column.flatten(), None, uint64_as_int64=uint64_as_int64)
    lengths = column.value_lengths().fill_null(0).to_pylist()
    if isinstance(flat, dict):
        return None
    if isinstance(flat, list):
        ends = np.cumsum(lengths).tolist()
        rows: list[Any] = [flat[end - size : end] for end, size in zip(ends, lengths, strict=True)]
    else:
        rows = split_tensor(flat, lengths) if lengths else []
    if column.null_count:
        rows = [row if there else None for row, there in zip(rows, _validity(column), strict=True)]
    return rows


def split_tensor(tensor: Any, lengths: list[int]) -> list[Any]:
    """Split a tensor into consecutive parts that share its memory.

    PyTorch treats the parts of ``torch.split`` as one tensor. If you change one of them in place,
    the backward pass of all others fails. The parts returned here are independent.
    """
    return list(torch.unsafe_split_with_sizes(tensor, lengths))


def _validity(column: Any) -> list[bool]:
    there: list[bool] = column.is_valid().to_pylist()
    return there


def _numbers(values: Any, *, uint64_as_int64: bool) -> Any:
    """Return a tensor of one dimension, or ``None``."""
    kind = values.type
    if getattr(kind, "extension_name", "") == "lance.bfloat16":
        return _bfloat16s(values)
    if pa.types.is_boolean(kind):
        if values.null_count:
            return None  # a tensor of booleans lacks a third value
        return torch.from_numpy(values.to_numpy(zero_copy_only=False).copy())
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        return None
    if values.null_count:
        return torch.from_numpy(values.to_numpy(zero_copy_only=False).copy())
    if uint64_as_int64 and kind == pa.uint64():
        values = values.view(pa.int64())
    return torch.from_dlpack(_writable(values))


def _writable(values: Any) -> Any:
    """Return valid numbers in writable memory.

    Arrow makes the copy, because it reuses memory: torch's copy takes ten times as long.
    """
    memory = owner = values.buffers()[1]
    while owner is not None and owner.parent is not None:
        owner = owner.parent
    if owner is None or owner.is_mutable:
        return values
    width = values.type.bit_width // 8
    part = memory.slice(values.offset * width, len(values) * width)
    copy = pa.allocate_buffer(part.size)
    memoryview(copy)[:] = memoryview(part)
    return pa.Array.from_buffers(values.type, len(values), [None, copy], 0)


def _bfloat16s(values: Any) -> Any:
    storage = values.storage
    words: Any = pa.Array.from_buffers(
        pa.uint16(), len(storage), [None, storage.buffers()[1]], 0, storage.offset
    )
    tensor = torch.from_dlpack(_writable(words)).view(torch.bfloat16)
    if values.null_count:
        tensor = tensor.clone()
        tensor[torch.from_numpy(values.is_null().to_numpy(zero_copy_only=False).copy())] = float(
            "nan"
        )
    return tensor


def concat_batches(bs: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Join the rows of several batches to one batch."""
    columns = [
        pa.concat_arrays([batch.column(at) for batch in bs]) for at in range(bs[0].num_columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=bs[0].schema)


def resized(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of ``size``, except the last; as views if possible."""
    for slices in slices_of_rows(batches, size):
        yield concat_batches(slices) if len(slices) > 1 else slices[0]


# --- Shared memory with the tensors that a loader's worker passes to the training process
# torch moves each tensor into its own shared memory and sends a descriptor for it through a socket,
# which takes longer than reading the batch. Here all tensors of a batch are in one block, which the
# worker keeps. The worker reuses the block once the tensors are deleted. The other process maps the
# block for as long as a tensor of it lives, and holds only that. So the system frees all memory if
# any of the processes is killed.

HEADER_BYTES = 64
"""Bytes of a block before its data: the first byte says who uses the block."""

BlockAddress = tuple[int, int, int, int]
"""Process, descriptor and inode of a block, and the number of its used bytes."""

_FREE, _USED, _ABANDONED = 0, 1, 2
_MAX_BLOCKS = 64
_MAX_FREE_BLOCKS = 4


class _Forks:
    """Count of the forks of this process: its maps are mapped in each child, too."""

    count = 0

    @classmethod
    def add(cls) -> None:
        cls.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_Forks.add)


class _Block:
    """Anonymous block of memory, which lives as long as a process maps or opens it."""

    def __init__(self, size: int) -> None:
        self.descriptor = os.memfd_create("glaive-batch")
        try:
            os.ftruncate(self.descriptor, size)
            self.inode = os.fstat(self.descriptor).st_ino
            self.memory = mmap.mmap(self.descriptor, size)
            self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        except BaseException:
            os.close(self.descriptor)
            raise

    def __del__(self, close: Any = os.close) -> None:
        if hasattr(self, "memory"):
            close(self.descriptor)


class _Blocks:
    """The blocks of this process. A block that is too small is replaced by a larger block."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._blocks: list[_Block] = []
        self._lock = Lock()

    def reserve(self, size: int) -> _Block | None:
        """Return a free block for ``size`` bytes of data; ``None`` if too many are in use."""
        needed = HEADER_BYTES + size
        with self._lock:
            if self._process != os.getpid():  # a fork: the blocks are the parent's
                self._process, self._blocks = os.getpid(), []
            states = [block.memory[0] for block in self._blocks]
            free = [at for at, state in enumerate(states) if state == _FREE]
            chosen = next((at for at in free if len(self._blocks[at].memory) >= needed), None)
            unused = [at for at in free if at != chosen]
            # If all free blocks are too small, one of them is released first.
            kept = set(unused[: _MAX_FREE_BLOCKS - (chosen is None)])
            block = None if chosen is None else self._blocks[chosen]
            self._blocks = [
                block
                for at, block in enumerate(self._blocks)
                if at in kept or at == chosen or states[at] == _USED
            ]
            if block is None:
                if len(self._blocks) >= _MAX_BLOCKS:
                    return None
                block = _Block(-(-(needed + size // 8) // mmap.PAGESIZE) * mmap.PAGESIZE)
                self._blocks.append(block)
            block.memory[0] = _USED
            return block


_blocks = _Blocks()


def reserve(size: int) -> tuple[int, BlockAddress] | None:
    """Return the address in memory of a block for ``size`` bytes of data, and the block's address.

    ``None`` if other processes hold too many blocks already, or the system is out of memory.
    """
    try:
        block = _blocks.reserve(size)
    except OSError:
        return None  # no descriptors or no memory: torch's way may work, or report the problem
    if block is None:
        return None
    address = (os.getpid(), block.descriptor, block.inode, HEADER_BYTES + size)
    return block.start, address


class MappedBlock(mmap.mmap):
    """A block of another process, which may reuse the block once this object is deleted."""

    _forks = 0
    _owner = 0

    @classmethod
    def at(cls, address: BlockAddress) -> MappedBlock:
        """Map a block.

        Raises
        ------
        JobError
            The process that owns the block has ended.
        """
        process, descriptor, inode, size = address
        place = f"/proc/{process}/fd/{descriptor}"
        try:
            opened = os.open(place, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError, ProcessLookupError) as error:
            raise JobError(_owner_ended(process, str(error))) from error
        try:
            if os.fstat(opened).st_ino != inode:
                raise JobError(_owner_ended(process, f"{place} is another file"))
            block = cls(opened, size)
        finally:
            os.close(opened)
        block._forks, block._owner = _Forks.count, os.getpid()
        return block

    # Defaults, because a program that ends deletes names of modules before its last batches.
    def __del__(self, getpid: Any = os.getpid, forks: Any = _Forks) -> None:
        if self._owner == getpid():
            # A child that was forked meanwhile may still read the block: then it is not reused.
            self[0] = _FREE if self._forks == forks.count else _ABANDONED


def _owner_ended(process: int, found: str) -> str:
    return (
        f"DataLoader: process {process} ended before its batch was read ({found}). If the system "
        "killed it, use fewer workers or smaller batches"
    )


def can_share_memory() -> bool:
    """Return whether the system has anonymous memory that ``/proc`` can open."""
    if not hasattr(os, "memfd_create"):
        return False
    try:
        # Access to the parent is the same question as the parent's access to this process.
        next(Path(f"/proc/{os.getppid()}/fd").iterdir())
        block = _Block(mmap.PAGESIZE)
        MappedBlock.at((os.getpid(), block.descriptor, block.inode, mmap.PAGESIZE))
    except (OSError, JobError, StopIteration):
        return False
    return True


# --- Batches that workers of a loader send with all tensors in one block of shared memory -

_TENSOR_ALIGNMENT = 64
_MIN_JOINED_TENSORS = 4
"""Most tensors of a list that are sent one by one."""

_PLAIN = {str, bytes, int, float, bool, type(None)}


class SharedBatch(dict[Any, Any]):
    """A batch in a worker; the receiving process gets a plain dictionary.

    It is special only when it is sent to another process. If it is pickled in another way, or
    copied, it is an ordinary dictionary.
    """


def as_shared(batch: Any) -> Any:
    """Return the batch; in a worker, a dictionary that is sent in shared memory."""
    if type(batch) is dict and get_worker_info() is not None:
        return SharedBatch(batch)
    return batch


@dataclass(frozen=True)
class Collate:
    """Function that collates, and makes dictionaries that are sent in shared memory."""

    collate: Callable[[Any], Any]

    def __call__(self, items: Any) -> Any:
        """Collate the items to a batch."""
        return as_shared(self.collate(items))


class _Place(NamedTuple):
    """A tensor of a batch: its bytes in the block, its type and its layout."""

    start: int
    size: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Pieces(NamedTuple):
    """Adjacent tensors: all of them as one, and their lengths; -1 for ``None``."""

    whole: _Place
    lengths: list[int]


class _Copies:
    """Tensors to copy into a block, each with its place."""

    def __init__(self) -> None:
        self.tensors: list[tuple[Any, _Place]] = []
        self.end = HEADER_BYTES

    def add(self, tensor: Any, shape: Sequence[int], strides: Sequence[int]) -> _Place:
        """Add a tensor whose memory begins with the given one's; return its place."""
        last = sum((count - 1) * step for count, step in zip(shape, strides, strict=True))
        size = (1 + last) * tensor.element_size()
        place = _Place(self.end, size, tensor.dtype, tuple(shape), tuple(strides))
        self.tensors.append((tensor, place))
        self.end += -(-size // _TENSOR_ALIGNMENT) * _TENSOR_ALIGNMENT
        return place


def _fits(tensor: Any) -> bool:
    """Return whether a tensor is only memory, which belongs to this process alone."""
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and tensor.numel() > 0
        and not tensor.is_shared()
    )


def _without_tensors(value: Any, copies: _Copies) -> Any:
    """Return the same value with places instead of tensors."""
    kind = type(value)
    if kind is dict or kind is SharedBatch:
        return {key: _without_tensors(one, copies) for key, one in value.items()}
    if kind is list or kind is tuple:
        if _PLAIN.issuperset(map(type, value)):
            return value
        pieces = _as_pieces(value, copies) if kind is list else None
        return pieces or kind(_without_tensors(one, copies) for one in value)
    if not isinstance(value, torch.Tensor) or not _fits(value):
        return value
    return copies.add(value, value.shape, value.stride())


def _as_pieces(values: list[Any], copies: _Copies) -> _Pieces | None:
    """Return a list column as the tensor it was cut from, or ``None``.

    If each of a thousand tensors had a place, the training process would take longer for the places
    than for everything else.
    """
    tensors = [one for one in values if one is not None]
    filled = [one for one in tensors if type(one) is torch.Tensor and one.numel()]
    if len(tensors) < _MIN_JOINED_TENSORS or not filled or not _fits(filled[0]):
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
    lengths = [-1 if one is None else len(one) for one in values]
    rows = sum(max(0, length) for length in lengths)
    # The strides of the first tensor may be anything for a dimension of one.
    strides = tuple(prod(shape[at:]) for at in range(first.dim()))
    whole = copies.add(first, (rows, *shape), strides)
    return _Pieces(whole, lengths)


def _with_tensors(value: Any, block: Any) -> Any:
    kind = type(value)
    if kind is _Place:
        start, size, dtype, shape, strides = value
        found: Any = torch.frombuffer(block, dtype=torch.uint8, count=size, offset=start)
        return found.view(dtype).as_strided(shape, strides)
    if kind is _Pieces:
        whole, lengths = _with_tensors(value.whole, block), value.lengths
        pieces = iter(split_tensor(whole, [one for one in lengths if one >= 0]))
        return [None if one < 0 else next(pieces) for one in lengths]
    if kind is dict:
        return {key: _with_tensors(one, block) for key, one in value.items()}
    if kind is list or kind is tuple:
        if _PLAIN.issuperset(map(type, value)):
            return value
        return kind(_with_tensors(one, block) for one in value)
    return value


@cache
def _can_share() -> bool:
    return can_share_memory()


def _reduced(batch: SharedBatch) -> tuple[Any, ...]:
    """Return what to send: the address of the tensors, and the rest of the batch."""
    copies = _Copies()
    rest = _without_tensors(batch, copies)
    reserved = reserve(copies.end - HEADER_BYTES) if copies.tensors and _can_share() else None
    if reserved is None:
        return dict, (dict(batch),)
    memory, address = reserved
    # torch must not copy: this thread may be stopped when the worker ends. Calls of torch that
    # release the interpreter lock then abort the process.
    for tensor, place in copies.tensors:
        ctypes.memmove(memory + place.start, tensor.data_ptr(), place.size)
    return _received, (address, rest)


def _received(address: BlockAddress, rest: Any) -> Any:
    """Return the batch, with tensors over the block of the process that sent it."""
    return _with_tensors(rest, MappedBlock.at(address))


# Queues between processes use ForkingPickler; pickles in files do not.
ForkingPickler.register(SharedBatch, _reduced)


# --- ``TensorDataset``: a tensor in batches ---------------------------------------------


class TensorDataset(Dataset):  # type: ignore[misc]  # torch is not installed for type checks
    """A tensor in batches: item ``i`` is the ``i``-th batch.

    Parameters
    ----------
    data
        A tensor or NumPy array.
    batch_size
        Number of rows of a batch.
    """

    def __init__(self, data: Any, batch_size: int) -> None:
        super().__init__()
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
