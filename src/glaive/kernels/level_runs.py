"""Runs of definition levels straight into a validity bitmap.

A column that is rarely null has long runs: a few bytes say what a bitmap says, and expanding
them to levels first would cost more than everything else.

Specification: "Run-length encoding" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels._addresses import address, allocate_with_slack
from glaive.kernels._tier import use_loops
from glaive.kernels.native import level_runs as loops
from glaive.kernels.runs import MAX_RUN, expand_runs
from glaive.memory import as_array, as_buffer

__all__ = ["exercise", "unpack_run_bits"]

LEVEL_BITS = 16

Int64s = NDArray[np.int64]


def unpack_run_bits(
    data: pa.Buffer,
    values: Int64s,
    lengths: Int64s,
    runs: Int64s,
    counts: Int64s,
    where: object,
) -> tuple[pa.Buffer, int] | None:
    """Turn runs of 16-bit levels that are 0 (valid) or 1 (null) into an Arrow bitmap.

    Parameters as for :func:`glaive.kernels.runs.expand_runs`.

    Returns
    -------
    tuple or None
        The bitmap over all chunks, bit set = valid, and the number of nulls. None when
        there are levels above 1: read the levels then.

    Raises
    ------
    CorruptFileError
        Runs lie outside ``data``, or lengths do not add up.
    """
    total = int(counts.sum())
    values, lengths = np.ascontiguousarray(values), np.ascontiguousarray(lengths)
    runs, counts = np.ascontiguousarray(runs), np.ascontiguousarray(counts, np.int64)
    if _within(data, values, lengths, runs, counts) and use_loops(total):
        # The loop stores whole words, up to 16 bytes from the word of the last bit on.
        target = allocate_with_slack((total + 7) // 8, slack=24)
        nulls = np.zeros(1, np.int64)
        bad = loops.validity_of_runs(
            address(data),
            address(values),
            address(lengths),
            address(runs),
            address(counts),
            len(counts),
            address(target),
            address(nulls),
        )
        if bad < 0:
            return None if nulls[0] < 0 else (target, int(nulls[0]))
    # Also says what is wrong with runs that do not add up.
    words = expand_runs(data, values, lengths, runs, counts, LEVEL_BITS, where)
    levels = as_array(words, "<u2")
    if levels.size and levels.max() > 1:
        return None
    return as_buffer(np.packbits(levels == 0, bitorder="little")), int(np.count_nonzero(levels))


def _within(data: pa.Buffer, values: Int64s, lengths: Int64s, runs: Int64s, counts: Int64s) -> bool:
    good = len(values) == len(lengths) == len(runs) == len(counts) > 0
    return good and bool(
        (
            (values >= 0)
            & (lengths >= 0)
            & (runs >= 0)
            & (counts >= 0)
            & (counts <= runs * MAX_RUN)
            & (runs <= data.size - lengths)
            & (runs <= (data.size - values) // 2)
        ).all()
    )


def exercise() -> None:
    """Call every wrapper once; used to warm up the compiled loops."""
    data = pa.py_buffer(np.array([0, 1], "<u2").tobytes() + bytes([200, 3]))
    zero = np.zeros(1, np.int64)
    unpack_run_bits(data, zero, zero + 4, zero + 2, zero + 203, "warm-up")
