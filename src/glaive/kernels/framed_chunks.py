"""Mini-block chunks of bit-packed values in one pass: header, width, block, fill.

The chunks of pages without levels, as :func:`glaive.kernels.chunks.assemble_chunks` makes them of
inline blocks: values are read once, and packed ones written once.

Specification: "Chunks" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from glaive.kernels import _bitpack_checks as checks
from glaive.kernels._addresses import address
from glaive.kernels._bitpack_checks import BLOCK, BLOCK_BYTES_PER_BIT
from glaive.kernels._tier import use_compiled
from glaive.kernels.bitpack import pack_inline
from glaive.kernels.chunks import FILL, assemble_chunks
from glaive.kernels.native import bitpack as compiled
from glaive.memory import allocate, as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

__all__ = ["FramedChunks", "exercise", "frame_inline"]

_FRAME = 16
"""Bytes of a chunk besides the packed block: header, width and fill."""


class FramedChunks(NamedTuple):
    """Chunks of up to 1,024 values back to back, in one part or several, and the bytes of each."""

    data: tuple[pa.Buffer, ...]
    sizes: Int64s

    @classmethod
    def joined(cls, parts: Sequence[FramedChunks]) -> FramedChunks:
        """The chunks of all, without a copy of them."""
        data = tuple(buffer for part in parts for buffer in part.data)
        return cls(data, np.concatenate([part.sizes for part in parts]))

    @property
    def widths(self) -> Int64s:
        """Bits of the packed values of each chunk."""
        return (self.sizes - _FRAME) // BLOCK_BYTES_PER_BIT


def frame_inline(values: pa.Buffer, count: int, word_bits: int, value_width: int) -> FramedChunks:
    """Pack every 1,024 values into a chunk, with the bits that the largest of them needs.

    Parameters
    ----------
    values, count
        ``count`` values of ``word_bits`` bits: 8, 16, 32 or 64.
    word_bits
        Width of a value.
    value_width
        Bytes of a buffer's size in the header: 2 or 4.
    """
    checks.check_values(values, count, word_bits)
    if value_width not in (2, 4):
        raise ValueError(f"sizes of {value_width} bytes; 2 and 4 are possible")
    chunks = -(-count // BLOCK)
    if not use_compiled(count):
        packed, sizes = pack_inline(values, count, word_bits)
        parts = [(packed, sizes)]
        none = np.zeros(chunks, np.int64)
        data, sizes = assemble_chunks(none, [], parts, value_width=value_width)
        return FramedChunks((data,), sizes)
    sizes = np.empty(chunks, np.int64)
    target = allocate(chunks * (_FRAME + BLOCK * word_bits // 8))
    scratch = pa.allocate_buffer(BLOCK * 8)
    size = compiled.frame_inline(
        address(values), count, word_bits, value_width, FILL, address(target), address(sizes),
        address(scratch),
    )  # fmt: skip
    return FramedChunks((target.slice(0, size),), sizes)


def exercise() -> None:
    """Call every wrapper once with little data."""
    frame_inline(as_buffer(np.arange(1500, dtype="<u2")), 1500, 16, 2)
