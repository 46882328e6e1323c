"""Kernels that decode FSST text of many pages, each with symbols of its own.

Wrappers: ``glaive.kernels.fsst_pages``.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.fsst import decode
from glaive.kernels.loops.memory import kernel_of, load_i64
from glaive.kernels.string_records import DecodeFsstPages

__all__ = ["decode_pages"]

TABLE_BYTES = 4096
LENGTHS_AT = 2048


@kernel_of(DecodeFsstPages)
def decode_pages(
    offsets: int, data: int, offset_starts: int, bases: int, floors: int, limits: int, counts: int,
    ends: int, pages: int, tables: int, width: int, packed: int, checkpoints: int, max_stream: int,
    out_width: int, out_offsets: int, out: int, capacity: int, state: int,
) -> int:  # fmt: skip
    """Decode the chunks of page after page; see ``decode`` for ``state`` and the result.

    The chunks of page ``p`` end before chunk ``ends[p]``; its symbols and their lengths are
    the table number ``p`` of ``tables``.
    """
    for page in range(pages):
        table = tables + TABLE_BYTES * page
        status = decode(
            offsets=offsets, data=data, offset_starts=offset_starts, bases=bases, floors=floors,
            limits=limits, counts=counts, chunks=load_i64(ends + 8 * page), width=width,
            symbols=table, sizes=table + LENGTHS_AT, packed=packed, checkpoints=checkpoints,
            max_stream=max_stream, out_width=out_width, out_offsets=out_offsets, out=out,
            capacity=capacity, state=state,
        )  # fmt: skip
        if status != -1:
            return status
    return np.int64(-1)
