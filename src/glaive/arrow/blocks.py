"""Blocks: what encodings exchange instead of Arrow arrays.

A block holds the visible values of a leaf column. Levels carry nulls and nesting. Nulls that
have a slot hold a placeholder value. Bytes are always in a ``pyarrow.Buffer``. It has an
address for kernels, slices are views, and it keeps the memory map that it views alive.

============ ==========================================================================
block        Arrow types
============ ==========================================================================
FixedWidth   numbers, booleans (1 bit, packed LSB first), times, decimals, fixed binary
Variable     utf8, binary and their large forms
FixedList    fixed_size_list of a primitive, with nulls inside the lists
Dictionary   unsigned indices into items
Constant     one value, repeated
Struct       packed structs: their members side by side
============ ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.config import MAX_IMPLIED_BYTES
from glaive.dataclass import dataclass
from glaive.errors import CapacityError
from glaive.types import MAX_OFFSET, Flags, Int64s, as_buffer, items_of

# --- Bitmaps: join, gather, make from flags; Arrow arrays over integers -----------------
#
# Bits are counted from the least significant bit of each byte.

NUMPY_TYPES: Final[Mapping[pa.DataType, np.dtype[Any]]] = {
    pa.int8(): np.dtype(np.int8),
    pa.int16(): np.dtype(np.int16),
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.uint8(): np.dtype(np.uint8),
    pa.uint16(): np.dtype(np.uint16),
    pa.uint32(): np.dtype(np.uint32),
    pa.uint64(): np.dtype(np.uint64),
    pa.float16(): np.dtype(np.float16),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
}
"""NumPy's types of numbers, whose values lie in memory in the same way, by Arrow's types.

``to_pandas_dtype`` says them, too, but before pyarrow 26 imports pandas, which may be missing.
"""

_STORED_AS: Final = {
    NUMPY_TYPES[kind]: kind
    for kind in (pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64())
}
"""Types whose values lie in memory as NumPy's do."""

MAX_IMPLIED_POSITIONS: Final = MAX_IMPLIED_BYTES // 8
"""Maximum positions in memory of items that take zero bytes in a file: 2^28 by default."""

_MAX_TOTAL: Final = 2**62
"""Items or bytes that sums of 64 bits count without wrapping around."""


def number_array(
    numbers: NDArray[Any], kind: pa.DataType | None = None, *, nulls: Flags | None = None
) -> pa.Array:
    """Return an Arrow array that shares the memory of numbers, with nulls where ``nulls`` is set.

    ``pyarrow.array`` would do the same, but first imports pandas, to check whether the argument
    is a pandas object: 0.15 s in a fresh process.
    """
    kind = kind or _STORED_AS.get(numbers.dtype) or pa.from_numpy_dtype(numbers.dtype)
    if _STORED_AS.get(numbers.dtype) is not kind or not numbers.flags.c_contiguous:
        numbers = np.ascontiguousarray(numbers, NUMPY_TYPES[kind])
    return pa.Array.from_buffers(kind, len(numbers), [_validity(nulls), as_buffer(numbers)])


def inverse_permutation(order: Int64s) -> Int64s:
    """Return the position of each number in ``order``: taking these undoes ``values[order]``."""
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return positions


def ascending(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers, ascending, each once; the array itself if it is like that already.

    ``numpy.unique`` enters integers into a hash table. For a million different ones, that takes a
    hundred times as long as sorting them.
    """
    if len(numbers) < 2 or not np.count_nonzero(numbers[1:] <= numbers[:-1]):
        return numbers
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), np.bool_)  # of equal numbers
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def distinct(numbers: Int64s) -> Int64s:
    """Return numbers ≥ 0, ascending, each once: :func:`ascending` for small numbers."""
    if len(numbers) and int(numbers.max()) <= 4 * len(numbers):  # quicker than sorting
        return np.bincount(numbers).nonzero()[0]
    return ascending(numbers)


def total_of(sizes: Int64s) -> int:
    """Return the sum of sizes ≥ 0, which a file may only claim.

    Raises
    ------
    CapacityError
        The sum is 2^62 or more, so that sums of 64 bits may wrap around.
    """
    if len(sizes) and int(sizes.max()) > _MAX_TOTAL // len(sizes):
        about = int(sizes.sum(dtype=np.float64))
        if about > _MAX_TOTAL:
            what = f"about {about:.3g} items or bytes at once"
            parts = about // _MAX_TOTAL + 1
            raise CapacityError(f"{what}: read or take fewer rows at a time", parts=parts)
    return int(sizes.sum())


def spread(starts: Int64s, sizes: Int64s, limit: int = _MAX_TOTAL) -> Int64s:
    """Return consecutive integers from each start, as many as its size, one run after the other.

    Raises
    ------
    CapacityError
        The integers are more than ``limit``. The check precedes the allocation.
    """
    total = total_of(sizes)
    if total > limit:
        what = f"positions of {total} items at once, at most {limit} are supported"
        raise CapacityError(f"{what}: read or take fewer rows at a time", parts=-(-total // limit))
    ends = sizes.cumsum()
    positions: Int64s = np.arange(total) + np.repeat(starts - (ends - sizes), sizes)
    return positions


def spread_equal(lists: Int64s, size: int) -> Int64s:
    """Return positions of the items of some lists of one size; items of a list are adjacent.

    Raises
    ------
    CapacityError
        They are more than :data:`MAX_IMPLIED_POSITIONS`. The check precedes the allocation.
    """
    total = len(lists) * size
    if total > MAX_IMPLIED_POSITIONS:
        what = f"positions of {total} items at once, at most {MAX_IMPLIED_POSITIONS} are supported"
        parts = -(-total // MAX_IMPLIED_POSITIONS)
        raise CapacityError(f"{what}: read or take fewer rows at a time", parts=parts)
    return np.add.outer(lists * size, np.arange(size)).reshape(-1)


def flags_of(bitmap: pa.Buffer, count: int, start: int = 0) -> Flags:
    """Return one boolean per bit, from bit ``start`` on; a copy of eight times the size."""
    first, skip = divmod(start, 8)
    size = (start + count + 7) // 8 - first
    data = items_of(bitmap, np.uint8, size, first)
    return np.unpackbits(data, count=skip + count, bitorder="little")[skip:].view(np.bool_)


def pack_flags(flags: Flags) -> pa.Buffer:
    """Make a bitmap; bits after the last flag are 0."""
    return as_buffer(np.packbits(flags, bitorder="little"))


def all_set(count: int) -> pa.Buffer:
    """Make a bitmap of ``count`` set bits."""
    return as_buffer(np.full((count + 7) // 8, 0xFF, np.uint8))


def flag_array(flags: Flags, *, nulls: Flags | None = None) -> Any:
    """Return flags as an Arrow array; ``pyarrow.array`` would import pandas."""
    return pa.Array.from_buffers(pa.bool_(), len(flags), [_validity(nulls), pack_flags(flags)])


def _validity(nulls: Flags | None) -> pa.Buffer | None:
    return None if nulls is None else pack_flags(~nulls)


def known_true(mask: Any) -> Any:
    """Return which values of a boolean array are true; nulls are not.

    ``pyarrow.compute.fill_null`` takes 100 times as long.
    """
    if not mask.null_count:
        return mask
    validity, data = mask.buffers()
    first, skip = divmod(mask.offset, 8)
    size = (skip + len(mask) + 7) // 8
    both = items_of(validity, np.uint8, size, first) & items_of(data, np.uint8, size, first)
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, as_buffer(both)], 0, skip)


def join_bits(bitmaps: Sequence[pa.Buffer], counts: Sequence[int]) -> pa.Buffer:
    """Join the first ``counts[i]`` bits of every bitmap."""
    if any(count % 8 for count in counts[:-1]):
        flags = [flags_of(*part) for part in zip(bitmaps, counts, strict=True)]
        return pack_flags(np.concatenate(flags))
    parts = [
        items_of(bitmap, np.uint8, (count + 7) // 8)
        for bitmap, count in zip(bitmaps, counts, strict=True)
    ]
    return as_buffer(np.concatenate(parts) if parts else np.empty(0, np.uint8))


def align_bits(bitmap: pa.Buffer, begin: int, count: int) -> pa.Buffer:
    """Return ``count`` bits from bit ``begin`` on as a new bitmap; later bits are 0."""
    first, skip = divmod(begin, 8)
    size = (count + 7) // 8
    data = items_of(bitmap, np.uint8, min(bitmap.size - first, size + 1), first)
    if skip:
        shifted = data >> np.uint8(skip)
        shifted[: len(data) - 1] |= data[1:] << np.uint8(8 - skip)
        data = shifted[:size]
    elif count % 8:
        data = data[:size].copy()
    else:
        return bitmap.slice(first, size)
    if count % 8:
        data[-1] &= np.uint8((1 << count % 8) - 1)
    return as_buffer(data)


def take_bits(bitmap: pa.Buffer, positions: Int64s) -> pa.Buffer:
    """Gather bits; the caller has checked the positions."""
    bits = items_of(bitmap, np.uint8, bitmap.size)[positions >> 3] >> (positions & 7).astype(
        np.uint8
    )
    return as_buffer(np.packbits(bits & np.uint8(1), bitorder="little"))


@dataclass(slots=True)
class FixedWidth:
    """``count`` values of ``bits`` bits each, back to back.

    ``bits`` is 1 (packed, least significant bit first) or a multiple of 8. The buffer has
    at least the bytes of all values.
    """

    values: pa.Buffer
    bits: int
    count: int


@dataclass(slots=True)
class Variable:
    """``count`` byte strings: ``count + 1`` ascending offsets into ``data``.

    ``offset_bits`` is 32 (signed, Arrow ``int32``) or 64. The first offset may exceed 0.
    """

    offsets: pa.Buffer
    offset_bits: int
    data: pa.Buffer
    count: int

    @classmethod
    def of_sizes(cls, data: pa.Buffer, sizes: Int64s, least_bits: int = 32) -> Variable:
        """Return strings of these sizes, back to back; 64-bit offsets where 32 are too few."""
        bits = 64 if data.size > MAX_OFFSET else least_bits
        offsets = np.zeros(len(sizes) + 1, f"<i{bits // 8}")
        sizes.cumsum(out=offsets[1:])
        return cls(as_buffer(offsets), bits, data, len(sizes))


@dataclass(slots=True)
class FixedList:
    """``count`` lists of ``dimension`` items each.

    ``validity`` is the Arrow bitmap of the items (``count * dimension`` bits), ``None`` when
    all items are valid.
    """

    items: Block
    dimension: int
    validity: pa.Buffer | None
    count: int

    @property
    def lacks_values(self) -> bool:
        """Whether all items are null and the values take zero bytes, as pylance writes them."""
        if self.validity is None:
            return False
        inner = self.items
        while isinstance(inner, FixedList):
            inner = inner.items
        if not isinstance(inner, FixedWidth) or inner.bits:
            return False
        return not flags_of(self.validity, self.count * self.dimension).any()


@dataclass(slots=True)
class Dictionary:
    """``indices`` (unsigned, 8 to 64 bits) into ``items``; every index is in range."""

    indices: FixedWidth
    items: Block
    count: int


@dataclass(slots=True)
class Constant:
    """The single value of ``value`` (a block with count 1), ``count`` times."""

    value: Block
    count: int


@dataclass(slots=True)
class Struct:
    """``count`` structs of valid members: one block of as many values per member."""

    members: tuple[Block, ...]
    count: int


Block = FixedWidth | Variable | FixedList | Dictionary | Constant | Struct


def block_bytes(block: Block) -> int:
    """Return the bytes of memory that the values of a block take."""
    match block:
        case FixedWidth():
            return int(block.values.size)
        case Variable():
            return int(block.offsets.size + block.data.size)
        case FixedList():
            return block_bytes(block.items) + (block.validity.size if block.validity else 0)
        case Dictionary():
            return block_bytes(block.indices) + block_bytes(block.items)
        case Constant():
            return block_bytes(block.value)
        case Struct():
            return sum(map(block_bytes, block.members))


# --- Slices of blocks and bitmaps: views, except for bits that begin within a byte ------


def slice_block(block: Block, start: int, count: int) -> Block:
    """Return the values ``start`` to ``start + count`` of a block."""
    if isinstance(block, FixedWidth):
        return _slice_fixed(block, start, count)
    if isinstance(block, Variable):
        width = block.offset_bits // 8
        offsets = block.offsets.slice(start * width, (count + 1) * width)
        return Variable(offsets, block.offset_bits, block.data, count)
    if isinstance(block, FixedList):
        at, length = start * block.dimension, count * block.dimension
        validity = None if block.validity is None else slice_bits(block.validity, at, length)
        items = slice_block(block.items, at, length)
        return FixedList(items, block.dimension, validity, count)
    if isinstance(block, Dictionary):
        return Dictionary(_slice_fixed(block.indices, start, count), block.items, count)
    if isinstance(block, Struct):
        members = [slice_block(member, start, count) for member in block.members]
        return Struct(tuple(members), count)
    return Constant(block.value, count)


def _slice_fixed(block: FixedWidth, start: int, count: int) -> FixedWidth:
    if block.bits == 1:
        return FixedWidth(slice_bits(block.values, start, count), 1, count)
    width = block.bits // 8
    return FixedWidth(block.values.slice(start * width, count * width), block.bits, count)


def slice_bits(bitmap: pa.Buffer, start: int, count: int) -> pa.Buffer:
    """Return the bits ``start`` to ``start + count`` as a bitmap that begins at bit 0.

    A view when ``start`` is a multiple of 8, else a copy. Bits after the last are undefined.
    """
    first, shift = divmod(start, 8)
    if not shift or not count:
        return bitmap.slice(first, (count + 7) // 8)
    return align_bits(bitmap, start, count)


# --- Types within types: members, items, keys -------------------------------------------


def fields_of(kind: Any) -> list[pa.Field[Any]]:
    """Return the fields in a type: members, items, or the keys and items of maps."""
    if isinstance(kind, pa.MapType):
        return [kind.key_field, kind.item_field]
    return [kind.field(at) for at in range(kind.num_fields)]


def with_fields(kind: Any, fields: list[pa.Field[Any]]) -> Any:
    """Return the type with other fields in it."""
    types = pa.types
    if not fields or types.is_union(kind):
        return kind
    if types.is_struct(kind):
        return pa.struct(fields)
    if types.is_map(kind):
        return pa.map_(*fields)
    if types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(fields[0])
    return pa.list_(fields[0]) if types.is_list(kind) else kind  # Lance lacks views of lists


def with_parts(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Return the type with the types in it changed, or the type itself where all stay the same."""
    inner = fields_of(kind)
    fields = [field.with_type(change(field.type)) for field in inner]
    return kind if fields == inner else with_fields(kind, fields)
