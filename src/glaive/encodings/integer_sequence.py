"""Sequences of unsigned numbers in one block: positions, counts, indices, offsets, runs.

Format 2.3 stores them with the smallest block encoding; repeated numbers and numbers at equal
distances are described by the message alone and take no bytes.

Specification: "Number sequences" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, Constant, Dictionary, FixedWidth
from glaive.encodings.dictionary_decode import expand
from glaive.encodings.protocol import ValueEncoding
from glaive.errors import CorruptFileError
from glaive.memory import as_array
from glaive.types import Where

__all__ = ["Numbers", "numbers_of", "read_numbers"]

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
