"""Variable binary: bytes, and offsets into the file of the start and end of each value.

A page consists of its offsets, one more than values, 64 bits each and counted from the start
of the file. A value of no bytes is null in a nullable column, and empty in others.

Specification: "Variable binary" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Variable
from glaive.encodings.fetch import Fetch, and_then
from glaive.encodings.legacy.pages import Ends, Pages, Spans, adjacent
from glaive.errors import CorruptFileError
from glaive.kernels.full_zip import gather_ranges
from glaive.memory import as_buffer, items_of
from glaive.types import MAX_OFFSET, Int64s

__all__ = ["encode_var_binary", "offsets_of", "read_var_binary"]


def read_var_binary(pages: Pages, spans: Spans, offset_bits: int) -> Fetch[Variable] | Variable:
    """The values of spans as one block; offsets of 32 bits where requested and sufficient.

    The bytes are a view of the file where those of all spans are adjacent.

    Raises
    ------
    CorruptFileError
        A span leaves its page, or offsets descend or leave the file.
    """

    def fetch(ends: Ends) -> Fetch[Variable] | Variable:
        sizes = ends.lasts - ends.firsts

        def then(data: pa.Buffer, starts: Int64s) -> Variable:
            total = int(sizes.sum())
            if len(starts) and adjacent(starts, sizes):
                text = data.slice(int(starts[0]), total)
            else:
                text = gather_ranges(data, starts, sizes, pages.where)
            bits = offset_bits if total <= MAX_OFFSET else 64
            return Variable(offsets_of(ends.lengths, bits), bits, text, len(ends.lengths))

        _check_disjoint(pages, spans, sizes)
        return pages.data.fetch(ends.firsts, sizes, then, pages.where)

    return and_then(pages.ends(spans), fetch)


def _check_disjoint(pages: Pages, spans: Spans, sizes: Int64s) -> None:
    """Limit what is copied: different values do not share bytes."""
    size = pages.data.size
    if int(sizes.sum(dtype=np.float64)) <= size:
        return
    if int(sizes[pages.once(spans)].sum(dtype=np.float64)) > size:
        expected = f"values of {size} bytes at most in all"
        raise CorruptFileError("offsets", expected=expected, found="more", where=pages.where)


def offsets_of(lengths: NDArray[np.signedinteger], bits: int) -> pa.Buffer:
    """Arrow offsets from 0 on for values of these lengths."""
    offsets = pa.allocate_buffer((len(lengths) + 1) * bits // 8)
    ends = items_of(offsets, f"<i{bits // 8}", len(lengths) + 1)
    ends[0] = 0
    np.cumsum(lengths, out=ends[1:])
    return offsets


def encode_var_binary(block: Variable, start: int) -> tuple[pa.Buffer, pa.Buffer]:
    """Bytes of all values, to be written at ``start`` in the file, and their offsets.

    Adjacent pages share an offset: the last of one is the first of the next.
    """
    ends = items_of(block.offsets, f"<i{block.offset_bits // 8}", block.count + 1)
    first, last = int(ends[0]), int(ends[-1])
    offsets = ends.astype(np.int64)
    offsets += start - first
    return block.data.slice(first, last - first), as_buffer(offsets)
