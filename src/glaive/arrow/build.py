"""Blocks to Arrow arrays of a given type, and back; both share the memory of their source."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import (
    Block,
    Constant,
    Dictionary,
    FixedList,
    FixedWidth,
    Struct,
    Variable,
    flags_of,
    number_array,
    pack_flags,
    spread,
    spread_equal,
    take_bits,
)
from glaive.config import MAX_IMPLIED_BYTES
from glaive.errors import CapacityError, CorruptFileError, RowIndexError, SchemaError
from glaive.kernels.offsets import expand_dictionary
from glaive.kernels.strings import Strings
from glaive.types import MAX_OFFSET, Flags, Int64s, Where, as_array, as_buffer, items_of

_OFFSET_BITS = {
    pa.string().id: 32,
    pa.binary().id: 32,
    pa.large_string().id: 64,
    pa.large_binary().id: 64,
}

_PLAIN = frozenset(
    kind.id
    for kind in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
        pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(),
        pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.duration("us"),
    )
)  # fmt: skip
"""Types whose values are words."""


def leaf_bits(kind: pa.DataType) -> int | None:
    """Return the bits of a value of a fixed-width leaf type, ``None`` for other types."""
    if offset_bits(kind) is not None or pa.types.is_struct(kind):
        return None
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_fixed_size_list(kind):
        inner = leaf_bits(kind.value_type)
        return None if inner is None else inner * kind.list_size
    return int(kind.bit_width)


def offset_bits(kind: pa.DataType) -> int | None:
    """Return the width of the offsets of a string or binary type, ``None`` for other types."""
    return _OFFSET_BITS.get(kind.id)


def is_stored_as(kind: pa.DataType, bits: int, *, texts: bool) -> bool:
    """Return whether memory has the form of an array as it stands.

    This means values of so many bits, or texts with offsets of so many bits.
    """
    return offset_bits(kind) == bits if texts else kind.id in _PLAIN and kind.bit_width == bits


def all_null(kind: pa.DataType, count: int) -> pa.Array:
    """Return ``count`` nulls of a type.

    Raises
    ------
    CapacityError
        They take more than ``MAX_IMPLIED_BYTES``, or are more than ``MAX_IMPLIED_POSITIONS``.
    """
    check_implied(count, _null_bits(kind), kind)
    return _nulls(kind, count)


def _nulls(kind: pa.DataType, count: int) -> pa.Array:
    if pa.types.is_null(kind):
        if count >> 62:  # items of lists, whose numbers are products
            raise CapacityError(f"{count} nulls in one array: read fewer rows", parts=count >> 61)
        # Omit the bitmap: Arrow would make it and leave it unread.
        return pa.Array.from_buffers(kind, count, [None], count)
    if pa.types.is_fixed_size_list(kind) and not _null_bits(kind.value_type):
        # Likewise, omit a bitmap of all items, because readers skip items below a null.
        items = _nulls(kind.value_type, count * kind.list_size)
        validity = as_buffer(np.zeros((count + 7) // 8, np.uint8))
        return pa.Array.from_buffers(kind, count, [validity], count, children=[items])
    nulls: Any = pa.nulls
    return cast("pa.Array", nulls(count, kind))


def null_bytes(kind: pa.DataType, count: int) -> int:
    """Return the bytes of memory that nulls take."""
    return (_null_bits(kind) * count + 7) // 8


def _null_bits(kind: Any) -> int:
    """Return the bits of memory that one null takes."""
    if isinstance(kind, pa.BaseExtensionType):
        return _null_bits(kind.storage_type)
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_fixed_size_list(kind):
        return 1 + int(kind.list_size) * _null_bits(kind.value_type)
    if pa.types.is_struct(kind):
        return 1 + sum(_null_bits(kind.field(at).type) for at in range(kind.num_fields))
    if pa.types.is_dictionary(kind):
        return 1 + int(kind.index_type.bit_width)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return 1 + int(kind.bit_width)
    if pa.types.is_fixed_size_binary(kind):
        return 1 + 8 * int(kind.byte_width)
    return 129  # offsets, or a view


def check_implied(count: int, bits: int, kind: pa.DataType) -> None:
    """Refuse more than ``MAX_IMPLIED_BYTES`` of implied values, before the allocation.

    Each value counts as its bits, or as the 64 bits of its position: code that reads items of
    lists has a position for each.
    """
    size = count * max(64, bits) // 8
    if size > MAX_IMPLIED_BYTES:
        raise CapacityError(
            f"{size} bytes of {kind} in one array of nulls or of one repeated value, 8 or more for "
            f"each: at most {MAX_IMPLIED_BYTES} are supported (twice "
            "GLAIVE_MAX_DECODED_BYTES_PER_PAGE, at most 2 GiB). Read fewer rows at a time; if the "
            "file should not have as many, it is damaged.",
            parts=-(-size // MAX_IMPLIED_BYTES),
        )


def to_array(
    block: Block, kind: pa.DataType, validity: pa.Buffer | None, null_count: int, where: Where
) -> pa.Array:
    """Build an array of ``kind`` over the block's memory.

    Raises
    ------
    CorruptFileError
        The block's width or shape differs from the type's.
    CapacityError
        There are more bytes than the type's offsets can count.
    """
    if isinstance(block, FixedWidth) and kind.id in _PLAIN and block.bits == kind.bit_width:
        return pa.Array.from_buffers(kind, block.count, [validity, block.values], null_count)
    if isinstance(block, Constant):
        return _repeat(block, kind, validity, null_count, where)
    if isinstance(kind, pa.BaseExtensionType):
        inner = to_array(block, kind.storage_type, validity, null_count, where)
        return pa.ExtensionArray.from_storage(kind, inner)
    if isinstance(block, Dictionary):
        return _from_dictionary(block, kind, validity, null_count, where)
    if pa.types.is_dictionary(kind):
        values = to_array(block, kind.value_type, validity, null_count, where)
        return _dictionary_encoded(values, kind, where)
    if isinstance(block, FixedList):
        if not pa.types.is_fixed_size_list(kind) or kind.list_size != block.dimension:
            raise _mismatch(f"lists of {block.dimension} items", kind, where)
        nulls = 0 if block.validity is None else -1
        if block.lacks_values:
            items = all_null(kind.value_type, block.count * block.dimension)
        else:
            items = to_array(block.items, kind.value_type, block.validity, nulls, where)
        return pa.Array.from_buffers(kind, block.count, [validity], null_count, children=[items])
    if isinstance(block, Variable):
        return _from_variable(block, kind, validity, null_count, where)
    if isinstance(block, Struct):
        return _from_members(block, kind, validity, null_count, where)
    return _from_fixed(block, kind, validity, null_count, where)


def _from_fixed(
    block: FixedWidth, kind: pa.DataType, validity: pa.Buffer | None, null_count: int, where: Where
) -> pa.Array:
    if pa.types.is_fixed_size_list(kind):
        # A list of valid fixed-width items is just a wide value.
        bits = leaf_bits(kind.value_type)
        if bits is None or bits * kind.list_size != block.bits:
            raise _mismatch(f"{block.bits} bits per value", kind, where)
        flat = FixedWidth(block.values, bits, block.count * kind.list_size)
        items = to_array(flat, kind.value_type, None, 0, where)
        return pa.Array.from_buffers(kind, block.count, [validity], null_count, children=[items])
    if offset_bits(kind) is not None or pa.types.is_nested(kind) or pa.types.is_null(kind):
        if pa.types.is_null(kind) and block.bits == 0:
            return all_null(kind, block.count)
        raise _mismatch(f"{block.bits} bits per value", kind, where)
    if block.bits != kind.bit_width:
        if kind.bit_width == 1 and block.bits == 8:
            packed = pack_flags((items_of(block.values, np.uint8, block.count) & 1).view(np.bool_))
            return to_array(FixedWidth(packed, 1, block.count), kind, validity, null_count, where)
        raise _mismatch(f"{block.bits} bits per value", kind, where)
    return pa.Array.from_buffers(kind, block.count, [validity, block.values], null_count)


def _mismatch(found: str, kind: pa.DataType, where: Where) -> CorruptFileError:
    return CorruptFileError(
        "page values", expected=f"values of type {kind}", found=found, where=where
    )


def _from_variable(
    block: Variable, kind: pa.DataType, validity: pa.Buffer | None, null_count: int, where: Where
) -> pa.Array:
    bits = offset_bits(kind)
    if bits is None:
        raise _mismatch("variable-width values", kind, where)
    offsets = block.offsets
    if bits != block.offset_bits:
        wide = items_of(offsets, f"<i{block.offset_bits // 8}", block.count + 1)
        if bits == 32 and block.count and int(wide[-1]) > MAX_OFFSET:
            what = f"bytes of {kind}"
            raise CapacityError.of(int(wide[-1]), what, where=where, instead=f"large_{kind}")
        offsets = as_buffer(wide.astype(f"<i{bits // 8}"))
    return pa.Array.from_buffers(kind, block.count, [validity, offsets, block.data], null_count)


def _from_dictionary(
    block: Dictionary, kind: pa.DataType, validity: pa.Buffer | None, null_count: int, where: Where
) -> pa.Array:
    if pa.types.is_dictionary(kind):
        items = to_array(block.items, kind.value_type, None, 0, where)
        index = block.indices
        stored = pa.Array.from_buffers(
            _unsigned(index.bits), index.count, [validity, index.values], null_count
        )
        return _with_items(stored, items, kind, where)
    raise _mismatch("a dictionary", kind, where)


def _dictionary_encoded(array: Any, kind: Any, where: Where) -> pa.Array:
    """Encode the plain values of a page for a dictionary column."""
    from glaive.arrow.chunked import dictionary_encoded

    encoded = dictionary_encoded(array)
    try:
        return _with_items(encoded.indices, encoded.dictionary, kind, where)
    except CorruptFileError:
        raise CapacityError(
            f"{len(encoded.dictionary)} distinct values of {kind} in one array (in {where}). Read "
            "or take fewer rows at a time, or cast the column to a wider index type."
        ) from None


def _with_items(indices: Any, items: Any, kind: Any, where: Where) -> pa.Array:
    try:
        # With the same width and so few items, each index keeps its sign: a view will do.
        index_type = kind.index_type
        same_width = indices.type.bit_width == index_type.bit_width
        fits = len(items) <= 1 << index_type.bit_width - 1
        numbers = indices.view(index_type) if same_width and fits else indices.cast(index_type)
    except pa.ArrowInvalid:
        raise _mismatch(f"indices of {len(items)} items", kind, where) from None
    # Unsafe: every index of a block is in range.
    return pa.DictionaryArray.from_arrays(numbers, items, ordered=kind.ordered, safe=False)


def _from_members(
    block: Struct, kind: pa.DataType, validity: pa.Buffer | None, null_count: int, where: Where
) -> pa.Array:
    if not pa.types.is_struct(kind) or kind.num_fields != len(block.members):
        raise _mismatch(f"structs of {len(block.members)} members", kind, where)
    members = [
        to_array(member, kind.field(at).type, None, 0, where)
        for at, member in enumerate(block.members)
    ]
    return pa.Array.from_buffers(kind, block.count, [validity], null_count, children=members)


def _unsigned(bits: int) -> pa.DataType:
    return {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[bits]


def _repeat(
    block: Constant, kind: pa.DataType, validity: pa.Buffer | None, null_count: int, where: Where
) -> pa.Array:

    value = block.value
    if isinstance(value, FixedWidth) and not value.bits:
        return to_array(FixedWidth(value.values, 0, block.count), kind, validity, null_count, where)
    if isinstance(value, FixedWidth):
        storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        if storage.id == pa.bool_().id and value.bits == 8:
            check_implied(block.count, 1, kind)
            bit = int(items_of(value.values, np.uint8, 1)[0]) & 1
            fill = np.full((block.count + 7) // 8, 0xFF if bit else 0, np.uint8)
            repeated: Block = FixedWidth(as_buffer(fill), 1, block.count)
            return to_array(repeated, kind, validity, null_count, where)
    if isinstance(value, FixedWidth) and value.bits in (8, 16, 32, 64):
        check_implied(block.count, value.bits, kind)
        word = items_of(value.values, f"<u{value.bits // 8}", 1)[0]
        filled = FixedWidth(as_buffer(np.full(block.count, word)), value.bits, block.count)
        return to_array(filled, kind, validity, null_count, where)
    check_implied(block.count, _value_bits(value), kind)
    repeated = take_block(value, np.zeros(block.count, np.int64))
    return to_array(repeated, kind, validity, null_count, where)


def _value_bits(value: Block) -> int:
    if isinstance(value, FixedWidth):
        return value.bits
    return 8 * value.data.size if isinstance(value, Variable) else 64


def validity_flags(array: pa.Array) -> Flags | None:
    """Return one flag per slot, ``None`` when all slots are valid."""
    if array.null_count == 0:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.zeros(len(array), np.bool_)
    return flags_of(bitmap, len(array), array.offset)


def block_from_array(array: Any) -> Block:
    """Return the values of a leaf array, null slots included as placeholders.

    Raises
    ------
    SchemaError
        The type is nested, or its dictionary indices are not integers.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return block_from_array(array.storage)
    count, offset = len(array), array.offset
    bits = offset_bits(kind)
    if bits is not None:
        _, offsets, data = array.buffers()
        width = bits // 8
        if offsets is None or count == 0:
            offsets = pa.py_buffer(bytes((count + 1) * width))
        else:
            offsets = offsets.slice(offset * width, (count + 1) * width)
        return Variable(offsets, bits, data if data is not None else pa.py_buffer(b""), count)
    if pa.types.is_dictionary(kind):
        items = block_from_array(array.dictionary)
        indices = block_from_array(array.indices)
        if not isinstance(indices, FixedWidth):
            raise SchemaError(f"dictionary keys of type {kind.index_type} are not integers")
        return Dictionary(indices, items, count)
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        items_array = array.values.slice(offset * size, count * size)
        return FixedList(block_from_array(items_array), size, _bitmap(items_array), count)
    if pa.types.is_struct(kind):
        return Struct(tuple(map(block_from_array, _members(array))), count)
    if pa.types.is_null(kind):
        return FixedWidth(pa.py_buffer(b""), 0, count)
    if pa.types.is_nested(kind):
        raise SchemaError(f"type {kind} is not a leaf type")
    values = array.buffers()[1]
    width_bits = int(kind.bit_width)
    if values is None or count == 0:
        return FixedWidth(pa.py_buffer(bytes((count * width_bits + 7) // 8)), width_bits, count)
    if width_bits == 1:
        if offset % 8:
            return FixedWidth(pack_flags(flags_of(values, count, offset)), 1, count)
        return FixedWidth(values.slice(offset // 8, (count + 7) // 8), 1, count)
    width = width_bits // 8
    return FixedWidth(values.slice(offset * width, count * width), width_bits, count)


def _members(array: Any) -> list[pa.Array]:
    """Return the members of packed structs; members of valid structs have to be valid."""
    for at, visible in enumerate(array.flatten()):
        nulls = visible.null_count - array.null_count
        if nulls:
            raise SchemaError(
                f"member {array.type.field(at).name!r} of packed structs: expected no nulls, found "
                f"{nulls}. Fill them, or remove 'packed' from the metadata of the column."
            )
    return [array.field(at) for at in range(array.type.num_fields)]


def _bitmap(array: pa.Array) -> pa.Buffer | None:
    flags = validity_flags(array)
    return None if flags is None else pack_flags(flags)


# --- Gather and join blocks of every kind -----------------------------------------------

_NUMPY_VALUES: Final = 64
_NUMPY_BYTES: Final = 16 * 1024
"""Maximum values, and bytes, that NumPy gathers: ``pyarrow.compute`` takes 40 ms to load."""


def take_block(block: Block, positions: Int64s) -> Block:
    """Return the values at ``positions``, in that order; repeats are allowed.

    Raises
    ------
    RowIndexError
        A position is negative, or ``block.count`` or more.
    """
    positions = np.ascontiguousarray(positions, np.int64)
    if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < block.count:
        raise RowIndexError(
            f"position {positions.min()} or {positions.max()} is outside of 0 ≤ position < "
            f"{block.count}, the number of values in the block"
        )
    return _take(block, positions)


def _take(block: Block, positions: Int64s) -> Block:
    count = len(positions)
    if isinstance(block, FixedWidth):
        return FixedWidth(_take_fixed(block, positions), block.bits, count)
    if isinstance(block, Variable):
        return _take_variable(block, positions)
    if isinstance(block, Dictionary):
        indices = FixedWidth(_take_fixed(block.indices, positions), block.indices.bits, count)
        return Dictionary(indices, block.items, count)
    if isinstance(block, FixedList):
        return _take_lists(block, positions)
    if isinstance(block, Struct):
        return Struct(tuple(_take(member, positions) for member in block.members), count)
    return Constant(block.value, count)


def _take_fixed(block: FixedWidth, positions: Int64s) -> pa.Buffer:
    if block.bits == 1:
        return take_bits(block.values, positions)
    if not block.bits:
        return block.values.slice(0, 0)
    rows = _rows(block)
    target = pa.allocate_buffer(len(positions) * block.bits // 8)
    # The positions are checked; "clip" spares numpy a copy of the result.
    rows.take(positions, out=items_of(target, rows.dtype, len(positions)), mode="clip")
    return target


def _rows(block: FixedWidth) -> NDArray[Any]:
    """Return one array item per value."""
    size = block.bits // 8
    dtype = np.dtype(f"<u{size}" if size in (1, 2, 4, 8) else f"V{size}")
    return items_of(block.values, dtype, block.count)


def _take_variable(block: Variable, positions: Int64s) -> Variable:
    bits = block.offset_bits
    ends = items_of(block.offsets, f"<i{bits // 8}", block.count + 1)
    if len(positions) <= _NUMPY_VALUES:
        starts = ends[positions].astype(np.int64)
        sizes = ends[positions + 1] - starts
        if int(sizes.sum()) <= _NUMPY_BYTES:
            offsets = np.zeros(len(positions) + 1, ends.dtype)
            sizes.cumsum(out=offsets[1:])
            data = items_of(block.data, np.uint8, block.data.size)[spread(starts, sizes)]
            return Variable(as_buffer(offsets), bits, as_buffer(data), len(positions))
    import pyarrow.compute as pc

    kind = pa.large_binary() if block.offset_bits == 64 else pa.binary()
    buffers = [None, block.offsets, block.data]
    array = pa.Array.from_buffers(kind, block.count, buffers, null_count=0)
    # Repeats may need more bytes than 32-bit offsets can count.
    repeats = bits == 32 and len(positions) > block.count
    if repeats and int(np.diff(ends)[positions].sum(dtype=np.int64)) > MAX_OFFSET:
        array, bits = array.cast(pa.large_binary()), 64
    taken = pc.take(array, number_array(positions), boundscheck=False)
    _, into, values = taken.buffers()
    if into is None:
        into = pa.py_buffer(bytes(bits // 8))
    return Variable(into, bits, pa.py_buffer(b"") if values is None else values, len(positions))


def _take_lists(block: FixedList, positions: Int64s) -> FixedList:
    count, dimension = len(positions), block.dimension
    items: Block
    if isinstance(block.items, FixedWidth):
        bits = block.items.bits
        items = FixedWidth(
            _take_rows(block.items.values, bits, block, positions), bits, count * dimension
        )
    else:
        items = _take(block.items, spread_equal(positions, dimension))
    validity = None if block.validity is None else _take_rows(block.validity, 1, block, positions)
    return FixedList(items, dimension, validity, count)


def _take_rows(data: pa.Buffer, bits: int, block: FixedList, positions: Int64s) -> pa.Buffer:
    """Return the items of lists, or their validity; a list that fills bytes is one value."""
    width = bits * block.dimension
    if width % 8:
        return take_bits(data, spread_equal(positions, block.dimension))
    return _take_fixed(FixedWidth(data, width, block.count), positions)


# --- One value in many rows, where nulls take zero bytes --------------------------------

_SHORT_VALUE_BYTES: Final = 32
"""Bytes of a value that nulls may have as well."""


def where_valid(constant: Constant, valid: Flags) -> Block:
    """Return a long text or binary value in the valid rows, an empty one in others.

    Short values, values of a fixed width, and valid values stay as they are.

    Raises
    ------
    CapacityError
        They take more than ``MAX_IMPLIED_BYTES``.
    """
    value = constant.value
    if not isinstance(value, Variable):
        return constant
    first, stop = as_array(value.offsets, f"<i{value.offset_bits // 8}")[:2].tolist()
    size, count = stop - first, int(np.count_nonzero(valid))
    if size <= _SHORT_VALUE_BYTES or count == len(valid):
        return constant
    if count > 1:
        check_implied(count, 8 * size, pa.binary())
    bits = 64 if size * count > MAX_OFFSET else value.offset_bits
    offsets: Any = np.zeros(len(valid) + 1, f"<i{bits // 8}")
    valid.cumsum(out=offsets[1:])
    offsets *= size
    data = np.tile(as_array(value.data)[first:stop], count)
    return Variable(as_buffer(offsets), bits, as_buffer(data), len(valid))


# --- Lists, large lists and maps over resolved offsets ----------------------------------


def list_array(
    kind: pa.DataType,
    slots: int,
    validity: pa.Buffer | None,
    null_count: int,
    offsets: pa.Buffer,
    items: pa.Array,
    where: Where,
) -> pa.Array:
    """Return a list, large list or map array that shares resolved offsets and items.

    Parameters
    ----------
    slots
        Lists, null ones included.
    validity
        A bit per list; ``None`` if all are valid.
    null_count
        How many are null.
    offsets
        ``slots + 1`` ascending numbers of the width that the type has.
    items
        The items of all lists, one list after the other.

    Raises
    ------
    CorruptFileError
        The last list ends after the items, in foreign memory.
    """
    width = 8 if pa.types.is_large_list(kind) else 4
    last = int.from_bytes(offsets.slice(slots * width, width).to_pybytes(), "little", signed=True)
    if not 0 <= last <= len(items):
        expected, found = f"{last} items", f"{len(items)}"
        raise CorruptFileError("items of lists", expected=expected, found=found, where=where)
    return pa.Array.from_buffers(kind, slots, [validity, offsets], null_count, children=[items])


# --- Decoding dictionary blocks: indices become the items they refer to -----------------


def expand(block: Dictionary) -> Block:
    """Replace every index by its item.

    Raises
    ------
    CapacityError
        Several values take more than ``MAX_IMPLIED_BYTES``: few bytes of a file may repeat a value.
    """
    items, indices = block.items, block.indices
    if isinstance(items, Variable) and items.count:
        strings = Strings(items.offsets, items.offset_bits, items.data)
        strings = expand_dictionary(indices.values, indices.bits, block.count, strings)
        return Variable(strings.offsets, strings.offset_bits, strings.data, block.count)
    positions = as_array(indices.values, f"<u{indices.bits // 8}")[: block.count].astype(np.int64)
    return take_block(items, positions)
