"""Loops that decode FSST text of many pages, each with symbols of its own.

Doors: ``glaive.kernels.fsst_pages``.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.fsst import decode
from glaive.kernels.loops.memory import load_i64, loop
from glaive.kernels.string_records import DecodeFsst, DecodeFsstPages

__all__ = ["decode_pages"]

TABLE_BYTES = 4096
LENGTHS_AT = 2048


@loop
def decode_pages(call: DecodeFsstPages) -> int:
    """Decode the chunks of page after page; see ``decode`` for ``state`` and the result.

    The chunks of page ``p`` end before chunk ``ends[p]``; its symbols and their lengths are
    the table number ``p`` of ``tables``.
    """
    for page in range(call.pages):
        table = call.tables + TABLE_BYTES * page
        status = decode(
            DecodeFsst(
                offsets=call.data,
                data=call.data,
                offset_starts=call.starts,
                bases=call.starts,
                floors=call.floors,
                limits=call.limits,
                counts=call.counts,
                chunks=load_i64(call.ends + 8 * page),
                width=call.width,
                symbols=table,
                sizes=table + LENGTHS_AT,
                marks=call.marks,
                most=call.most,
                out_width=call.out_width,
                out_offsets=call.out_offsets,
                out=call.out,
                room=call.room,
                state=call.state,
            )
        )
        if status != -1:
            return status
    return np.int64(-1)
