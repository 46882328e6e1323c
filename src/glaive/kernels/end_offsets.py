"""Decode the end offsets of lists and strings of format 2.0 to offsets and validity; encode them.

For every value its end is stored; it starts at the end of the value before. For a null, the
*adjustment*, which is larger than any end, is added to the end of the value before it.

Specification: "Ends" in ``docs/format/arrays.md``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.errors import CapacityError, CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import end_offsets as compiled
from glaive.memory import allocate, as_array, as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import MAX_OFFSET, Flags, Int64s, UInt64s, Where

__all__ = [
    "NullableOffsets",
    "Spans",
    "decode_end_offsets",
    "encode_end_offsets",
    "exercise",
    "pair_end_offsets",
]

_MAX_ADJUSTMENT: Final = 2**62


class NullableOffsets(NamedTuple):
    """Offsets of ``bits`` bits that count from ``start``, and the validity of the values.

    The values span ``start`` to ``stop``; ``offsets`` has one entry more than there are values,
    from 0 to ``stop - start``.
    """

    offsets: pa.Buffer
    bits: int
    validity: pa.Buffer | None
    null_count: int
    start: int
    stop: int


class Spans(NamedTuple):
    """Start and size of single values, and which of them are valid (None: all)."""

    starts: Int64s
    sizes: Int64s
    valid: Flags | None


def decode_end_offsets(
    stored: UInt64s, skip: int, adjustment: int, bits: int, where: Where
) -> NullableOffsets:
    """Turn stored ends into offsets and validity.

    Parameters
    ----------
    stored
        ``uint64``: end offsets of consecutive values.
    skip
        1 if the first one belongs to the value before them, 0 if the first value starts at 0.
    adjustment
        The number added to the end of null values; larger than any end.
    bits
        Width of the resulting offsets: 32 or 64.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        An end is not below the adjustment, or below the end before it.
    CapacityError
        The values span more than 32-bit offsets can represent.
    """
    _check_adjustment(adjustment, where)
    count = len(stored) - skip
    if count <= 0:
        return NullableOffsets(pa.py_buffer(bytes(bits // 8)), bits, None, 0, 0, 0)
    limit = np.uint64(adjustment)
    start = int(stored[0] % limit) if skip else 0
    stop = int(stored[-1] % limit)
    if not 0 <= stop - start <= (MAX_OFFSET if bits == 32 else _MAX_ADJUSTMENT):
        if stop < start:
            raise _corrupt(adjustment, where)
        unit, instead = "items or bytes", "one of a large type"
        raise CapacityError.of(stop - start, unit, where=where, instead=instead)
    offsets = allocate((count + 1) * (bits // 8))
    validity = allocate((count + 7) // 8)
    if use_compiled(count):
        nulls = compiled.resolve(
            address(stored[skip:]), count, start, adjustment, bits // 8,
            address(offsets), address(validity),
        )  # fmt: skip
    else:
        nulls = _resolve_numpy(stored[skip:], start, limit, bits, offsets, validity)
    if nulls < 0:
        raise _corrupt(adjustment, where)
    return NullableOffsets(offsets, bits, validity if nulls else None, nulls, start, stop)


def _resolve_numpy(
    stored: UInt64s,
    start: int,
    limit: np.uint64,
    bits: int,
    offsets: pa.Buffer,
    validity: pa.Buffer,
) -> int:
    null = stored >= limit
    ends = (stored - limit * null).astype(np.int64)
    if (ends >= np.int64(limit)).any() or int(ends[0]) < start or (ends[1:] < ends[:-1]).any():
        return -1
    into = as_array(offsets, np.int32 if bits == 32 else np.int64)
    into[0] = 0
    into[1:] = ends - start
    as_array(validity)[:] = np.packbits(~null, bitorder="little")
    return int(null.sum())


def pair_end_offsets(
    before: UInt64s, stored: UInt64s, follows: Flags, adjustment: int, where: Where
) -> Spans:
    """Turn the stored ends of single values, and of the values before them, into spans.

    Parameters
    ----------
    before, stored
        ``uint64`` of shape ``(values,)``: ends of the preceding values, and of the values.
    follows
        ``bool`` of shape ``(values,)``: false for values that have none before them and start
        at 0.
    adjustment, where
        As for :func:`decode_end_offsets`.

    Raises
    ------
    CorruptFileError
        An end is not below the adjustment, or below the end before it.
    """
    _check_adjustment(adjustment, where)
    limit = np.uint64(adjustment)
    null = stored >= limit
    ends = stored - limit * null
    starts = np.where(follows, before - limit * (before >= limit), np.uint64(0))
    if (ends >= limit).any() or (starts > ends).any():
        raise _corrupt(adjustment, where)
    valid = ~null if null.any() else None
    return Spans(starts.astype(np.int64), (ends - starts).astype(np.int64), valid)


def encode_end_offsets(ends: NullableOffsets) -> tuple[pa.Buffer, int]:
    """Turn offsets and validity into stored ends, as ``uint64``, and the adjustment.

    Null values must be empty.
    """
    dtype: Any = np.int32 if ends.bits == 32 else np.int64
    offsets = as_array(ends.offsets, dtype)
    stored = as_array(allocate((len(offsets) - 1) * 8), np.uint64)
    np.subtract(offsets[1:], offsets[0], out=stored.view(np.int64), dtype=np.int64)
    adjustment = ends.stop - ends.start + 1
    if ends.validity is not None:
        flags = np.unpackbits(as_array(ends.validity), count=len(stored), bitorder="little")
        stored[flags == 0] += np.uint64(adjustment)
    return as_buffer(stored), adjustment


def _check_adjustment(adjustment: int, where: Where) -> None:
    if not 0 < adjustment <= _MAX_ADJUSTMENT:
        raise CorruptFileError(
            "null adjustment", expected="one more than the last end", found=f"{adjustment}",
            where=where,
        )  # fmt: skip


def _corrupt(adjustment: int, where: Where) -> CorruptFileError:
    return CorruptFileError(
        "ends of values",
        expected=f"ascending ends below {adjustment}",
        found="an end out of order or too large",
        where=where,
    )


def exercise() -> None:
    """Call every wrapper once with little data."""
    stored = np.array([1, 4, 1], np.uint64)
    for bits in (32, 64):
        decode_end_offsets(stored, 0, 3, bits, Where("warm-up"))
