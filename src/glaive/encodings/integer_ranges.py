"""Conditions on numbers, times and floats as ranges of unsigned integers: their machine words.

=================== ====================================================================
values              ranges
=================== ====================================================================
unsigned            the same
signed, dates, …    one, which may wrap around from the largest word to 0
floats              one for positive and one for negative numbers, whose words descend
members of a set    one per run of consecutive words, or (negated) the gaps between the runs
=================== ====================================================================
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from glaive.arrow.conditions import Condition, InRange, IsOneOf, float_order
from glaive.kernels.match import IntegerRanges
from glaive.memory import items_of
from glaive.types import UInt64s

__all__ = ["integer_ranges"]

_WORDS = (8, 16, 32, 64)
_ONE = np.uint64(1)

_SET_RANGES: WeakKeyDictionary[IsOneOf, IntegerRanges] = WeakKeyDictionary()
"""Ranges of sets for as long as the condition lives; large sets take long to sort."""


def integer_ranges(condition: Condition, kind: pa.DataType) -> IntegerRanges | None:
    """The ranges of words of a type; None where words cannot express the condition.

    Those of a set are cached, because each window of a scan needs them.
    """
    types = pa.types
    if not isinstance(condition, InRange | IsOneOf):
        return None
    known = types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind)
    if not known or types.is_interval(kind):
        return None
    bits = int(kind.bit_width)
    if bits not in _WORDS:
        return None
    if isinstance(condition, IsOneOf):
        set_ranges = _SET_RANGES.get(condition)
        if set_ranges is None:
            set_ranges = _SET_RANGES[condition] = IntegerRanges.of(bits, *_of_set(condition))
        return set_ranges
    ranges = _of_range(condition, kind)
    lows = np.array([low for low, _ in ranges], np.uint64)
    spans = np.array([span for _, span in ranges], np.uint64)
    return IntegerRanges.of(bits, lows, spans)


def _of_range(condition: InRange, kind: pa.DataType) -> list[tuple[int, int]]:
    """Pairs of low and span, ascending by low."""
    bits = int(kind.bit_width)
    half = 1 << (bits - 1)
    signed = not pa.types.is_unsigned_integer(kind)
    low, high = (-half, half - 1) if signed else (0, 2 * half - 1)
    if condition.low is not None:
        low = _key(condition.low) + (not condition.low_included)
    if condition.high is not None:
        high = _key(condition.high) - (not condition.high_included)
    if low > high:
        return []
    if not pa.types.is_floating(kind):
        return [(low % (2 * half), high - low)]
    # Float number k < 0 in their order has the word half + (-1 - k).
    pairs = []
    if high >= 0:
        pairs.append((max(low, 0), high - max(low, 0)))
    if low < 0:
        top = min(high, -1)
        pairs.append((half - 1 - top, top - low))
    return pairs


def _key(value: Any) -> int:
    """A value as the integer that its type orders by."""
    array = pa.repeat(value, 1)
    bits = array.type.bit_width
    unsigned = pa.types.is_unsigned_integer(array.type)
    words = items_of(array.buffers()[1], f"<{'u' if unsigned else 'i'}{bits // 8}", 1)
    if pa.types.is_floating(array.type):
        words = float_order(words)
    return int(words[0])


def _of_set(condition: IsOneOf) -> tuple[UInt64s, UInt64s]:
    """Lows and spans of the runs of consecutive words, or of the gaps between them."""
    values: Any = condition.values
    empty = np.empty(0, np.uint64)
    if condition.negated and values.null_count:
        return empty, empty
    values = values.drop_null()
    bits = values.type.bit_width
    offset = values.offset * bits // 8
    words = np.sort(items_of(values.buffers()[1], f"<u{bits // 8}", len(values), offset))
    words = words.astype(np.uint64)
    words = words[np.diff(words, prepend=words[:1] - _ONE) != 0]
    top = np.uint64((1 << bits) - 1)
    if not len(words):
        return (np.zeros(1, np.uint64), np.full(1, top)) if condition.negated else (empty, empty)
    # Overflow does no harm: words ascend.
    ends = np.flatnonzero(np.diff(words) != 1)
    lows, highs = words[np.append(0, ends + 1)], words[np.append(ends, len(words) - 1)]
    if not condition.negated:
        return lows, highs - lows
    # Gaps: from 0 or the end of a run to the next run or the largest word.
    starts = np.concatenate([np.zeros(1, np.uint64), highs + _ONE])
    stops = np.append(lows - _ONE, top)
    kept = np.ones(len(starts), np.bool_)
    kept[0], kept[-1] = lows[0] > 0, highs[-1] < top
    return starts[kept], (stops - starts)[kept]
