"""Sequences of unsigned numbers in one block: positions, counts, indices, offsets, runs.

Format 2.3 stores them with the smallest block encoding; repeated numbers and numbers at equal
distances are described by the message alone and take no bytes.

Specification: "Number sequences" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, Constant, Dictionary, FixedWidth, Variable
from glaive.arrow.build import take_block
from glaive.config import MOST_IMPLIED
from glaive.encodings.protocol import ValueEncoding
from glaive.errors import CorruptFileError
from glaive.kernels.offsets import check_total, expand_dictionary, take_items
from glaive.kernels.strings import Strings
from glaive.types import MAX_OFFSET, Where, as_array

# --- Decoding dictionary blocks: indices become the items they refer to -----------------

_MAX_TAKEN: Final = 1024
"""Values of which a kernel looks up the items alone."""

_MAX_SINGLE_LOOKUPS: Final = 16
"""Values that are looked up one by one without kernels, as arrays would cost more."""

_ITEMS_PER_VALUE: Final = 4
"""Items per value up to which all items are prepared first, which makes each value cheaper."""


def expand(block: Dictionary) -> Block:
    """Replace every index by its item.

    Raises
    ------
    CapacityError
        Several values take more than ``MOST_IMPLIED``: few bytes of a file stand for any number.
    """
    items, indices = block.items, block.indices
    if isinstance(items, Variable) and items.count:
        strings = Strings(items.offsets, items.offset_bits, items.data)
        if block.count <= _MAX_TAKEN:
            taken = take_items(indices.values, indices.bits, block.count, strings)
            if taken is not None:
                return Variable(taken.offsets, taken.offset_bits, taken.data, block.count)
        if block.count <= _MAX_SINGLE_LOOKUPS:
            wanted = as_array(indices.values, f"<u{indices.bits // 8}")[: block.count]
            return _few_items(items, wanted.tolist())
        if items.count <= _ITEMS_PER_VALUE * block.count:
            strings = expand_dictionary(indices.values, indices.bits, block.count, strings)
            return Variable(strings.offsets, strings.offset_bits, strings.data, block.count)
    positions = as_array(indices.values, f"<u{indices.bits // 8}")[: block.count].astype(np.int64)
    if isinstance(items, Variable) and items.data.size * block.count > MOST_IMPLIED:
        ends = as_array(items.offsets, f"<i{items.offset_bits // 8}")
        check_total(int(np.diff(ends)[positions].sum(dtype=np.int64)), block.count)
    return take_block(items, positions)


def _few_items(items: Variable, wanted: list[int]) -> Variable:
    """A few items, without the arrays that many would need and without ``pyarrow.compute``."""
    width = items.offset_bits // 8
    data, end, ends = [], 0, [0]
    for index in wanted:
        bounds = items.offsets.slice(index * width, 2 * width).to_pybytes()
        first, last = (int.from_bytes(bounds[at : at + width], "little") for at in (0, width))
        data.append(items.data.slice(first, last - first).to_pybytes())
        end += last - first
        ends.append(end)
    width = 8 if end > MAX_OFFSET else width
    offsets = pa.py_buffer(b"".join([end.to_bytes(width, "little") for end in ends]))
    return Variable(offsets, 8 * width, pa.py_buffer(b"".join(data)), len(wanted))


Numbers = NDArray[np.unsignedinteger[Any]]

_ZERO = np.zeros(1, np.int64)
_ZERO.setflags(write=False)


def numbers_of(block: Block, bits: int, count: int, what: str, where: Where) -> Numbers:
    """Return the ``count`` numbers of ``bits`` bits that a block holds.

    Raises
    ------
    CorruptFileError
        The block holds something else; ``what`` names it in the message.
    """
    if isinstance(block, Dictionary):
        if isinstance(block.items, Constant):
            block = Constant(block.items.value, block.count)
        else:
            block = expand(block)
    dtype = np.dtype(f"<u{bits // 8}")
    if isinstance(block, Constant):
        value = block.value
        if isinstance(value, FixedWidth) and value.bits == bits and block.count == count:
            return np.full(count, as_array(value.values, dtype)[0])
    elif isinstance(block, FixedWidth) and block.bits == bits and block.count == count:
        return as_array(block.values, dtype)[:count]
    width = f"{block.bits} bits" if isinstance(block, FixedWidth) else type(block).__name__
    raise CorruptFileError(
        what,
        expected=f"{count} numbers of {bits} bits",
        found=f"{block.count} values of {width}",
        where=where,
    )


def read_numbers(
    encoding: ValueEncoding, data: pa.Buffer, count: int, bits: int, what: str, where: Where
) -> Numbers:
    """Read a sequence of ``count`` numbers of ``bits`` bits out of its one block.

    ``data`` is empty for an encoding without payload. The caller has bounded ``count``:
    encodings without payload hold as many numbers as requested. ``what`` names the sequence in
    errors.

    Raises
    ------
    CorruptFileError
        The block is damaged, or has another number or width of values.
    """
    if count == 0:
        return np.empty(0, f"<u{bits // 8}")
    sizes, counts = np.array([data.size], np.int64), np.array([count], np.int64)
    block = encoding.decode_blocks(data, _ZERO, sizes, counts, where)
    return numbers_of(block, bits, count, what, where)
